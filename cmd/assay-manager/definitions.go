package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/definition"
)

const (
	// definitionsManager is the field manager of definitions: that of Helm 4, which applies them at an installation without force, and so
	// would report a conflict with another manager.
	definitionsManager = "helm"
	// establishedTimeout is the maximum time until the API server serves a definition that was applied. It takes less than a second.
	establishedTimeout = 30 * time.Second
	// establishedInterval is the interval between reads of it.
	establishedInterval = 100 * time.Millisecond
)

func newApplyDefinitions() *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "apply-definitions",
		Short: "Apply the CustomResourceDefinitions of this version; used by the chart before an installation or upgrade",
		Long: "Apply the CustomResourceDefinitions of this version server-side, with force: those of an older version, of Node Feature Discovery or of\n" +
			"another program are replaced, and no object is deleted. A definition of a newer version of Assay stays as it is.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := restConfig(kubeconfig)
			if err != nil {
				return err
			}
			c, err := client.New(config, client.Options{})
			if err != nil {
				return err
			}
			return applyDefinitions(ctrl.SetupSignalHandler(), c, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")
	return cmd
}

// applyDefinitions applies all definitions, and waits until the API server serves them.
func applyDefinitions(ctx context.Context, c client.Client, out io.Writer) error {
	files := charts.CRDs()
	for _, file := range charts.CRDNames() {
		own := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(files[file], &own.Object); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		done, err := applyDefinition(ctx, c, own)
		if err != nil {
			return fmt.Errorf("CustomResourceDefinition %s: %w", own.GetName(), err)
		}
		if _, err := fmt.Fprintf(out, "CustomResourceDefinition %s: %s\n", own.GetName(), done); err != nil {
			return err
		}
	}
	return nil
}

// applyDefinition applies a definition, unless the one of the cluster is of a newer version, and returns what it did.
func applyDefinition(ctx context.Context, c client.Client, own *unstructured.Unstructured) (string, error) {
	served := &unstructured.Unstructured{}
	served.SetGroupVersionKind(definition.Kind)
	err := c.Get(ctx, client.ObjectKeyFromObject(own), served)
	done := "applied"
	switch {
	case apierrors.IsNotFound(err):
		done = "created"
	case err != nil:
		return "", err
	case served.GetDeletionTimestamp() != nil:
		return "", errors.New("it is being deleted with all its objects; when it is gone, run the same command again")
	default:
		if version, newer, err := newerDefinition(served); newer || err != nil {
			return fmt.Sprintf("left as it is: its version %d is newer than %d, that of this program", version, assayv1alpha1.DefinitionVersion), err
		}
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(own), client.FieldOwner(definitionsManager), client.ForceOwnership); err != nil {
		return "", err
	}
	return done, established(ctx, c, own)
}

// newerDefinition returns the version of a definition, and whether it is one of a newer version of Assay. The annotation alone does not show
// that: a program that applies NFD's definition server-side leaves it.
func newerDefinition(served *unstructured.Unstructured) (version int, newer bool, err error) {
	version, err = strconv.Atoi(served.GetAnnotations()[assayv1alpha1.DefinitionVersionAnnotation])
	if err != nil || version <= assayv1alpha1.DefinitionVersion {
		return 0, false, nil //nolint:nilerr // without a version it is of another program
	}
	status, err := definition.Of(served)
	return version, status.State == definition.Whole, err
}

// established waits until the API server serves a definition: Helm creates objects of its kind next.
func established(ctx context.Context, c client.Client, own *unstructured.Unstructured) error {
	served := &unstructured.Unstructured{}
	served.SetGroupVersionKind(definition.Kind)
	err := wait.PollUntilContextTimeout(ctx, establishedInterval, establishedTimeout, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(own), served); err != nil {
			return false, err
		}
		// The conditions of a new definition are null, which NestedSlice reports as an error.
		status, _, err := unstructured.NestedFieldNoCopy(served.Object, "status", "conditions")
		conditions, _ := status.([]any)
		for _, entry := range conditions {
			if condition, _ := entry.(map[string]any); condition["type"] == "Established" && condition["status"] == "True" {
				return true, nil
			}
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("the API server does not serve it: %w", err)
	}
	return nil
}

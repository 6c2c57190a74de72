//go:build linux

package script_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/testkit"
)

// TestClusterStoriesWithFeatureSets runs the commands that read features against a cluster whose workers share them.
func TestClusterStoriesWithFeatureSets(t *testing.T) {
	c := testkit.Cluster(t)
	client := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, client)
	testkit.Create(t, client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: assayv1alpha1.FeatureSetMarker, Annotations: map[string]string{assayv1alpha1.FeatureSetFormatAnnotation: featureset.Version},
	}})
	config, err := publish.FromKubeconfig(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	api, err := publish.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	for name, kvm := range map[string]string{"s1": "y", "s2": "y", "s3": "n"} {
		node := testkit.Node(t, client, name)
		options := map[string]string{"KVM": kvm, "CMDLINE": strings.Repeat("quiet ", 300)} // large enough to be shared
		p := publish.New(api, publish.Options{Namespace: namespace, Share: true, Identify: func(context.Context) (publish.Identity, error) {
			return publish.Identity{Node: name, NodeUID: string(node.UID)}, nil
		}})
		if _, err := p.Publish(t.Context(), publish.Content{Features: nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
			"kernel.config": {Elements: options},
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	// The set of this node is missing.
	testkit.Node(t, client, "s4")
	testkit.Create(t, client, &nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Name: "s4", Namespace: namespace, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "s4"}},
		Spec:       nfdv1alpha1.NodeFeatureSpec{FeatureSets: []string{"kernel-config-v1-0123456789012345678901234567890123456789"}},
	})
	testkit.Create(t, client, &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: "kvm"},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
			Name:   "kvm",
			Labels: map[string]string{"example.com/kvm": "true"},
			MatchFeatures: nfdv1alpha1.FeatureMatcher{{
				Feature:          "kernel.config",
				MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"KVM": {Op: nfdv1alpha1.MatchIn, Value: nfdv1alpha1.MatchValue{"y"}}},
			}},
		}}},
	})
	bin := filepath.Dir(testkit.Program(t, "assay"))
	testscript.Run(t, testscript.Params{
		Dir: "shared", RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("KUBECONFIG", c.Kubeconfig)
			e.Setenv("NS", namespace)
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			return nil
		},
	})
}

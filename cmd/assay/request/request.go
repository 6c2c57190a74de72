// Package request is the verb request: it prints what pods need for a NodeFeatureRequest.
package request

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/requirements"
)

// NewCommand returns assay request.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "request",
		Short: "Print the node selector for a NodeFeatureRequest",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRequestSelector())
	return cmd
}

func newRequestSelector() *cobra.Command {
	f := &cluster.Flags{}
	var output string
	cmd := &cobra.Command{
		Use:   "selector NAME",
		Short: "Print the node selector for pods of a NodeFeatureRequest",
		Long: `Print the node selector for pods of a NodeFeatureRequest, to paste into the spec of a pod template. It needs neither admission nor the
extender.

With -o patch it prints a merge patch for a workload with a pod template, such as a Deployment.

Exit code 1 if nodes get no label for the request. It prints a note if they do not have the label yet.`,
		Example: `  assay request selector amx -n ml
  kubectl patch deployment train -n ml --type merge -p "$(assay request selector amx -n ml -o patch)"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name, ok := strings.Cut(args[0], "/")
			if !ok {
				namespace, name = f.Namespace(), args[0]
			}
			return printSelector(cmd, f, namespace, name, output)
		},
		ValidArgsFunction: completeRequests(f),
	}
	f.Register(cmd.Flags())
	printer.OutputFlag(cmd, &output, "text", "patch", "json", "yaml")
	return cmd
}

// completeRequests completes with the names of the requests in the namespace.
func completeRequests(f *cluster.Flags) cli.Completion {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return cli.FromCluster(f, func(ctx context.Context, c *cluster.Client) (names []string, err error) {
			list, err := c.Requests(ctx)
			for i := range list {
				if list[i].Namespace == f.Namespace() {
					names = append(names, list[i].Name)
				}
			}
			return names, err
		})
	}
}

func printSelector(cmd *cobra.Command, f *cluster.Flags, namespace, name, output string) error {
	c, err := f.Connect()
	if err != nil {
		return err
	}
	request, err := c.Request(cmd.Context(), namespace, name)
	if cluster.IsNotFound(err) && !cluster.IsAbsentKind(err) {
		return cli.NotFound(assayv1alpha1.GroupVersion.WithResource("nodefeaturerequests").GroupResource(), name, cli.Elsewhere(namespace))
	}
	if err != nil {
		return err
	}
	label := requirements.LabelOf(namespace, name)
	if label == requirements.ImpossibleLabel {
		return cli.Found(fmt.Errorf("NodeFeatureRequest %s/%s: nodes get no label: %s", namespace, name, requirements.NameTooLong(namespace, name)))
	}
	if why := requirements.WithoutLabel(request); why != "" {
		return cli.Found(fmt.Errorf("NodeFeatureRequest %s/%s: nodes get no label: %s; its pods need the extender, see docs/scheduling.md", namespace, name, why))
	}
	if why := serving.NotYet(request); why != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", clip.Printable("nodes do not have the label yet: "+why))
	}
	selector := map[string]any{"nodeSelector": map[string]string{label: "true"}}
	w := cmd.OutOrStdout()
	switch output {
	case "text":
		fmt.Fprintf(w, "nodeSelector:\n  %s: \"true\"\n", label)
		return nil
	case "patch":
		data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": selector}}})
		fmt.Fprintf(w, "%s\n", data)
		return err
	}
	return printer.Object(w, output, selector)
}

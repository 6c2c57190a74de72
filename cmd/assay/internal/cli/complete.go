package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
)

// completionTimeout is the maximum time that completion takes.
const completionTimeout = 2 * time.Second

// Completion is a function that completes arguments, as cobra calls it.
type Completion = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// CompleteNames completes the first argument with the names of objects in the cluster.
func CompleteNames(f *cluster.Flags, resource string) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return FromCluster(f, func(ctx context.Context, c *cluster.Client) ([]string, error) { return c.Names(ctx, resource) })
	}
}

// CompleteNodeFlag completes the flag --node of a command with the names of Nodes.
func CompleteNodeFlag(cmd *cobra.Command, f *cluster.Flags) {
	nodes := CompleteNames(f, "nodes")
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return nodes(cmd, nil, word)
	}) // fails only without the flag
}

// CompleteFeatures completes with the names of features in the cluster.
func CompleteFeatures(f *cluster.Flags) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return FromCluster(f, func(ctx context.Context, c *cluster.Client) ([]string, error) {
			var names []string
			list, err := c.SampleFeatures(ctx, cmp.Or(f.AssayNamespace, cluster.DefaultNamespace))
			for i := range list {
				names = append(names, list[i].Spec.Features.Names()...)
			}
			slices.Sort(names)
			return slices.Compact(names), err
		})
	}
}

// CompleteKeys completes the second argument of explain with the labels of the node.
func CompleteKeys(f *cluster.Flags) Completion {
	nodes := CompleteNames(f, "nodes")
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nodes(cmd, args, word)
		}
		return FromCluster(f, func(ctx context.Context, c *cluster.Client) ([]string, error) {
			node, err := c.Node(ctx, args[0])
			if err != nil {
				return nil, err
			}
			return append(facts.SortedKeys(node.Labels), facts.SortedKeys(node.Annotations)...), nil
		})
	}
}

// CompleteColumns completes the last name of a list of columns with features and elements.
func CompleteColumns(_ *cobra.Command, _ []string, word string) (out []string, _ cobra.ShellCompDirective) {
	before := word[:strings.LastIndexByte(word, ',')+1]
	for _, name := range dictionary.Names() {
		out = append(out, before+name)
		for _, element := range dictionary.Find(name).ElementNames() {
			out = append(out, before+name+"."+element)
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return !strings.HasPrefix(s, word) }), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// FromCluster reads completions from the cluster. It returns no completions on an error, because a shell cannot show messages.
func FromCluster(f *cluster.Flags, ask func(context.Context, *cluster.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	c, err := f.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := ask(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteYAML completes with YAML files and directories.
func CompleteYAML(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

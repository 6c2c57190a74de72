package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/rules/facts"
)

// completionTimeout is the maximum time that completion takes.
const completionTimeout = 2 * time.Second

type completion = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// completeNames completes the first argument with the names of objects in the cluster.
func completeNames(f *cluster.Flags, resource string) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return fromCluster(f, func(ctx context.Context, c *cluster.Client) ([]string, error) { return c.Names(ctx, resource) })
	}
}

// completeNodeFlag completes the flag --node of a command with the names of Nodes.
func completeNodeFlag(cmd *cobra.Command, f *cluster.Flags) {
	nodes := completeNames(f, "nodes")
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return nodes(cmd, nil, word)
	}) // fails only without the flag
}

// completePods completes with the names of pods, and of other workloads after their kind: "deployment NAME" and "deployment/NAME". Without
// alone, a name may follow a kind.
func completePods(f *cluster.Flags, alone bool) completion {
	return func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		of, before := &workloads[0], ""
		kind, _, slash := strings.Cut(word, "/")
		switch {
		case len(args) == 1 && !alone:
			of = workloadNamed(args[0])
		case len(args) > 0:
			of = nil
		case slash && !alone:
			of, before = workloadNamed(kind), kind+"/"
		}
		if of == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return fromCluster(f, func(ctx context.Context, c *cluster.Client) ([]string, error) {
			names, err := c.NamesIn(ctx, of.of, f.Namespace())
			for i := range names {
				names[i] = before + names[i]
			}
			return names, err
		})
	}
}

// completeFeatures completes with the names of features in the cluster.
func completeFeatures(f *cluster.Flags) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return fromCluster(f, func(ctx context.Context, c *cluster.Client) ([]string, error) {
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

// completeKeys completes the second argument of explain with the labels of the node.
func completeKeys(f *cluster.Flags) completion {
	nodes := completeNames(f, "nodes")
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nodes(cmd, args, word)
		}
		return fromCluster(f, func(ctx context.Context, c *cluster.Client) ([]string, error) {
			node, err := c.Node(ctx, args[0])
			if err != nil {
				return nil, err
			}
			return append(facts.SortedKeys(node.Labels), facts.SortedKeys(node.Annotations)...), nil
		})
	}
}

// completeColumns completes the last name of a list of columns with features and elements.
func completeColumns(_ *cobra.Command, _ []string, word string) (out []string, _ cobra.ShellCompDirective) {
	before := word[:strings.LastIndexByte(word, ',')+1]
	for _, name := range dictionary.Names() {
		out = append(out, before+name)
		for _, element := range dictionary.Find(name).ElementNames() {
			out = append(out, before+name+"."+element)
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return !strings.HasPrefix(s, word) }), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// fromCluster reads completions from the cluster. It returns no completions on an error, because a shell cannot show messages.
func fromCluster(f *cluster.Flags, ask func(context.Context, *cluster.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
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

// completeYAML completes with YAML files and directories.
func completeYAML(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

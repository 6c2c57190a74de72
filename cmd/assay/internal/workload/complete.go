package workload

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
)

// CompletePods completes with the names of pods, and of other workloads after their kind: "deployment NAME" and "deployment/NAME". Without
// alone, a name may follow a kind.
func CompletePods(f *cluster.Flags, alone bool) cli.Completion {
	return func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		of, before := &Kinds[0], ""
		kind, _, slash := strings.Cut(word, "/")
		switch {
		case len(args) == 1 && !alone:
			of = Named(args[0])
		case len(args) > 0:
			of = nil
		case slash && !alone:
			of, before = Named(kind), kind+"/"
		}
		if of == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return cli.FromCluster(f, func(ctx context.Context, c *cluster.Client) ([]string, error) {
			names, err := c.NamesIn(ctx, of.Resource, f.Namespace())
			for i := range names {
				names[i] = before + names[i]
			}
			return names, err
		})
	}
}

package template

import (
	"context"

	"github.com/spf13/cobra"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
)

// NewCommand returns the template commands with access to the cluster's templates and to the compiler.
func NewCommand() *cobra.Command {
	f := &cluster.Flags{}
	cmd := NewCommandWith(Deps{
		Template: func(ctx context.Context, name string) (*assayv1alpha1.NodeFeatureRuleTemplate, error) {
			c, err := f.Connect()
			if err != nil {
				return nil, err
			}
			return c.Template(ctx, name)
		},
	})
	f.Register(cmd.PersistentFlags())
	return cmd
}

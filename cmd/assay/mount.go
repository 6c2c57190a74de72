package main

import (
	"context"

	"github.com/spf13/cobra"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/cmd/assay/template"
	"github.com/assay-project/assay/rules/review"
)

// newTemplate returns the template commands with access to the cluster's templates and to the compiler.
func newTemplate() *cobra.Command {
	f := &cluster.Flags{}
	cmd := template.NewCommand(template.Deps{
		Template: func(ctx context.Context, name string) (*assayv1alpha1.NodeFeatureRuleTemplate, error) {
			c, err := f.Connect()
			if err != nil {
				return nil, err
			}
			return c.Template(ctx, name)
		},
		Check: checkAssembled,
	})
	f.Register(cmd.PersistentFlags())
	return cmd
}

// checkAssembled returns the problems of an assembled rule.
func checkAssembled(object *nfdv1alpha1.NodeFeatureRule) []template.Problem {
	found := review.Review(object, review.Known{})
	var out []template.Problem
	for _, e := range found.Errors {
		out = append(out, template.Problem{Path: e.Field, Message: e.ErrorBody()})
	}
	for _, w := range found.Warnings {
		out = append(out, template.Problem{Path: w.Path, Message: w.Message, Warning: true})
	}
	return out
}

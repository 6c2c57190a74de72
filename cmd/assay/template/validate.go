package template

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/yamltree"
)

func newValidate(deps Deps) *cobra.Command {
	var l layers
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Assemble rules and check the result as the cluster would",
		Example: `  assay template validate gpu-pool.yaml storage-pool.yaml
  assay template validate --fill --default-template site.yaml gpu-pool.yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			failed := 0
			for _, arg := range args {
				each := l
				if !validate(cmd, deps, &each, arg) {
					failed++
				}
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d documents are not valid", failed, len(args))
			}
			return nil
		},
	}
	l.addFlags(cmd)
	return cmd
}

// validate prints the problems of one document and reports whether it is valid.
func validate(cmd *cobra.Command, deps Deps, l *layers, arg string) bool {
	out := cmd.OutOrStdout()
	load := newLoader(cmd.Context(), deps, cmd.InOrStdin())
	load.embedFiles = true
	doc, err := load.argument(arg)
	if err != nil {
		printErrors(out, err)
		return false
	}
	keep := deps.Template == nil && !l.fill
	assembled, err := l.assemble(load, doc, keep)
	if err != nil {
		printErrors(out, err)
		return false
	}
	if yamltree.Field(assembled.Spec, "basedOn") != nil {
		fmt.Fprintf(out, "%s: warning: based on templates of the cluster, which were not read\n", arg)
	}
	valid := true
	report := func(level, path, message string) {
		n := locate(assembled.Spec, path)
		fmt.Fprintf(out, "%s:%d:%d: %s%s: %s\n", shortPaths(assembled.Origin(n)), n.Line, n.Column, level, path, message)
	}
	spec, err := compose.Typed(assembled.Spec)
	if err != nil {
		report("", "spec", err.Error())
		return false
	}
	_, found := rules.Compile(&nfdv1alpha1.NodeFeatureRule{Spec: *spec}, rules.Options{})
	for _, e := range found.Errors {
		valid = false
		report("", e.Field, e.ErrorBody())
	}
	for _, w := range found.Warnings {
		report("warning: ", w.Path, w.Message)
	}
	if valid {
		fmt.Fprintf(out, "%s: valid\n", arg)
	}
	return valid
}

// printErrors prints each error on its own line.
func printErrors(w io.Writer, err error) {
	var several compose.Errors
	if errors.As(err, &several) {
		for _, e := range several {
			fmt.Fprintln(w, shorten(e))
		}
		return
	}
	fmt.Fprintln(w, shorten(err))
}

// locate returns the node of a field path such as spec.rules[0].labels[a.b/c], or the last existing node on the path.
func locate(spec *yaml.Node, path string) *yaml.Node {
	way, _ := yamltree.Follow(spec, strings.TrimPrefix(path, "spec"))
	if len(way) == 0 {
		return spec
	}
	return way[len(way)-1].Value
}

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
		fmt.Fprintf(out, "%s: warning: based on templates of the cluster, which were not asked for\n", arg)
	}
	valid := true
	for _, p := range check(deps, assembled) {
		n := locate(assembled.Spec, p.Path)
		level := ""
		if p.Warning {
			level = "warning: "
		} else {
			valid = false
		}
		fmt.Fprintf(out, "%s:%d:%d: %s%s: %s\n", shortPaths(assembled.Origin(n)), n.Line, n.Column, level, p.Path, p.Message)
	}
	if valid {
		fmt.Fprintf(out, "%s: valid\n", arg)
	}
	return valid
}

// check compiles the result and returns its problems.
func check(deps Deps, a *compose.AssembledYAML) []Problem {
	spec, err := compose.Typed(a.Spec)
	if err != nil {
		return []Problem{{Path: "spec", Message: err.Error()}}
	}
	rule := &nfdv1alpha1.NodeFeatureRule{Spec: *spec}
	if deps.Check != nil {
		return deps.Check(rule)
	}
	return Compile(rules.Options{})(rule)
}

// Compile returns a check that uses the compiler.
func Compile(opt rules.Options) func(*nfdv1alpha1.NodeFeatureRule) []Problem {
	return func(rule *nfdv1alpha1.NodeFeatureRule) []Problem {
		_, report := rules.Compile(rule, opt)
		var out []Problem
		for _, e := range report.Errors {
			out = append(out, Problem{Path: e.Field, Message: e.ErrorBody()})
		}
		for _, w := range report.Warnings {
			out = append(out, Problem{Path: w.Path, Message: w.Message, Warning: true})
		}
		return out
	}
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

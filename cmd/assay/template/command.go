// Package template implements the commands that assemble rules from files.
package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/yamltree"
)

// Deps are the dependencies of the commands. Nil fields are optional.
type Deps struct {
	// Template reads a NodeFeatureRuleTemplate from the cluster. It returns nil, nil if the template does not exist.
	Template func(ctx context.Context, name string) (*assayv1alpha1.NodeFeatureRuleTemplate, error)
	// HTTP fetches https locators. Its redirect policy is replaced.
	HTTP *http.Client
}

// NewCommandWith returns the command "template" with its subcommands.
func NewCommandWith(deps Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "template",
		Short: "Assemble rules from the templates they are based on",
		Long: `Assemble rules from the templates they are based on (spec.basedOn).

A locator is a file, file:///PATH, https://HOST/PATH, cluster:NAME (a NodeFeatureRuleTemplate), or - for standard
input. Without a scheme and a leading slash it is relative to the document that mentions it.`,
	}
	cmd.AddCommand(newCopy(deps), newValidate(deps), newQuery(deps), newURL(), newDigest(deps))
	for _, c := range cmd.Commands() {
		c.SilenceUsage = true
		run := c.RunE
		c.RunE = func(cmd *cobra.Command, args []string) error { return shorten(run(cmd, args)) }
	}
	return cmd
}

// shortened is an error with paths relative to the current directory.
type shortened struct {
	error
	text string
}

func (s shortened) Error() string { return s.text }
func (s shortened) Unwrap() error { return s.error }

func shorten(err error) error {
	if err == nil {
		return nil
	}
	return shortened{err, shortPaths(err.Error())}
}

// shortPaths removes the current directory from paths in a message.
func shortPaths(text string) string {
	dir, err := os.Getwd()
	if err != nil || dir == "/" {
		return text
	}
	return strings.ReplaceAll(text, dir+"/", "")
}

// layers are the documents that --fill adds above and below the main document.
type layers struct {
	fill              bool
	override, deflt   string
	overrideDocuments []*compose.YAML
	lowerDocuments    []*compose.YAML
}

func (l *layers) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&l.fill, "fill", false, "also fill in defaults; implies --embed-all")
	cmd.Flags().StringVar(&l.override, "override", "", "with --fill: locator of a document whose fields override all others")
	cmd.Flags().StringVar(&l.deflt, "default-template", "", "with --fill: locator of a document with fields that no other document sets")
}

// builtIn contains the default values of fields.
const builtIn = `
phase: main
priority: 0
sensitive: false
rules:
- name: "*"
  expressions: Auto
`

// read loads the documents that are passed as flags.
func (l *layers) read(load *loader) error {
	if !l.fill {
		if l.override != "" || l.deflt != "" {
			return errors.New("--override and --default-template require --fill")
		}
		return nil
	}
	if l.override != "" {
		d, err := load.argument(l.override)
		if err != nil {
			return err
		}
		l.overrideDocuments = append(l.overrideDocuments, d)
	}
	if l.deflt != "" {
		d, err := load.argument(l.deflt)
		if err != nil {
			return err
		}
		l.lowerDocuments = append(l.lowerDocuments, d)
	}
	d, err := compose.ParseYAML("built-in defaults", []byte(builtIn))
	if err != nil {
		return err
	}
	l.lowerDocuments = append(l.lowerDocuments, d)
	return nil
}

// assemble combines main with its bases and the layers.
func (l *layers) assemble(load *loader, main *compose.YAML, keepNames bool) (*compose.AssembledYAML, error) {
	if err := l.read(load); err != nil {
		return nil, err
	}
	all := append(append([]*compose.YAML{}, l.overrideDocuments...), main)
	all = append(all, l.lowerDocuments...)
	kind := yamltree.Field(main.Root.Content[0], "kind")
	return compose.AssembleYAML(all, load.base, compose.YAMLOptions{
		KeepNames:     keepNames,
		KeepWildcards: kind != nil && kind.Value == "NodeFeatureRuleTemplate" && !l.fill,
		Into:          main,
	})
}

func newDigest(deps Deps) *cobra.Command {
	var tree bool
	cmd := &cobra.Command{
		Use:   "digest LOCATOR",
		Short: "Print the digest that basedOn can pin a template to",
		Example: `  assay template digest site-defaults.yaml
  assay template digest --tree cluster:gpu-pool`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			load := newLoader(cmd.Context(), deps, cmd.InOrStdin())
			load.embedFiles = tree
			doc, err := load.argument(args[0])
			if err != nil {
				return err
			}
			if tree {
				out, err := compose.AssembleYAML([]*compose.YAML{doc}, load.base, compose.YAMLOptions{})
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), out.Hash)
				return nil
			}
			spec, err := compose.Typed(doc.Spec)
			if err != nil {
				return fmt.Errorf("%s: %w", doc.ID, err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), compose.Digest(spec))
			return nil
		},
	}
	cmd.Flags().BoolVar(&tree, "tree", false, "print the digest of the template merged with its own bases")
	return cmd
}

func newURL() *cobra.Command {
	return &cobra.Command{
		Use:   "url LOCATOR [DOCUMENT]",
		Short: "Print the absolute form of a locator, relative to a document or the working directory",
		Example: `  assay template url common.yaml
  assay template url common.yaml https://example.com/pools/gpu.yaml`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := here()
			if err != nil {
				return err
			}
			if len(args) == 2 {
				if from, err = argumentLocator(args[1]); err != nil {
					return err
				}
			}
			l, err := from.resolve(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), l)
			return nil
		},
	}
}

// write writes a document with the usual indentation.
func write(w io.Writer, n *yaml.Node) error {
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return err
	}
	return e.Close()
}

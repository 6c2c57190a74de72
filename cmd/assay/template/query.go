package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/assay-project/assay/rules/yamltree"
)

func newQuery(deps Deps) *cobra.Command {
	var l layers
	var output string
	cmd := &cobra.Command{
		Use:   "query FILE EXPR",
		Short: "Assemble a rule and print a part of the result",
		Long: `Assemble a rule and print a part of the result.

EXPR is a JSONPath as in kubectl; the braces, the leading dollar and the leading dot are optional: spec.priority,
.spec.rules[*].name, {.spec.rules[?(@.name=="gpu")].labels}. A dot in a name is written \. as in kubectl.`,
		Example: `  assay template query gpu-pool.yaml '.spec.rules[*].name'
  assay template query -o json gpu-pool.yaml '.spec.nodeSelector'`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "yaml" && output != "json" {
				return fmt.Errorf("output %q: want yaml or json", output)
			}
			load := newLoader(cmd.Context(), deps, cmd.InOrStdin())
			load.embedFiles = true
			doc, err := load.argument(args[0])
			if err != nil {
				return err
			}
			out, err := l.assemble(load, doc, false)
			if err != nil {
				return err
			}
			found, err := query(yamltree.JSON(out.Root), args[1])
			if err != nil {
				return err
			}
			for _, v := range found {
				text, err := format(v, output)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), strings.TrimRight(text, "\n"))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "yaml", "format: yaml or json")
	l.addFlags(cmd)
	return cmd
}

// query evaluates a JSONPath on JSON.
func query(text []byte, expr string) ([]any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var data any
	if err := d.Decode(&data); err != nil {
		return nil, err
	}
	path := strings.TrimSpace(expr)
	if !strings.HasPrefix(path, "{") {
		path = strings.ReplaceAll(path, "[]", "[*]")
		if !strings.HasPrefix(path, ".") && !strings.HasPrefix(path, "$") && !strings.HasPrefix(path, "[") {
			path = "." + path // as in kubectl get -o jsonpath and custom-columns
		}
		path = "{" + path + "}"
	}
	p := jsonpath.New("expression").AllowMissingKeys(true)
	if err := p.Parse(path); err != nil {
		return nil, fmt.Errorf("expression %q: %w", expr, err)
	}
	results, err := p.FindResults(data)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", expr, err)
	}
	var out []any
	for _, list := range results {
		for _, v := range list {
			out = append(out, v.Interface())
		}
	}
	return out, nil
}

func format(v any, output string) (string, error) {
	text, err := json.Marshal(v)
	if err != nil || output == "json" {
		return string(text), err
	}
	asYAML, err := sigsyaml.JSONToYAML(text)
	return string(asYAML), err
}

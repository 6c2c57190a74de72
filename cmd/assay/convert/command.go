// Package convert implements the commands that convert rules of other systems to NodeFeatureRules.
package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/convert"
)

// converter converts source to objects and returns notes about the conversion.
type converter func(id string, source []byte) ([]*yaml.Node, []convert.Note, error)

// NewCommand returns the command "convert" with its subcommands.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "convert",
		Short: "Convert the rules of other systems to NodeFeatureRules",
		Long: `Convert the rules of other systems to NodeFeatureRules.

It writes the objects to standard output, and each change and each field without an equivalent to standard error, a line each.`,
	}
	cmd.AddCommand(
		newConverter("ironic", "Convert inspection rules of OpenStack Ironic", convert.Ironic),
		newConverter("matchon", "Convert custom rules of NFD's worker: matchOn, short forms", convert.Custom),
		newConverter("nfd-openshift", "Convert the custom rules in an object of OpenShift's NFD operator", convert.Custom),
	)
	return cmd
}

func newConverter(name, short string, run converter) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   name + " FILE",
		Short: short,
		Example: fmt.Sprintf(`  assay convert %[1]s rules.yaml > node-feature-rules.yaml
  assay convert %[1]s --strict - < rules.yaml | kubectl apply -f -`, name),
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := read(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			objects, notes, err := run(args[0], source)
			if err != nil {
				return err
			}
			lost := 0
			for _, n := range notes {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", args[0], n)
				if n.Lost {
					lost++
				}
			}
			if strict && lost > 0 {
				return cli.Found(fmt.Errorf("%s: fields without an equivalent: %d", args[0], lost))
			}
			return write(cmd.OutOrStdout(), objects)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "fail if anything has no equivalent")
	return cmd
}

// read reads a file or standard input.
func read(name string, in io.Reader) ([]byte, error) {
	if name != "-" {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file", name)
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	source, err := io.ReadAll(io.LimitReader(in, compose.MaxText+1))
	if err == nil && len(source) > compose.MaxText {
		err = fmt.Errorf("%s is larger than %d MiB", name, compose.MaxText>>20)
	}
	return source, err
}

// write writes the objects as documents of one YAML stream.
func write(w io.Writer, objects []*yaml.Node) error {
	if len(objects) == 0 {
		return errors.New("no rules to convert")
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	for _, o := range objects {
		if err := e.Encode(o); err != nil {
			return err
		}
	}
	if err := e.Close(); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

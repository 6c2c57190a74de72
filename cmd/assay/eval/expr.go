package eval

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/expr"
)

type exprOptions struct {
	world.Options
	node, metadata, place, output string
	vars, features                []string
	functions                     bool
}

// places maps the values of --as to places.
var places = map[string]expr.Place{
	"label": expr.Strict, "annotation": expr.Free, "var": expr.Var, "arg": expr.Arg, "regex": expr.Regex,
}

// NewExprCommand returns assay expr.
func NewExprCommand() *cobra.Command {
	f := &exprOptions{}
	cmd := &cobra.Command{
		Use:   "expr --node NAME [--var K=V]… [--features FILE | --from FILE] [--] TEXT",
		Short: "Evaluate a string with {expressions}",
		Long: `Evaluate a string with {expressions}, and print its value. Lists and maps are printed as JSON.

If the string refers to features, labels or annotations, it reads them from the files of --features and --node-labels, or without these
from the cluster.

If the string is invalid, or has no value on the node, the error contains the position, and the exit code is 1.`,
		Example: `  assay expr --node n43 'rack{(n1-1)/42+1}'
  assay expr --node r3u14 --var rack=3 'rack{rack:02d}'
  assay expr --node gpu-1 'kernel-{@kernel.version.major}'
  assay expr --node n1 --features node.yaml '{@kernel.version.major}'
  assay expr --functions`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.functions {
				printFunctions(cmd)
				return nil
			}
			if len(args) != 1 {
				return fmt.Errorf("found %d arguments; want one string in quotes: assay expr --node NAME 'TEXT'", len(args))
			}
			return f.run(cmd, args[0])
		},
	}
	cmd.Flags().StringVar(&f.node, "node", "", "name of the node")
	cmd.Flags().StringArrayVar(&f.vars, "var", nil, "variable as NAME=VALUE; may be repeated")
	cmd.Flags().StringSliceVar(&f.features, "features", nil, "files of features; - for standard input")
	cmd.Flags().StringVar(&f.metadata, "node-labels", "", "file of the Node, whose labels and annotations the string may read")
	cmd.Flags().StringVar(&f.place, "place", "label", "use of the string, which decides what it may contain: "+strings.Join(facts.SortedKeys(places), ", "))
	cmd.Flags().BoolVar(&f.functions, "functions", false, "list the functions")
	f.AddFlags(cmd)
	cli.CompleteNodeFlag(cmd, &f.Flags)
	cmd.MarkFlagsMutuallyExclusive("from", "features")
	cmd.MarkFlagsMutuallyExclusive("from", "node-labels")
	printer.OutputFlag(cmd, &f.output, "text", "json")
	return cmd
}

func (f *exprOptions) run(cmd *cobra.Command, source string) error {
	place, ok := places[f.place]
	if !ok {
		return fmt.Errorf("invalid --place %q: use one of %s", f.place, strings.Join(facts.SortedKeys(places), ", "))
	}
	vars := map[string]string{}
	scope := &expr.Scope{Vars: map[string]bool{}, Metadata: true}
	for _, v := range f.vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return fmt.Errorf("--var %s: want NAME=VALUE", v)
		}
		vars[name], scope.Vars[name] = value, true
	}
	compiled, problems := expr.Compile(source, place, expr.Auto, scope)
	for _, p := range problems {
		f.caret(cmd, source, p.Column, p.Warning, p.Message, p.Hint)
	}
	if compiled == nil {
		return cli.ErrFound
	}
	in, opt, err := f.input(cmd, compiled)
	if err != nil {
		return err
	}
	value, err := compiled.Eval(rules.TextEnv(in, vars, opt))
	if err != nil {
		var e *expr.Error
		if errors.As(err, &e) {
			f.caret(cmd, source, e.Column, false, e.Message, "")
			return cli.ErrFound
		}
		return cli.Found(err)
	}
	if value.Kind() == expr.Masked {
		return cli.Found(errors.New("the value is masked: its name says that it is a secret"))
	}
	return f.print(cmd, value)
}

func (f *exprOptions) caret(cmd *cobra.Command, source string, column int, warning bool, message, hint string) {
	w := cmd.ErrOrStderr()
	s := printer.StyleOf(w)
	word := s.Bad("error")
	if warning {
		word = s.Warn("warning")
	}
	if hint != "" {
		message += " (" + hint + ")"
	}
	fmt.Fprintf(w, "%s: column %d: %s\n", word, column, clip.Printable(message))
	for _, line := range strings.Split(expr.Caret(source, column), "\n") {
		fmt.Fprintf(w, "  %s\n", line)
	}
}

func (f *exprOptions) print(cmd *cobra.Command, value expr.Value) error {
	w := cmd.OutOrStdout()
	if f.output == "json" || value.Kind() == expr.ListKind || value.Kind() == expr.MapKind {
		data, err := value.MarshalJSON()
		if err == nil {
			_, err = fmt.Fprintln(w, string(data))
		}
		return err
	}
	_, err := fmt.Fprintln(w, value.String())
	return err
}

// input returns the input of a string, and the settings that apply to it. It connects to the cluster only if the value depends on it.
func (f *exprOptions) input(cmd *cobra.Command, of *expr.Text) (in rules.Input, opt rules.Options, err error) {
	depends := len(of.Features()) > 0 || of.ReadsMetadata() || len(f.From) > 0
	if len(f.features) > 0 || f.metadata != "" || !depends {
		in, err = world.ReadInput(cmd, offline.Policy{Namespace: cluster.DefaultNamespace}, f.features, f.metadata, f.node)
		return in, opt, err
	}
	name, err := cli.ObjectName(f.node, cli.NodeKinds...)
	switch {
	case err != nil:
		return in, opt, err
	case name == "":
		return in, opt, errors.New("the value depends on the node: pass --node NAME of the cluster, or --features FILE")
	}
	w, err := f.Load(cmd.Context(), world.Want{Node: name, Nodes: true, Features: true, Devices: true})
	if err != nil {
		return in, opt, err
	}
	return w.Fleet.Input(name), w.Limits, nil
}

func printFunctions(cmd *cobra.Command) {
	rows := &printer.Table{}
	for _, f := range expr.Functions() {
		rows.Add(f.Usage, f.Says)
	}
	rows.Print(cmd.OutOrStdout(), "")
}

// Package features is the verb features: it counts the values of features over nodes.
package features

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/featurecount"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
)

type options struct {
	world.Options
	output string
	values int

	noHeaders bool
}

// NewCommand returns assay features.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "features [PATTERN]",
		Short: "Show which features the nodes have, on how many nodes, and with which values",
		Long: `Show which features the nodes have, on how many nodes, and with which values. Rules can match all of them.

Without a PATTERN it lists the features; with one, such as cpu.model.* or pci.device.vendor, their elements too.`,
		Example: `  assay features
  assay features 'cpu.model.*'
  assay features pci.device.class`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.AddFlags(cmd)
	cmd.ValidArgsFunction = cli.CompleteFeatures(&f.Flags)
	cmd.Flags().IntVar(&f.values, "values", 8, "maximum number of values of each element, the most frequent first; -o wide shows all")
	printer.HeadersFlag(cmd, &f.noHeaders)
	printer.OutputFlag(cmd, &f.output, "table", "wide", "name", "json", "yaml")
	return cmd
}

func (f *options) run(cmd *cobra.Command, args []string) error {
	w, err := f.Load(cmd.Context(), world.Want{Nodes: true, Features: true, Devices: true})
	if err != nil {
		return err
	}
	pattern := ""
	if len(args) > 0 {
		pattern = args[0]
	}
	c := featurecount.New(pattern, w.Limits.Mask)
	names := slices.DeleteFunc(slices.Clone(w.Fleet.Names()), func(node string) bool { return w.Fleet.Published(node) == nil })
	for _, node := range names {
		c.Add(w.Fleet.Input(node).Facts)
	}
	list := c.List()
	if len(list) == 0 {
		if pattern == "" {
			return cli.Found(fmt.Errorf("no features are published; is the worker running?"))
		}
		return cli.Found(fmt.Errorf("none of %s has a feature %s%s", clip.Count(len(names), "node"), args[0], cmp.Or(cli.MeantFeature(args[0]), "; assay features lists all")))
	}
	switch f.output {
	case "name":
		for _, t := range list {
			fmt.Fprintln(cmd.OutOrStdout(), t.Name)
		}
		return nil
	case "wide":
		f.values = -1
	case "table":
	default:
		return printer.Object(cmd.OutOrStdout(), f.output, list)
	}
	rows := &printer.Table{}
	rows.Add("FEATURE", "TYPE", "NODES", "VALUES")
	for _, t := range list {
		rows.Add(t.Name, t.Type, fmt.Sprintf("%d of %d", t.Nodes, len(names)), f.histogram(t))
	}
	return rows.List(cmd.OutOrStdout(), f.noHeaders)
}

// histogram returns the most frequent values with the number of nodes of each.
func (f *options) histogram(t *featurecount.Count) string {
	values := facts.SortedKeys(t.Values)
	slices.SortStableFunc(values, func(a, b string) int { return cmp.Compare(t.Values[b], t.Values[a]) })
	var out []string
	for i, v := range values {
		if i == f.values {
			out = append(out, fmt.Sprintf("… %d more", len(values)-i))
			break
		}
		out = append(out, fmt.Sprintf("%s (%d)", printer.Dash(v), t.Values[v]))
	}
	return strings.Join(out, ", ")
}

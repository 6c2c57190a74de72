// Package nodes is the verb nodes: it lists nodes with their features.
package nodes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/column"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
)

type options struct {
	world.Options
	selector string
	columns  []string
	output   string

	noHeaders bool
	watch     bool
}

// usualColumns are the default columns.
var usualColumns = []string{"cpu.model.vendor_id", "cpu.topology.socket_count", "system.osrelease.ID", "kernel.version.full"}

// moreColumns are the additional columns of -o wide.
var moreColumns = []string{"cpu.model.family", "cpu.model.id", "memory.numa.node_count", "pci.device", "network.device", "storage.block"}

// NewCommand returns assay nodes.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "nodes [NAMES]",
		Short: "List nodes with selected features",
		Long: `List nodes with selected features.

A column is an attribute (kernel.version.full), a flag (cpu.cpuid.AVX512F: yes or no), or a feature (pci.device: the number of
instances or elements).`,
		Example: `  assay nodes
  assay nodes 'n[1-20]' -c cpu.cpuid.AMXBF16,pci.device
  assay nodes -l pool=gpu
  assay nodes -w`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.output == "wide" {
				f.columns = append(f.columns, moreColumns...)
			}
			if f.watch {
				return cli.Repeated(cmd, printer.IsObject(f.output), func() error { return f.run(cmd, args) })
			}
			return f.run(cmd, args)
		},
	}
	f.AddFlags(cmd)
	cmd.ValidArgsFunction = cli.CompleteNames(&f.Flags, "nodes")
	cmd.Flags().StringVarP(&f.selector, "selector", "l", "", "label selector of the nodes to list")
	cmd.Flags().StringSliceVarP(&f.columns, "columns", "c", usualColumns, "features to show")
	_ = cmd.RegisterFlagCompletionFunc("columns", cli.CompleteColumns) // fails only without the flag
	printer.HeadersFlag(cmd, &f.noHeaders)
	cli.WatchFlag(cmd, &f.watch, "the nodes")
	printer.OutputFlag(cmd, &f.output, "table", "wide", "name", "json", "yaml")
	return cmd
}

func (f *options) run(cmd *cobra.Command, args []string) error {
	w, err := f.Load(cmd.Context(), world.Want{Nodes: true, Features: true, Devices: true, Selector: f.selector})
	if err != nil {
		return err
	}
	names := w.Fleet.Names()
	if len(args) > 0 {
		name, err := cli.ObjectName(args[0], cli.NodeKinds...)
		if err != nil {
			return err
		}
		if names, err = world.ChooseNodes(name, names); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "No resources found")
	}
	if f.output == "name" {
		for _, name := range names {
			fmt.Fprintln(cmd.OutOrStdout(), "node/"+name)
		}
		return nil
	}
	rows := &printer.Table{}
	rows.Add(append([]string{"NODE"}, f.columns...)...)
	var list []map[string]string
	seen := map[string]bool{} // columns that a node has
	for _, node := range names {
		row, object := []string{node}, map[string]string{"node": node}
		known := w.Fleet.Published(node) != nil
		features := w.Fleet.Input(node).Facts
		for _, name := range f.columns {
			value := "?"
			if known {
				value = column.Cell(features, name)
			}
			if w.Limits.Mask.Hides(name) {
				value = rules.Hidden
			}
			seen[name] = seen[name] || known && value != "" && (value != "no" || column.Known(name))
			row, object[name] = append(row, printer.Dash(value)), value
		}
		rows.Add(row...)
		list = append(list, object)
	}
	if f.output != "table" && f.output != "wide" {
		return printer.Object(cmd.OutOrStdout(), f.output, list)
	}
	if err := rows.List(cmd.OutOrStdout(), f.noHeaders); err != nil {
		return err
	}
	unknown := false
	for _, name := range f.columns {
		if len(names) > 0 && !seen[name] && !slices.Contains(usualColumns, name) && !slices.Contains(moreColumns, name) {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: no node has %s%s\n", clip.Printable(name), cmp.Or(cli.MeantFeature(name), "; assay features lists the features and their elements"))
			unknown, seen[name] = true, true // one note for a column that is named twice
		}
	}
	if slices.ContainsFunc(names, func(n string) bool { return w.Fleet.Published(n) == nil }) {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: ? means that no features are published for the node")
	}
	if unknown {
		return cli.ErrFound
	}
	return nil
}

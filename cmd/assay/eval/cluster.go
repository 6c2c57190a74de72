package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/evaluation"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// onCluster evaluates rules for nodes of a cluster.
func (f *options) onCluster(cmd *cobra.Command) error {
	one := f.nodes == "" && f.selector == ""
	look := world.Want{Nodes: true, Features: true, Rules: len(f.rules) == 0, Devices: len(f.rules) > 0, Selector: f.selector}
	if one {
		look.Node = f.node
	}
	w, err := f.Load(cmd.Context(), look)
	if err != nil {
		return err
	}
	var program *rules.Program
	if len(f.rules) > 0 {
		set, err := world.LoadRules(cmd, f.rules, w.Limits)
		if err != nil {
			return err
		}
		set.Print(cmd.ErrOrStderr(), f.quiet)
		program = rules.Link(w.Limits, set.Sets...)
	} else {
		var broken error
		program, broken = w.Program(cmd.Context(), w.Rules)
		world.Note(cmd, broken)
	}
	how := evaluation.Options{Matched: f.matched, All: f.all, Taints: w.Settings.EnableTaints, Mask: w.Limits.Mask, Desired: w.Desired(), Node: w.Nodes[f.node]}
	if one {
		return evaluation.Print(cmd, program, w.Fleet.Input(f.node), f.output, how)
	}
	names, err := w.Chosen(f.nodes)
	if err != nil {
		return err
	}
	return f.onNodes(cmd, w, program, names)
}

// onNodes prints one line per node, or a list of results.
func (f *options) onNodes(cmd *cobra.Command, w *world.World, program *rules.Program, names []string) error {
	outcomes := make([]*rules.Outcome, len(names))
	input.Each(len(names), func(i int) { outcomes[i] = program.Eval(w.Fleet.Input(names[i])) })
	failed := false
	rows := &printer.Table{}
	header := []string{"NODE", "MATCHED", "LABELS", "ANNOTATIONS", "TAINTS", "RESOURCES", "ERRORS"}
	if f.output == "wide" {
		header = append(header, "RULES")
	}
	rows.Add(header...)
	results := make([]*evaluation.Result, len(names))
	for i, o := range outcomes {
		r := evaluation.NewResult(o, w.Settings.EnableTaints)
		results[i] = r
		matched, errs := []string{}, []string{}
		for _, rule := range r.Rules {
			if rule.Matched {
				matched = append(matched, rule.Object+"/"+rule.Rule)
			}
			if rule.Error != "" {
				errs = append(errs, rule.Object+"/"+rule.Rule)
			}
		}
		if r.Failed != nil {
			errs = append(errs, "failed by "+r.Failed.String())
		}
		failed = failed || len(errs) > 0
		row := []string{
			r.Node, fmt.Sprint(len(matched)), fmt.Sprint(ours(o, keys.Label, r.Labels)), fmt.Sprint(len(r.Annotations)),
			fmt.Sprint(len(r.Taints)), fmt.Sprint(len(r.ExtendedResources)), printer.Dash(strings.Join(errs, ", ")),
		}
		if f.output == "wide" {
			row = append(row, printer.Dash(strings.Join(matched, ", ")))
		}
		rows.Add(row...)
	}
	if f.output == "text" || f.output == "wide" {
		if err := rows.List(cmd.OutOrStdout(), f.noHeaders); err != nil {
			return err
		}
	} else if err := printResults(cmd.OutOrStdout(), f.output, results); err != nil {
		return err
	}
	if failed {
		return cli.ErrFound
	}
	return nil
}

// printResults prints a list. It encodes JSON in parallel, because for a large cluster this takes longer than the evaluation.
func printResults(w io.Writer, format string, list []*evaluation.Result) error {
	if format != "json" {
		return printer.Object(w, format, list)
	}
	texts := make([]bytes.Buffer, len(list))
	input.Each(len(list), func(i int) {
		e := json.NewEncoder(&texts[i])
		e.SetEscapeHTML(false)
		e.SetIndent("  ", "  ")
		_ = e.Encode(list[i]) // strings can always be encoded
	})
	out := bufio.NewWriter(w)
	for i := range texts {
		separator := ",\n  "
		if i == 0 {
			separator = "[\n  "
		}
		fmt.Fprint(out, separator)
		_, _ = out.Write(bytes.TrimSuffix(texts[i].Bytes(), []byte("\n")))
	}
	fmt.Fprint(out, "\n]\n")
	return out.Flush()
}

// ours returns the number of keys that rules set.
func ours(o *rules.Outcome, kind keys.Kind, values map[string]string) int {
	n := 0
	for key := range values {
		if origin, ok := o.Origin(kind, key); ok && origin.Object != "" {
			n++
		}
	}
	return n
}

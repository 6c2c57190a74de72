// Package explanation says of a key of a Node which rule or client set it, or why it is missing.
package explanation

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/evaluation"
	"github.com/assay-project/assay/cmd/assay/internal/held"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/cmd/assay/internal/written"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
)

// Explanation explains single keys of a node.
type Explanation struct {
	evaluation.Tracer
	world   *world.World
	node    *corev1.Node
	program *rules.Program
	input   rules.Input
	outcome *rules.Outcome
	traces  []rules.RuleTrace
	report  *held.Report // of the controller

	compared *desired.Comparison
	records  map[string]*provenance // by instance
}

// New returns the explanation of the keys of a node by the rules of a program.
func New(w *world.World, program *rules.Program, node string, out io.Writer) *Explanation {
	e := of(w, w.Nodes[node], program.Eval(w.Fleet.Input(node)))
	e.traces = program.Trace(e.input)
	e.Tracer = evaluation.Tracer{Options: evaluation.Options{Taints: true, Mask: w.Limits.Mask, Desired: w.Desired(), Node: e.node}, W: out, S: printer.StyleOf(out)}
	return e
}

// of returns what the explanation of any key of a node needs.
func of(w *world.World, node *corev1.Node, o *rules.Outcome) *Explanation {
	settings := w.Desired()
	return &Explanation{
		world: w, node: node, input: w.Fleet.Input(o.Node), program: o.Program(), outcome: o, compared: settings.Compare(node, desired.Of(o)),
	}
}

// All prints all keys that rules set.
func (e *Explanation) All(format string) error {
	if format != "text" {
		return printer.Object(e.W, format, evaluation.NewResult(e.outcome, true))
	}
	e.Tracer.Outcome(e.outcome)
	if over := e.input.Facts.DevicesOver(); over != "" {
		fmt.Fprintf(e.W, "  %s %s\n", e.S.Warn("!"), clip.Printable(over))
	}
	return nil
}

// One prints why a key is as it is.
func (e *Explanation) One(ctx context.Context, name, format string) error {
	found := e.name(ctx, name)
	if format == "text" {
		return e.print(found)
	}
	if err := printer.Object(e.W, format, found); err != nil {
		return err
	}
	if len(found.Keys) == 0 {
		return cli.ErrFound
	}
	return nil
}

// Unwanted explains the keys of a Node that no rule or NodeFeature gives now. It leaves out what belongs to Kubernetes and no rule can
// set: resources and conditions whose names have no namespace.
func Unwanted(ctx context.Context, w *world.World, node *corev1.Node, o *rules.Outcome, report *held.Report) (out []Key) {
	e := of(w, node, o)
	e.report = report
	for _, k := range written.Keys(node) {
		if _, gives := o.Origin(k.Kind, k.Key); gives && o.Failed == nil {
			continue
		}
		if (k.Kind == keys.Resource || k.Kind == keys.Condition) && !strings.Contains(k.Key, "/") {
			continue
		}
		out = append(out, e.unwanted(ctx, k))
	}
	return out
}

// giving returns a rule without its outputs other than a key that it gives.
func giving(t *rules.RuleTrace, k *Key) *rules.RuleTrace {
	out := *t
	out.Outputs = slices.DeleteFunc(slices.Clone(t.Outputs), func(o rules.TracedOutput) bool {
		return o.Kind != k.Kind || o.Key != k.Key && !strings.HasPrefix(k.Key, o.Key+":") // the key of a taint has its effect
	})
	if len(out.Outputs) == 0 {
		return t // the key has another name there
	}
	return &out
}

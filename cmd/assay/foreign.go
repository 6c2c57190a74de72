package main

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/held"
	"github.com/assay-project/assay/cmd/assay/ui"
	"github.com/assay-project/assay/cmd/assay/written"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// named returns the keys of the Node with a name, with or without its namespace, and with or without the effect of a taint.
func (e *explanation) named(name string) (out []given) {
	full := e.world.opt.Keys.Qualify(name)
	for _, k := range written.Keys(e.node) {
		short := k.Key
		if k.Kind == keys.Taint {
			short, _, _ = strings.Cut(k.Key, ":")
		}
		if k.Key == name || short == name || short == full && k.Kind != keys.Condition {
			out = append(out, given{k.Kind, k.Key, k.Value})
		}
	}
	return out
}

// unwanted explains the keys of a Node that no rule or NodeFeature gives now, for assay ui. It leaves out what belongs to Kubernetes and no
// rule can set: resources and conditions whose names have no namespace.
func (w *world) unwanted(ctx context.Context, node *corev1.Node, o *rules.Outcome, report *held.Report) (out []ui.Unwanted) {
	settings := w.desired()
	e := &explanation{
		world: w, node: node, input: w.fleet.Input(node.Name), program: o.Program(), outcome: o, report: report, compared: settings.Compare(node, desired.Of(o)),
	}
	for _, k := range written.Keys(node) {
		if _, gives := o.Origin(k.Kind, k.Key); gives && o.Failed == nil {
			continue
		}
		if (k.Kind == keys.Resource || k.Kind == keys.Condition) && !strings.Contains(k.Key, "/") {
			continue
		}
		x := e.unwanted(ctx, given{k.Kind, k.Key, k.Value})
		row := ui.Unwanted{Kind: x.Kind, Key: x.Key, Value: *x.Value, Kept: x.State == desired.Kept, Own: x.State == desired.Own, Hold: x.Hold, Why: x.Why, By: x.Managers}
		for _, s := range x.Sources {
			row.By = append(row.By, s.Why)
		}
		out = append(out, row)
	}
	return out
}

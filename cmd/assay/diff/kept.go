package diff

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/cmd/assay/internal/written"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/plan"
)

// keptDiff compares what two programs mean for keys that the controller keeps on Nodes although no rule gives them now.
type keptDiff struct {
	world         *world.World
	settings      desired.Settings
	before, after *desired.Active
	records       map[string]*record.Record // by instance; nil: cannot be read
}

// newKeptDiff reads the records of provenance of all instances that have written keys. Without its record nothing is known of what an
// instance keeps.
func newKeptDiff(cmd *cobra.Command, w *world.World, before, after *rules.Program) *keptDiff {
	d := &keptDiff{w, w.Desired(), desired.NewActive(0, before, ""), desired.NewActive(0, after, ""), map[string]*record.Record{}}
	for _, node := range w.Nodes {
		for _, k := range d.settings.Recorded(node) {
			if _, done := d.records[k.Instance]; done {
				continue
			}
			r, _, err := w.Provenance(cmd.Context(), k.Instance)
			d.records[k.Instance] = r
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "note: which rules gave the keys that nodes keep is unknown: %s\n", clip.Printable(err.Error()))
			}
		}
	}
	return d
}

// steps corrects the steps between two outcomes of a node by what the node has: a kept key that a rule gives again is there already, and
// a change of the rule that gave a kept key ends the reason to keep it.
func (d *keptDiff) steps(node *corev1.Node, before, after *rules.Outcome, steps []plan.Step) []plan.Step {
	if node == nil || after.Failed != nil {
		return steps
	}
	was, now := keysOf(before), keysOf(after)
	for _, k := range d.settings.Recorded(node) {
		id := flatKey{k.Kind, k.Key}
		has, there := written.Value(node, k.Kind, k.Key)
		if _, given := was[id]; given || !there {
			continue
		}
		value, given := now[id]
		if given {
			steps = slices.DeleteFunc(steps, func(s plan.Step) bool { return s.Kind == id.kind && s.Key == id.key })
			if value != has {
				steps = append(steps, plan.Step{Op: plan.Change, Kind: id.kind, Key: id.key, Old: has, New: value})
			}
		} else if d.cause(k, before, d.before) != record.Rules && d.cause(k, after, d.after) == record.Rules {
			steps = append(steps, plan.Step{Op: plan.Remove, Kind: id.kind, Key: id.key, Old: has})
		}
	}
	return steps
}

// cause returns why the controller would remove a key that no rule gives, if the rules were these.
func (d *keptDiff) cause(k desired.Recorded, o *rules.Outcome, now *desired.Active) record.Cause {
	return d.world.Origins(o, nil, d.before, now, d.records[k.Instance]).Removal(k.Kind, k.Key)
}

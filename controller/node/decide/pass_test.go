package decide

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

type M = map[string]string

// compiled returns the rules of an object, named by their position.
func compiled(t *testing.T, name string, list ...nfdv1alpha1.Rule) *rules.RuleSet {
	t.Helper()
	for i := range list {
		list[i].Name = string(rune('a' + i))
	}
	set, report := rules.CompileSpec(name, &nfdv1alpha1.NodeFeatureRuleSpec{Rules: list}, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors)
	}
	return set
}

// outcomeOf returns the outcome of the object r with one rule.
func outcomeOf(t *testing.T, rule nfdv1alpha1.Rule) *rules.Outcome {
	t.Helper()
	return rules.Link(rules.Options{}, compiled(t, "r", rule)).Eval(rules.Input{})
}

// objects returns the objects of an outcome.
func objects(o *rules.Outcome) *desired.Active {
	out := &desired.Active{Owners: map[string]record.Owner{}}
	for g := range o.Given() {
		id := record.IDOf(g.Set)
		out.Owners[id] = record.Owner{ID: id, Name: "r"}
	}
	out.Edition = record.NewEdition(out.Owners)
	return out
}

// givenBy returns what a node remembers of an outcome that was carried out.
func givenBy(o *rules.Outcome) *record.Given { return record.GivenBy(o, objects(o).Edition) }

// stepKeys returns the keys that a plan changes.
func stepKeys(p *plan.Plan) (out []string) {
	for _, s := range p.Steps {
		out = append(out, s.Key)
	}
	return out
}

// origins are what is known about the keys of a pass.
type origins struct {
	*desired.Origins
	Changes flap.History
}

// newPass returns a pass over a node without features, whose rules give an unrelated label. The settings allow taints.
func newPass(t *testing.T) (*Pass, *origins) {
	t.Helper()
	p := &Pass{Settings: &Settings{Settings: desired.Settings{Policy: plan.Policy{Taints: true}}}, Now: time.Now(), Node: &corev1.Node{}}
	o := &origins{Origins: &desired.Origins{
		Outcome: outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"unrelated": "1"}}), Active: &desired.Active{}, Past: &record.Record{},
		Inactive: func(record.Owner) record.State { return record.Gone }, Memory: &p.Memory.Memory,
	}}
	p.Reason = func(s plan.Step, now time.Time) Key { return KeyOf(o.Origins, o.Changes, s, now) }
	return p, o
}

// know looks up what is known about the keys of a plan.
func (p *Pass) know(in *plan.Plan) *Pass {
	p.keys = map[string]Key{}
	for _, s := range in.Steps {
		p.keys[name(s)] = p.Reason(s, p.Now)
	}
	return p
}

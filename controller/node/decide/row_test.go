package decide

// hack/decisions compiles this file into the programs that the simulator runs, so that they write rows.

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

// row is a pass and the decision about it.
type row struct {
	Name     string
	Settings rowSettings
	Now      time.Time
	Node     rowNode
	Rules    desired.Outputs `json:",omitzero"`
	Keys     map[string]Key  `json:",omitzero"` // what is known about them, by the name of the step
	Features Features        `json:",omitzero"`
	Losses   loss.Verdict    `json:",omitzero"`
	Memory   Memory          `json:",omitzero"`
	Seen     bool            `json:",omitzero"` // there was a pass before
	Evidence Evidence        `json:",omitzero"`
	Decision rowDecision
}

// rowSettings are Settings without the protected keys, which are the default.
type rowSettings struct {
	Record                     plan.Record       `json:",omitzero"`
	KeepForeign, Taints        bool              `json:",omitzero"`
	FailTaint                  *corev1.Taint     `json:",omitzero"`
	LossTaint                  *corev1.Taint     `json:",omitzero"`
	Withholding                rules.Withholding `json:",omitzero"`
	Startup                    Startup           `json:",omitzero"`
	Ready                      bool              `json:",omitzero"`
	Requests, NotifySchedulers bool              `json:",omitzero"`
}

// rowNode is the part of a Node that decisions read.
type rowNode struct {
	ResourceVersion       string
	Created               time.Time
	Labels, Annotations   map[string]string      `json:",omitzero"`
	Taints                []corev1.Taint         `json:",omitzero"`
	Capacity, Allocatable corev1.ResourceList    `json:",omitzero"`
	Conditions            []corev1.NodeCondition `json:",omitzero"`
	Boot                  string                 `json:",omitzero"`
}

// rowDecision is a Decision, with plans as the patches that they write.
type rowDecision struct {
	Needs                     []Need              `json:",omitzero"`
	Losing                    []string            `json:",omitzero"`
	Unattributed              bool                `json:",omitzero"`
	Doubtful                  []string            `json:",omitzero"`
	Patch, TaintPatch         json.RawMessage     `json:",omitzero"`
	Again                     string              `json:",omitzero"`
	Holds                     []hold.Hold         `json:",omitzero"`
	Events, Written           []Event             `json:",omitzero"`
	Owners                    []string            `json:",omitzero"` // the name of the object and the key
	Removals                  map[string][]string `json:",omitzero"`
	Lost                      []string            `json:",omitzero"`
	BeginsEviction, FailsOpen bool                `json:",omitzero"`
	Memory                    *Memory             `json:",omitzero"` // unless it is as before
}

// pass returns the pass of a row.
func (r *row) pass() Pass {
	s := r.Settings
	p := Pass{
		Settings: &Settings{
			Settings: desired.Settings{
				Policy:    plan.Policy{Record: s.Record, KeepForeign: s.KeepForeign, Taints: s.Taints},
				FailTaint: s.FailTaint, LossTaint: s.LossTaint, Withholding: s.Withholding,
			},
			Startup: s.Startup, Ready: s.Ready,
			Requests: s.Requests, NotifySchedulers: s.NotifySchedulers,
		},
		Now: r.Now, Age: r.Now.Sub(r.Node.Created),
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: r.Node.ResourceVersion, CreationTimestamp: metav1.NewTime(r.Node.Created), Labels: r.Node.Labels, Annotations: r.Node.Annotations,
		}},
		Rules: r.Rules, Reason: func(s plan.Step, _ time.Time) Key { return r.Keys[name(s)] },
		Features: r.Features, Losses: r.Losses, Memory: r.Memory, Evidence: r.Evidence,
	}
	p.Node.Spec.Taints, p.Node.Status.NodeInfo.BootID, p.Node.Status.Conditions = r.Node.Taints, r.Node.Boot, r.Node.Conditions
	p.Node.Status.Capacity, p.Node.Status.Allocatable = r.Node.Capacity, r.Node.Allocatable
	if r.Seen {
		p.Memory.Given = &record.Given{}
	}
	return p
}

// newRowDecision returns the decision of a row.
func newRowDecision(p Pass, d Decision) rowDecision {
	out := rowDecision{
		Needs: d.Needs, Losing: d.Losing, Unattributed: d.Unattributed, Doubtful: names(d.Doubtful), Holds: d.Holds, Events: d.Events,
		Written: d.Written, Lost: names(d.Lost),
		BeginsEviction: d.BeginsEviction, FailsOpen: d.FailsOpen, Removals: map[string][]string{},
	}
	for cause, list := range d.Removals {
		out.Removals[cause.String()] = list
	}
	if len(out.Removals) == 0 {
		out.Removals = nil
	}
	if d.Plan != nil {
		out.Patch, out.TaintPatch, out.Again = d.Plan.Patch(), d.Plan.TaintPatch(p.Node.ResourceVersion), d.Again.String()
		before, after := p.Memory, d.Memory
		before.Given, after.Given = nil, nil
		if text(before) != text(after) {
			out.Memory = &after
		}
	}
	for _, g := range d.Owners {
		for _, s := range d.Allowed.Steps {
			if record.KeyOf(s.Kind, s.Key) == g.Key {
				out.Owners = append(out.Owners, g.Name+" gives "+name(s))
			}
		}
	}
	return out
}

func names(list []plan.Step) (out []string) {
	for _, s := range list {
		out = append(out, hold.Key(s.Kind, s.Key))
	}
	return out
}

// text returns a value as JSON.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types have nothing that cannot be encoded
	}
	return string(data)
}

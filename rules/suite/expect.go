package suite

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules"
)

// Expectation is the expected outcome, as in outcome.yaml. In a table, null means that the key must not exist.
type Expectation struct {
	Labels            map[string]*string `json:"labels,omitempty"`
	Annotations       map[string]*string `json:"annotations,omitempty"`
	ExtendedResources map[string]*string `json:"extendedResources,omitempty"`
	Vars              map[string]*string `json:"vars,omitempty"`
	Taints            []corev1.Taint     `json:"taints,omitempty"`
	// NodeConditions are what conditions of the Node say, by type: "STATUS REASON: MESSAGE".
	NodeConditions map[string]*string `json:"nodeConditions,omitempty"`
	// Matched are the rules that must match, as OBJECT/RULE.
	Matched []string `json:"matched,omitempty"`
	// NotMatched are rules that must not match. It is only used in tables.
	NotMatched []string `json:"notMatched,omitempty"`
	Skipped    []string `json:"skipped,omitempty"`
	Rejected   []string `json:"rejected,omitempty"`
	// Errors are errors of the evaluation.
	Errors    []string `json:"errors,omitempty"`
	Conflicts []string `json:"conflicts,omitempty"`
	Events    []string `json:"events,omitempty"`
	Log       []string `json:"log,omitempty"`
	// Failed is the message of a fail action.
	Failed string `json:"failed,omitempty"`
}

// Expect returns the Expectation that describes an outcome exactly.
func Expect(o *rules.Outcome) *Expectation {
	e := &Expectation{
		Labels: pointers(o.Labels()), Annotations: pointers(o.Annotations()), ExtendedResources: pointers(o.ExtendedResources()),
		Vars: pointers(o.Vars()), Taints: o.Taints(), NodeConditions: pointers(o.NodeConditions()),
	}
	for _, r := range o.Rules() {
		switch {
		case r.Matched:
			e.Matched = append(e.Matched, r.String())
		case r.Skipped != "":
			e.Skipped = append(e.Skipped, r.String()+": "+r.Skipped)
		case r.Err != nil:
			e.Errors = append(e.Errors, r.String()+": "+r.Err.Error())
		}
		if r.Partial != nil {
			e.Errors = append(e.Errors, r.String()+": in part: "+r.Partial.Error())
		}
	}
	for _, r := range o.Rejected() {
		e.Rejected = append(e.Rejected, strings.TrimSpace(r.String()+" "+string(r.Kind)+" "+r.Key+": "+r.Reason))
	}
	for _, c := range o.Conflicts() {
		e.Conflicts = append(e.Conflicts, string(c.Kind)+" "+c.Key+": "+c.Kept.String()+" over "+c.Lost.String())
	}
	for _, ev := range o.Events() {
		e.Events = append(e.Events, ev.String()+" "+ev.Type+" "+ev.Reason+": "+ev.Message)
	}
	for _, m := range o.Messages() {
		e.Log = append(e.Log, m.String()+" "+m.Level+": "+m.Text)
	}
	if o.Failed != nil {
		e.Failed = o.Failed.String() + ": " + o.Failed.Message
	}
	return e
}

func pointers(m map[string]string) map[string]*string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]*string, len(m))
	for k, v := range m {
		out[k] = &v
	}
	return out
}

// compare returns the differences, one per line. If whole is false, it compares only the fields and keys in the expectation.
func (e *Expectation) compare(got *Expectation, whole bool) []string {
	var d diff
	for _, m := range []struct {
		kind      string
		want, got map[string]*string
	}{
		{"label", e.Labels, got.Labels}, {"annotation", e.Annotations, got.Annotations},
		{"extendedResource", e.ExtendedResources, got.ExtendedResources}, {"var", e.Vars, got.Vars},
		{"nodeCondition", e.NodeConditions, got.NodeConditions},
	} {
		d.values(m.kind, m.want, m.got, whole)
	}
	d.list("taint", taints(e.Taints), taints(got.Taints), whole, false)
	d.list("matched", e.Matched, got.Matched, whole, false)
	for _, rule := range e.NotMatched {
		if slices.Contains(got.Matched, rule) {
			d = append(d, "- not matched: "+rule, "+ matched: "+rule)
		}
	}
	for _, l := range []struct {
		kind      string
		want, got []string
	}{
		{"skipped", e.Skipped, got.Skipped}, {"rejected", e.Rejected, got.Rejected}, {"error", e.Errors, got.Errors},
		{"conflict", e.Conflicts, got.Conflicts}, {"event", e.Events, got.Events}, {"log", e.Log, got.Log},
		{"failed", oneOf(e.Failed), oneOf(got.Failed)},
	} {
		d.list(l.kind, l.want, l.got, whole, !whole)
	}
	return d
}

// diff collects lines that begin with - (expected) or + (actual).
type diff []string

func (d *diff) values(kind string, want, got map[string]*string, whole bool) {
	keys := map[string]bool{}
	for k := range want {
		keys[k] = true
	}
	for k := range got {
		keys[k] = keys[k] || whole
	}
	var names []string
	for k, looked := range keys {
		if looked {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	for _, k := range names {
		w, wanted := want[k]
		g, there := got[k]
		absent := wanted && w == nil
		switch {
		case absent && there:
			*d = append(*d, "- no "+kind+" "+k, "+ "+kind+" "+k+"="+*g)
		case absent:
		case wanted && there && *w == *g:
		default:
			if wanted {
				*d = append(*d, "- "+kind+" "+k+"="+*w)
			}
			if there {
				*d = append(*d, "+ "+kind+" "+k+"="+*g)
			}
		}
	}
}

// list compares lists regardless of their order. If pieces is set, an expected string only needs to be a substring.
func (d *diff) list(kind string, want, got []string, whole, pieces bool) {
	left := slices.Clone(got)
	missed := false
	for _, w := range want {
		i := slices.IndexFunc(left, func(g string) bool { return g == w || pieces && strings.Contains(g, w) })
		if i < 0 {
			*d = append(*d, "- "+kind+" "+w)
			missed = true
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	if whole || missed {
		for _, g := range left {
			*d = append(*d, "+ "+kind+" "+g)
		}
	}
}

func taints(list []corev1.Taint) []string {
	var out []string
	for _, t := range list {
		out = append(out, t.ToString())
	}
	return out
}

func oneOf(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

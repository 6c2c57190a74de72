package explanation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/evaluation"
	"github.com/assay-project/assay/cmd/assay/internal/held"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/tracing"
	"github.com/assay-project/assay/cmd/assay/internal/workerlabel"
	"github.com/assay-project/assay/cmd/assay/internal/written"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// explainedName is the JSON of assay explain NODE KEY. docs/troubleshooting.md documents it.
type explainedName struct {
	Node string `json:"node"`
	// Name is the key as the user wrote it.
	Name string `json:"name"`
	// Failed is the action fail because of which the controller writes nothing on the node.
	Failed *rules.Failure `json:"failed,omitempty"`
	// Keys are the keys of all kinds with this name that the Node has or that rules give; empty: there are none.
	Keys []Key `json:"keys"`
	// Candidates are the rules that could give the key, the closest first. It is set only if Keys is empty.
	Candidates []source `json:"candidates,omitempty"`
	// Removed is the Event about the removal of the key. It is set only if Keys is empty.
	Removed string `json:"removed,omitempty"`
	// Controller is the replica that writes Nodes; absent: unknown.
	Controller *cluster.Leader `json:"controller,omitempty"`
}

// Key is the JSON of one key.
type Key struct {
	Kind  keys.Kind     `json:"kind"`
	Key   string        `json:"key"`
	State desired.State `json:"state"`
	// Wanted is the value that rules and NodeFeatures give now, Value that of the Node; absent: none.
	Wanted *string `json:"wanted,omitempty"`
	Value  *string `json:"value,omitempty"`
	// Sources are the rules or NodeFeatures that give the key or, in the state Kept, gave it.
	Sources []source `json:"sources,omitempty"`
	// Overridden are rules that give another value and lose.
	Overridden []string `json:"overridden,omitempty"`
	// Managers are the clients that set the value of the Node, by its managedFields. They are listed if it is not the wanted one.
	Managers []string `json:"managers,omitempty"`
	// Hold is what the controller reports about the key, Why a sentence about the state.
	Hold *held.Hold `json:"hold,omitempty"`
	Why  string     `json:"why,omitempty"`
}

// source is a rule, a NodeFeature or the worker that gives a key or could give it.
type source struct {
	// Kind is NodeFeatureRule, NodeFeature or Worker.
	Kind string `json:"kind"`
	// Name is the rule as OBJECT/RULE, the NodeFeature as NAMESPACE/NAME, or the source of the worker.
	Name string `json:"name"`
	// How is the field of the rule.
	How string `json:"how,omitempty"`
	// Terms are the expressions and conditions of the rule with what the node has. Sensitive rules have none.
	Terms []tracing.Line `json:"terms,omitempty"`
	// Found is what the node has, Why the reason why the key is not given, Fix what to change.
	Found string `json:"found,omitempty"`
	Why   string `json:"why,omitempty"`
	Fix   string `json:"fix,omitempty"`

	trace *rules.RuleTrace
}

// ruleKind is the kind of sources that are rules.
const ruleKind = "NodeFeatureRule"

// name explains all keys with a name.
func (e *Explanation) name(ctx context.Context, name string) *explainedName {
	e.report = e.world.Report(ctx, e.node)
	out := &explainedName{Node: e.outcome.Node, Name: name, Failed: e.outcome.Failed, Keys: []Key{}}
	if e.report.Known && e.report.LeaderErr == nil {
		out.Controller = &e.report.Leader
	}
	for g := range e.outcome.Given() {
		if k := (written.Key{Kind: g.Kind, Key: g.Key, Value: g.Value}); e.is(k, name) {
			out.Keys = append(out.Keys, e.wanted(k))
		}
	}
	for _, f := range written.Keys(e.node) {
		if e.is(f, name) && !slices.ContainsFunc(out.Keys, func(k Key) bool { return k.Kind == f.Kind && k.Key == f.Key }) {
			k := e.unwanted(ctx, f)
			k.Sources = e.withRules(&k)
			out.Keys = append(out.Keys, k)
		}
	}
	if len(out.Keys) == 0 {
		out.Candidates = e.candidates(ctx, name)
		out.Removed = e.removed(name)
	}
	return out
}

// wanted explains a key that rules or NodeFeatures give.
func (e *Explanation) wanted(g written.Key) Key {
	k := Key{Kind: g.Kind, Key: g.Key, Wanted: &g.Value}
	origin, _ := e.outcome.Origin(g.Kind, g.Key)
	if origin.Object == "" {
		for _, name := range e.askers(g.Key) {
			k.Sources = append(k.Sources, source{Kind: "NodeFeature", Name: strings.TrimPrefix(name, "/"), How: "spec.labels"})
		}
	}
	for i := range e.traces {
		if e.traces[i].Ref == origin.Ref && origin.Object != "" {
			k.Sources = append(k.Sources, e.ruleSource(&e.traces[i], origin.How))
		}
	}
	for _, c := range e.outcome.Conflicts() {
		if c.Kind == g.Kind && c.Key == g.Key {
			k.Overridden = append(k.Overridden, c.Lost.String())
		}
	}
	if value, ok := written.Value(e.node, g.Kind, g.Key); ok {
		k.Value = &value
	}
	state, has, withheld := e.compared.Given(g.Kind, g.Key)
	k.State = state
	switch state {
	case desired.Withheld:
		k.Why = "not written on nodes: " + withheld
	case desired.Missing:
		k.Why = state.Describe("")
	case desired.Different:
		k.Why, k.Managers = state.Describe(has), written.Managers(e.node, g.Kind, g.Key)
	default:
		return k
	}
	if state != desired.Withheld {
		e.explainDifference(&k)
	}
	return k
}

// explainDifference adds why a Node does not have a wanted value.
func (e *Explanation) explainDifference(k *Key) {
	if by := strings.Join(k.Managers, ", "); by != "" {
		k.Why += ", set by " + by
	}
	k.Hold = e.world.Hold(e.report, e.program, e.outcome.Node, k.Kind, k.Key)
	switch {
	case k.Hold != nil || e.outcome.Failed != nil:
	case e.undecided(k, nil):
		k.Why += "; whether another rule gives it another value is unknown, because " + facts.WhyUnread(e.input.Worker.Unread())
	case e.compared.Leaves(k.Kind, k.Key):
		k.Why += "; the controller does not change keys of other clients, because restrictions.allowOverwrite is false"
	default:
		if text := e.report.Nothing(); text != "" {
			k.Why += "; " + text
		}
	}
}

// undecided reports whether it is unknown which value a key should have: its worker has not read a source. Files do not contain the holds that
// report it. The record of which objects gave the key is nil if it cannot be read.
func (e *Explanation) undecided(k *Key, past *record.Record) bool {
	step, changes := e.compared.Step(k.Kind, k.Key)
	if !changes || len(e.input.Worker.Unread()) == 0 {
		return false
	}
	now := desired.NewActive(0, e.program, "")
	return e.world.Origins(e.outcome, e.input.Worker, now, now, past).Reason(step, false).Undecided
}

// unwanted explains a key of the Node that nothing gives now.
func (e *Explanation) unwanted(ctx context.Context, f written.Key) Key {
	k := Key{Kind: f.Kind, Key: f.Key, Value: &f.Value}
	state, instance := e.compared.Found(f.Kind, f.Key)
	loss := ""
	if state != desired.Foreign && f.Kind == keys.Taint {
		loss = e.loss(ctx, f)
	}
	const own = "written by Assay itself, not by a rule: "
	request, requested := strings.CutPrefix(f.Key, assayv1alpha1.RequestLabelNamespace+"/")
	switch {
	case loss != "":
		k.State, k.Why = desired.Own, loss
		return k
	case state == desired.Foreign:
		k.State, k.Managers, k.Why = state, written.Managers(e.node, f.Kind, f.Key), "set by another client, not by Assay"
		if len(k.Managers) > 0 {
			k.Why += ": " + strings.Join(k.Managers, ", ")
		}
		return k
	case state == desired.Own && f.Kind == keys.Annotation:
		k.State, k.Why = state, own+bookkeeping(f.Key)
		return k
	case state == desired.Own && f.Kind == keys.Condition:
		k.State, k.Why = state, own+"it reports whether all rules are applied to the features of this boot"
		return k
	case state == desired.Own && requested:
		k.State, k.Why = state, "written by Assay, not by a rule: the node meets NodeFeatureRequest "+strings.Replace(request, ".", "/", 1)
		return k
	case state == desired.Own:
		k.State, k.Why = state, own+"a setting of the controller names the taint"
		return k
	}
	k.State, k.Why = desired.Kept, "written by Assay; no rule or NodeFeature gives it now"
	k.Sources = e.recorded(ctx, instance, f)
	if failed := e.outcome.Failed; failed != nil {
		k.Why = fmt.Sprintf("written by Assay; nothing is written on the Node while %s fails", failed.Ref)
		return k
	}
	k.Hold = e.world.Hold(e.report, e.program, e.outcome.Node, k.Kind, k.Key)
	if k.Hold == nil && e.undecided(&k, e.records[instance].record) {
		k.Why = "written by Assay; whether something gives it now is unknown, because " + facts.WhyUnread(e.input.Worker.Unread())
	} else if text := e.report.Nothing(); k.Hold == nil && text != "" {
		k.Why += "; " + text
	}
	return k
}

// withRules replaces the objects that gave a key by their rules that can give it, with the features that these read.
func (e *Explanation) withRules(k *Key) (out []source) {
	able := slices.Concat(tracing.Naming(e.program, e.traces, []keys.Kind{k.Kind}, k.Key))
	for _, object := range k.Sources {
		before := len(out)
		for _, t := range able {
			if object.Kind == ruleKind && t.Object == object.Name {
				s := e.ruleSource(t, "")
				s.Why = object.Why
				out = append(out, s)
			}
		}
		if len(out) == before {
			out = append(out, object)
		}
	}
	return out
}

// ruleSource describes a rule with its expressions.
func (e *Explanation) ruleSource(t *rules.RuleTrace, how string) source {
	out := source{Kind: ruleKind, Name: t.Ref.String(), How: how, trace: t, Terms: tracing.Lines(t, e.Mask), Why: cmp.Or(t.Skipped, tracing.Why(t, e.Mask))}
	if t.Err != nil {
		out.Why = t.Err.Error()
	}
	return out
}

// askers returns the NodeFeatures that request a label and that count.
func (e *Explanation) askers(key string) []string {
	var out []string
	for _, p := range e.world.Fleet.Published(e.outcome.Node) {
		if e.requests(p, key) {
			out = append(out, p.Namespace+"/"+p.Name)
		}
	}
	return out
}

func (e *Explanation) requests(p offline.Published, key string) bool {
	for name := range p.Labels {
		if e.world.Limits.Keys.Qualify(name) == key {
			return true
		}
	}
	return false
}

// candidates returns what could give a name that nothing gives: NodeFeatures whose request is not granted, the worker, and rules, the
// closest first.
func (e *Explanation) candidates(ctx context.Context, name string) []source {
	out := e.refused(name)
	if r := e.workerLabel(ctx, name); r != nil {
		out = append(out, *r)
	}
	named, computed := tracing.Naming(e.program, e.traces, keys.NodeKinds[:], name, e.world.Limits.Keys.Qualify(name))
	slices.SortStableFunc(named, func(a, b *rules.RuleTrace) int { return tracing.Lacking(a) - tracing.Lacking(b) })
	for _, t := range named {
		out = append(out, e.ruleSource(t, ""))
	}
	if len(out) == 0 {
		for _, t := range computed {
			s := e.ruleSource(t, "")
			s.Found = "the rule computes names of its outputs, and can write any"
			out = append(out, s)
		}
	}
	return out
}

// refused returns the NodeFeatures that request a label which is not written.
func (e *Explanation) refused(name string) (out []source) {
	full := e.world.Limits.Keys.Qualify(name)
	why := ""
	for _, no := range e.outcome.Rejected() {
		if no.Ref == (rules.Ref{}) && e.world.Limits.Keys.Qualify(no.Key) == full {
			why = no.Reason
		}
	}
	counts := e.world.Fleet.Published(e.outcome.Node)
	for _, p := range e.world.Objects.Published {
		if p.Node != e.outcome.Node || !e.requests(p, full) {
			continue
		}
		s := source{Kind: "NodeFeature", Name: strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"), How: "spec.labels", Why: why}
		switch {
		case !slices.ContainsFunc(counts, func(c offline.Published) bool { return c.Namespace == p.Namespace && c.Name == p.Name }):
			s.Why = "the NodeFeature does not count for the node"
			if reason := e.world.Fleet.LeftOut(p); reason != "" {
				s.Why = "the NodeFeature does not count: " + reason
			}
		case e.world.Policy().IgnoreLabels && !e.world.Policy().Own(p):
			s.Why = "labels of NodeFeatures other than the worker's are ignored, because restrictions.denyNodeFeatureLabels is set"
			s.Fix = "unset restrictions.denyNodeFeatureLabels in the controller's configuration"
		case why == "" && e.outcome.Failed != nil:
			s.Why = "nothing is written on the node"
		}
		out = append(out, s)
	}
	return out
}

// workerLabel explains a label of the form of the worker's own.
func (e *Explanation) workerLabel(ctx context.Context, name string) *source {
	domain, short := keys.Split(e.world.Limits.Keys.Qualify(name))
	if domain != "" && domain != nfdv1alpha1.FeatureLabelNamespace {
		return nil
	}
	settings, where := e.world.WorkerSettings(ctx)
	r := workerlabel.Explain(short, settings, e.input.Worker, e.Mask)
	if r == nil {
		return nil
	}
	out := &source{Kind: "Worker", Name: r.Source, Found: r.Found, Why: r.Why, Fix: r.Fix}
	switch {
	case r.Fix != "":
		out.Fix += " in " + where
	case r.Why == "":
		out.Why = "the worker writes it by " + where + "; it may run with another configuration: see its log"
	}
	return out
}

// removed returns the Event about the removal of a key.
func (e *Explanation) removed(name string) string {
	for _, key := range []string{e.world.Limits.Keys.Qualify(name), name} {
		for _, kind := range keys.NodeKinds {
			if message, age := e.report.Event(hold.Lost, kind, key); message != "" {
				return fmt.Sprintf("%s ago: %s", age, message)
			}
		}
	}
	return ""
}

// print prints an explanation as text.
func (e *Explanation) print(x *explainedName) error {
	if x.Failed != nil {
		fmt.Fprintf(e.W, "Nothing is written on %s: %s failed: %s\n", x.Node, x.Failed.Ref, clip.Printable(x.Failed.Message))
	}
	for i := range x.Keys {
		e.printKey(&x.Keys[i])
	}
	if len(x.Keys) > 0 {
		return nil
	}
	fmt.Fprintf(e.W, "%s has no %s.\n", x.Node, clip.Printable(x.Name))
	if x.Removed != "" {
		fmt.Fprintf(e.W, "FeaturesLost %s\n", clip.Printable(x.Removed))
	}
	ruled := 0
	for _, s := range x.Candidates {
		if s.trace != nil {
			ruled++
			continue
		}
		who, verb := s.Kind+" "+s.Name, "requests it, and it is not written"
		if s.Kind == "Worker" {
			who, verb = "The source "+s.Name+" of the worker", "writes labels of this form"
		}
		fmt.Fprintf(e.W, "%s %s:\n", clip.Printable(who), verb)
		e.indented(s.Found, e.S.Warn(clip.Printable(s.Why)))
		if s.Fix != "" {
			e.indented("to change that: " + s.Fix)
		}
	}
	if len(x.Candidates) == 0 {
		return cli.Found(fmt.Errorf("no rule, NodeFeature or source of the worker names %s%s", x.Name, e.suggest(x.Name)))
	}
	if ruled > 0 {
		fmt.Fprintf(e.W, "%s could set it, closest first:\n\n", clip.Count(ruled, "rule"))
	}
	for _, s := range x.Candidates {
		if s.trace != nil {
			e.indented(s.Found)
			e.Rule(s.trace)
		}
	}
	return cli.ErrFound
}

// indented prints lines that belong to the line before.
func (e *Explanation) indented(lines ...string) {
	for _, text := range lines {
		if text != "" {
			fmt.Fprintf(e.W, "  %s\n", text)
		}
	}
}

func (e *Explanation) printKey(k *Key) {
	value := k.Value
	if k.Wanted != nil {
		value = k.Wanted
	}
	fmt.Fprintf(e.W, "%s %s\n", k.Kind, e.S.Bold(clip.Printable(printer.Line(k.Key, *value))))
	why := clip.Printable(k.Why)
	if k.State != desired.Foreign && k.State != desired.Own {
		why = e.S.Warn(why)
	}
	e.indented(why)
	if k.Hold != nil {
		e.indented(e.S.Warn(clip.Printable(k.Hold.String())))
	}
	for i, s := range k.Sources {
		switch {
		case k.State == desired.Kept:
			if i == 0 || s.Why != k.Sources[i-1].Why {
				e.indented("set by " + clip.Printable(s.Why))
			}
			if s.trace != nil {
				e.Rule(s.trace)
			}
		case s.trace == nil:
			e.indented(fmt.Sprintf("NodeFeature %s requests it in spec.labels", clip.Printable(s.Name)))
		default:
			e.indented(fmt.Sprintf("from %s (%s)%s", clip.Printable(s.Name), s.How, evaluation.From(s.trace.Ref)))
			e.Rule(giving(s.trace, k))
		}
	}
	for _, lost := range k.Overridden {
		e.indented(lost + " sets another value, which is overridden")
	}
}

package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// TestTheCauseOfARemoval asks for the cause of the removal of a label that one or two objects gave.
func TestTheCauseOfARemoval(t *testing.T) {
	set := func(name string, rule nfdv1alpha1.Rule) *rules.RuleSet {
		rule.Name = "r"
		s, report := rules.CompileSpec(name, &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{rule}}, rules.Options{})
		if !report.OK() {
			t.Fatal(report.Errors)
		}
		return s
	}
	gives, mute := set("gives", nfdv1alpha1.Rule{Labels: M{"v.io/a": "1"}}), set("mute", nfdv1alpha1.Rule{Labels: M{"v.io/b": "1"}})
	nothing := rules.Link(rules.Options{}, mute).Eval(rules.Input{})
	label := plan.Step{Kind: keys.Label, Op: plan.Remove, Key: "v.io/a"}
	past := func(prints map[string]string) *provenance.Record {
		r := &provenance.Record{Whole: true}
		for id, print := range prints {
			r.Put(id, &provenance.Entry{Name: id, Rolled: print, Keys: map[provenance.Key]bool{provenance.KeyOf(keys.Label, "v.io/a"): true}})
		}
		return r
	}
	now := func(list ...*rules.RuleSet) *inForce {
		out := &inForce{givers: map[string]provenance.Giver{}, sets: map[string]*rules.RuleSet{}}
		for _, s := range list {
			out.givers[s.ID()], out.sets[s.ID()] = provenance.Giver{ID: s.ID(), Name: s.Name, Print: "2"}, s
		}
		return out
	}
	failure := &corev1.Taint{Key: "v.io/failed", Effect: corev1.TaintEffectNoSchedule}
	requested := &inForce{givers: map[string]provenance.Giver{"requested": {ID: "requested", Print: "2"}}}
	for name, tc := range map[string]struct {
		step    plan.Step
		past    *provenance.Record
		now     *inForce
		outcome *rules.Outcome
		blind   bool
		want    provenance.Cause
	}{
		"FailureTaint":     {plan.Step{Kind: keys.Taint, Op: plan.Remove, Key: "v.io/failed:NoSchedule"}, past(nil), now(), nothing, false, provenance.Rules},
		"AnotherTaint":     {plan.Step{Kind: keys.Taint, Op: plan.Remove, Key: "v.io/t:NoSchedule"}, past(nil), now(), nothing, false, provenance.Unknown},
		"UnknownGiver":     {label, past(nil), now(gives), nothing, false, provenance.Unknown},
		"SameGiver":        {label, past(map[string]string{"gives": "2"}), now(gives), nothing, false, provenance.Facts},
		"ChangedGiver":     {label, past(map[string]string{"gives": "1"}), now(gives), nothing, false, provenance.Rules},
		"DeletedGiver":     {label, past(map[string]string{"deleted": "1"}), now(gives), nothing, false, provenance.Rules},
		"OneDeletedOfTwo":  {label, past(map[string]string{"deleted": "1", "gives": "2"}), now(gives), nothing, false, provenance.Facts},
		"ChangedWhenBlind": {label, past(map[string]string{"gives": "1"}), now(gives), nothing, true, provenance.Unknown},
		"CannotGiveIt":     {label, past(map[string]string{"mute": "1"}), now(mute), nothing, true, provenance.Rules},
		"RequestedByFacts": {label, past(map[string]string{"requested": "1"}), requested, nothing, true, provenance.Unknown},
		"StillGives":       {label, past(map[string]string{"gives": "1"}), now(gives), rules.Link(rules.Options{}, gives).Eval(rules.Input{}), true, provenance.Rules},
	} {
		r := &Reconciler{taint: failure, object: func(string) *assembly.Object { return nil }}
		j := &judge{r: r, known: &memo{}, past: tc.past, now: tc.now, outcome: tc.outcome, blind: tc.blind}
		if name == "StillGives" {
			j.past.Whole = false
		}
		if got := j.why(tc.step); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestALabelOfANodeFeatureIsNotOverruled: no object set it.
func TestALabelOfANodeFeatureIsNotOverruled(t *testing.T) {
	o := rules.Link(rules.Options{}).Eval(rules.Input{Labels: M{"v.io/a": "1"}})
	j := &judge{known: &memo{}, past: &provenance.Record{Whole: true}, now: &inForce{}, outcome: o}
	if j.overruled(plan.Step{Kind: keys.Label, Key: "v.io/a"}) {
		t.Error("a requested label is overruled by an object")
	}
	o = outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"v.io/a": "1"}})
	if j.outcome = o; !j.overruled(plan.Step{Kind: keys.Label, Key: "v.io/a"}) {
		t.Error("a label of a new object is not overruled")
	}
}

// TestAPassRemembersWhatTheNodeHas carries out all, a part, or nothing of a plan that adds one label and removes another.
func TestAPassRemembersWhatTheNodeHas(t *testing.T) {
	o := outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"v.io/new": "1"}})
	set, _ := o.Giver(keys.Label, "v.io/new")
	failed := outcomeOf(t, nfdv1alpha1.Rule{Actions: []nfdv1alpha1.Action{{Op: "fail", Args: nfdv1alpha1.JSON{Raw: []byte(`{"msg": "x"}`)}}}})
	state := plan.State{Labels: M{"v.io/old": "1"}, Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/old,v.io/forgotten"}}
	wish := plan.Compute(state, plan.Desired{Labels: o.Labels(), Failed: "mark"}, plan.Policy{})
	without := func(key string) *plan.Plan { return wish.Without(func(s plan.Step) bool { return s.Key == key }) }
	before := map[string]heldKey{"label v.io/before": {}}
	for name, tc := range map[string]struct {
		outcome *rules.Outcome
		p       *plan.Plan
		err     error
		held    []string
		gave    bool
	}{
		"All":              {o, wish, nil, nil, true},
		"RemovalHeld":      {o, without("v.io/old"), nil, []string{"label v.io/old"}, true},
		"AdditionHeld":     {o, without("v.io/new"), nil, nil, true},
		"Failed":           {o, wish, errConflict, []string{"label v.io/new", "label v.io/old"}, false},
		"FailedWithoutAdd": {o, without("v.io/new"), errConflict, []string{"label v.io/old"}, false},
		"FailedWithoutAny": {o, without("v.io/new").Without(plan.Step.Takes), errConflict, []string{"label v.io/old"}, false},
		"FrozenNode":       {failed, wish, nil, []string{"label v.io/before"}, false},
		"FrozenAndFailed":  {failed, wish, errConflict, []string{"label v.io/old"}, false},
	} {
		j := &judge{
			known: &memo{held: before}, past: &provenance.Record{}, outcome: tc.outcome,
			now: &inForce{
				givers:  map[string]provenance.Giver{set.ID(): {ID: set.ID()}},
				edition: provenance.NewEdition(map[string]provenance.Giver{set.ID(): {ID: set.ID()}}),
			},
		}
		j.carry(wish, tc.p, tc.err)
		var held []string
		for key := range j.known.held {
			held = append(held, key)
		}
		slices.Sort(held)
		if !slices.Equal(held, tc.held) {
			t.Errorf("%s: held %v, want %v", name, held, tc.held)
		}
		if got := j.known.given.Has(keys.Label, "v.io/new", "1"); got != tc.gave {
			t.Errorf("%s: the outcome is on the Node: %t, want %t", name, got, tc.gave)
		}
	}
}

// counter counts lists of Nodes.
type counter struct {
	client.Reader
	lists int
	err   error
}

func (c *counter) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	c.lists++
	for _, name := range []string{"a", "b", "c"} {
		into.(*corev1.NodeList).Items = append(into.(*corev1.NodeList).Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return c.err
}

func TestNodesAreCountedOnceASecond(t *testing.T) {
	clock, nodes := clocktesting.NewFakePassiveClock(time.Now()), &counter{}
	r := &Reconciler{cache: informers{client: nodes}, clock: clock}
	for _, step := range []struct {
		after time.Duration
		lists int
	}{{0, 1}, {0, 1}, {nodeCountAge - 1, 1}, {1, 2}, {nodeCountAge, 3}} {
		clock.SetTime(clock.Now().Add(step.after))
		if got := r.fleetSize(t.Context()); got != 3 || nodes.lists != step.lists {
			t.Errorf("%d nodes after %d lists, want 3 after %d", got, nodes.lists, step.lists)
		}
	}
	nodes.err = errors.New("not synced")
	clock.SetTime(clock.Now().Add(nodeCountAge))
	for range 2 {
		if got := r.fleetSize(t.Context()); got != 0 {
			t.Errorf("%d nodes although they cannot be counted", got)
		}
	}
	if nodes.lists != 5 {
		t.Errorf("%d lists, want 5: nothing is remembered of a failure", nodes.lists)
	}
}

// TestABlindPassKeepsWhatTheNodeHadAtFirst adds a label and removes it again, and disables labels that another object names.
func TestABlindPassKeepsWhatTheNodeHadAtFirst(t *testing.T) {
	o := outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"v.io/a": "1"}})
	set, _ := o.Giver(keys.Label, "v.io/a")
	r := &Reconciler{policy: plan.Policy{Taints: true}}
	j := &judge{r: r, known: &memo{}, node: &corev1.Node{}, blind: true, now: &inForce{}, outcome: outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"x": "1"}}), past: &provenance.Record{}}
	r.unproven(t.Context(), plan.Compute(plan.State{}, plan.Desired{Labels: M{"v.io/a": "1"}}, plan.Policy{}), j)
	added := plan.State{Labels: M{"v.io/a": "1"}, Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/a"}}
	p, _ := r.unproven(t.Context(), plan.Compute(added, plan.Desired{}, plan.Policy{}), j)
	if got := stepKeys(p); !slices.Equal(got, []string{"v.io/a"}) {
		t.Errorf("the plan changes %v, want the removal of what this process added", got)
	}
	r.disable.Labels = true
	j.known, j.now = &memo{}, &inForce{sets: map[string]*rules.RuleSet{"other": set}}
	p, _ = r.unproven(t.Context(), plan.Compute(added, plan.Desired{}, plan.Policy{}), j)
	if got := stepKeys(p); !slices.Equal(got, []string{"v.io/a"}) {
		t.Errorf("the plan changes %v, want the removal of what is disabled", got)
	}
}

// TestAFlappingKeyIsAdopted: that changes the record alone.
func TestAFlappingKeyIsAdopted(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := &Reconciler{changes: flap.NewChanges(clock), clock: clock, events: record.NewFakeRecorder(10)}
	for range flap.Limit {
		r.changes.Add("n", []string{"label v.io/adopted", "label v.io/changed", "label v.io/forgotten"})
	}
	state := plan.State{Labels: M{"v.io/adopted": "1", "v.io/changed": "1"}, Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/changed,v.io/forgotten"}}
	p := plan.Compute(state, plan.Desired{Labels: M{"v.io/adopted": "1", "v.io/changed": "2"}}, plan.Policy{})
	j := &judge{
		r: r, node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, known: &memo{}, past: &provenance.Record{}, now: &inForce{},
		outcome: outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"x": "1"}}),
	}
	p, again := r.flapping(t.Context(), p, j)
	if got := stepKeys(p); !slices.Equal(got, []string{"v.io/adopted", "v.io/forgotten"}) || again <= 0 {
		t.Errorf("the plan changes %v, again after %s", got, again)
	}
}

// TestTheStepOfLostFeatures tells the taint of lost features from other steps, and reports it beside them.
func TestTheStepOfLostFeatures(t *testing.T) {
	taint := corev1.Taint{Key: "v.io/lost", Effect: corev1.TaintEffectNoSchedule}
	tracker := loss.NewTracker(clocktesting.NewFakePassiveClock(time.Now()))
	events := record.NewFakeRecorder(9)
	r := &Reconciler{losses: Losses{Taint: taint, Tracker: tracker}, events: events}
	lost := taint
	lost.Value = "ml.link"
	p := plan.Compute(plan.State{}, plan.Desired{
		Labels: M{"v.io/lost:NoSchedule": "x", "v.io/a": "1"}, Taints: []corev1.Taint{{Key: "v.io/a", Effect: corev1.TaintEffectNoSchedule}, lost},
	}, plan.Policy{Taints: true})
	var got []string
	for _, s := range p.Steps {
		if r.losses.is(s) {
			got = append(got, string(s.Kind)+" "+s.Key)
		}
		if (Losses{Taint: taint}).is(s) {
			t.Errorf("%s is the taint of lost features without the setting", s.Key)
		}
	}
	if !slices.Equal(got, []string{"taint v.io/lost:NoSchedule"}) {
		t.Errorf("%v, want the taint alone", got)
	}
	j := &judge{r: r, node: &corev1.Node{}, known: &memo{}, outcome: outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"x": "1"}})}
	r.reportLoss(p, j)
	if len(events.Events) != 1 || !strings.Contains(<-events.Events, "v.io/lost=ml.link:NoSchedule: its features are lost") {
		t.Error("the taint is not reported once")
	}
}

// TestOutputsThatWait lists what the next passes will write: not what is written now, is rejected, contested or flaps.
func TestOutputsThatWait(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := &Reconciler{clock: clock, changes: flap.NewChanges(clock), events: record.NewFakeRecorder(10)}
	state := plan.State{Labels: M{"v.io/old": "1"}, Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/old"}}
	want := plan.Desired{
		Labels: M{"v.io/contested": "1", "v.io/done": "1", "v.io/flaps": "1", "v.io/refused": "1", "v.io/waits": "1"}, Failed: "mark",
	}
	wish := plan.Compute(state, want, plan.Policy{})
	known := &memo{}
	for _, s := range wish.Steps {
		switch s.Key {
		case "v.io/refused":
			known.refuse(s, clock.Now())
		case "v.io/contested":
			for range flap.CorrectionLimit {
				known.corrections.Add(name(s), s.New, clock.Now())
			}
		case "v.io/flaps":
			for range flap.Limit {
				r.changes.Add("n", []string{name(s)})
			}
		}
	}
	j := &judge{
		r: r, node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, known: known, outcome: outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"x": "1"}}),
	}
	got := r.waiting(j, wish, wish.Without(func(s plan.Step) bool { return s.Key != "v.io/done" }))
	if want := []string{"removal of label v.io/old", "label v.io/waits"}; !slices.Equal(got, want) {
		t.Errorf("%q wait, want %q", got, want)
	}
}

// TestOnlyUnexplainedRemovalsAreConfirmed runs passes while a NodeFeature exists that the cache lacks: they must not wait for it if they
// remove nothing, or if it is known why.
func TestOnlyUnexplainedRemovalsAreConfirmed(t *testing.T) {
	start := func(t *testing.T, change ...func(*Reconciler)) *passes {
		w := newPasses(t, change...)
		w.publish(link("up"))
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
		w.pass()
		w.store("hidden")
		return w
	}
	t.Run("Addition", func(t *testing.T) {
		w := start(t)
		w.rule("q", nfdv1alpha1.Rule{Labels: M{"new": "true"}})
		w.pass()
		w.hasLabels("an addition", M{"up": "true", "new": "true"})
	})
	t.Run("SeenGiven", func(t *testing.T) {
		w := start(t)
		w.publish(link("down"))
		w.pass()
		w.hasLabels("a label that this process has seen given", M{"up": ""})
	})
	t.Run("Disabled", func(t *testing.T) {
		w := start(t)
		w.r.disable.Labels = true
		w.pass()
		w.hasLabels("a disabled output", M{"up": ""})
	})
	t.Run("Nothing", func(t *testing.T) {
		w := start(t)
		w.restart()
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
		if again := w.pass(); again != 0 {
			t.Errorf("a pass that changes nothing waits for %s", again)
		}
	})
	t.Run("NotReady", func(t *testing.T) {
		w := start(t)
		w.restart(withReady)
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
		w.taint(startupTaint)
		w.boots("b1")
		w.publish(ofBoot("b0", M{"link": "up"}))
		w.pass()
		w.isReady("with old features", "False "+readyStaleBoot)
		w.publish(ofBoot("b1", M{"link": "up"}))
		if again := w.pass(); again != retryIncomplete {
			t.Errorf("again after %s, want %s", again, retryIncomplete)
		}
		w.isReady("while an object is missing", "False "+readyStaleBoot)
		w.do("DELETE", featuresPath+"/hidden", nil)
		w.pass()
		w.isReady("after its deletion", "True "+readyApplied)
	})
}

// TestThePaceIsForTaintsThatEvict: other changes, and dry runs, do not wait for it.
func TestThePaceIsForTaintsThatEvict(t *testing.T) {
	pace := func(r *Reconciler) { r.gate = budget.NewGate(budget.Evictions{Every: time.Hour, Share: 1}, r.clock) }
	w := newPasses(t, pace)
	w.publish(link("up"))
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"a": "1"}})
	if again := w.pass(); again != 0 || len(w.says("EvictionHeld")) != 0 {
		t.Errorf("a label waits for %s", again)
	}
	w.r.dryRun = true
	w.rule("r", nfdv1alpha1.Rule{Taints: []corev1.Taint{{Key: prefix + "t", Effect: corev1.TaintEffectNoExecute}}})
	if again := w.pass(); again != 0 || len(w.says("EvictionHeld")) != 0 {
		t.Errorf("a dry run waits for %s", again)
	}
}

// TestReadinessAfterTheWorkersSetsAreLost restarts the controller while the object of a worker cannot be read.
func TestReadinessAfterTheWorkersSetsAreLost(t *testing.T) {
	for name, tc := range map[string]struct{ boot, want string }{
		"SameBoot": {"b1", "True " + readyApplied}, "NextBoot": {"b2", "False " + readySetsMissing},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPasses(t, withReady)
			rule := func() { w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}})) }
			rule()
			w.boots("b1")
			w.publish(ofBoot("b1", M{"link": "up"}))
			w.pass()
			w.isReady("at first", "True "+readyApplied)
			w.boots(tc.boot)
			broken := published("n", nil)
			broken.Spec.Features.Facts, broken.Spec.Features.Err = nil, &featuresets.MissingError{Sets: []string{"a"}}
			w.cache.Put(broken)
			w.restart(withReady)
			rule()
			w.pass()
			w.isReady("after the restart", tc.want)
		})
	}
}

// TestARemovedTaintDoesNotDelayReadiness: only taints that are added could keep pods away that need them.
func TestARemovedTaintDoesNotDelayReadiness(t *testing.T) {
	w := newPasses(t, withReady)
	w.rule("r", nfdv1alpha1.Rule{Taints: []corev1.Taint{{Key: prefix + "t", Effect: corev1.TaintEffectNoSchedule}}})
	w.boots("b1")
	w.publish(ofBoot("b0", nil))
	w.pass()
	w.isReady("with old features", "False "+readyStaleBoot)
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"a": "1"}})
	w.publish(ofBoot("b1", nil))
	w.pass()
	w.isReady("in the pass that removes a taint", "True "+readyApplied)
}

// TestAConditionOfARuleDoesNotOpenTheGate, nor keep it closed.
func TestAConditionOfARuleDoesNotOpenTheGate(t *testing.T) {
	const key = "example.com/pending"
	clock := clocktesting.NewFakePassiveClock(time.Now())
	events := record.NewFakeRecorder(9)
	r := &Reconciler{clock: clock, startup: Startup{Key: key, FailOpenAfter: time.Hour}, events: events, metrics: sharedMetrics()}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(clock.Now())}}
	node.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: assayv1alpha1.FeaturesReadyCondition, Status: corev1.ConditionTrue}}
	want := plan.Desired{Conditions: M{"v.io/A": keys.FormatCondition("True", "R", "m")}, Failed: "mark"}
	p, _, _ := r.open(node, plan.Compute(plan.StateOf(node), want, plan.Policy{}))
	if got := stepKeys(p); !slices.Contains(got, key+":NoSchedule") {
		t.Errorf("the plan changes %v, want the removal of the start-up taint", got)
	}
	r.failedOpen(&corev1.Node{})
	if got := <-events.Events; !strings.HasSuffix(got, "its worker has not published features") {
		t.Errorf("Event: %s", got)
	}
}

// TestAFrozenNodeKeepsUnmetLabels: a fail action prevents all writes but its own.
func TestAFrozenNodeKeepsUnmetLabels(t *testing.T) {
	const label = assayv1alpha1.RequestLabelNamespace + "/ml.amx"
	w := newPasses(t, func(r *Reconciler) { withReady(r); r.requests = true })
	w.rule("r", nfdv1alpha1.Rule{Actions: []nfdv1alpha1.Action{{Op: "fail", Args: nfdv1alpha1.JSON{Raw: []byte(`{"msg": "broken"}`)}}}})
	w.boots("b1")
	w.label(apiserver.Object{label: "true"})
	w.publish(ofBoot("b1", nil))
	w.pass()
	if w.node().Labels[label] == "" {
		t.Error("the label is removed")
	}
}

// TestLeftOutObjectsAreReportedByKind leaves out objects over the budget, and one with missing sets after them.
func TestLeftOutObjectsAreReportedByKind(t *testing.T) {
	w := newPasses(t)
	w.rule("r", nfdv1alpha1.Rule{Labels: M{"label": "1"}})
	w.publish(link("up"))
	over := nodefeature.NewBudget(namespace).Fits(namespace, "other", "n", nodefeature.MaxMissingBytes+1)
	for name, err := range map[string]error{
		"a": over, "b": over, "c": &featuresets.MissingError{Sets: []string{"s"}}, "d": over, "e": &featuresets.MissingError{Sets: []string{"s"}},
	} {
		f := published(name, nil)
		f.Spec.Features.Err = err
		w.publish(f)
	}
	w.pass()
	var missing, many int
	for len(w.events.Events) > 0 {
		switch e := <-w.events.Events; {
		case strings.Contains(e, "FeatureSetsMissing"):
			missing++
		case strings.Contains(e, "TooManyNodeFeatures") && strings.Contains(e, "3 are left out"):
			many++
		}
	}
	if missing != 2 || many != 1 {
		t.Errorf("%d Events about missing sets, %d about the budget; want 2 and 1", missing, many)
	}
}

// TestAWatchdogAndAnAnnotationAtTheirLimits: exactly at the limit, a pass is not stuck, and an annotation may be written.
func TestAWatchdogAndAnAnnotationAtTheirLimits(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w := NewWatchdog(clock)
	defer w.begin("n")()
	clock.SetTime(clock.Now().Add(stuckAfter))
	if err := w.Check(nil); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	r, f := &Reconciler{clock: clock, nudges: true}, published("n", nil)
	known, node := &memo{}, &corev1.Node{}
	first, _ := r.nudge(node, []*nodefeature.NodeFeature{f}, known)
	node.Annotations = M{assayv1alpha1.FeaturesGenerationAnnotation: first}
	f.Generation++
	clock.SetTime(clock.Now().Add(nudgeEvery))
	if second, again := r.nudge(node, []*nodefeature.NodeFeature{f}, known); second == first || again != 0 {
		t.Errorf("after %s the value is %q, again after %s", nudgeEvery, second, again)
	}
}

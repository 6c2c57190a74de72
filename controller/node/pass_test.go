package node

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/node/decide"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules/keys"
)

// everything is a rule with an output of each kind.
func everything() nfdv1alpha1.Rule {
	return nfdv1alpha1.Rule{
		Labels: M{"label": "1"}, Annotations: M{"annotation": "2"}, ExtendedResources: M{"resource": "3"},
		Taints: []corev1.Taint{{Key: prefix + "taint", Value: "4", Effect: corev1.TaintEffectNoSchedule}},
	}
}

// outputs returns what of everything the Node has.
func outputs(node *corev1.Node) (out []string) {
	if node.Labels[prefix+"label"] == "1" {
		out = append(out, "label")
	}
	if node.Annotations[prefix+"annotation"] == "2" {
		out = append(out, "annotation")
	}
	if amount, ok := node.Status.Capacity[prefix+"resource"]; ok && amount.Value() == 3 {
		out = append(out, "resource")
	}
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == prefix+"taint" && t.Value == "4" }) {
		out = append(out, "taint")
	}
	return out
}

// TestAPassWritesWhatIsEnabled disables kinds of outputs when a node already has them: they are removed without evidence.
func TestAPassWritesWhatIsEnabled(t *testing.T) {
	for name, tc := range map[string]struct {
		disable func(*Reconciler)
		want    []string
	}{
		"Everything":    {func(*Reconciler) {}, []string{"label", "annotation", "resource", "taint"}},
		"NoLabels":      {func(r *Reconciler) { r.settings.Withholding.Labels = true }, []string{"annotation", "resource", "taint"}},
		"NoAnnotations": {func(r *Reconciler) { r.settings.Withholding.Annotations = true }, []string{"label", "resource", "taint"}},
		"NoResources":   {func(r *Reconciler) { r.settings.Withholding.ExtendedResources = true }, []string{"label", "annotation", "taint"}},
		"NoTaints":      {func(r *Reconciler) { r.settings.Policy.Taints = false }, []string{"label", "annotation", "resource"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPasses(t)
			w.publish(link("up"))
			w.rule("r", everything())
			w.pass()
			if got := outputs(w.node()); !slices.Equal(got, []string{"label", "annotation", "resource", "taint"}) {
				t.Fatalf("the first controller writes %v", got)
			}
			w.restart(tc.disable)
			w.rule("r", everything())
			w.pass()
			if got := outputs(w.node()); !slices.Equal(got, tc.want) {
				t.Errorf("the node has %v, want %v", got, tc.want)
			}
			version := w.node().ResourceVersion
			w.pass()
			if got := w.node().ResourceVersion; got != version {
				t.Error("a second pass writes again")
			}
		})
	}
}

func TestNothingIsWrittenBeforeTheRulesAreCompiled(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	version := w.node().ResourceVersion
	if again := w.pass(); again != retryHeld {
		t.Errorf("again after %s, want %s", again, retryHeld)
	}
	w.r.settings.Withholding.All = true
	w.rule("r", everything())
	w.pass()
	if got := w.node().ResourceVersion; got != version {
		t.Error("a dry run writes to the Node")
	}
	if s := w.r.stats.Summary("r"); s.Matched != 1 {
		t.Errorf("a dry run reports %d nodes, want 1", s.Matched)
	}
}

func TestADeletedNodeIsForgotten(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	w.rule("r", everything())
	w.pass()
	if w.r.stats.Nodes() != 1 || len(w.r.memory.nodes) != 1 {
		t.Fatal("the node is not counted")
	}
	w.do(http.MethodDelete, "/api/v1/nodes/n", nil)
	if again := w.pass(); again != 0 {
		t.Errorf("a deleted node is reconciled again after %s", again)
	}
	if w.r.stats.Nodes() != 0 || len(w.r.memory.nodes) != 0 {
		t.Error("the node is still counted")
	}
}

// TestANodeThatReplacesAnotherIsAnotherMachine deletes and creates the Node between two passes.
func TestANodeThatReplacesAnotherIsAnotherMachine(t *testing.T) {
	w := newPasses(t, func(r *Reconciler) {
		r.limits.breaker = budget.NewBreaker(budget.Budget{Window: time.Hour, Hold: time.Hour}, r.clock)
	})
	w.rule("r", nfdv1alpha1.Rule{
		LabelsTemplate: "{{range .test.attr}}link={{.Value}}\n{{end}}",
		MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "test.attr", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{
			"link": {Op: nfdv1alpha1.MatchExists},
		}}},
	}, ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	for _, value := range []string{"a", "b", "up", "c"} {
		w.publish(link(value))
		w.pass()
		w.clock.Step(time.Second)
	}
	w.hasLabels("at first", M{"link": "up", "up": "true"}) // one flaps, and the other is over the budget
	if held, _ := w.r.limits.breaker.Held(); held != 1 {
		t.Fatalf("removals of %d nodes are held", held)
	}
	w.do(http.MethodDelete, "/api/v1/nodes/n", nil)
	w.do(http.MethodPost, "/api/v1/nodes", apiserver.Object{"metadata": apiserver.Object{"name": "n"}})
	w.pass()
	w.hasLabels("on the other machine", M{"link": "c", "up": ""})
	if held, _ := w.r.limits.breaker.Held(); held != 0 {
		t.Error("a removal of the deleted Node is still held")
	}
}

// TestAnOlderNodeWaitsForTheCache lets a pass see a Node from before its last write.
func TestAnOlderNodeWaitsForTheCache(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	w.rule("r", everything())
	w.pass()
	known := w.r.memory.of(w.node())
	if known.Written != w.node().ResourceVersion {
		t.Errorf("the last write is %s, want %s", known.Written, w.node().ResourceVersion)
	}
	known.Written += "0"
	w.label(apiserver.Object{prefix + "label": nil})
	if again := w.pass(); again != retryHeld {
		t.Errorf("again after %s, want %s", again, retryHeld)
	}
	w.hasLabels("with an older Node", M{"label": ""})
}

// TestRemovalsOverTheBudgetAreHeld lets a node lose a label when its budget is 0: because a fact changed, because the rule did, and
// because both did.
func TestRemovalsOverTheBudgetAreHeld(t *testing.T) {
	const hold = 5 * time.Minute
	start := func(t *testing.T) *passes {
		w := newPasses(t, func(r *Reconciler) {
			r.limits.breaker = budget.NewBreaker(budget.Budget{Window: time.Hour, Hold: hold}, r.clock)
		})
		w.publish(link("up"))
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
		w.pass()
		w.hasLabels("at first", M{"up": "true"})
		return w
	}
	t.Run("AFactChanged", func(t *testing.T) {
		w := start(t)
		w.publish(link("down"))
		if again := w.pass(); again != hold {
			t.Errorf("again after %s, want %s", again, hold)
		}
		w.hasLabels("held", M{"up": "true"})
		if got := w.holds("RemovalHeld"); len(got) != 1 || !strings.Contains(got[0].Why, "too many nodes") || !got[0].Has(keys.Label, prefix+"up") {
			t.Errorf("published: %+v", got)
		}
		w.clock.Step(time.Minute)
		if again := w.pass(); again != hold-time.Minute {
			t.Errorf("again after %s, want %s", again, hold-time.Minute)
		}
		if got := w.says("RemovalHeld"); len(got) != 0 {
			t.Errorf("the Event is repeated: %q", got)
		}
		w.clock.Step(hold)
		if again := w.pass(); again != 0 {
			t.Errorf("after the hold time, again after %s", again)
		}
		w.hasLabels("after the hold time", M{"up": ""})
	})
	t.Run("TheFactIsBack", func(t *testing.T) {
		w := start(t)
		w.publish(link("down"))
		w.pass()
		w.publish(link("up"))
		w.pass()
		if held, _ := w.r.limits.breaker.Held(); held != 0 {
			t.Error("the breaker still holds the removal, which the plan does not contain anymore")
		}
		w.clock.Step(hold)
		w.publish(link("down"))
		w.pass()
		w.hasLabels("after another loss", M{"up": "true"})
	})
	t.Run("TheRuleChanged", func(t *testing.T) {
		w := start(t)
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"other": "true"}}))
		if again := w.pass(); again != 0 {
			t.Errorf("again after %s", again)
		}
		w.hasLabels("after the edit", M{"up": "", "other": "true"})
	})
	t.Run("TheRuleOfAnotherKeyChanged", func(t *testing.T) {
		w := start(t)
		w.rule("q", nfdv1alpha1.Rule{Labels: M{"other": "true"}})
		w.publish(link("down"))
		w.pass()
		w.hasLabels("after the edit", M{"up": "true", "other": "true"})
	})
	t.Run("AnotherProcess", func(t *testing.T) {
		w := start(t)
		w.restart(func(r *Reconciler) {
			r.limits.breaker = budget.NewBreaker(budget.Budget{Window: time.Hour, Hold: hold}, r.clock)
		})
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
		w.publish(link("down"))
		w.pass()
		w.hasLabels("after a restart with other facts", M{"up": "true"})
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"other": "true"}}))
		w.pass()
		w.hasLabels("after a restart with another rule", M{"up": ""})
	})
	t.Run("NoRecord", func(t *testing.T) {
		w := newPasses(t) // the default budget allows ten nodes
		w.publish(link("up"))
		w.change("", apiserver.Object{"metadata": apiserver.Object{
			"labels":      apiserver.Object{prefix + "old": "true"},
			"annotations": apiserver.Object{nfdv1alpha1.FeatureLabelsAnnotation: "old"},
		}})
		w.rule("r", nfdv1alpha1.Rule{Labels: M{"new": "true"}})
		w.pass()
		w.hasLabels("without a record", M{"old": "true", "new": "true"})
		if got := w.holds("RemovalHeld"); len(got) != 1 || !strings.Contains(got[0].Why, "not known which rule") {
			t.Errorf("published: %+v", got)
		}
		w.clock.Step(budget.Default.Hold)
		w.pass()
		w.hasLabels("after the hold time", M{"old": "", "new": "true"})
	})
}

// TestARejectedKeyDoesNotBlockTheOthers has the API server reject a write because of one key, and because of one that it does not name.
func TestARejectedKeyDoesNotBlockTheOthers(t *testing.T) {
	kind := schema.GroupKind{Kind: "Node"}
	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"Named":          {apierrors.NewInvalid(kind, "n: "+prefix+"annotation", nil), []string{"label", "resource", "taint"}},
		"NamedForbidden": {apierrors.NewForbidden(schema.GroupResource{}, "n", errors.New(prefix+"label")), []string{"annotation", "resource", "taint"}},
		"Unnamed":        {apierrors.NewInvalid(kind, "n", nil), []string{"label", "annotation", "taint"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPasses(t)
			w.publish(link("up"))
			w.rule("r", everything())
			first := true
			w.fail = func(string) error {
				if !first {
					return nil
				}
				first = false
				return tc.err
			}
			w.pass()
			if got := outputs(w.node()); !slices.Equal(got, tc.want) {
				t.Errorf("the node has %v, want %v", got, tc.want)
			}
			if got := w.holds("KeyRefused"); len(got) != 1 {
				t.Errorf("published: %+v", got)
			}
			if s := w.r.stats.Summary("r"); !strings.Contains(s.Message, "the API server refuses it") {
				t.Errorf("the rule reports %q", s.Message)
			}
			w.clock.Step(time.Minute)
			if again := w.pass(); again != decide.RefusalMemory-time.Minute {
				t.Errorf("again after %s, want %s", again, decide.RefusalMemory-time.Minute)
			}
			if got := outputs(w.node()); !slices.Equal(got, tc.want) {
				t.Errorf("a minute later the node has %v, want %v", got, tc.want)
			}
			w.clock.Step(decide.RefusalMemory)
			w.pass()
			if got := outputs(w.node()); len(got) != 4 {
				t.Errorf("after %s the node has %v, want everything", decide.RefusalMemory, got)
			}
		})
	}
}

// TestAFailedWriteIsRetried lets writes of the Node fail for reasons other than its keys.
func TestAFailedWriteIsRetried(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	broken := apierrors.NewInternalError(errors.New(prefix + "label"))
	for name, tc := range map[string]struct{ err, want error }{
		"Conflict":    {apierrors.NewConflict(nodes, "n", errors.New("changed")), decide.ErrConflict},
		"Deleted":     {apierrors.NewNotFound(nodes, "n"), nil},
		"ServerError": {broken, broken},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPasses(t)
			w.publish(link("up"))
			w.rule("r", everything())
			for _, part := range []string{"", "taints"} { // the write of all, and of taints alone
				w.fail = func(body string) error {
					if strings.Contains(body, part) {
						return tc.err
					}
					return nil
				}
				if _, err := w.try(); !errors.Is(err, tc.want) {
					t.Errorf("a failed write of %q returns %v, want %v", part, err, tc.want)
				}
			}
			w.fail = func(string) error { return nil }
			w.pass()
			if got := outputs(w.node()); len(got) != 4 {
				t.Errorf("the node has %v, want everything", got)
			}
		})
	}
}

// TestALostAnswerLeavesNoDoubt edits a rule twice. The first edit is carried out, its answer is lost, and the cache has not seen it when the
// second one comes.
func TestALostAnswerLeavesNoDoubt(t *testing.T) {
	lost := errors.New("connection reset")
	w := newPasses(t)
	edit := func(label string) {
		w.rule("r", nfdv1alpha1.Rule{Labels: M{label: "true"}})
	}
	edit("first")
	w.pass()
	w.cached = w.node()
	w.lose = func(string) error { return lost }
	edit("second")
	if _, err := w.try(); !errors.Is(err, lost) {
		t.Fatalf("the pass returns %v, want the error of its write", err)
	}
	w.hasLabels("after the edit whose answer is lost", M{"first": "", "second": "true"})
	w.lose = func(string) error { return nil }
	edit("third")
	if _, err := w.try(); err != nil && !errors.Is(err, decide.ErrConflict) {
		t.Fatal(err)
	}
	w.cached = nil
	w.pass()
	w.hasLabels("after the next edit", M{"first": "", "second": "", "third": "true"})
	if got := w.says("RemovalHeld"); len(got) != 0 {
		t.Errorf("keys are held: %q", got)
	}
	if got := w.node().Annotations[nfdv1alpha1.FeatureLabelsAnnotation]; got != "third" {
		t.Errorf("the record on the Node is %q", got)
	}
}

// TestTheFirstPassConfirmsDeletions starts with the record of a previous leader. The record lists the key of an inactive object.
func TestTheFirstPassConfirmsDeletions(t *testing.T) {
	w := newPasses(t)
	w.publish(link("up"))
	w.rule("gone", nfdv1alpha1.Rule{Labels: M{"gone": "true"}})
	w.rule("known", nfdv1alpha1.Rule{Labels: M{"known": "true"}})
	w.rule("file:built-in", nfdv1alpha1.Rule{Labels: M{"file": "true"}})
	w.rule("stays", nfdv1alpha1.Rule{Labels: M{"stays": "true"}})
	w.pass()
	var confirmed []string
	away := errors.New("the API server is away")
	w.restart(func(r *Reconciler) {
		r.owners.object = func(name string) *assembly.Object {
			if name == "known" {
				return &assembly.Object{UID: "another"}
			}
			return nil
		}
		r.owners.confirm = func(_ context.Context, name, uid string) error {
			if name != uid {
				t.Errorf("confirms %s with the UID %s", name, uid)
			}
			confirmed = append(confirmed, name)
			return away
		}
	})
	w.rule("stays", nfdv1alpha1.Rule{Labels: M{"stays": "true"}})
	for range 2 {
		if _, err := w.try(); !errors.Is(err, away) {
			t.Errorf("without the API server the pass returns %v", err)
		}
	}
	w.hasLabels("before the confirmation", M{"gone": "true", "known": "true"})
	away = nil
	w.pass()
	if want := []string{"gone", "gone", "gone", "known"}; !slices.Equal(confirmed, want) {
		t.Errorf("confirmed: %v, want %v", confirmed, want)
	}
	w.hasLabels("after the confirmation", M{"gone": "", "known": "", "stays": "true"})
	w.pass()
	if len(confirmed) != 4 {
		t.Error("a later pass confirms again")
	}
}

// TestANodeFeatureThatTheCacheLacksHoldsRemovals: a process whose first list was truncated removes nothing that it has not seen given.
func TestANodeFeatureThatTheCacheLacksHoldsRemovals(t *testing.T) {
	w := newPasses(t)
	other := published("other", attributes("test.attr", M{"link": "up"}))
	w.publish(published("n", nil))
	w.publish(other)
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
	w.pass()
	w.hasLabels("at first", M{"up": "true"})
	w.cache.Remove(other)
	w.restart()
	w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}), nfdv1alpha1.Rule{Labels: M{"new": "true"}})
	if again := w.pass(); again != retryIncomplete {
		t.Errorf("again after %s, want %s", again, retryIncomplete)
	}
	w.hasLabels("while an object is missing", M{"up": "true", "new": "true"})
	w.do(http.MethodDelete, featuresPath+"/other", nil)
	w.pass()
	w.hasLabels("after its deletion", M{"up": "", "new": "true"})
}

// TestAKeyOfAnotherClientIsReported keeps foreign keys.
func TestAKeyOfAnotherClientIsReported(t *testing.T) {
	w := newPasses(t, func(r *Reconciler) { r.settings.Policy.KeepForeign = true })
	w.publish(link("up"))
	w.label(apiserver.Object{prefix + "label": "theirs"})
	w.rule("r", everything())
	w.pass()
	w.hasLabels("with a foreign label", M{"label": "theirs"})
	if s := w.r.stats.Summary("r"); !strings.Contains(s.Message, "another client wrote it") {
		t.Errorf("the rule reports %q", s.Message)
	}
}

// TestTheFailureTaintGoesWithTheFailure fails a node by a fact, and repairs it.
func TestTheFailureTaintGoesWithTheFailure(t *testing.T) {
	w := newPasses(t, func(r *Reconciler) {
		r.settings.FailTaint = &corev1.Taint{Key: "example.com/failed", Effect: corev1.TaintEffectNoSchedule}
		r.limits.breaker = budget.NewBreaker(budget.Budget{Window: time.Hour, Hold: time.Hour}, r.clock)
	})
	w.publish(link("up"))
	w.rule("r", ifUp(nfdv1alpha1.Rule{Actions: []nfdv1alpha1.Action{{Op: "fail", Args: nfdv1alpha1.JSON{Raw: []byte(`{"msg": "broken"}`)}}}}))
	w.pass()
	if node := w.node(); len(node.Spec.Taints) != 1 || node.Annotations[assayv1alpha1.FailedAnnotation] == "" {
		t.Errorf("taints %v, annotations %v", node.Spec.Taints, node.Annotations)
	}
	w.publish(link("down"))
	w.pass()
	if node := w.node(); len(node.Spec.Taints) != 0 || node.Annotations[assayv1alpha1.FailedAnnotation] != "" {
		t.Errorf("after the repair: taints %v, annotations %v", node.Spec.Taints, node.Annotations)
	}
}

// TestAFlappingKeyIsLeftAloneUntilTheRuleChanges changes a fact four times within a minute.
func TestAFlappingKeyIsLeftAloneUntilTheRuleChanges(t *testing.T) {
	w := newPasses(t)
	rule := func(label string) nfdv1alpha1.Rule {
		return nfdv1alpha1.Rule{
			LabelsTemplate: "{{range .test.attr}}" + label + "={{.Value}}\n{{end}}",
			MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "test.attr", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{
				"link": {Op: nfdv1alpha1.MatchExists},
			}}},
		}
	}
	w.rule("r", rule("link"))
	var again time.Duration
	for _, value := range []string{"a", "b", "c", "d"} {
		w.publish(link(value))
		again = w.pass()
		w.clock.Step(time.Second)
	}
	w.hasLabels("while it flaps", M{"link": "c"})
	if again <= 0 || again > time.Minute {
		t.Errorf("again after %s", again)
	}
	w.clock.Step(time.Minute)
	w.pass()
	w.hasLabels("a minute later", M{"link": "d"})
	for _, value := range []string{"e", "f", "g"} {
		w.publish(link(value))
		w.pass()
	}
	w.rule("r", rule("link"), nfdv1alpha1.Rule{Labels: M{"link": "h"}})
	w.pass()
	w.hasLabels("after an edit", M{"link": "h"})
}

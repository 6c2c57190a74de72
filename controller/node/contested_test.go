package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/plan"
)

// outcomeOf returns the outcome of one rule.
func outcomeOf(t *testing.T, rule nfdv1alpha1.Rule) *rules.Outcome {
	t.Helper()
	rule.Name = "r"
	set, report := rules.CompileSpec("r", &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{rule}}, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors)
	}
	return rules.Link(rules.Options{}, set).Eval(rules.Input{})
}

// givenBy returns what a node remembers of an outcome that was carried out.
func givenBy(o *rules.Outcome) *provenance.Given {
	givers := map[string]provenance.Giver{}
	for g := range o.Given() {
		id := provenance.IDOf(g.Set)
		givers[id] = provenance.Giver{ID: id}
	}
	return provenance.GivenBy(o, provenance.NewEdition(givers))
}

// TestContestedKeysAreCorrectedThreeTimesAnHour has another client change one key of a node every second, for four hours.
func TestContestedKeysAreCorrectedThreeTimesAnHour(t *testing.T) {
	const label = "feature.node.kubernetes.io/a"
	for name, tc := range map[string]struct {
		rule nfdv1alpha1.Rule
		undo func(*plan.State)
		put  func(*plan.State)
	}{
		"ALabelThatIsChanged": {
			nfdv1alpha1.Rule{Labels: map[string]string{"a": "ours"}},
			func(s *plan.State) { s.Labels = map[string]string{label: "theirs"} },
			func(s *plan.State) { s.Labels = map[string]string{label: "ours"} },
		},
		"ALabelThatIsRemoved": {
			nfdv1alpha1.Rule{Labels: map[string]string{"a": ""}},
			func(s *plan.State) { s.Labels = nil },
			func(s *plan.State) { s.Labels = map[string]string{label: ""} },
		},
		"ATaint": {
			nfdv1alpha1.Rule{Taints: []corev1.Taint{{Key: "example.com/a", Value: "ours", Effect: "NoSchedule"}}},
			func(s *plan.State) { s.Taints = nil },
			func(s *plan.State) {
				s.Taints = []corev1.Taint{{Key: "example.com/a", Value: "ours", Effect: "NoSchedule"}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Now())
			events := record.NewFakeRecorder(100)
			r := &Reconciler{clock: clock, events: events}
			o := outcomeOf(t, tc.rule)
			known := &memo{given: givenBy(o)}
			state := plan.State{Annotations: map[string]string{
				nfdv1alpha1.FeatureLabelsAnnotation: "a", nfdv1alpha1.TaintsAnnotation: "example.com/a=ours:NoSchedule",
			}}
			var writes []time.Time
			for range 4 * 3600 {
				clock.SetTime(clock.Now().Add(time.Second))
				tc.undo(&state)
				wished := plan.Compute(state, plan.Desired{Labels: o.Labels(), Taints: o.Taints()}, plan.Policy{Taints: true})
				p, again := r.contested(t.Context(), wished, &judge{known: known, node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}})
				for _, s := range p.Steps {
					if s.Op == plan.Add || s.Op == plan.Change {
						writes = append(writes, clock.Now())
						tc.put(&state)
					}
				}
				if p.Empty() && again == 0 {
					t.Fatal("the key is left alone forever")
				}
				known.passed(wished, p, clock.Now(), nil)
			}
			if len(writes) < 10 {
				t.Errorf("%d writes in four hours: it was given up", len(writes))
			}
			for i := flap.CorrectionLimit; i < len(writes); i++ {
				if writes[i].Sub(writes[i-flap.CorrectionLimit]) < time.Hour {
					t.Fatalf("four writes within %s", writes[i].Sub(writes[i-flap.CorrectionLimit]))
				}
			}
			if n := len(events.Events); n == 0 || n > 20 {
				t.Errorf("%d Events", n)
			}
		})
	}
}

// TestConflictsDoNotHideAContest: the client that changes a label back also changes the Node while it is being corrected.
func TestConflictsDoNotHideAContest(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := &Reconciler{clock: clock, events: record.NewFakeRecorder(100)}
	o := outcomeOf(t, nfdv1alpha1.Rule{Labels: map[string]string{"a": "ours"}})
	known := &memo{given: givenBy(o)}
	state := plan.State{
		Annotations: map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "a"},
		Labels:      map[string]string{"feature.node.kubernetes.io/a": "theirs"},
	}
	corrected := 0
	for range 30 {
		for _, err := range []error{errConflict, nil} {
			wished := plan.Compute(state, plan.Desired{Labels: o.Labels()}, plan.Policy{})
			p, _ := r.contested(t.Context(), wished, &judge{known: known, node: &corev1.Node{}})
			known.passed(wished, p, clock.Now(), err)
			if err == nil {
				corrected += len(p.Steps)
			}
		}
	}
	if corrected != flap.CorrectionLimit {
		t.Errorf("it was corrected %d times", corrected)
	}
}

// A kubelet in a crash loop resets a resource to 0 each time.
func TestAKubeletThatStartsIsNoContest(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := &Reconciler{clock: clock, events: record.NewFakeRecorder(100)}
	o := outcomeOf(t, nfdv1alpha1.Rule{ExtendedResources: map[string]string{"example.com/a": "4"}})
	known := &memo{given: givenBy(o)}
	zero := corev1.ResourceList{"example.com/a": resource.MustParse("0")}
	state := plan.State{
		Annotations: map[string]string{nfdv1alpha1.ExtendedResourcesAnnotation: "example.com/a"}, Capacity: zero, Allocatable: zero,
	}
	for i := range 20 {
		wished := plan.Compute(state, plan.Desired{ExtendedResources: o.ExtendedResources()}, plan.Policy{})
		p, again := r.contested(t.Context(), wished, &judge{known: known, node: &corev1.Node{}})
		if len(p.Steps) != 1 {
			t.Fatalf("start %d: the resource stays 0 for %s", i, again)
		}
		known.passed(wished, p, clock.Now(), nil)
		clock.SetTime(clock.Now().Add(time.Minute))
	}
}

// TestOwnChangesAreNoContest: neither new values nor repeated attempts to write a rejected value count as a contest.
func TestOwnChangesAreNoContest(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := &Reconciler{clock: clock, events: record.NewFakeRecorder(100)}
	known := &memo{}
	state := plan.State{Annotations: map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "a"}, Labels: map[string]string{}}
	for i := range 20 {
		o := outcomeOf(t, nfdv1alpha1.Rule{Labels: map[string]string{"a": string(rune('a' + i))}})
		for attempt := range 3 { // the first two attempts fail
			wished := plan.Compute(state, plan.Desired{Labels: o.Labels()}, plan.Policy{})
			p, again := r.contested(t.Context(), wished, &judge{known: known, node: &corev1.Node{}})
			if len(p.Steps) != 1 {
				t.Fatalf("value %d is left alone for %s", i, again)
			}
			known.given = givenBy(o)
			if attempt < 2 {
				known.passed(wished, p, clock.Now(), errConflict)
				continue
			}
			known.passed(wished, p, clock.Now(), nil)
			state.Labels = o.Labels()
		}
	}
}

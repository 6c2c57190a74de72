package node

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

func TestTheSoonerOfTwoWaits(t *testing.T) {
	for _, tc := range [][3]time.Duration{{0, 0, 0}, {0, 3, 3}, {3, 0, 3}, {2, 3, 2}, {3, 2, 2}} {
		if got := sooner(tc[0], tc[1]); got != tc[2] {
			t.Errorf("sooner(%d, %d) is %d, want %d", tc[0], tc[1], got, tc[2])
		}
	}
}

// stepKeys returns the keys that a plan changes.
func stepKeys(p *plan.Plan) (out []string) {
	for _, s := range p.Steps {
		out = append(out, s.Key)
	}
	return out
}

func TestADisabledOutputNeedsNoEvidence(t *testing.T) {
	steps := []plan.Step{{Kind: keys.Label}, {Kind: keys.Annotation}, {Kind: keys.Resource}, {Kind: keys.Taint}, {Kind: keys.Condition}}
	for i, r := range []*Reconciler{
		{disable: Disable{Labels: true}, policy: plan.Policy{Taints: true}},
		{disable: Disable{Annotations: true}, policy: plan.Policy{Taints: true}},
		{disable: Disable{ExtendedResources: true}, policy: plan.Policy{Taints: true}},
		{},
		{policy: plan.Policy{Taints: true}}, // nothing is disabled
	} {
		for j, s := range steps {
			if want := i == j && i < 4; r.switchedOff(s) != want {
				t.Errorf("setting %d: outputs of kind %s are disabled: %t, want %t", i, s.Kind, !want, want)
			}
		}
	}
}

// A process that has not seen the worker's object removes nothing that the node had before; what is added later can be removed.
func TestNothingIsRemovedWhileTheWorkersFactsAreUnknown(t *testing.T) {
	r := &Reconciler{policy: plan.Policy{Taints: true}}
	known, o := &memo{}, outcomeOf(t, nfdv1alpha1.Rule{Labels: map[string]string{"new": "1"}})
	j := &judge{r: r, known: known, node: &corev1.Node{}, blind: true, now: &inForce{}, outcome: o, past: &provenance.Record{}}
	state := plan.State{Labels: map[string]string{"vendor.io/old": "1"}, Annotations: map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "vendor.io/old"}}
	p, wait := r.unproven(t.Context(), plan.Compute(state, plan.Desired{Labels: map[string]string{"vendor.io/new": "1"}}, plan.Policy{}), j)
	if got := stepKeys(p); !slices.Equal(got, []string{"vendor.io/new"}) || wait != 0 {
		t.Errorf("the plan changes %v, want the addition alone", got)
	}
	j.blind = false
	p, _ = r.unproven(t.Context(), plan.Compute(state, plan.Desired{}, plan.Policy{}), j)
	if got := stepKeys(p); !slices.Equal(got, []string{"vendor.io/old"}) {
		t.Errorf("with the worker's facts the plan changes %v, want the removal", got)
	}
}

// In its first pass a process held all removals because its cache lacked a NodeFeature. When that arrived, it removed what the node had before
// although the worker's facts were still unknown (found by seed 90494 of the simulator).
func TestNothingIsRemovedWhenTheCacheIsCompleteWhileTheWorkersFactsAreUnknown(t *testing.T) {
	r := &Reconciler{policy: plan.Policy{Taints: true}}
	known, o := &memo{}, outcomeOf(t, nfdv1alpha1.Rule{Labels: map[string]string{"new": "1"}})
	j := &judge{r: r, known: known, node: &corev1.Node{}, blind: true, incomplete: true, now: &inForce{}, outcome: o, past: &provenance.Record{}}
	state := plan.State{Labels: map[string]string{"vendor.io/old": "1"}, Annotations: map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "vendor.io/old"}}
	p := plan.Compute(state, plan.Desired{}, plan.Policy{})
	r.unproven(t.Context(), p.Without(plan.Step.Takes), j)
	j.incomplete = false
	if p, _ = r.unproven(t.Context(), p, j); !p.Empty() {
		t.Errorf("the plan changes %v, want nothing", stepKeys(p))
	}
}

// A rule that gave a key is edited while the worker's facts are unknown, and another rule that names it may give it from them (found by
// seed 620 of the simulator).
func TestAKeyThatAnotherRuleNamesOutlivesAnEditWhileTheFactsAreUnknown(t *testing.T) {
	r := &Reconciler{}
	match := nfdv1alpha1.FeatureMatcher{{Feature: "a.b"}}
	set, _ := rules.Compile(&nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: "other"},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{
			{Name: "other", Labels: map[string]string{"vendor.io/shared": "1"}},
			{Name: "template", LabelsTemplate: "{{range .a.b}}vendor.io/device-{{.Name}}=1\n{{end}}", MatchFeatures: match},
			{Name: "any", LabelsTemplate: "{{range .a.b}}{{.Name}}=1\n{{end}}", MatchFeatures: match},
		}},
	}, rules.Options{})
	known, o := &memo{kept: map[string]bool{}}, outcomeOf(t, nfdv1alpha1.Rule{Labels: map[string]string{"new": "1"}})
	j := &judge{
		r: r, known: known, node: &corev1.Node{}, blind: true, outcome: o, past: &provenance.Record{},
		now: &inForce{sets: map[string]*rules.RuleSet{set.ID(): set}},
	}
	state := plan.State{
		Labels:      map[string]string{"vendor.io/old": "1", "vendor.io/shared": "1", "vendor.io/device-a": "1"},
		Annotations: map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "vendor.io/old,vendor.io/shared,vendor.io/device-a"},
	}
	p, _ := r.unproven(t.Context(), plan.Compute(state, plan.Desired{}, plan.Policy{}), j)
	if got := stepKeys(p); !slices.Equal(got, []string{"vendor.io/old"}) {
		t.Errorf("the plan removes %v, want the key alone that no active rule names", got)
	}
}

// A rule is deleted and created again while the worker's facts are unknown, and gives a taint and a condition from them as before (found by
// seed 59056 of the simulator).
func TestATaintAndAConditionThatAnotherRuleNamesOutliveAnEditWhileTheFactsAreUnknown(t *testing.T) {
	r := &Reconciler{policy: plan.Policy{Taints: true}, object: func(string) *assembly.Object { return nil }}
	set, _ := rules.Compile(&nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: "rule", UID: "new"},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
			Name: "rule", MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "a.b"}},
			Taints:         []corev1.Taint{{Key: "vendor.io/shared", Effect: corev1.TaintEffectNoSchedule}},
			NodeConditions: []nfdv1alpha1.NodeCondition{{Type: "vendor.io/Shared", Status: "True"}},
		}}},
	}, rules.Options{})
	past := &provenance.Record{}
	past.Put("old", &provenance.Entry{Name: "rule", Rolled: "1", Keys: map[provenance.Key]bool{}})
	var steps []plan.Step
	for _, s := range []plan.Step{
		{Kind: keys.Condition, Key: "vendor.io/Old"},
		{Kind: keys.Condition, Key: "vendor.io/Shared"},
		{Kind: keys.Taint, Key: "vendor.io/old:NoSchedule"},
		{Kind: keys.Taint, Key: "vendor.io/shared:NoExecute"},
		{Kind: keys.Taint, Key: "vendor.io/shared:NoSchedule"},
	} {
		s.Op = plan.Remove
		steps = append(steps, s)
		past.Objects["old"].Add(keyOf(s))
	}
	j := &judge{
		r: r, known: &memo{}, node: &corev1.Node{}, blind: true, outcome: outcomeOf(t, nfdv1alpha1.Rule{}), past: past,
		now: &inForce{sets: map[string]*rules.RuleSet{set.ID(): set}},
	}
	if !j.explained(steps[0]) {
		t.Error("the deletion of a rule does not explain the removal of its keys")
	}
	p, _ := r.unproven(t.Context(), &plan.Plan{Steps: steps}, j)
	if got, want := stepKeys(p), []string{"vendor.io/Old", "vendor.io/old:NoSchedule", "vendor.io/shared:NoExecute"}; !slices.Equal(got, want) {
		t.Errorf("the plan removes %v, want %v, which no active rule names", got, want)
	}
}

func TestARejectedValueIsLeftOutOfThePlan(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := &Reconciler{clock: clock}
	j := &judge{known: &memo{}, node: &corev1.Node{}}
	wish := plan.Compute(plan.State{}, plan.Desired{Labels: map[string]string{"vendor.io/bad": "1", "vendor.io/good": "1"}}, plan.Policy{})
	j.known.refuse(wish.Steps[0], clock.Now())
	p, wait := r.refused(t.Context(), wish, j)
	if got := stepKeys(p); !slices.Equal(got, []string{"vendor.io/good"}) || wait != refusalMemory {
		t.Errorf("the plan changes %v, and is made again after %s", got, wait)
	}
}

// A key that changes again and again keeps its value, while Assay's own annotations are always written.
func TestAFlappingKeyIsLeftAlone(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := &Reconciler{clock: clock, changes: flap.NewChanges(clock), events: record.NewFakeRecorder(10)}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	known := &memo{}
	j := &judge{r: r, known: known, node: node, now: &inForce{}, outcome: outcomeOf(t, nfdv1alpha1.Rule{Labels: map[string]string{"a": "1"}}), past: &provenance.Record{}}
	wish := plan.Compute(plan.State{}, plan.Desired{
		Labels: map[string]string{"vendor.io/flaps": "1", "vendor.io/rests": "1"}, Generation: "7",
	}, plan.Policy{})
	p, wait := r.flapping(t.Context(), wish, j)
	if len(p.Steps) != len(wish.Steps) || wait != 0 {
		t.Fatalf("nothing has changed yet, and the plan lacks keys: %v", stepKeys(p))
	}
	for range 20 {
		r.changes.Add("n", []string{"label vendor.io/flaps", "annotation " + assayv1alpha1.FeaturesGenerationAnnotation})
		clock.SetTime(clock.Now().Add(time.Second))
	}
	p, wait = r.flapping(t.Context(), wish, j)
	got := stepKeys(p)
	if slices.Contains(got, "vendor.io/flaps") || !slices.Contains(got, "vendor.io/rests") || len(got) != len(wish.Steps)-1 || wait <= 0 {
		t.Errorf("the plan changes %v, and is made again after %s", got, wait)
	}
}

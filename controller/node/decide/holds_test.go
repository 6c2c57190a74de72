package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

func TestTheSoonerOfTwoWaits(t *testing.T) {
	for _, tc := range [][3]time.Duration{{0, 0, 0}, {0, 3, 3}, {3, 0, 3}, {2, 3, 2}, {3, 2, 2}} {
		if got := Sooner(tc[0], tc[1]); got != tc[2] {
			t.Errorf("Sooner(%d, %d) is %d, want %d", tc[0], tc[1], got, tc[2])
		}
	}
}

func TestADisabledOutputNeedsNoEvidence(t *testing.T) {
	steps := []plan.Step{{Kind: keys.Label}, {Kind: keys.Annotation}, {Kind: keys.Resource}, {Kind: keys.Taint}, {Kind: keys.Condition}}
	for i, settings := range []Settings{
		{Settings: desired.Settings{Withholding: rules.Withholding{Labels: true}, Policy: plan.Policy{Taints: true}}},
		{Settings: desired.Settings{Withholding: rules.Withholding{Annotations: true}, Policy: plan.Policy{Taints: true}}},
		{Settings: desired.Settings{Withholding: rules.Withholding{ExtendedResources: true}, Policy: plan.Policy{Taints: true}}},
		{},
		{Settings: desired.Settings{Policy: plan.Policy{Taints: true}}}, // nothing is disabled
	} {
		for j, s := range steps {
			if want := i == j && i < 4; settings.Excludes(s.Kind) != want {
				t.Errorf("setting %d: outputs of kind %s are disabled: %t, want %t", i, s.Kind, !want, want)
			}
		}
	}
}

// oldLabel is the state of a node with a label of a rule.
func oldLabel() plan.State {
	return plan.State{Labels: M{"vendor.io/old": "1"}, Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "vendor.io/old"}}
}

// A process that has not seen the worker's object removes nothing that the node had before; what is added later can be removed.
func TestNothingIsRemovedWhileTheWorkersFactsAreUnknown(t *testing.T) {
	p, _ := newPass(t)
	p.Features.Unknown = true
	in := plan.Compute(oldLabel(), plan.Desired{Labels: M{"vendor.io/new": "1"}}, plan.Policy{})
	got := unpublished(p.know(in), in)
	if !slices.Equal(stepKeys(got.Plan), []string{"vendor.io/new"}) || got.Again != 0 {
		t.Errorf("the plan changes %v, want the addition alone", stepKeys(got.Plan))
	}
	p.Features.Unknown = false
	in = plan.Compute(oldLabel(), plan.Desired{}, plan.Policy{})
	if got := stepKeys(unpublished(p.know(in), in).Plan); !slices.Equal(got, []string{"vendor.io/old"}) {
		t.Errorf("with the worker's facts the plan changes %v, want the removal", got)
	}
}

// In its first pass a process held all removals because its cache lacked a NodeFeature. When that arrived, it removed what the node had before
// although the worker's facts were still unknown (found by seed 90494 of the simulator).
func TestNothingIsRemovedWhenTheCacheIsCompleteWhileTheWorkersFactsAreUnknown(t *testing.T) {
	p, _ := newPass(t)
	p.Features.Unknown, p.incomplete = true, true
	in := plan.Compute(oldLabel(), plan.Desired{}, plan.Policy{})
	unpublished(p.know(in), in.Without(plan.Step.Takes))
	p.incomplete = false
	if got := unpublished(p, in).Plan; !got.Empty() {
		t.Errorf("the plan changes %v, want nothing", stepKeys(got))
	}
}

// A rule that gave a key is edited while the worker's facts are unknown, and another rule that names it may give it from them (found by
// seed 620 of the simulator).
func TestAKeyThatAnotherRuleNamesOutlivesAnEditWhileTheFactsAreUnknown(t *testing.T) {
	match := nfdv1alpha1.FeatureMatcher{{Feature: "a.b"}}
	set := compiled(t, "other",
		nfdv1alpha1.Rule{Labels: M{"vendor.io/shared": "1"}},
		nfdv1alpha1.Rule{LabelsTemplate: "{{range .a.b}}vendor.io/device-{{.Name}}=1\n{{end}}", MatchFeatures: match},
		nfdv1alpha1.Rule{LabelsTemplate: "{{range .a.b}}{{.Name}}=1\n{{end}}", MatchFeatures: match},
	)
	p, o := newPass(t)
	p.Features.Unknown, p.Memory.Kept = true, map[string]bool{}
	o.Active.Sets = map[string]*rules.RuleSet{set.ID(): set}
	in := plan.Compute(plan.State{
		Labels:      M{"vendor.io/old": "1", "vendor.io/shared": "1", "vendor.io/device-a": "1"},
		Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "vendor.io/old,vendor.io/shared,vendor.io/device-a"},
	}, plan.Desired{}, plan.Policy{})
	if got := stepKeys(unpublished(p.know(in), in).Plan); !slices.Equal(got, []string{"vendor.io/old"}) {
		t.Errorf("the plan removes %v, want the key alone that no active rule names", got)
	}
}

// A rule is deleted and created again while the worker's facts are unknown, and gives a taint and a condition from them as before (found by
// seed 59056 of the simulator).
func TestATaintAndAConditionThatAnotherRuleNamesOutliveAnEditWhileTheFactsAreUnknown(t *testing.T) {
	set := compiled(t, "rule", nfdv1alpha1.Rule{
		MatchFeatures:  nfdv1alpha1.FeatureMatcher{{Feature: "a.b"}},
		Taints:         []corev1.Taint{{Key: "vendor.io/shared", Effect: corev1.TaintEffectNoSchedule}},
		NodeConditions: []nfdv1alpha1.NodeCondition{{Type: "vendor.io/Shared", Status: "True"}},
	})
	p, o := newPass(t)
	p.Features.Unknown = true
	o.Active.Sets = map[string]*rules.RuleSet{set.ID(): set}
	o.Past.Put("old", &record.Entry{Name: "rule", Rolled: "1", Keys: map[record.Key]bool{}})
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
		o.Past.Objects["old"].Add(record.KeyOf(s.Kind, s.Key))
	}
	in := &plan.Plan{Steps: steps}
	if !p.know(in).explained(steps[0]) {
		t.Error("the deletion of a rule does not explain the removal of its keys")
	}
	if got, want := stepKeys(unpublished(p, in).Plan), []string{"vendor.io/Old", "vendor.io/old:NoSchedule", "vendor.io/shared:NoExecute"}; !slices.Equal(got, want) {
		t.Errorf("the plan removes %v, want %v, which no active rule names", got, want)
	}
}

// TestUnknownFeaturesKeepWhatTheNodeHadAtFirst adds a label and removes it again, and disables labels that another object names.
func TestUnknownFeaturesKeepWhatTheNodeHadAtFirst(t *testing.T) {
	p, o := newPass(t)
	p.Features.Unknown = true
	in := plan.Compute(plan.State{}, plan.Desired{Labels: M{"v.io/a": "1"}}, plan.Policy{})
	unpublished(p.know(in), in)
	in = plan.Compute(plan.State{Labels: M{"v.io/a": "1"}, Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/a"}}, plan.Desired{}, plan.Policy{})
	if got := stepKeys(unpublished(p.know(in), in).Plan); !slices.Equal(got, []string{"v.io/a"}) {
		t.Errorf("the plan changes %v, want the removal of what this process added", got)
	}
	set := compiled(t, "other", nfdv1alpha1.Rule{Labels: M{"v.io/a": "1"}})
	p.Settings.Withholding.Labels, p.Memory.Kept = true, nil
	o.Active.Sets = map[string]*rules.RuleSet{"other": set}
	if got := stepKeys(unpublished(p.know(in), in).Plan); !slices.Equal(got, []string{"v.io/a"}) {
		t.Errorf("the plan changes %v, want the removal of what is disabled", got)
	}
}

func TestARejectedValueIsLeftOutOfThePlan(t *testing.T) {
	p, _ := newPass(t)
	in := plan.Compute(plan.State{}, plan.Desired{Labels: M{"vendor.io/bad": "1", "vendor.io/good": "1"}}, plan.Policy{})
	p.Memory.Refuse(in.Steps[0], p.Now, "no")
	got := refused(p.know(in), in)
	if !slices.Equal(stepKeys(got.Plan), []string{"vendor.io/good"}) || got.Again != RefusalMemory {
		t.Errorf("the plan changes %v, and is made again after %s", stepKeys(got.Plan), got.Again)
	}
}

func TestARejectedValueIsRetriedAfterTenMinutes(t *testing.T) {
	now := time.Now()
	step := plan.Step{Kind: keys.Label, Key: "vendor.io/a", New: "1"}
	known := &Memory{}
	if known.refuses(step, now) > 0 {
		t.Error("a value is skipped that was never rejected")
	}
	known.Refuse(step, now, "no")
	if wait := known.refuses(step, now.Add(time.Minute)); wait != RefusalMemory-time.Minute {
		t.Errorf("after a minute: wait %s", wait)
	}
	other := step
	other.New = "2"
	if known.refuses(other, now) > 0 {
		t.Error("another value of the same key is skipped")
	}
	if known.refuses(step, now.Add(RefusalMemory)) > 0 {
		t.Error("the value is not retried after ten minutes")
	}
}

// A key that changes again and again keeps its value, while Assay's own annotations are always written.
func TestAFlappingKeyIsLeftAlone(t *testing.T) {
	p, o := newPass(t)
	clock := clocktesting.NewFakePassiveClock(p.Now)
	changes := flap.NewChanges(clock)
	in := plan.Compute(plan.State{}, plan.Desired{Labels: M{"vendor.io/flaps": "1", "vendor.io/rests": "1"}, Generation: "7"}, plan.Policy{})
	if got := flapping(p.know(in), in); len(got.Plan.Steps) != len(in.Steps) || got.Again != 0 {
		t.Fatalf("nothing has changed yet, and the plan lacks keys: %v", stepKeys(got.Plan))
	}
	for range 20 {
		changes.Add("n", []string{"label vendor.io/flaps", "annotation " + assayv1alpha1.FeaturesGenerationAnnotation})
		clock.SetTime(clock.Now().Add(time.Second))
	}
	o.Changes, p.Now = changes.Of("n"), clock.Now()
	got := flapping(p.know(in), in)
	changed := stepKeys(got.Plan)
	if slices.Contains(changed, "vendor.io/flaps") || !slices.Contains(changed, "vendor.io/rests") || len(changed) != len(in.Steps)-1 || got.Again <= 0 {
		t.Errorf("the plan changes %v, and is made again after %s", changed, got.Again)
	}
}

// TestAFlappingKeyIsAdopted: that changes the record alone.
func TestAFlappingKeyIsAdopted(t *testing.T) {
	p, o := newPass(t)
	changes := flap.NewChanges(clocktesting.NewFakePassiveClock(p.Now))
	for range flap.Limit {
		changes.Add("n", []string{"label v.io/adopted", "label v.io/changed", "label v.io/forgotten"})
	}
	o.Changes = changes.Of("n")
	state := plan.State{Labels: M{"v.io/adopted": "1", "v.io/changed": "1"}, Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/changed,v.io/forgotten"}}
	in := plan.Compute(state, plan.Desired{Labels: M{"v.io/adopted": "1", "v.io/changed": "2"}}, plan.Policy{})
	got := flapping(p.know(in), in)
	if changed := stepKeys(got.Plan); !slices.Equal(changed, []string{"v.io/adopted", "v.io/forgotten"}) || got.Again <= 0 {
		t.Errorf("the plan changes %v, again after %s", changed, got.Again)
	}
}

// TestANodeThatIsClosedNeedsNoPace: a node with the taint of lost features gets further taints at once.
func TestANodeThatIsClosedNeedsNoPace(t *testing.T) {
	taint := corev1.Taint{Key: "v.io/lost", Effect: corev1.TaintEffectNoSchedule}
	s := &Settings{Settings: desired.Settings{LossTaint: &taint}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: M{nfdv1alpha1.TaintsAnnotation: "v.io/lost=x:NoSchedule"}}}
	if s.Evicted(node) {
		t.Error("a node without the taint has it")
	}
	node.Spec.Taints = []corev1.Taint{{Key: "v.io/lost", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	if !s.Evicted(node) {
		t.Error("a node with the taint does not have it")
	}
	if (&Settings{}).LossOn(node) != nil {
		t.Error("there is a taint without the setting")
	}
	node.Annotations = nil
	if on := s.LossOn(node); on != nil {
		t.Errorf("a taint of another client counts: %v", on)
	}
	if !s.Evicts(plan.Step{Kind: keys.Taint, Op: plan.Add, Key: keys.TaintName(taint)}) {
		t.Error("the taint of lost features is added without a pace")
	}
}

// TestAKeyStaysWhileItsValueIsUnknown: the worker has not read a source since the node booted.
func TestAKeyStaysWhileItsValueIsUnknown(t *testing.T) {
	p, _ := newPass(t)
	p.Features.Worker = &Worker{Unread: []string{"pci"}}
	in := plan.Compute(oldLabel(), plan.Desired{Labels: M{"vendor.io/new": "1"}}, plan.Policy{})
	p.keys = map[string]Key{"label vendor.io/old": {Reason: desired.Reason{Undecided: true}}}
	if got := stepKeys(unread(p, in).Plan); !slices.Equal(got, []string{"vendor.io/new"}) {
		t.Errorf("the plan changes %v, want the addition alone", got)
	}
	if len(p.holds) != 1 || !p.holds[0].Has(keys.Label, "vendor.io/old") || !strings.Contains(p.holds[0].Why, "pci") {
		t.Errorf("published: %+v", p.holds)
	}
}

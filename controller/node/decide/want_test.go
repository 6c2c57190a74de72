package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules/plan"
)

// TestAFailedNodeGetsAnAnnotationAndATaintOnly plans for a node that a rule fails and that has a label and a taint to be removed.
func TestAFailedNodeGetsAnAnnotationAndATaintOnly(t *testing.T) {
	o := outcomeOf(t, nfdv1alpha1.Rule{
		Labels:  map[string]string{"new": "1"},
		Actions: []nfdv1alpha1.Action{{Op: "fail", Args: nfdv1alpha1.JSON{Raw: []byte(`{"msg": "broken"}`)}}},
	})
	if o.Failed == nil {
		t.Fatal("the rule does not fail the node")
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"vendor.io/old": "1"},
		Annotations: map[string]string{
			nfdv1alpha1.FeatureLabelsAnnotation: "vendor.io/old", nfdv1alpha1.TaintsAnnotation: "vendor.io/old:NoSchedule",
		},
	}}
	node.Spec.Taints = []corev1.Taint{{Key: "vendor.io/old", Effect: corev1.TaintEffectNoSchedule}}
	for name, tc := range map[string]struct {
		taint *corev1.Taint
		want  []string
	}{
		"without a taint": {nil, []string{assayv1alpha1.FailedAnnotation}},
		"with a taint": {
			&corev1.Taint{Key: "vendor.io/failed", Effect: corev1.TaintEffectNoSchedule}, []string{assayv1alpha1.FailedAnnotation, "vendor.io/failed:NoSchedule"},
		},
	} {
		p, _ := newPass(t)
		p.Node, p.Rules, p.Settings.FailTaint = node, desired.Of(o), tc.taint
		if got := stepKeys(p.wanted("")); !slices.Equal(got, tc.want) {
			t.Errorf("%s: the plan changes %v, want %v", name, got, tc.want)
		}
	}
	fine := outcomeOf(t, nfdv1alpha1.Rule{Labels: map[string]string{"vendor.io/new": "1"}})
	p, _ := newPass(t)
	p.Node, p.Rules = node, desired.Of(fine)
	if got := stepKeys(p.wanted("")); !slices.Equal(got, []string{"vendor.io/new", "vendor.io/old", "vendor.io/old:NoSchedule"}) {
		t.Errorf("a node that no rule fails: the plan changes %v", got)
	}
}

// TestTheStepOfLostFeatures tells the taint of lost features from other steps, and reports it beside them.
func TestTheStepOfLostFeatures(t *testing.T) {
	taint := corev1.Taint{Key: "v.io/lost", Effect: corev1.TaintEffectNoSchedule}
	p, _ := newPass(t)
	p.Settings.LossTaint = &taint
	lost := taint
	lost.Value = "ml.link"
	in := plan.Compute(plan.State{}, plan.Desired{
		Labels: M{"v.io/lost:NoSchedule": "x", "v.io/a": "1"}, Taints: []corev1.Taint{{Key: "v.io/a", Effect: corev1.TaintEffectNoSchedule}, lost},
	}, plan.Policy{Taints: true})
	var got []string
	for _, s := range in.Steps {
		if p.Settings.taintsLoss(s) {
			got = append(got, string(s.Kind)+" "+s.Key)
		}
		if (&Settings{}).taintsLoss(s) {
			t.Errorf("%s is the taint of lost features without the setting", s.Key)
		}
	}
	if !slices.Equal(got, []string{"taint v.io/lost:NoSchedule"}) {
		t.Errorf("%v, want the taint alone", got)
	}
	if said := p.know(in).lossEvents(in); len(said) != 1 || !strings.Contains(said[0].Message, "v.io/lost=ml.link:NoSchedule: its features are lost") {
		t.Errorf("Events %v, want one about the taint", said)
	}
}

// TestSchedulersAreNotifiedAtMostEveryTenSeconds changes the features of a node faster than its annotation may change.
func TestSchedulersAreNotifiedAtMostEveryTenSeconds(t *testing.T) {
	p, _ := newPass(t)
	p.Settings.NotifySchedulers = true
	step := func(after time.Duration, generation string) (value string, again time.Duration) {
		p.Now, p.Features.Generation = p.Now.Add(after), generation
		value, again = p.generation()
		p.Node.Annotations = M{assayv1alpha1.FeaturesGenerationAnnotation: value}
		return value, again
	}
	for i, tc := range []struct {
		after      time.Duration
		generation string
		want       string
		again      time.Duration
	}{
		{0, "1", "1", 0},
		{time.Second, "2", "1", notifyEvery - time.Second},
		{notifyEvery - 2*time.Second, "3", "1", time.Second},
		{time.Second, "4", "4", 0},
		{0, "4", "4", 0},
	} {
		if got, again := step(tc.after, tc.generation); got != tc.want || again != tc.again {
			t.Errorf("step %d: %q, again after %s; want %q, %s", i, got, again, tc.want, tc.again)
		}
	}
}

func TestTheAnnotationForSchedulersIsRemovedBeforeTheFirstWriteOnly(t *testing.T) {
	p, _ := newPass(t)
	if value, _ := p.generation(); value != plan.NoGeneration {
		t.Errorf("before the first write the value is %q, want the removal", value)
	}
	p.Memory.Written = "1"
	if value, _ := p.generation(); value != "" {
		t.Errorf("after a write the value is %q, want none", value)
	}
}

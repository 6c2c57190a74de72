package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/plan"
)

// TestSchedulersAreNotifiedAtMostEveryTenSeconds changes the features of a node faster than its annotation may change.
func TestSchedulersAreNotifiedAtMostEveryTenSeconds(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := &Reconciler{clock: clock, nudges: true}
	known, node, f := &memo{}, &corev1.Node{}, &nodefeature.NodeFeature{}
	features := []*nodefeature.NodeFeature{f}
	step := func() (value string, again time.Duration) {
		f.Generation++
		value, again = r.nudge(node, features, known)
		node.Annotations = map[string]string{assayv1alpha1.FeaturesGenerationAnnotation: value}
		return value, again
	}
	first, again := step()
	if first == "" || again != 0 {
		t.Fatalf("the first value is %q, again after %s", first, again)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if value, again := step(); value != first || again != nudgeEvery-time.Second {
		t.Errorf("a second later the value is %q, again after %s; want the old one", value, again)
	}
	clock.SetTime(clock.Now().Add(nudgeEvery))
	second, again := step()
	if second == first || again != 0 {
		t.Errorf("ten seconds later the value is %q, again after %s; want another one", second, again)
	}
	// Another process has the same value for the same objects, so that a restart causes no write.
	if value, _ := (&Reconciler{clock: clock, nudges: true}).nudge(node, features, &memo{}); value != second {
		t.Errorf("after a restart the value is %q, want %q", value, second)
	}
}

func TestTheAnnotationForSchedulersIsRemovedBeforeTheFirstWriteOnly(t *testing.T) {
	r := &Reconciler{}
	if value, _ := r.nudge(&corev1.Node{}, nil, &memo{}); value != plan.NoGeneration {
		t.Errorf("before the first write the value is %q, want the removal", value)
	}
	if value, _ := r.nudge(&corev1.Node{}, nil, &memo{written: "1"}); value != "" {
		t.Errorf("after a write the value is %q, want none", value)
	}
}

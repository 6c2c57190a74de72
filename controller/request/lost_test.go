package request

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// Where no node is tainted, a pod that the watch delivered after its node had lost the feature got no Event.
func TestAPodThatArrivesAfterTheLossGetsAnEvent(t *testing.T) {
	view := index.New()
	view.Put(index.Node{Input: rules.Input{Node: rules.Node{Name: "n"}, Facts: facts.New(&nfdv1alpha1.Features{}, nil)}})
	view.SetSynced()
	events := record.NewFakeRecorder(2)
	w := newWatch(view, podrequirements.New(rules.Options{}), events, Options{})
	w.touch("n")
	w.look() // the node has lost the feature
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "asks", UID: "1", Annotations: map[string]string{
		assayv1alpha1.RequiredFeaturesAnnotation: "matchFeatures: [{feature: cpu.cpuid}]",
	}}}
	p.Spec.NodeName = "n"
	w.put(p)
	w.look()
	select {
	case event := <-events.Events:
		if !strings.Contains(event, ReasonFeaturesLost) || !strings.Contains(event, "node n lacks cpu.cpuid") {
			t.Errorf("the Event is %q", event)
		}
	default:
		t.Fatal("there is no Event")
	}
	if w.put(p); len(w.dirty) > 0 {
		t.Error("an update of a known pod causes a check")
	}
}

// A policy requires features of pods that have neither an annotation nor a label of their own.
func TestTheNodeOfEachNewPodIsCheckedWhileLossesTaintNodes(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "plain", UID: "1"}}
	p.Spec.NodeName = "n"
	w := newWatch(index.New(), podrequirements.New(rules.Options{}), record.NewFakeRecorder(2), Options{Losses: loss.NewTracker(clock.RealClock{})})
	if w.put(p); !w.dirty["n"] {
		t.Error("the node is not checked, so that what it has while the pod arrives is not known")
	}
}

// A worker publishes without a source that does not answer after a boot: nothing is known to be lost, and a node keeps the taint that it has.
func TestNothingIsLostBecauseOfASourceThatWasNotRead(t *testing.T) {
	view := index.New()
	put := func(features map[string]facts.Feature) {
		view.Put(index.Node{Input: rules.Input{Node: rules.Node{Name: "n"}, Facts: facts.FromMap(features, nil)}})
	}
	put(map[string]facts.Feature{nfdv1alpha1.UnreadFeature: {Flags: facts.NewFlags("cpu")}})
	view.SetSynced()
	events, losses := record.NewFakeRecorder(2), loss.NewTracker(clock.RealClock{})
	losses.SetSynced()
	w := newWatch(view, podrequirements.New(rules.Options{}), events, Options{Losses: losses, Nodes: inputs.New(inputs.Options{})})
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "asks", UID: "1", Annotations: map[string]string{
		assayv1alpha1.RequiredFeaturesAnnotation: "matchFeatures: [{feature: cpu.cpuid}]",
	}}}
	p.Spec.NodeName = "n"
	w.put(p)
	w.look()
	if len(events.Events) != 0 || !losses.Of("n").Unknown {
		t.Errorf("%d Events, losses %+v", len(events.Events), losses.Of("n"))
	}
	put(nil) // the source has answered
	w.losses = nil
	w.touch("n")
	w.look()
	if len(events.Events) != 1 {
		t.Errorf("%d Events after the source has answered, want one", len(events.Events))
	}
}

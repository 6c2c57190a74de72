package node

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/internal/hold"
)

// TestAHoldThatEndedIsDeleted, also if another process has published it.
func TestAHoldThatEndedIsDeleted(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		w := newPasses(t)
		w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
		w.flaps()
		w.near(w.holdOf(hold.Flapping, "up"), w.clock.Now().Add(flap.Window))
		if restarts {
			w.restart()
			w.rule("r", ifUp(nfdv1alpha1.Rule{Labels: M{"up": "true"}}))
		}
		w.clock.Step(2 * flap.Window)
		w.pass()
		if got := w.holds(hold.Flapping); got != nil {
			t.Errorf("restarts %t: still published: %+v", restarts, got)
		}
	}
}

// TestAHoldOutlivesTheLifetimeOfEvents: the API server deletes Events after an hour.
func TestAHoldOutlivesTheLifetimeOfEvents(t *testing.T) {
	w := newPasses(t)
	list := []hold.Hold{{Reason: hold.Unread, Why: "the worker has not read pci", Keys: []string{"label a"}}}
	again := w.r.holds.publish(w.Context(), w.node(), list)
	if again <= 0 || again >= time.Hour {
		t.Fatalf("published again in %s", again)
	}
	w.do(http.MethodDelete, "/api/v1/namespaces/default/events/"+hold.EventName("", "n", hold.Unread), nil) // as the API server does
	w.clock.Step(again)
	w.r.holds.publish(w.Context(), w.node(), list)
	if got := w.holds(hold.Unread); len(got) != 1 {
		t.Errorf("published: %+v", got)
	}
}

// TestHoldsOfAFleetAreBounded: the nodes after the first ones are counted.
func TestHoldsOfAFleetAreBounded(t *testing.T) {
	w := newPasses(t)
	nodes := make([]*corev1.Node, maxPublished+2)
	for i := range nodes {
		nodes[i] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}}
		w.r.holds.publish(w.Context(), nodes[i], []hold.Hold{{Reason: hold.Removal, Why: "why", Keys: []string{"label a"}}})
	}
	w.clock.Step(2 * time.Minute)
	w.r.holds.publish(w.Context(), nodes[maxPublished], []hold.Hold{{Reason: hold.Removal, Why: "why", Keys: []string{"label a"}}})
	var all corev1.EventList
	if err := w.List(w.Context(), &all); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for i := range all.Items {
		counts[all.Items[i].Reason]++
		if text := all.Items[i].Annotations[hold.Omitted]; all.Items[i].Reason == "HoldsOmitted" && text != "2" {
			t.Errorf("%s nodes are counted, want 2", text)
		}
	}
	if counts[hold.Removal] != maxPublished || counts["HoldsOmitted"] != 1 {
		t.Errorf("Events: %v", counts)
	}
	for _, n := range nodes[1:] {
		w.r.holds.publish(w.Context(), n, nil)
	}
	if err := w.List(w.Context(), &all); err != nil || len(all.Items) != 1 {
		t.Errorf("%d Events are left, want that of one node: %v", len(all.Items), err)
	}
}

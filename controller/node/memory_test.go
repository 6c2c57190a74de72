package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

func TestMemoryIsOfOneNodeAndNotOfItsName(t *testing.T) {
	m := newMemory()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1"}}
	m.of(node).written = "5"
	if got := m.of(node).written; got != "5" {
		t.Errorf("the write is forgotten: %q", got)
	}
	again := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "2"}}
	if got := m.of(again).written; got != "" {
		t.Errorf("a new Node has the write of a deleted one: %q", got)
	}
	m.forget("n")
	if got := m.of(again).written; got != "" {
		t.Errorf("a forgotten Node has a write: %q", got)
	}
}

func TestACachedNodeOlderThanTheOwnWriteIsNotUsed(t *testing.T) {
	for _, tc := range []struct {
		cached, written string
		want            bool
	}{
		{"9", "10", true}, {"10", "10", false}, {"11", "10", false}, {"9", "", false}, {"x", "10", false},
	} {
		known := &memo{written: tc.written}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: tc.cached}}
		if got := known.newerThan(node); got != tc.want {
			t.Errorf("cached %q, written %q: %t, want %t", tc.cached, tc.written, got, tc.want)
		}
	}
}

func TestARejectedValueIsRetriedAfterTenMinutes(t *testing.T) {
	now := time.Now()
	step := plan.Step{Kind: keys.Label, Key: "vendor.io/a", New: "1"}
	known := &memo{}
	if _, refused := known.refuses(step, now); refused {
		t.Error("a value is skipped that was never rejected")
	}
	known.refuse(step, now)
	if wait, refused := known.refuses(step, now.Add(time.Minute)); !refused || wait != refusalMemory-time.Minute {
		t.Errorf("after a minute: skipped %t, wait %s", refused, wait)
	}
	other := step
	other.New = "2"
	if _, refused := known.refuses(other, now); refused {
		t.Error("another value of the same key is skipped")
	}
	if _, refused := known.refuses(step, now.Add(refusalMemory)); refused {
		t.Error("the value is not retried after ten minutes")
	}
}

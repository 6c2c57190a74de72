package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/controller/node/decide"
)

func TestMemoryIsOfOneNodeAndNotOfItsName(t *testing.T) {
	m := newMemory()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1"}}
	m.of(node).Written = "5"
	if got := m.of(node).Written; got != "5" {
		t.Errorf("the write is forgotten: %q", got)
	}
	again := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "2"}}
	if got := m.of(again).Written; got != "" {
		t.Errorf("a new Node has the write of a deleted one: %q", got)
	}
	m.forget("n")
	if got := m.of(again).Written; got != "" {
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
		known := &memo{Memory: decide.Memory{Written: tc.written}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: tc.cached}}
		if got := known.newerThan(node); got != tc.want {
			t.Errorf("cached %q, written %q: %t, want %t", tc.cached, tc.written, got, tc.want)
		}
	}
}

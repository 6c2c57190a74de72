package informer_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/assay-project/assay/internal/informer"
)

// TestSpecChanged: an object that is deleted and created again while a watch is broken is an update with the same generation.
func TestSpecChanged(t *testing.T) {
	object := func(uid types.UID, generation int64, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: uid, Generation: generation, ResourceVersion: version}}
	}
	for name, tc := range map[string]struct {
		after *corev1.Node
		want  bool
	}{
		"Status":        {object("a", 1, "2"), false},
		"AnotherSpec":   {object("a", 2, "2"), true},
		"AnotherObject": {object("b", 1, "2"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := informer.SpecChanged.Update(event.UpdateEvent{ObjectOld: object("a", 1, "1"), ObjectNew: tc.after}); got != tc.want {
				t.Errorf("%t, want %t", got, tc.want)
			}
		})
	}
}

package shape

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/assay-project/assay/settings"
)

// TestShapesOfALargeFleetChangeLessOften counts the nodes of the cluster, including those of no shape.
func TestShapesOfALargeFleetChangeLessOften(t *testing.T) {
	s := &settled{labels: settings.DefaultNodeShapeLabels}
	node := func(i int) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}} }
	nodes := 0
	for _, test := range []struct {
		nodes int
		want  time.Duration
	}{{0, 5 * time.Second}, {999, 5 * time.Second}, {5000, 30 * time.Second}, {15_000, time.Minute}, {10, 5 * time.Second}} {
		for ; nodes < test.nodes; nodes++ {
			s.Create(t.Context(), event.CreateEvent{Object: node(nodes)}, nil)
		}
		for ; nodes > test.nodes; nodes-- {
			s.Delete(t.Context(), event.DeleteEvent{Object: node(nodes)}, nil)
		}
		if got := s.delay(); got != test.want {
			t.Errorf("%d nodes: changes are batched for %s, want %s", test.nodes, got, test.want)
		}
	}
}

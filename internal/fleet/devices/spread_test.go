package devices_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/internal/fleet/devices"
)

// fabric returns a slice of a pool of several nodes, with a device of each of them.
func fabric(name string, generation, total int64, nodes ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "tpu", PerDeviceNodeSelection: new(true), Pool: resourcev1.ResourcePool{Name: "fabric", Generation: generation, ResourceSliceCount: total},
	}}
	for i, node := range nodes {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint(name, "-", i), NodeName: new(node)})
	}
	return s
}

func TestDevicesThatNameTheirNodes(t *testing.T) {
	w := newWorld(t, slice("own", "gpu", 1, 1, 8), fabric("s1", 1, 2, "n", "m", "n"), fabric("s2", 1, 2, "m"), fabric("c", 1, 1))
	var changed map[string]bool
	w.OnChange(func(node string) { changed[node] = true })
	// does changes slices, and compares what node n has then, and the nodes that are evaluated again.
	does := func(when string, change error, want string, nodes ...string) {
		t.Helper()
		w.do(change)
		if got := slices.Sorted(maps.Keys(changed)); !slices.Equal(got, nodes) {
			t.Errorf("%s: nodes %v are evaluated again, want %v", when, got, nodes)
		}
		w.want(when, want)
		changed = map[string]bool{}
	}
	changed = map[string]bool{}
	w.want("one slice too many", "gpu 8 true, tpu 0 false")
	does("complete", w.Delete(fabric("c", 1, 1)), "gpu 8 true, tpu 2 true", "m", "n")
	does("a slice of another node has other attributes", w.Update(fabric("s2", 1, 2, "m", "m")), "gpu 8 true, tpu 2 true", "m")
	does("a slice of another node is of the next generation", w.Update(fabric("s2", 2, 2, "m")), "gpu 8 true, tpu 2 false", "m", "n")
	does("and the other one, with fewer devices", w.Update(fabric("s1", 2, 2, "n", "m")), "gpu 8 true, tpu 1 true", "m", "n")
	does("a slice is away", w.Delete(fabric("s2", 2, 2, "m")), "gpu 8 true, tpu 1 false", "m", "n")
	does("it is back", w.Add(fabric("s2", 2, 2, "m")), "gpu 8 true, tpu 1 true", "m", "n")
	does("no device of the whole pool is of the node any more", w.Update(fabric("s1", 2, 2, "m", "m")), "gpu 8 true", "m", "n")
	if got := w.Ignored(); got[devices.IgnoredShared]+got[devices.IgnoredGeneration] != 0 {
		t.Errorf("slices are ignored: %v", got)
	}
	does("an old slice is left", w.Add(fabric("s0", 1, 3, "n")), "gpu 8 true, tpu 0 true", "n")
	if got := w.Ignored(); got[devices.IgnoredGeneration] != 1 {
		t.Errorf("slices are ignored: %v, want one old one", got)
	}
}

func TestSlicesOfAPoolOfSeveralNodesAreProven(t *testing.T) {
	w, api := proving(t, fabric("s1", 1, 2, "n", "m"), fabric("s2", 1, 2, "m"))
	s := w.want("at first", "tpu 1 true")
	if _, err := w.Prove(t.Context(), "n", s); err != nil {
		t.Error(err)
	}
	w.do(api.Delete(t.Context(), fabric("s2", 1, 2, "m"))) // a slice of another node: the pool is incomplete, and memory does not know
	if _, err := w.Prove(t.Context(), "n", s); !errors.Is(err, devices.ErrStale) {
		t.Errorf("%v, want that the cache is stale", err)
	}
}

package devices_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/rules/facts"
)

const grace = 10 * time.Minute

// slice returns a ResourceSlice of node n with a number of devices.
func slice(name, driver string, generation, total int64, count int) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: driver, NodeName: new("n"), Pool: resourcev1.ResourcePool{Name: "n", Generation: generation, ResourceSliceCount: total},
	}}
	for i := range count {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint(name, "-", i)})
	}
	return s
}

// world is a node n, and the time.
type world struct {
	*devices.Devices
	t       *testing.T
	clock   *clocktesting.FakeClock
	changes int
}

func newWorld(t *testing.T, initial ...any) *world {
	w := &world{t: t, clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	w.Devices = devices.New(devices.Options{Grace: grace, Clock: w.clock, Counts: func(d string) bool { return d != "ignored" }})
	w.OnChange(func(string) { w.changes++ })
	w.Need([]string{"cpu.model", "dra.device"})
	w.do(w.Replace(initial, ""))
	return w
}

func (w *world) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// want compares what is known of the drivers of node n, such as "gpu 8 true".
func (w *world) want(when, want string) devices.State {
	w.t.Helper()
	s := w.Of("n", "uid")
	var got []string
	for _, d := range s.Facts.Feature(facts.DriverFeature).Instances.Select(nil) {
		got = append(got, d["name"]+" "+d["devices"]+" "+d["complete"])
	}
	if text := strings.Join(got, ", "); text != want {
		w.t.Errorf("%s: drivers %q, want %q", when, text, want)
	}
	return s
}

func TestNothingIsKnownOrReadWithoutANeed(t *testing.T) {
	d := devices.New(devices.Options{Grace: grace}) // a request would panic: there is no client
	d.Need([]string{"cpu.model", "kernel.module", "drab.x"})
	if s := d.Of("n", "uid"); s.Facts != nil || s.Unseen(time.Now()) {
		t.Errorf("state %+v, want nothing", s)
	}
}

func TestDevicesAreUnknownUntilTheSlicesAreRead(t *testing.T) {
	d := devices.New(devices.Options{Grace: grace})
	d.Need([]string{"dra.driver"})
	if s := d.Of("n", "uid"); s.Facts != nil || !s.Unseen(time.Now().Add(2*grace)) {
		t.Errorf("state %+v, want unknown devices", s)
	}
	if err := d.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	if s := d.Of("n", "uid"); s.Facts == nil || s.Facts.Feature(facts.DeviceFeature).Instances.Len() != 0 {
		t.Errorf("state %+v, want no devices", s)
	}
}

func TestDriverThatRestartsKeepsItsDevices(t *testing.T) {
	gpu, nic := slice("a", "gpu", 1, 1, 8), slice("b", "nic", 1, 1, 2)
	w := newWorld(t, gpu, nic, slice("c", "ignored", 1, 1, 1))
	w.want("at first", "gpu 8 true, nic 2 true")
	w.do(w.Delete(gpu))
	w.clock.Step(time.Minute)
	s := w.want("while it is away", "gpu 8 false, nic 2 true")
	if left := s.HeldUntil.Sub(w.clock.Now()); left <= grace-2*time.Minute || left > grace || !slices.Equal(s.Incomplete, []string{"gpu"}) {
		t.Errorf("held for %s, incomplete %v", left, s.Incomplete)
	}
	w.do(w.Add(slice("d", "gpu", 1, 1, 8)))
	if s = w.want("back", "gpu 8 true, nic 2 true"); !s.HeldUntil.IsZero() || s.Incomplete != nil {
		t.Errorf("held until %s, incomplete %v, want neither", s.HeldUntil, s.Incomplete)
	}
}

func TestDevicesOfADriverThatStaysAwayGo(t *testing.T) {
	gpu := slice("a", "gpu", 1, 1, 8)
	w := newWorld(t, gpu)
	w.want("at first", "gpu 8 true")
	w.do(w.Delete(gpu))
	w.want("gone", "gpu 8 false")
	w.clock.Step(grace - time.Second)
	w.want("a second before", "gpu 8 false")
	w.clock.Step(2 * time.Second)
	w.want("after the grace period", "")
}

func TestLostDeviceCountsAtOnce(t *testing.T) {
	w := newWorld(t, slice("a", "gpu", 1, 1, 8))
	w.want("at first", "gpu 8 true")
	w.do(w.Update(slice("a", "gpu", 2, 1, 7)))
	w.want("complete with fewer devices", "gpu 7 true")
	w.do(w.Update(slice("a", "gpu", 3, 1, 0)))
	w.want("complete without devices", "gpu 0 true")
}

func TestIncompleteGenerationKeepsTheLastComplete(t *testing.T) {
	w := newWorld(t, slice("a", "gpu", 1, 1, 8))
	w.want("at first", "gpu 8 true")
	w.do(w.Add(slice("b", "gpu", 2, 2, 3)))
	w.want("one of two slices", "gpu 8 false")
	w.do(w.Update(slice("a", "gpu", 2, 2, 6)))
	w.want("both", "gpu 9 true")
}

// A pool that has become too large was not reported while its devices were held, for ten minutes.
func TestAPoolThatBecomesTooLargeIsReportedAtOnce(t *testing.T) {
	w := newWorld(t, slice("a", "gpu", 1, 1, facts.MaxDevices))
	w.want("at first", "gpu 2048 true")
	w.do(w.Update(slice("a", "gpu", 2, 1, facts.MaxDevices+1)))
	if s := w.want("held", "gpu 2048 false"); !strings.Contains(s.Facts.DevicesOver(), "gpu: n") {
		t.Errorf("reported is %q", s.Facts.DevicesOver())
	}
}

func TestAnotherMachineOfThatNameHasNoneOfTheDevices(t *testing.T) {
	gpu := slice("a", "gpu", 1, 1, 8)
	w := newWorld(t, gpu)
	w.want("at first", "gpu 8 true")
	w.do(w.Delete(gpu))
	w.want("held", "gpu 8 false")
	if s := w.Of("n", "other"); s.Facts.Feature(facts.DeviceFeature).Instances.Len() != 0 {
		t.Error("a new Node has the devices of the deleted one")
	}
	w.Forget("n")
	w.want("deleted and created", "")
}

// ownedSlice returns a ResourceSlice of node n that a Node owns.
func ownedSlice(owner types.UID, count int) *resourcev1.ResourceSlice {
	s := slice("a", "gpu", 1, 1, count)
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: owner}}
	return s
}

// Pools were remembered when a node was evaluated. In a process that had not evaluated it, because it was a standby or because a NodeFeature
// could not be read, they were gone with their slices (found by seeds 558, 982 and 1974 of the simulator).
func TestANodeThatWasNotEvaluatedKeepsItsDevices(t *testing.T) {
	gpu := ownedSlice("uid", 8)
	w := newWorld(t, gpu)
	w.clock.Step(2 * grace)
	w.do(w.Delete(gpu))
	w.clock.Step(grace - time.Second)
	if s := w.want("within the grace period", "gpu 8 false"); !s.HeldUntil.Equal(w.clock.Now().Add(time.Second)) {
		t.Errorf("held until %s, want for 1s", s.HeldUntil)
	}
	w.clock.Step(time.Second)
	w.want("after it", "")
}

// Seed 1914: the pool was complete for a moment between two passes over the node.
func TestAPoolThatWasCompleteBetweenTwoLooksKeepsItsDevices(t *testing.T) {
	w := newWorld(t, slice("a", "gpu", 1, 1, 0))
	w.want("at first", "gpu 0 true")
	gpu := slice("a", "gpu", 2, 1, 8)
	w.do(w.Update(gpu))
	w.do(w.Delete(gpu))
	w.want("while the driver is away", "gpu 8 false")
}

// Seed 1618: the list of Nodes lacked the node, so that it was forgotten.
func TestANodeThatAListLackedKeepsItsDevices(t *testing.T) {
	gpu := ownedSlice("uid", 8)
	w := newWorld(t, gpu)
	w.Forget("n")
	w.do(w.Delete(gpu))
	w.Forget("n")
	w.want("when the node is there", "gpu 8 false")
}

func TestDevicesOfADeletedNodeAreNotThoseOfTheNextOne(t *testing.T) {
	gpu := ownedSlice("deleted", 8)
	w := newWorld(t, gpu)
	w.Forget("n")
	w.do(w.Delete(gpu))
	w.want("the next Node", "")
}

func TestListAfterAnOutageIsACompleteAnswer(t *testing.T) {
	w := newWorld(t, slice("a", "gpu", 1, 1, 8), slice("b", "nic", 1, 1, 2))
	w.want("at first", "gpu 8 true, nic 2 true")
	before := w.changes
	w.do(w.Replace([]any{slice("b", "nic", 1, 1, 2)}, ""))
	w.want("the other slice was deleted meanwhile", "gpu 8 false, nic 2 true")
	if w.changes != before+1 {
		t.Errorf("%d changes, want 1", w.changes-before)
	}
	w.do(w.Update(slice("b", "nic", 1, 1, 2)))
	if w.changes != before+1 {
		t.Error("a slice with the same devices is a change")
	}
}

func TestSlicesThatNoRuleReadsAreCounted(t *testing.T) {
	shared := slice("shared", "gpu", 1, 1, 1)
	shared.Spec.NodeName, shared.Spec.AllNodes = nil, new(true)
	w := newWorld(t,
		slice("a", "gpu", 3, 2, 1), slice("b", "gpu", 1, 1, 1), slice("c", "gpu", 2, 3, 1), slice("d", "gpu", 2, 3, 1), // incomplete
		slice("e", "nic", 1, 1, 1), slice("f", "ignored", 1, 1, 1), shared,
		slice("g", "z", 1, 2, facts.MaxDevices), slice("h", "z", 1, 2, 1), slice("i", "z", 0, 1, 1),
	)
	want := map[string]int{devices.IgnoredShared: 1, devices.IgnoredDriver: 1, devices.IgnoredGeneration: 4, devices.IgnoredLimit: 2}
	if got := w.Ignored(); !maps.Equal(got, want) {
		t.Errorf("ignored %v, want %v", got, want)
	}
	w.do(w.Update(slice("b", "gpu", 3, 2, 1)))
	w.do(w.Delete(shared))
	want = map[string]int{devices.IgnoredShared: 0, devices.IgnoredDriver: 1, devices.IgnoredGeneration: 3, devices.IgnoredLimit: 2}
	if got := w.Ignored(); !maps.Equal(got, want) {
		t.Errorf("later, ignored %v, want %v", got, want)
	}
}

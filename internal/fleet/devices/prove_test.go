package devices_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/rules/facts"
)

// proving is a world whose slices are also in an API server.
func proving(t *testing.T, stored ...client.Object) (*world, client.WithWatch) {
	scheme := runtime.NewScheme()
	if err := resourcev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored...).
		WithIndex(&resourcev1.ResourceSlice{}, resourcev1.ResourceSliceSelectorNodeName, func(o client.Object) []string {
			return []string{ptr.Deref(o.(*resourcev1.ResourceSlice).Spec.NodeName, "")}
		}).Build()
	w := &world{t: t, clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	w.Devices = devices.New(devices.Options{Client: api, Grace: grace, Clock: w.clock, Counts: func(d string) bool { return d != "ignored" }})
	w.Need([]string{facts.DeviceFeature})
	list := &resourcev1.ResourceSliceList{}
	w.do(api.List(t.Context(), list))
	var all []any
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	w.do(w.Replace(all, ""))
	return w, api
}

func TestDevicesAreProvenByTheSlicesOfTheNode(t *testing.T) {
	gpu, nic := slice("a", "gpu", 1, 1, 8), slice("b", "nic", 1, 1, 2)
	w, api := proving(t, gpu, nic, slice("c", "ignored", 1, 1, 1))
	s := w.want("at first", "gpu 8 true, nic 2 true")
	got, err := w.Prove(t.Context(), "n", s)
	w.do(err)
	if diff := cmp.Diff(s.Facts.Features(), got.Features()); diff != "" {
		t.Errorf("(-in memory +proven):\n%s", diff)
	}
	w.do(api.Delete(context.Background(), gpu))
	w.do(w.Delete(gpu))
	s = w.want("while a driver is away", "gpu 8 false, nic 2 true")
	got, err = w.Prove(t.Context(), "n", s)
	w.do(err)
	if diff := cmp.Diff(s.Facts.Features(), got.Features()); diff != "" {
		t.Errorf("(-in memory +proven):\n%s", diff)
	}
}

func TestDevicesThatTheCacheLacksAreNotProvenToBeGone(t *testing.T) {
	gpu := slice("a", "gpu", 1, 1, 8)
	w, api := proving(t, gpu)
	w.want("at first", "gpu 8 true")
	w.do(w.Delete(gpu)) // a list of this process lacked it
	w.clock.Step(2 * grace)
	w.want("the first look", "gpu 8 false")
	w.clock.Step(2 * grace)
	s := w.want("after the grace period", "")
	if _, err := w.Prove(t.Context(), "n", s); !errors.Is(err, devices.ErrStale) {
		t.Errorf("%v, want that the cache is stale", err)
	}
	w.do(api.Delete(context.Background(), gpu))
	if _, err := w.Prove(t.Context(), "n", s); err != nil {
		t.Errorf("%v, although the slices are gone", err)
	}
}

func TestOlderVersionsOfSlicesProveNothing(t *testing.T) {
	gpu := slice("a", "gpu", 1, 1, 8)
	w, api := proving(t, gpu)
	s := w.want("at first", "gpu 8 true")
	more := gpu.DeepCopy()
	more.Spec.Devices = slice("a", "gpu", 1, 1, 9).Spec.Devices
	w.do(api.Patch(context.Background(), more, client.MergeFrom(gpu)))
	if _, err := w.Prove(t.Context(), "n", s); !errors.Is(err, devices.ErrStale) {
		t.Errorf("%v, want that the cache is stale", err)
	}
}

func TestWhatThisProcessMayNotHaveSeenIsBoundedByTheGracePeriod(t *testing.T) {
	w := newWorld(t, slice("a", "gpu", 1, 1, 8))
	if s := w.want("at first", "gpu 8 true"); !s.Unseen(w.clock.Now()) || !s.UnseenUntil.Equal(w.clock.Now().Add(grace)) {
		t.Errorf("another driver may be away until %s, want for %s", s.UnseenUntil, grace)
	}
	w.clock.Step(grace)
	if s := w.want("later", "gpu 8 true"); s.Unseen(w.clock.Now()) {
		t.Errorf("another driver may be away until %s, want now", s.UnseenUntil)
	}
}

func TestDevicesThatCannotBeReadAreNotGone(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	d := devices.New(devices.Options{Grace: grace, Clock: clock})
	d.Need([]string{facts.DeviceFeature})
	clock.Step(2 * grace)
	if s := d.Of("n", "uid"); !s.Unseen(clock.Now().Add(2*grace)) || s.Facts != nil {
		t.Errorf("%+v, want devices that are unknown, and may have been there", s)
	}
}

package decide

import (
	"strings"
	"testing"
	"time"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/hold"
	"github.com/assay-project/assay/controller/provenance/record"
	"github.com/assay-project/assay/rules/plan"
)

// TestACountOverTwoPoolsStaysAfterARestart: one of two pools of a driver is away when a process starts, which counts the devices of the other.
// The value that an earlier process gave stays for the grace period; one that this process has given is changed at once.
func TestACountOverTwoPoolsStaysAfterARestart(t *testing.T) {
	state := plan.State{Labels: M{"vendor.io/gpus": "8"}, Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "vendor.io/gpus"}}
	for name, tc := range map[string]struct {
		unseen time.Duration
		given  string // by this process before; empty: nothing
		want   string // keys that are changed
	}{
		"AfterARestart":          {time.Minute, "", "vendor.io/new"},
		"NotWhatTheNodeHas":      {time.Minute, "4", "vendor.io/new"},
		"GivenByThisProcess":     {time.Minute, "8", "vendor.io/gpus vendor.io/new"},
		"AfterTheGracePeriod":    {0, "", "vendor.io/gpus vendor.io/new"},
		"AfterItAndNotOnTheNode": {0, "4", "vendor.io/gpus vendor.io/new"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := newPass(t)
			p.Features.DevicesUnseen = tc.unseen
			p.About = func(plan.Step, time.Time) Key {
				return Key{Devices: true, Cause: record.Facts, Given: tc.given != "", GivenOld: tc.given == "8"}
			}
			in := plan.Compute(state, plan.Desired{Labels: M{"vendor.io/gpus": "4", "vendor.io/new": "1"}}, plan.Policy{})
			got := unseenDevices(p.know(in), in)
			if keys := strings.Join(stepKeys(got.Plan), " "); keys != tc.want || got.Again != 0 && got.Again != tc.unseen {
				t.Errorf("the plan changes %q after %s, want %q", keys, got.Again, tc.want)
			}
			held := len(p.say) == 1 && p.say[0].Reason == hold.Devices && strings.Contains(p.say[0].Message, "label vendor.io/gpus")
			if want := tc.want == "vendor.io/new"; held != want {
				t.Errorf("Events %v", p.say)
			}
		})
	}
}

// TestDevicesThatAreHeldAreReported: no other program knows the devices of a pool that is away.
func TestDevicesThatAreHeldAreReported(t *testing.T) {
	p, _ := newPass(t)
	p.Features.DevicesHeld, p.Features.DevicesIncomplete = time.Minute, []string{"gpu.example.com"}
	p.sayDevices()
	p.Now = p.Now.Add(time.Second)
	p.Features.DevicesHeld -= time.Second
	p.sayDevices()
	if len(p.say) != 1 || !strings.Contains(p.say[0].Message, "the ResourceSlices of the DRA driver gpu.example.com are incomplete or gone") {
		t.Fatalf("Events %v", p.say)
	}
	until, why, ok := hold.Read(p.say[0].Message)
	if left := until.Sub(p.Now); !ok || left > time.Minute || left < time.Minute-2*time.Second || !strings.HasPrefix(why, "removalGracePeriod") {
		t.Errorf("the command line reads %s, %q, %t", until, why, ok)
	}
}

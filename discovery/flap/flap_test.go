package flap_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/flap"
)

// content is a node with a link, a label for it, and devices without a name.
func content(state string, more ...map[string]string) nfdv1alpha1.NodeFeatureSpec {
	usb := []nfdv1alpha1.InstanceFeature{{Attributes: map[string]string{"vendor": "1d6b"}}}
	for _, attributes := range more {
		usb = append(usb, nfdv1alpha1.InstanceFeature{Attributes: attributes})
	}
	return nfdv1alpha1.NodeFeatureSpec{
		Labels: map[string]string{"link": state, "steady": "true"},
		Features: nfdv1alpha1.Features{
			Flags: map[string]nfdv1alpha1.FlagFeatureSet{"kernel.loadedmodule": {Elements: map[string]nfdv1alpha1.Nil{"m_" + state: {}}}},
			Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
				"local.feature": {Elements: map[string]string{"link": state, "steady": "true"}},
			},
			Instances: map[string]nfdv1alpha1.InstanceFeatureSet{
				"network.device": {Elements: []nfdv1alpha1.InstanceFeature{
					{Attributes: map[string]string{"name": "eth0", "operstate": state}},
					{Attributes: map[string]string{"name": "eth1", "operstate": "up"}},
				}},
				"usb.device": {Elements: usb},
			},
		},
	}
}

// step is what is discovered at a time, and what is published then.
type step struct {
	at          time.Duration
	found, want nfdv1alpha1.NodeFeatureSpec
	wait        time.Duration
}

func TestApply(t *testing.T) {
	up, down := content("up"), content("down")
	stick := map[string]string{"vendor": "0951"}
	for name, steps := range map[string][]step{
		"changes are immediate": {
			{at: 0, found: up, want: up},
			{at: time.Second, found: down, want: down},
			{at: 2 * time.Second, found: up, want: up},
			{at: 3 * time.Second, found: down, want: down},
		},
		"slow changes are immediate": {
			{at: 0, found: up, want: up},
			{at: 30 * time.Second, found: down, want: down},
			{at: 60 * time.Second, found: up, want: up},
			{at: 90 * time.Second, found: down, want: down},
			{at: 120 * time.Second, found: up, want: up},
			{at: 150 * time.Second, found: down, want: down},
		},
		"the fourth within a minute is held until it is quiet": {
			{at: 0, found: up, want: up},
			{at: 1 * time.Second, found: down, want: down},
			{at: 2 * time.Second, found: up, want: up},
			{at: 3 * time.Second, found: down, want: down},
			{at: 4 * time.Second, found: up, want: down, wait: flap.Window},
			{at: 5 * time.Second, found: down, want: down, wait: flap.Window},
			{at: 20 * time.Second, found: up, want: down, wait: flap.Window},
			{at: 50 * time.Second, found: up, want: down, wait: flap.Window - 30*time.Second},
			{at: 80 * time.Second, found: up, want: up},
			{at: 81 * time.Second, found: down, want: down},
		},
		"device that comes and goes": {
			{at: 0, found: content("up"), want: content("up")},
			{at: 1 * time.Second, found: content("up", stick), want: content("up", stick)},
			{at: 2 * time.Second, found: content("up"), want: content("up")},
			{at: 3 * time.Second, found: content("up", stick), want: content("up", stick)},
			{at: 4 * time.Second, found: content("up"), want: content("up", stick), wait: flap.Window},
			{at: 64 * time.Second, found: content("up"), want: content("up")},
		},
		"two of the same are not one": {
			{at: 0, found: content("up", stick), want: content("up", stick)},
			{at: 1 * time.Second, found: content("up", stick, stick), want: content("up", stick, stick)},
			{at: 2 * time.Second, found: content("up", stick), want: content("up", stick)},
			{at: 3 * time.Second, found: content("up", stick, stick), want: content("up", stick, stick)},
			{at: 4 * time.Second, found: content("up", stick), want: content("up", stick, stick), wait: flap.Window},
		},
		"others pass while one is held": {
			{at: 0, found: up, want: up},
			{at: 1 * time.Second, found: down, want: down},
			{at: 2 * time.Second, found: up, want: up},
			{at: 3 * time.Second, found: down, want: down},
			{at: 4 * time.Second, found: content("up", stick), want: content("down", stick), wait: flap.Window},
		},
		"feature that ceases to be published is let go": {
			{at: 0, found: up, want: up},
			{at: 1 * time.Second, found: down, want: down},
			{at: 2 * time.Second, found: up, want: up},
			{at: 3 * time.Second, found: down, want: down},
			{at: 4 * time.Second, found: nfdv1alpha1.NodeFeatureSpec{Labels: up.Labels}, want: nfdv1alpha1.NodeFeatureSpec{Labels: down.Labels}, wait: flap.Window},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var d flap.Damper
			start := time.Now()
			for _, s := range steps {
				got, wait := d.Apply(start.Add(s.at), s.found)
				if diff := cmp.Diff(s.want, got); diff != "" {
					t.Errorf("after %s (-want +got):\n%s", s.at, diff)
				}
				if wait != s.wait {
					t.Errorf("after %s: to be asked again in %s, want %s", s.at, wait, s.wait)
				}
			}
			if diff := cmp.Diff(content("up"), up) + cmp.Diff(content("down"), down); diff != "" {
				t.Errorf("what was found has been modified:\n%s", diff)
			}
		})
	}
}

func TestSaysWhatIsHeld(t *testing.T) {
	var d flap.Damper
	now := time.Now()
	for i := range 6 {
		d.Apply(now.Add(time.Duration(i)*time.Second), content([]string{"up", "down"}[i%2]))
	}
	want := []string{
		"kernel.loadedmodule m_down", "kernel.loadedmodule m_up", "label link", "local.feature link", "network.device eth0 operstate",
	}
	if diff := cmp.Diff(want, d.Held()); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

// TestComesToRest changes a node at random: after a stable Window everything is published, and before that nothing changes more
// often than allowed.
func TestComesToRest(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		var d flap.Damper
		now := time.Now()
		var found, before nfdv1alpha1.NodeFeatureSpec
		changed := 0
		for i := range 200 {
			found = content([]string{"up", "down", "dormant"}[r.IntN(3)])
			for range r.IntN(3) {
				usb := found.Features.Instances["usb.device"]
				usb.Elements = append(usb.Elements, nfdv1alpha1.InstanceFeature{Attributes: map[string]string{"vendor": strconv.Itoa(r.IntN(2))}})
				found.Features.Instances["usb.device"] = usb
			}
			now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
			got, _ := d.Apply(now, found)
			if i > 0 && got.Labels["link"] != before.Labels["link"] {
				changed++
			}
			before = got
		}
		if changed > flap.Changes {
			t.Errorf("seed %d: the label changed %d times in less than two minutes", seed, changed)
		}
		if got, wait := d.Apply(now.Add(flap.Window), found); !cmp.Equal(found, got) || wait != 0 {
			t.Errorf("seed %d: after a quiet time to be asked again in %s, and (-found +let through):\n%s", seed, wait, cmp.Diff(found, got))
		}
	}
}

package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
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
			p.Reason = func(plan.Step, time.Time) Key {
				return Key{Reason: desired.Reason{Devices: true, Cause: record.Facts, Given: tc.given != "", GivenOld: tc.given == "8"}}
			}
			in := plan.Compute(state, plan.Desired{Labels: M{"vendor.io/gpus": "4", "vendor.io/new": "1"}}, plan.Policy{})
			got := unseenDevices(p.know(in), in)
			if keys := strings.Join(stepKeys(got.Plan), " "); keys != tc.want || got.Again != 0 && got.Again != tc.unseen {
				t.Errorf("the plan changes %q after %s, want %q", keys, got.Again, tc.want)
			}
			held := len(p.holds) == 1 && p.holds[0].Reason == hold.Devices && p.holds[0].Has(keys.Label, "vendor.io/gpus")
			if want := tc.want == "vendor.io/new"; held != want {
				t.Errorf("holds %+v", p.holds)
			}
		})
	}
}

// TestAKeyThatDependsOnNoDevicesIsNotHeldForThem: after a restart, the labels of a rule that reads no devices kept old values for ten minutes,
// because another rule of the same object reads some.
func TestAKeyThatDependsOnNoDevicesIsNotHeldForThem(t *testing.T) {
	term := func(feature, element string) nfdv1alpha1.FeatureMatcher {
		return nfdv1alpha1.FeatureMatcher{{Feature: feature, MatchExpressions: &nfdv1alpha1.MatchExpressionSet{element: {Op: nfdv1alpha1.MatchExists}}}}
	}
	devices := nfdv1alpha1.Rule{Labels: M{"v.io/gpus": "1"}, Vars: M{"gpu": "1"}, MatchFeatures: term("dra.device", "device.name")}
	for name, tc := range map[string]struct {
		object []nfdv1alpha1.Rule // the one that gave v.io/a=old
		other  []nfdv1alpha1.Rule // of an object that is evaluated before it
		want   bool               // v.io/a depends on devices
	}{
		"AnotherRuleReadsThem":         {[]nfdv1alpha1.Rule{devices, {Labels: M{"v.io/a": "new"}}}, nil, false},
		"ItsRuleReadsThem":             {[]nfdv1alpha1.Rule{{Labels: M{"v.io/a": "new"}, MatchFeatures: term("dra.device", "device.name")}}, nil, true},
		"ItsExpressionReadsThem":       {[]nfdv1alpha1.Rule{{Labels: M{"v.io/a": "{@dra.device.len()}"}}}, nil, true},
		"ReadsALabelOfSuchARule":       {[]nfdv1alpha1.Rule{{Labels: M{"v.io/a": "new"}, MatchFeatures: term("rule.matched", "v.io/gpus")}}, []nfdv1alpha1.Rule{devices}, true},
		"ReadsAnotherLabel":            {[]nfdv1alpha1.Rule{{Labels: M{"v.io/a": "new"}, MatchFeatures: term("rule.matched", "v.io/b")}}, []nfdv1alpha1.Rule{devices}, false},
		"ReadsAVariableOfSuchARule":    {[]nfdv1alpha1.Rule{devices, {Labels: M{"v.io/a": "{gpu}"}}}, nil, true},
		"ReadsAVariableOfItsOwnObject": {[]nfdv1alpha1.Rule{{Vars: M{"x": "1"}}, {Labels: M{"v.io/a": "{x}"}}}, []nfdv1alpha1.Rule{devices}, false},
		"AnotherRuleHasATemplate": {[]nfdv1alpha1.Rule{
			{LabelsTemplate: "{{range .dra.device}}{{.name}}=1\n{{end}}", MatchFeatures: term("dra.device", "device.name")}, {Labels: M{"v.io/a": "new"}}}, nil, true},
		"AnotherObjectReadsThem": {[]nfdv1alpha1.Rule{{Labels: M{"v.io/a": "new"}}}, []nfdv1alpha1.Rule{devices}, false},
		"AnotherObjectSetsItBecauseOfThem": {
			[]nfdv1alpha1.Rule{{Labels: M{"v.io/a": "old"}}}, []nfdv1alpha1.Rule{{Labels: M{"v.io/a": "{@dra.device.len()}"}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, o := newPass(t)
			program := rules.Link(rules.Options{}, compiled(t, "before", tc.other...), compiled(t, "gave", tc.object...))
			if strings.HasPrefix(name, "AnotherObjectSetsIt") {
				program = rules.Link(rules.Options{}, compiled(t, "gave", tc.object...), compiled(t, "later", tc.other...))
			}
			none := facts.FromPools(nil, nil, nil)
			o.Outcome, o.Active = program.Eval(rules.Input{Facts: none}), desired.NewActive(1, program, "")
			o.Past = &record.Record{Whole: true}
			for id, g := range o.Active.Owners {
				o.Past.Put(id, &record.Entry{Name: g.Name, Rolled: g.Print, Keys: map[record.Key]bool{record.KeyOf(keys.Label, "v.io/a"): g.Name == "gave"}})
			}
			p.Features.DevicesUnseen = time.Minute
			state := plan.State{Labels: M{"v.io/a": "before"}, Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/a"}}
			in := plan.Compute(state, plan.Desired{Labels: o.Outcome.Labels()}, plan.Policy{})
			got := unseenDevices(p.know(in), in).Plan
			if held := !slices.Contains(stepKeys(got), "v.io/a"); held != tc.want {
				t.Errorf("v.io/a is held: %t, want %t; rules give %v", held, tc.want, o.Outcome.Labels())
			}
		})
	}
}

// TestPoolsOverTheLimitAreReported: a pool of 2,049 devices had no label and no Event.
func TestPoolsOverTheLimitAreReported(t *testing.T) {
	p, _ := newPass(t)
	say := func() []Event {
		p.events = nil
		p.reportDevicesOver()
		return p.events
	}
	if got := say(); len(got) > 0 {
		t.Errorf("without such a pool: Events %v", got)
	}
	p.Features.DevicesOver = "pool p"
	if got := say(); len(got) != 1 || got[0].Reason != hold.DevicesOver || got[0].Message != "pool p" {
		t.Errorf("Events %v", got)
	}
	p.Now = p.Now.Add(overInterval / 2)
	if got := say(); len(got) > 0 {
		t.Errorf("again: Events %v", got)
	}
	p.Features.DevicesOver = "pool q"
	if got := say(); len(got) != 1 {
		t.Errorf("another pool: Events %v", got)
	}
	p.Now = p.Now.Add(2 * overInterval)
	if got := say(); len(got) != 1 {
		t.Errorf("two hours later: Events %v", got)
	}
}

// TestDevicesThatAreHeldAreReported: no other program knows the devices of a pool that is away.
func TestDevicesThatAreHeldAreReported(t *testing.T) {
	p, _ := newPass(t)
	p.Features.DevicesHeld, p.Features.DevicesIncomplete = time.Minute, []string{"gpu.example.com"}
	p.holdDevices()
	if len(p.holds) != 1 || !strings.Contains(p.holds[0].Why, "the ResourceSlices of the DRA driver gpu.example.com are incomplete or gone") {
		t.Fatalf("holds %+v", p.holds)
	}
	if left := p.holds[0].Until.Sub(p.Now); left != time.Minute {
		t.Errorf("held for %s", left)
	}
}

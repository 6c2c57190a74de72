package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules/plan"
)

// TestContestedKeysComeBackLessAndLessOften has another client change one key of a node every second, for four hours. Another master takes it
// out of the record, too.
func TestContestedKeysComeBackLessAndLessOften(t *testing.T) {
	const label = "feature.node.kubernetes.io/a"
	for name, tc := range map[string]struct {
		rule nfdv1alpha1.Rule
		undo func(*plan.State)
		put  func(*plan.State)
	}{
		"ALabelThatIsChanged": {
			nfdv1alpha1.Rule{Labels: map[string]string{"a": "ours"}},
			func(s *plan.State) { s.Labels = map[string]string{label: "theirs"} },
			func(s *plan.State) { s.Labels = map[string]string{label: "ours"} },
		},
		"ALabelThatIsRemoved": {
			nfdv1alpha1.Rule{Labels: map[string]string{"a": ""}},
			func(s *plan.State) { s.Labels = nil },
			func(s *plan.State) { s.Labels = map[string]string{label: ""} },
		},
		"ALabelThatAnotherMasterRemoves": {
			nfdv1alpha1.Rule{Labels: map[string]string{"a": ""}},
			func(s *plan.State) { s.Labels, s.Annotations = nil, nil },
			func(s *plan.State) { s.Labels = map[string]string{label: ""} },
		},
		"ATaint": {
			nfdv1alpha1.Rule{Taints: []corev1.Taint{{Key: "example.com/a", Value: "ours", Effect: "NoSchedule"}}},
			func(s *plan.State) { s.Taints = nil },
			func(s *plan.State) {
				s.Taints = []corev1.Taint{{Key: "example.com/a", Value: "ours", Effect: "NoSchedule"}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, origins := newPass(t)
			o := outcomeOf(t, tc.rule)
			origins.Outcome, p.Memory.Given = o, givenBy(o)
			state := plan.State{Annotations: map[string]string{
				nfdv1alpha1.FeatureLabelsAnnotation: "a", nfdv1alpha1.TaintsAnnotation: "example.com/a=ours:NoSchedule",
			}}
			var writes []time.Time
			var turns flap.Turns
			master := "nfd-master"
			p.Evidence.Master = &master
			for range 4 * 3600 {
				p.Now = p.Now.Add(time.Second)
				tc.undo(&state)
				wanted := plan.Compute(state, plan.Desired{Labels: o.Labels(), Taints: o.Taints()}, plan.Policy{Taints: true})
				p.Evidence.Turn = time.Time{}
				got := contested(p.know(wanted), wanted)
				if got.Needs == NeedTurn {
					p.Evidence.Turn = turns.Take(p.Now)
					got = contested(p, wanted)
				}
				for _, s := range got.Plan.Steps {
					if s.Op == plan.Add || s.Op == plan.Change {
						writes = append(writes, p.Now)
						tc.put(&state)
					}
				}
				if got.Plan.Empty() && got.Again == 0 {
					t.Fatal("the key is left alone forever")
				}
				p.finish(wanted, got.Plan, nil)
			}
			var pauses []time.Duration
			for i := flap.CorrectionLimit; i < 9; i++ {
				pauses = append(pauses, writes[i].Sub(writes[i-1]).Round(time.Minute))
			}
			if want := []time.Duration{
				time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute,
			}; !slices.Equal(pauses, want) {
				t.Errorf("pauses of %s between the corrections, want %s", pauses, want)
			}
			if n := len(writes); n < 24 || n > 30 {
				t.Errorf("%d writes in four hours", n)
			}
			masters := 0
			for _, e := range p.events {
				if e.Reason == hold.AnotherMaster {
					masters++
				}
				if e.Reason == hold.AnotherMaster && !strings.HasPrefix(e.Message, "nfd-master removes ") {
					t.Errorf("the Event does not name the client: %s", e.Message)
				}
			}
			if want := map[bool]int{true: 4}[name == "ALabelThatAnotherMasterRemoves"]; masters != want {
				t.Errorf("%d Events about another master in four hours, want %d", masters, want)
			}
		})
	}
}

// TestConflictsDoNotHideAContest: the client that changes a label back also changes the Node while it is being corrected.
func TestConflictsDoNotHideAContest(t *testing.T) {
	p, origins := newPass(t)
	o := outcomeOf(t, nfdv1alpha1.Rule{Labels: map[string]string{"a": "ours"}})
	origins.Outcome, p.Memory.Given = o, givenBy(o)
	state := plan.State{
		Annotations: map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "a"},
		Labels:      map[string]string{"feature.node.kubernetes.io/a": "theirs"},
	}
	corrected := 0
	for range 30 {
		for _, err := range []error{ErrConflict, nil} {
			wanted := plan.Compute(state, plan.Desired{Labels: o.Labels()}, plan.Policy{})
			got := contested(p.know(wanted), wanted).Plan
			p.finish(wanted, got, err)
			if err == nil {
				corrected += len(got.Steps)
			}
		}
	}
	if corrected != flap.CorrectionLimit {
		t.Errorf("it was corrected %d times", corrected)
	}
}

// A kubelet in a crash loop resets a resource to 0 each time.
func TestAKubeletThatStartsIsNoContest(t *testing.T) {
	p, origins := newPass(t)
	o := outcomeOf(t, nfdv1alpha1.Rule{ExtendedResources: map[string]string{"example.com/a": "4"}})
	origins.Outcome, p.Memory.Given = o, givenBy(o)
	zero := corev1.ResourceList{"example.com/a": resource.MustParse("0")}
	state := plan.State{
		Annotations: map[string]string{nfdv1alpha1.ExtendedResourcesAnnotation: "example.com/a"}, Capacity: zero, Allocatable: zero,
	}
	for i := range 20 {
		wanted := plan.Compute(state, plan.Desired{ExtendedResources: o.ExtendedResources()}, plan.Policy{})
		got := contested(p.know(wanted), wanted)
		if len(got.Plan.Steps) != 1 {
			t.Fatalf("start %d: the resource stays 0 for %s", i, got.Again)
		}
		p.finish(wanted, got.Plan, nil)
		p.Now = p.Now.Add(time.Minute)
	}
}

// TestOwnChangesAreNoContest: neither new values nor repeated attempts to write a rejected value count as a contest.
func TestOwnChangesAreNoContest(t *testing.T) {
	p, origins := newPass(t)
	state := plan.State{Annotations: map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "a"}, Labels: map[string]string{}}
	for i := range 20 {
		o := outcomeOf(t, nfdv1alpha1.Rule{Labels: map[string]string{"a": string(rune('a' + i))}})
		for attempt := range 3 { // the first two attempts fail
			wanted := plan.Compute(state, plan.Desired{Labels: o.Labels()}, plan.Policy{})
			origins.Outcome = o
			got := contested(p.know(wanted), wanted)
			if len(got.Plan.Steps) != 1 {
				t.Fatalf("value %d is left alone for %s", i, got.Again)
			}
			p.Memory.Given = givenBy(o)
			if attempt < 2 {
				p.finish(wanted, got.Plan, ErrConflict)
				continue
			}
			p.finish(wanted, got.Plan, nil)
			state.Labels = o.Labels()
		}
	}
}

// TestWhatAnotherClientChangedBack tells which steps restore a value that this process wrote.
func TestWhatAnotherClientChangedBack(t *testing.T) {
	o := outcomeOf(t, nfdv1alpha1.Rule{
		Labels: M{"v.io/a": "1"}, Annotations: M{"v.io/b": "1"}, ExtendedResources: M{"v.io/r": "4"},
		Taints: []corev1.Taint{{Key: "v.io/t", Value: "1", Effect: corev1.TaintEffectNoSchedule}},
	})
	want := plan.Desired{Labels: o.Labels(), Annotations: o.Annotations(), ExtendedResources: o.ExtendedResources(), Taints: o.Taints(), Failed: "mark"}
	record := M{
		nfdv1alpha1.FeatureLabelsAnnotation: "v.io/a,v.io/gone", nfdv1alpha1.FeatureAnnotationsAnnotation: "v.io/b",
		nfdv1alpha1.ExtendedResourcesAnnotation: "v.io/r", nfdv1alpha1.TaintsAnnotation: "v.io/t=1:NoSchedule",
	}
	all := []string{"label v.io/a", "annotation v.io/b", "extended resource v.io/r", "taint v.io/t:NoSchedule"}
	zero := plan.State{Annotations: record, Labels: M{"v.io/a": "0"}, Capacity: quantities("v.io/r", "0"), Allocatable: quantities("v.io/r", "0")}
	other := zero
	other.Capacity, other.Allocatable = quantities("v.io/r", "2"), quantities("v.io/r", "2")
	for when, tc := range map[string]struct {
		state plan.State
		known Memory
		want  []string
	}{
		"Missing":         {plan.State{Annotations: record}, Memory{Memory: desired.Memory{Given: givenBy(o)}}, all},
		"Changed":         {other, Memory{Memory: desired.Memory{Given: givenBy(o)}}, all},
		"ResetByAKubelet": {zero, Memory{Memory: desired.Memory{Given: givenBy(o)}}, []string{all[0], all[1], all[3]}},
		"NotRecorded":     {plan.State{}, Memory{Memory: desired.Memory{Given: givenBy(o)}}, all},
		"FirstPass":       {plan.State{Annotations: record}, Memory{}, nil},
		"UnknownState":    {plan.State{Annotations: record}, Memory{Memory: desired.Memory{Given: givenBy(o)}, Unsure: true}, nil},
		"NeverWritten":    {plan.State{Annotations: record}, Memory{Memory: desired.Memory{Given: givenBy(o)}, Left: map[string]bool{all[0]: true}}, all[1:]},
		"AnotherValue":    {plan.State{Annotations: record}, Memory{Memory: desired.Memory{Given: givenBy(outcomeOf(t, nfdv1alpha1.Rule{Labels: M{"v.io/a": "2"}}))}}, nil},
	} {
		p, origins := newPass(t)
		origins.Outcome, p.Memory = o, tc.known
		in := plan.Compute(tc.state, want, plan.Policy{Taints: true})
		var got []string
		for _, s := range in.Steps {
			if p.know(in).undone(s) {
				got = append(got, name(s))
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", when, got, tc.want)
		}
	}
}

// quantities returns one resource.
func quantities(name, amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(amount)}
}

// finish ends a pass in which a plan was written, or not.
func (p *Pass) finish(wanted, allowed *plan.Plan, err error) {
	p.Memory.recordContest(&Decision{Wanted: wanted, Allowed: allowed}, Done{At: p.Now, Err: err})
}

package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// steps formats the steps of a plan with their values.
func steps(p *plan.Plan) (out []string) {
	for _, s := range p.Steps {
		out = append(out, fmt.Sprintf("%s %s %q -> %q", s.Op, s.Key, s.Old, s.New))
	}
	return out
}

func ready(status corev1.ConditionStatus) *corev1.NodeCondition {
	return &corev1.NodeCondition{Type: assayv1alpha1.FeaturesReadyCondition, Status: status, Reason: "R", Message: "m"}
}

// TestFeaturesReadyIsWrittenWithItsRecord gives a Node the condition, changes it and removes it, with and without a record of it.
func TestFeaturesReadyIsWrittenWithItsRecord(t *testing.T) {
	const kind = assayv1alpha1.FeaturesReadyCondition
	said := func(status string) string { return keys.FormatCondition(status, "R", "m") }
	for name, tc := range map[string]struct {
		have, want *corev1.NodeCondition
		recorded   bool
		steps      []string
		patch      string
	}{
		"Added": {
			nil, ready("True"), false, []string{fmt.Sprintf("add %s %q -> %q", kind, "", said("True"))},
			`{"metadata":{"annotations":{"assay.dev/node-conditions":"assay.dev/FeaturesReady"}},"status":{"conditions":[{"type":"assay.dev/FeaturesReady",` +
				`"status":"True","reason":"R","message":"m","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		},
		"Changed": {
			ready("False"), ready("True"), true, []string{fmt.Sprintf("change %s %q -> %q", kind, said("False"), said("True"))},
			`{"metadata":{},"status":{"conditions":[{"type":"assay.dev/FeaturesReady",` +
				`"status":"True","reason":"R","message":"m","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		},
		"OtherMessage": {
			&corev1.NodeCondition{Type: kind, Status: "True", Reason: "R", Message: "other"}, ready("True"), true,
			[]string{fmt.Sprintf("change %s %q -> %q", kind, keys.FormatCondition("True", "R", "other"), said("True"))},
			`{"metadata":{},"status":{"conditions":[{"type":"assay.dev/FeaturesReady",` +
				`"status":"True","reason":"R","message":"m","lastHeartbeatTime":"2026-01-01T00:00:00Z"}]}}`,
		},
		"Adopted": {
			ready("True"), ready("True"), false, []string{fmt.Sprintf("adopt %s %q -> %q", kind, said("True"), said("True"))},
			`{"metadata":{"annotations":{"assay.dev/node-conditions":"assay.dev/FeaturesReady"}}}`,
		},
		"Kept": {ready("True"), ready("True"), true, nil, ""},
		"Removed": {
			ready("True"), nil, true, []string{fmt.Sprintf("remove %s %q -> %q", kind, said("True"), "")},
			`{"metadata":{"annotations":{"assay.dev/node-conditions":null}},"status":{"conditions":[{"$patch":"delete","type":"assay.dev/FeaturesReady"}]}}`,
		},
		"RemovedWithoutARecord": {
			ready("True"), nil, false, []string{fmt.Sprintf("remove %s %q -> %q", kind, said("True"), "")},
			`{"metadata":{},"status":{"conditions":[{"$patch":"delete","type":"assay.dev/FeaturesReady"}]}}`,
		},
		"Forgotten": {
			nil, nil, true, []string{fmt.Sprintf("forget %s %q -> %q", kind, "", "")}, `{"metadata":{"annotations":{"assay.dev/node-conditions":null}}}`,
		},
		"None": {nil, nil, false, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var state plan.State
			if tc.have != nil {
				state.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "True"}, *tc.have}
			}
			if tc.recorded {
				state.Annotations = map[string]string{plan.Record{}.Conditions(): kind}
			}
			now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			p := plan.Compute(state, plan.Desired{Now: now}, plan.Policy{}).WithReady(tc.want)
			if diff := cmp.Diff(tc.steps, steps(p)); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.patch, string(p.Patch())); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			for _, s := range p.Steps {
				if want := s.Op != plan.Remove && s.Op != plan.Forget && tc.want != nil && tc.want.Status == "True"; s.Turns("True") != want {
					t.Errorf("the step %s makes the Node ready: %t, want %t", s.Op, !want, want)
				}
				if s.Turns("False") {
					t.Errorf("the step %s makes the Node unready", s.Op)
				}
				if !s.Mark || s.Takes() {
					t.Errorf("the step %s counts as one of a rule: %+v", s.Op, s)
				}
			}
		})
	}
	var state plan.State
	if state.Ready() != nil {
		t.Error("a Node without conditions has one")
	}
	state.Conditions = []corev1.NodeCondition{*ready("True")}
	if state.Ready() == nil {
		t.Error("a Node with this condition alone has none")
	}
}

// TestLabelsThatNoRuleSets removes labels of other clients, and leaves labels to them.
func TestLabelsThatNoRuleSets(t *testing.T) {
	record := plan.Record{}.Labels()
	state := plan.State{
		Labels:      map[string]string{"v.io/ours": "1", "v.io/theirs": "2", "v.io/left": "3"},
		Annotations: map[string]string{record: "v.io/left,v.io/ours"},
	}
	p := plan.Compute(state, plan.Desired{Labels: map[string]string{"v.io/new": "4", "v.io/ours": "1"}}, plan.Policy{})
	for label, want := range map[string]bool{"v.io/ours": true, "v.io/left": true, "v.io/new": true, "v.io/theirs": false} {
		if p.Owns(label) != want {
			t.Errorf("owns %s: %t, want %t", label, !want, want)
		}
	}
	if p.WithoutLabels(nil) != p {
		t.Error("without labels the plan is another one")
	}
	without := p.WithoutLabels([]string{"v.io/theirs"})
	if diff := cmp.Diff([]string{`remove v.io/left "3" -> ""`, `add v.io/new "" -> "4"`, `remove v.io/theirs "2" -> ""`}, steps(without)); diff != "" {
		t.Errorf("without a label of another client (-want +got):\n%s", diff)
	}
	if i := slices.IndexFunc(without.Steps, func(s plan.Step) bool { return s.Key == "v.io/theirs" }); without.Steps[i].Takes() {
		t.Error("the removal counts as one of a rule")
	}
	disowned := p.Disown([]string{"v.io/left", "v.io/theirs"})
	if diff := cmp.Diff([]string{`forget v.io/left "3" -> ""`, `add v.io/new "" -> "4"`}, steps(disowned)); diff != "" {
		t.Errorf("disowned (-want +got):\n%s", diff)
	}
	if body := string(disowned.Patch()); !strings.Contains(body, `"`+record+`":"v.io/new,v.io/ours"`) || strings.Contains(body, "left") {
		t.Errorf("disowned: the patch is %s", body)
	}
	if len(p.Steps) != 2 || !p.Owns("v.io/left") {
		t.Error("the original plan has changed")
	}
	kept := p.Disown(nil)
	if diff := cmp.Diff(steps(p), steps(kept)); diff != "" {
		t.Errorf("without labels to disown (-want +got):\n%s", diff)
	}
}

// TestWithoutTaintRemovesAllEffects removes all taints with a key, including those of other clients.
func TestWithoutTaintRemovesAllEffects(t *testing.T) {
	state := plan.State{Taints: []corev1.Taint{
		{Key: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "b", Effect: corev1.TaintEffectNoSchedule}, {Key: "a", Effect: corev1.TaintEffectNoExecute},
	}}
	p := plan.Compute(state, plan.Desired{}, plan.Policy{}).WithoutTaint("a")
	if diff := cmp.Diff([]string{`remove a:NoExecute "" -> ""`, `remove a:NoSchedule "" -> ""`}, steps(p)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if got := string(p.TaintPatch("")); !strings.Contains(got, `"taints":[{"key":"b","effect":"NoSchedule"}]`) {
		t.Errorf("the patch is %s", got)
	}
}

// TestATaintCountsOnce: of two desired taints with a key and effect, the first counts.
func TestATaintCountsOnce(t *testing.T) {
	taint := func(key, value string) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
	}
	want := plan.Desired{Taints: []corev1.Taint{taint("v.io/a", "1"), taint("v.io/a", "2"), taint("v.io/b", "3")}}
	p := plan.Compute(plan.State{}, want, plan.Policy{Taints: true})
	if diff := cmp.Diff([]string{`add v.io/a:NoSchedule "" -> "1"`, `add v.io/b:NoSchedule "" -> "3"`}, steps(p)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// TestGivenIsWhatTheRecordLists leaves out keys of other clients, and keys that no rule may write.
func TestGivenIsWhatTheRecordLists(t *testing.T) {
	record := plan.Record{}
	state := plan.State{
		Labels: map[string]string{"v.io/a": "1", "v.io/theirs": "2", "kubernetes.io/hostname": "n"},
		Annotations: map[string]string{
			record.Labels(): "v.io/a,v.io/gone,kubernetes.io/hostname", record.Resources(): "v.io/r",
			record.Taints(): "v.io/t=1:NoSchedule,node-role.kubernetes.io/control-plane:NoSchedule",
		},
		Capacity: amounts(map[string]string{"v.io/r": "2", "v.io/other": "3"}), Allocatable: amounts(map[string]string{"v.io/r": "2", "v.io/other": "3"}),
		Taints: []corev1.Taint{
			{Key: "v.io/t", Value: "1", Effect: "NoSchedule"}, {Key: "v.io/u", Effect: "NoSchedule"}, {Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"},
		},
	}
	want := plan.Desired{
		Labels: map[string]string{"v.io/a": "1"}, ExtendedResources: map[string]string{"v.io/r": "2"}, Taints: state.Taints[:1],
	}
	if diff := cmp.Diff(want, plan.Policy{}.Given(state)); diff != "" {
		t.Errorf("given (-want +got):\n%s", diff)
	}
}

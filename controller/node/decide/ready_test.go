package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// TestTheStartupTaintIsRemovedOnceTheNodeIsReady checks when pods may come: if the condition is on the Node, or after the timeout, and
// never in the write that first says that the node is ready.
func TestTheStartupTaintIsRemovedOnceTheNodeIsReady(t *testing.T) {
	const key, timeout = "example.com/pending", 10 * time.Minute
	ready := func(status corev1.ConditionStatus) *corev1.NodeCondition {
		return &corev1.NodeCondition{Type: assayv1alpha1.FeaturesReadyCondition, Status: status, Reason: "R", Message: "m"}
	}
	for name, tc := range map[string]struct {
		has, becomes *corev1.NodeCondition
		untainted    bool
		age          time.Duration
		removed      bool
		late         bool
		again        time.Duration
	}{
		"ready":                   {has: ready("True"), becomes: ready("True"), removed: true},
		"becomes ready":           {becomes: ready("True"), age: time.Minute},
		"becomes ready too late":  {becomes: ready("True"), age: timeout},
		"is not ready any more":   {has: ready("True"), becomes: ready("False"), age: time.Minute, again: timeout - time.Minute},
		"not ready":               {has: ready("False"), becomes: ready("False"), age: time.Minute, again: timeout - time.Minute},
		"not ready after so long": {has: ready("False"), becomes: ready("False"), age: timeout, removed: true, late: true},
		"unknown after so long":   {age: timeout, removed: true, late: true},
		"without the taint":       {has: ready("True"), becomes: ready("True"), untainted: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := newPass(t)
			p.Age, p.Settings.Startup = tc.age, Startup{Key: key, FailOpenAfter: timeout}
			node := p.Node
			if !tc.untainted {
				node.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}, {Key: key, Effect: corev1.TaintEffectNoExecute}}
			}
			if tc.has != nil {
				node.Status.Conditions = []corev1.NodeCondition{*tc.has}
				node.Annotations = map[string]string{assayv1alpha1.NodeConditionsAnnotation: assayv1alpha1.FeaturesReadyCondition}
			}
			got, late, again := p.open(plan.Compute(plan.StateOf(node), plan.Desired{}, plan.Policy{}).WithReady(tc.becomes))
			removed := 0
			for _, s := range got.Steps {
				if s.Op == plan.Remove && slices.Contains([]string{key + ":NoSchedule", key + ":NoExecute"}, s.Key) {
					removed++
				}
			}
			if want := map[bool]int{true: 2}[tc.removed]; removed != want || late != tc.late || again != tc.again {
				t.Errorf("%d taints are removed, late: %t, again after %s; want %d, %t, %s", removed, late, again, want, tc.late, tc.again)
			}
		})
	}
}

// TestAConditionOfARuleDoesNotOpenTheGate, nor keep it closed.
func TestAConditionOfARuleDoesNotOpenTheGate(t *testing.T) {
	const key = "example.com/pending"
	p, _ := newPass(t)
	p.Settings.Startup = Startup{Key: key, FailOpenAfter: time.Hour}
	node := p.Node
	node.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: assayv1alpha1.FeaturesReadyCondition, Status: corev1.ConditionTrue}}
	want := plan.Desired{Conditions: M{"v.io/A": keys.FormatCondition("True", "R", "m")}, Failed: "mark"}
	opened, _, _ := p.open(plan.Compute(plan.StateOf(node), want, plan.Policy{}))
	if got := stepKeys(opened); !slices.Contains(got, key+":NoSchedule") {
		t.Errorf("the plan changes %v, want the removal of the start-up taint", got)
	}
	p.Node = &corev1.Node{}
	if got := p.lateEvents(opened, true); len(got) != 1 || !strings.HasSuffix(got[0].Message, "its worker has not published features") {
		t.Errorf("Events: %v", got)
	}
	p.Features.Worker = &Worker{Publisher: "ns/n"}
	if got := p.lateEvents(opened, true); !strings.Contains(got[0].Message, "its worker does not publish the boot ID (feature system.boot)") {
		t.Errorf("the worker of another project has published: Event %v", got)
	}
	stale := opened.WithReady(unready(ReadyStaleBoot, "of boot b1"))
	if got := p.lateEvents(stale, true); !strings.HasSuffix(got[0].Message, "StaleBoot: of boot b1") {
		t.Errorf("the condition is written with this plan: Event %v", got)
	}
}

// TestOutputsThatWait lists what the next passes will write: not what is written now, is rejected, contested or flaps.
func TestOutputsThatWait(t *testing.T) {
	p, origins := newPass(t)
	changes := flap.NewChanges(clocktesting.NewFakePassiveClock(p.Now))
	p.Memory.Corrections = flap.Corrections{}
	state := plan.State{Labels: M{"v.io/old": "1"}, Annotations: M{nfdv1alpha1.FeatureLabelsAnnotation: "v.io/old"}}
	want := plan.Desired{
		Labels: M{"v.io/contested": "1", "v.io/done": "1", "v.io/flaps": "1", "v.io/refused": "1", "v.io/waits": "1"}, Failed: "mark",
	}
	wanted := plan.Compute(state, want, plan.Policy{})
	for _, s := range wanted.Steps {
		switch s.Key {
		case "v.io/refused":
			p.Memory.Refuse(s, p.Now, "no")
		case "v.io/contested":
			for range flap.CorrectionLimit {
				p.Memory.Corrections.Add(name(s), s.New, p.Now)
			}
		case "v.io/flaps":
			for range flap.Limit {
				changes.Add("n", []string{name(s)})
			}
		}
	}
	origins.Changes = changes.Of("n")
	got := p.know(wanted).waiting(wanted, wanted.Without(func(s plan.Step) bool { return s.Key != "v.io/done" }))
	if want := []string{"removal of label v.io/old", "label v.io/waits"}; !slices.Equal(got, want) {
		t.Errorf("%q wait, want %q", got, want)
	}
}

// TestOnlyAJoiningNodeThatKeepsLabelsIsUnready checks when unmet labels of requests set the condition FeaturesReady.
func TestOnlyAJoiningNodeThatKeepsLabelsIsUnready(t *testing.T) {
	for name, tc := range map[string]struct {
		unmet unmet
		want  string
	}{
		"LabelsAreKept":    {unmet{held: true, labels: []string{"features.assay.dev/ml.amx"}}, assayv1alpha1.ReasonLabelsUnmet},
		"LabelsAreRemoved": {unmet{labels: []string{"features.assay.dev/ml.amx"}}, ""},
		"NoLabels":         {unmet{held: true}, ""},
	} {
		got := ""
		if c := tc.unmet.condition(); c != nil {
			got = c.Reason
		}
		if got != tc.want {
			t.Errorf("%s: reason %q, want %q", name, got, tc.want)
		}
	}
}

// TestFeaturesOfAnEarlierBootAreNotCurrent compares the boot that a worker has published with the boot that the kubelet reports.
func TestFeaturesOfAnEarlierBootAreNotCurrent(t *testing.T) {
	for name, tc := range map[string]struct {
		published, reported string
		want                bool
	}{
		"SameBoot":           {"b1", "b1", true},
		"Rebooted":           {"b1", "b2", false},
		"WorkerWithoutBoot":  {"", "b2", true},
		"KubeletWithoutBoot": {"b1", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Pass{Node: &corev1.Node{}, Features: Features{Worker: &Worker{Boot: tc.published}}}
			p.Node.Status.NodeInfo.BootID = tc.reported
			if got := p.current(); got != tc.want {
				t.Errorf("current: %t, want %t", got, tc.want)
			}
		})
	}
	if (&Pass{Node: &corev1.Node{}}).current() {
		t.Error("a node without a worker's NodeFeature is current")
	}
}

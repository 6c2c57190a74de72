package shape

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/plan"
)

type m = map[string]string

// group is the nodes of one shape, and what the API server stores of the shape. Each step is a pass of another process: nothing but the
// stored status is kept.
type group struct {
	*testing.T
	nodes  map[string]*member
	now    time.Time
	joined int
	status assayv1alpha1.NodeShapeStatus
	events []string
}

func newGroup(t *testing.T) *group {
	return &group{T: t, nodes: map[string]*member{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// join adds nodes with labels, without a pass.
func (g *group) join(labels m, names ...string) *group {
	for _, name := range names {
		g.joined++
		g.nodes[name] = &member{
			name: name, uid: types.UID(fmt.Sprintf("uid-%d", g.joined)), created: g.now.Add(time.Duration(g.joined) * time.Minute), ready: true,
			given: given(plan.Desired{Labels: labels}),
		}
	}
	return g
}

func (g *group) change(labels m, names ...string) *group {
	for _, name := range names {
		g.nodes[name].given = given(plan.Desired{Labels: labels})
	}
	return g
}

func (g *group) leave(names ...string) *group {
	for _, name := range names {
		delete(g.nodes, name)
	}
	return g
}

func (g *group) unready(names ...string) *group {
	for _, name := range names {
		g.nodes[name].ready, g.nodes[name].given = false, nil
	}
	return g
}

// pass decides once, and checks that a second decision changes nothing.
func (g *group) pass() *group {
	g.Helper()
	for i := range 2 {
		var list []member
		for _, n := range g.nodes {
			list = append(list, *n)
		}
		recentFirst(list)
		g.now = g.now.Add(time.Hour)
		s, events := decide(g.status, list, metav1.NewTime(g.now))
		if i > 0 && (!equality.Semantic.DeepEqual(s, g.status) || len(events) > 0) {
			g.Errorf("a second pass without a change gives %v\n%s", events, cmp.Diff(g.status, s))
		}
		text, err := json.Marshal(s)
		if err != nil {
			g.Fatal(err)
		}
		g.status, g.events = assayv1alpha1.NodeShapeStatus{}, append(g.events, events...)
		if err := json.Unmarshal(text, &g.status); err != nil {
			g.Fatal(err)
		}
	}
	return g
}

// has checks the labels and the differences: KEY, KEY/N with N agreeing nodes, and a "!" at the end of what a node contradicted.
func (g *group) has(labels m, differences ...string) *group {
	g.Helper()
	var got []string
	contradicted := false
	for _, x := range g.status.Differences {
		text := x.Name
		if x.Agreeing != nil {
			text += fmt.Sprintf("/%d", *x.Agreeing)
		}
		if x.ContradictedBy != "" {
			text, contradicted = text+"!", true
		}
		got = append(got, text)
	}
	if !maps.Equal(g.status.Labels, labels) || cmp.Diff(got, differences) != "" {
		g.Errorf("the shape has the labels %v and the differences %v, want %v and %v", g.status.Labels, got, labels, differences)
	}
	if meta.IsStatusConditionTrue(g.status.Conditions, assayv1alpha1.ConditionContradicted) != contradicted {
		g.Errorf("the conditions are %v with the differences %v", g.status.Conditions, got)
	}
	return g
}

// told checks the Events so far.
func (g *group) told(parts ...string) {
	g.Helper()
	if len(g.events) != len(parts) {
		g.Fatalf("the events are %q, want %d", g.events, len(parts))
	}
	for i, part := range parts {
		if !strings.Contains(g.events[i], part) {
			g.Errorf("event %q, want %q", g.events[i], part)
		}
	}
}

// names returns node names.
func names(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s-%d", prefix, i))
	}
	return out
}

func TestAShapeHasWhatAllNodesHave(t *testing.T) {
	g := newGroup(t)
	g.join(m{"a": "1", "b": "1", "c": "1"}, "n1").join(m{"a": "1", "c": "2"}, "n2").pass()
	g.has(m{"a": "1"}, "b", "c").told()
	if *g.status.Nodes != 2 {
		t.Errorf("%d nodes, want 2", *g.status.Nodes)
	}
}

func TestAShapeOutlivesItsNodes(t *testing.T) {
	g := newGroup(t)
	g.join(m{"a": "1"}, "n1").pass().leave("n1").pass()
	g.has(m{"a": "1"})
	if *g.status.Nodes != 0 || !g.status.LastSeen.After(g.status.FirstSeen.Time) {
		t.Errorf("the status is %+v", g.status)
	}
	g.join(m{"a": "1"}, "n2").pass().has(m{"a": "1"}).told()
}

func TestANodeContradictsAShape(t *testing.T) {
	g := newGroup(t)
	g.join(m{"a": "1", "b": "1"}, "n1").pass().leave("n1").pass()
	g.join(m{"b": "1"}, "n2").pass()
	g.has(m{"b": "1"}, "a!").told("Node n2 does not have the label a,")
	g.leave("n2").pass().has(m{"b": "1"}, "a/0!")

	// Only after 20 other nodes the output is promised again.
	g.join(m{"a": "1", "b": "1"}, names("x", window-1)...).pass()
	g.has(m{"b": "1"}, "a/19!")
	g.join(m{"a": "1", "b": "1"}, "y").pass()
	g.has(m{"a": "1", "b": "1"}).told("n2")
}

// TestAnotherValueContradictsAShape: a node group gets another operating system, and its labels another version.
func TestAnotherValueContradictsAShape(t *testing.T) {
	g := newGroup(t)
	g.join(m{"version": "1"}, "n1").pass().leave("n1").pass()
	g.join(m{"version": "2"}, "n2").pass()
	g.has(nil, "version/1!").told(`Node n2 has the label version with the value "2", and all nodes of this shape before it with "1"`)
	g.join(m{"version": "2"}, names("x", window-1)...).pass()
	g.has(m{"version": "2"}).told("n2")
}

func TestANewNodeContradictsNodesThatExist(t *testing.T) {
	g := newGroup(t)
	g.join(m{"a": "1"}, "n1").pass().join(nil, "n2").pass()
	g.has(nil, "a!").told("Node n2")
	g.leave("n2").pass().has(nil, "a/0!")
	g.join(m{"a": "1"}, "n3").pass().has(nil, "a/1!")
}

// TestRulesThatChangeContradictNothing: a rule is created, changed and deleted, and its label arrives on one node after the other.
func TestRulesThatChangeContradictNothing(t *testing.T) {
	g := newGroup(t)
	g.join(nil, "n1", "n2").pass().has(nil)
	g.change(m{"a": "1"}, "n1").pass().has(nil, "a")
	g.change(m{"a": "1"}, "n2").pass().has(m{"a": "1"})
	g.change(m{"a": "2"}, "n1").pass().has(nil, "a")
	g.change(m{"a": "2"}, "n2").pass().has(m{"a": "2"})
	g.change(nil, "n1", "n2").join(nil, "n3").pass().has(nil)
	g.change(m{"a": "3"}, "n1", "n2", "n3").join(m{"a": "3"}, "n4").pass().has(m{"a": "3"}).told()
}

// TestANodeThatIsCorrectedContradictsNoLonger: the contradicting node lacked a label because of an error in a rule.
func TestANodeThatIsCorrectedContradictsNoLonger(t *testing.T) {
	g := newGroup(t)
	g.join(m{"a": "1"}, "n1").pass().leave("n1").pass().join(nil, "n2").pass().has(nil, "a!")
	g.change(m{"a": "1"}, "n2").pass().has(m{"a": "1"}).told("n2")
}

// TestADeletedNodeStillDiffers: what differed among the last nodes is not promised as soon as one kind of them is deleted.
func TestADeletedNodeStillDiffers(t *testing.T) {
	g := newGroup(t)
	g.join(m{"a": "1"}, "n1").join(m{"a": "2"}, "n2").pass().has(nil, "a")
	g.leave("n2").pass().has(nil, "a/0")
	g.leave("n1").pass().has(nil, "a/0")
	g.join(m{"a": "1"}, names("x", window)...).pass()
	g.has(m{"a": "1"}).told()
}

func TestOnlyRecentNodesCount(t *testing.T) {
	g := newGroup(t)
	g.join(nil, names("old", 5)...).join(m{"a": "1"}, names("new", window)...).pass()
	g.has(m{"a": "1"})
	if len(g.status.Recent) != window || *g.status.Nodes != window+5 {
		t.Errorf("the status is %+v", g.status)
	}
}

// TestNodesThatAreNotReadyDoNotCount: a node that joins, or reboots, has no labels yet.
func TestNodesThatAreNotReadyDoNotCount(t *testing.T) {
	g := newGroup(t)
	g.join(m{"a": "1"}, "n1", "n2").pass()
	g.join(nil, "n3").unready("n3").pass().has(m{"a": "1"})
	g.unready("n1", "n2").pass().has(m{"a": "1"})
	g.nodes["n1"].ready, g.nodes["n2"].ready = true, true
	g.change(nil, "n1", "n2").pass().has(nil).told() // the rule was deleted during the reboot
}

func TestDifferencesStayWhileANodeReboots(t *testing.T) {
	g := newGroup(t)
	g.join(m{"a": "1"}, "n1").join(m{"a": "2"}, "n2").pass()
	g.unready("n2").pass().has(nil, "a")
}

func TestTaintsAndResourcesOfAShape(t *testing.T) {
	g := newGroup(t).join(nil, "n1")
	taint := corev1.Taint{Key: "vendor.io/t", Value: "x", Effect: corev1.TaintEffectNoSchedule}
	all := plan.Desired{Taints: []corev1.Taint{taint}, ExtendedResources: m{"vendor.io/r": "4"}}
	g.nodes["n1"].given = given(all)
	g.pass()
	if diff := cmp.Diff([]corev1.Taint{taint}, g.status.Taints); diff != "" {
		t.Error(diff)
	}
	if amount := g.status.ExtendedResources["vendor.io/r"]; amount.String() != "4" {
		t.Errorf("the resources are %v", g.status.ExtendedResources)
	}
	all.ExtendedResources["vendor.io/r"] = "2"
	g.join(nil, "n2")
	g.nodes["n2"].given = given(all)
	g.pass().told("Node n2 has the extended resource vendor.io/r with the value \"2\"")
	if len(g.status.ExtendedResources) > 0 || len(g.status.Taints) != 1 {
		t.Errorf("the status is %+v", g.status)
	}
}

func TestAShapeIsSmall(t *testing.T) {
	g := newGroup(t)
	many := func(value string) m {
		labels := m{assayv1alpha1.RequestLabelNamespace + "/ml.amx": "true"}
		for i := range 300 {
			labels[fmt.Sprintf("a.%s/%d", strings.Repeat("x", 60), i)] = strings.Repeat(value, 63)
		}
		return labels
	}
	for i := range window {
		g.join(many("v"), strings.Repeat("n", 240)+fmt.Sprint(i))
	}
	g.pass()
	size := func() int {
		text, err := json.Marshal(g.status)
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	if n := size(); n > 16<<10 || n < 8<<10 || g.status.Labels[assayv1alpha1.RequestLabelNamespace+"/ml.amx"] == "" ||
		len(g.status.Labels)+int(g.status.Omitted) != 301 {
		t.Errorf("%d bytes, %d labels, %d omitted", n, len(g.status.Labels), g.status.Omitted)
	}
	g.join(many("w"), strings.Repeat("o", 253)).pass()
	if n := size(); n > 16<<10 {
		t.Errorf("%d bytes with differences", n)
	}
}

// TestAShapeKeepsImportantLabels: a hundred flags of the processor displaced the labels of rules in the same namespace with later names.
func TestAShapeKeepsImportantLabels(t *testing.T) {
	g := newGroup(t)
	const builtIn, ofRule = "feature.node.kubernetes.io/", "feature.node.kubernetes.io/gold"
	labels := m{ofRule: "true"}
	for i := range 300 {
		labels[fmt.Sprintf("%scpu-cpuid.F%d", builtIn, i)] = strings.Repeat("v", 63)
	}
	for i := range window {
		g.join(labels, fmt.Sprint("n", i))
	}
	g.pass()
	if g.status.Labels[ofRule] == "" || g.status.Omitted == 0 {
		t.Errorf("%d labels, %d omitted, without %s", len(g.status.Labels), g.status.Omitted, ofRule)
	}
}

// TestAKubeletThatMakesShapesReplacesNoOthers: a kubelet labels its Node with one node group after the other. All are of one node, and go
// before those that several nodes had, however old these are.
func TestAKubeletThatMakesShapesReplacesNoOthers(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))
	thief := []member{{name: "thief", uid: "thief", created: now.Time, ready: true}}
	var list []assayv1alpha1.NodeShape
	add := func(name string, members ...[]member) {
		var s assayv1alpha1.NodeShapeStatus
		for _, nodes := range members {
			s, _ = decide(s, nodes, now)
		}
		list = append(list, assayv1alpha1.NodeShape{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: s})
	}
	for i := range maxEmpty {
		other := []member{{name: "other", uid: types.UID(fmt.Sprint(i)), created: now.Time, ready: true}}
		add(fmt.Sprintf("pool-%03d", i), other, append(other, thief...), nil)
	}
	add("lives", thief)
	now = metav1.NewTime(now.Add(time.Hour))
	for i := range 50 {
		add(fmt.Sprintf("made-%02d", i), thief, nil, thief, nil)
	}
	gone := excess(list)
	if len(gone) != 50 {
		t.Fatalf("%d shapes are deleted", len(gone))
	}
	for _, s := range gone {
		if !strings.HasPrefix(s.Name, "made-") {
			t.Errorf("%s is deleted", s.Name)
		}
	}
}

func TestAgeing(t *testing.T) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	at := func(days, nodes int) assayv1alpha1.NodeShapeStatus {
		seen := metav1.NewTime(now.AddDate(0, 0, -days))
		count := int32(nodes) //nolint:gosec // 0 or 1
		return assayv1alpha1.NodeShapeStatus{LastSeen: &seen, Nodes: &count}
	}
	one := func(s assayv1alpha1.NodeShapeStatus) assayv1alpha1.NodeShapeStatus {
		s.OnlyNode = "uid"
		return s
	}
	for name, tc := range map[string]struct {
		status assayv1alpha1.NodeShapeStatus
		nodes  int
		want   time.Duration
	}{
		"OfOneNode":     {one(at(0, 0)), 0, forgetOneAfter},
		"OneForgotten":  {one(at(2, 0)), 0, -24 * time.Hour},
		"OneWithNode":   {one(at(2, 1)), 1, forgetOneAfter},
		"New":           {assayv1alpha1.NodeShapeStatus{}, 0, forgetAfter},
		"WithNodes":     {at(200, 1), 1, forgetAfter},
		"JustDeserted":  {at(200, 1), 0, forgetAfter}, // the controller was away while the nodes were deleted
		"Empty":         {at(30, 0), 0, 60 * 24 * time.Hour},
		"Forgotten":     {at(91, 0), 0, -24 * time.Hour},
		"ClockWentBack": {at(-10, 0), 0, forgetAfter},
		"Revived":       {at(91, 0), 1, forgetAfter},
	} {
		if got := remaining(tc.status, tc.nodes, now); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// A node keeps a label that its pool declares wrongly, so that an autoscaler waits for it. It contradicts the shape anyway.
func TestANodeWithUnmetLabelsCounts(t *testing.T) {
	node := func(status corev1.ConditionStatus, reason string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: assayv1alpha1.FeaturesReadyCondition, Status: status, Reason: reason},
		}}}
	}
	if !ready(node(corev1.ConditionTrue, "FeaturesApplied")) || !ready(node(corev1.ConditionFalse, assayv1alpha1.ReasonLabelsUnmet)) {
		t.Error("a node does not count although all rules are applied")
	}
	if ready(node(corev1.ConditionFalse, "RulesPending")) || ready(&corev1.Node{}) {
		t.Error("a node counts although its labels can be missing")
	}
}

package index_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/requirements"
)

// node returns a node with these CPU flags.
func node(in *facts.Interner, name string, flags ...string) index.Node {
	return index.Node{Input: rules.Input{
		Node:  rules.Node{Name: name},
		Facts: facts.FromMap(map[string]facts.Feature{"cpu.cpuid": {Flags: facts.NewFlags(flags...)}}, in),
	}}
}

func reqs(t testing.TB, required string) *requirements.Requirements {
	t.Helper()
	a, report := requirements.Annotations(map[string]string{"assay.dev/required-features": required}, field.NewPath("metadata"), rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors.ToAggregate())
	}
	return a
}

func exists(flags ...string) string {
	out := "matchFeatures:\n- feature: cpu.cpuid\n  matchExpressions:\n"
	for _, f := range flags {
		out += fmt.Sprintf("    %s: {op: Exists}\n", f)
	}
	return out
}

// why returns for each node why it does not meet the requirements.
func why(v *index.Index, a *requirements.Requirements, now int64, names ...string) map[string]string {
	out := map[string]string{}
	j := v.Judge(a, now)
	defer j.End()
	for _, name := range names {
		reason, noNode := j.Check([]byte(name))
		switch {
		case reason == nil:
			out[name] = ""
		case noNode:
			out[name] = reason.NoNode
		default:
			out[name] = reason.Text
		}
	}
	return out
}

func TestFollowsTheFacts(t *testing.T) {
	in := facts.NewInterner()
	v := index.New()
	v.Put(node(in, "a", "AVX", "AMX"))
	v.Put(node(in, "b", "AVX"))
	a := reqs(t, exists("AVX", "AMX"))
	const lacks = "node feature requirement not met: cpu.cpuid/AMX"
	check := func(step string, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, why(v, a, 0, "a", "b", "c")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}
	const unknown = "node feature requirement not met: nothing is known of the node"
	check("at first", map[string]string{"a": "", "b": lacks, "c": unknown})
	v.Put(node(in, "b", "AVX", "AMX"))
	check("b gains it", map[string]string{"a": "", "b": "", "c": unknown})
	v.Put(node(in, "a", "AVX"))
	v.Put(node(in, "b", "AVX"))
	noNode := `"` + lacks + ` (no node has it)"`
	check("no node has it", map[string]string{"a": noNode, "b": noNode, "c": unknown})
	v.Remove("a")
	v.Put(node(in, "c", "AVX", "AMX")) // gets the number of a
	check("a is replaced by c", map[string]string{"a": unknown, "b": lacks, "c": ""})
}

func TestRuleMatchedIsLive(t *testing.T) {
	in := facts.NewInterner()
	program := func(flag string) *rules.Program {
		spec := &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
			Name:   "fast",
			Labels: map[string]string{"fast": "yes"},
			MatchFeatures: nfdv1alpha1.FeatureMatcher{{
				Feature:          "cpu.cpuid",
				MatchExpressions: &nfdv1alpha1.MatchExpressionSet{flag: {Op: nfdv1alpha1.MatchExists}},
			}},
		}}}
		set, report := rules.CompileSpec("r", spec, rules.Options{})
		if !report.OK() {
			t.Fatal(report.Errors.ToAggregate())
		}
		return rules.Link(rules.Options{}, set)
	}
	v := index.New()
	v.Put(node(in, "a", "AMX"))
	v.Put(node(in, "b", "AVX"))
	v.SetProgram(program("AMX"))
	for _, name := range []string{"fast", "feature.node.kubernetes.io/fast"} {
		a := reqs(t, "matchFeatures: [{feature: rule.matched, matchExpressions: {"+name+": {op: In, value: [\"yes\"]}}}]")
		if got := v.Query(a, 5).Sample; !cmp.Equal(got, []string{"a"}) {
			t.Errorf("%s: got %v, want a", name, got)
		}
		v.SetProgram(program("AVX"))
		if got := v.Query(a, 5).Sample; !cmp.Equal(got, []string{"b"}) {
			t.Errorf("%s, after the rule has changed: got %v, want b", name, got)
		}
		v.Put(node(in, "a", "AVX"))
		if got := v.Query(a, 5).Sample; !cmp.Equal(got, []string{"a", "b"}) {
			t.Errorf("%s, after a has changed: got %v, want a and b", name, got)
		}
		v.Put(node(in, "a", "AMX"))
		v.SetProgram(program("AMX"))
	}
}

func TestConditionsReadLabelsOfNodes(t *testing.T) {
	v := index.New()
	n := node(facts.NewInterner(), "a", "AVX")
	n.Labels = map[string]string{"pool": "blue"}
	v.Put(n)
	a := reqs(t, `conditions: [{op: eq, args: {values: ["{node.labels.pool}", "green"]}}]`)
	if got := v.Query(a, 1).Matching; got != 0 {
		t.Errorf("%d nodes match before the label changes, want none", got)
	}
	n.Labels = map[string]string{"pool": "green"}
	v.Put(n)
	if got := v.Query(a, 1).Matching; got != 1 {
		t.Errorf("%d nodes match after the label has changed, want 1", got)
	}
}

func TestStaleFactsAreRejectedIfAskedFor(t *testing.T) {
	v := index.New()
	n := node(facts.NewInterner(), "a", "AVX")
	n.Seen = 1000
	v.Put(n)
	trusting := reqs(t, exists("AVX"))
	strict := requirements.Join(trusting, &requirements.Requirements{StaleAfter: 60})
	if got := why(v, trusting, 5000, "a")["a"]; got != "" {
		t.Errorf("without staleAfter: %s", got)
	}
	if got := why(v, strict, 1060, "a")["a"]; got != "" {
		t.Errorf("at the age of staleAfter: %s", got)
	}
	if got := why(v, strict, 1061, "a")["a"]; got == "" {
		t.Error("a node with stale features was accepted")
	}
	v.Seen("a", 1050)
	if got := why(v, strict, 1061, "a")["a"]; got != "" {
		t.Errorf("after a sign of life: %s", got)
	}
}

func TestANodeWasSeenWhenItWasReadyLast(t *testing.T) {
	changed, reported := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(1250, 0))
	for name, test := range map[string]struct {
		reason     string
		conditions []corev1.NodeCondition
		want       int64
	}{
		"no kubelet":  {"the condition is not set", nil, 0},
		"ready":       {"it is seen now", []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: changed}}, 0},
		"gone":        {"its last report is older than the change", []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: reported, LastHeartbeatTime: changed}}, 1250},
		"not ready":   {"it goes on reporting that it is not", []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: changed, LastHeartbeatTime: reported}}, 1000},
		"no times":    {"never", []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}, 1},
		"other kinds": {"only Ready counts", []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, LastTransitionTime: changed}}, 0},
	} {
		if got := index.LastReady(&corev1.Node{Status: corev1.NodeStatus{Conditions: test.conditions}}); got != test.want {
			t.Errorf("%s: %s: got %d, want %d", name, test.reason, got, test.want)
		}
	}
}

func TestNearestNodeLacksLeast(t *testing.T) {
	in := facts.NewInterner()
	v := index.New()
	v.Put(node(in, "a", "FX"))
	v.Put(node(in, "c", "FX", "FY"))
	v.Put(node(in, "b", "FX", "FY"))
	got := v.Query(reqs(t, exists("FX", "FY", "FZ")), 3)
	want := index.Answer{Nodes: 3, Nearest: "b", Lacks: "cpu.cpuid/FZ"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestBitsAgreeWithEvaluation makes random changes to a fleet and compares the bits with the results of the rule engine.
func TestBitsAgreeWithEvaluation(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	in := facts.NewInterner()
	v := index.New()
	have := map[string]index.Node{}
	all := []string{"A", "B", "C", "D"}
	var pairs []*requirements.Requirements
	for i := range all {
		for j := range all {
			if i != j {
				pairs = append(pairs, reqs(t, exists(all[i], all[j])))
			}
		}
	}
	for range 3000 {
		name := fmt.Sprintf("n%d", r.IntN(130))
		switch r.IntN(3) {
		case 0, 1:
			var flags []string
			for _, f := range all {
				if r.IntN(2) == 0 {
					flags = append(flags, f)
				}
			}
			have[name] = node(in, name, flags...)
			v.Put(have[name])
		case 2:
			delete(have, name)
			v.Remove(name)
		}
		a := pairs[r.IntN(len(pairs))]
		want := map[string]bool{}
		for name, n := range have {
			want[name], _ = a.Required[0].Eval(n.Input, nil)
		}
		got := map[string]bool{}
		j := v.Judge(a, 0)
		for name := range have {
			reason, _ := j.Check([]byte(name))
			got[name] = reason == nil
			if reason != nil && reason.Lacks == "" {
				t.Errorf("no reason for %s", name)
			}
		}
		j.End()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if n := v.Query(a, 0); n.Nodes != len(have) {
			t.Fatalf("%d nodes, want %d", n.Nodes, len(have))
		}
	}
}

func TestForgetsWhatIsNotAskedFor(t *testing.T) {
	in := facts.NewInterner()
	v := index.New()
	v.Put(node(in, "a", "F7"))
	for i := range 3000 {
		v.Judge(reqs(t, exists(fmt.Sprintf("F%d", i))), 0).End()
	}
	if n := v.Requirements(); n > 1024 {
		t.Errorf("%d requirements are kept", n)
	}
	if got := why(v, reqs(t, exists("F7")), 0, "a")["a"]; got != "" {
		t.Errorf("a requirement that was forgotten and is asked for again: %s", got)
	}
}

// TestLargeRequirementsAreForgotten evaluates 300 requirements of maximum size: without a limit they would take 60 MB.
func TestLargeRequirementsAreForgotten(t *testing.T) {
	v, _ := hostile(t, 1)
	first := reqs(t, exists("NODE_0"))
	for i := range 300 {
		var patterns []string
		for k := range 30 {
			patterns = append(patterns, fmt.Sprintf("'^(a{10}){2}.%d-%d'", i, k))
		}
		v.Judge(reqs(t, "matchFeatures: [{feature: cpu.cpuid, matchName: {op: InRegexp, value: ["+strings.Join(patterns, ",")+"]}}]"), 0).End()
		v.Judge(first, 0).End()
	}
	if n := v.Requirements(); n > 100 || n < 40 {
		t.Errorf("%d large requirements are kept", n)
	}
	if v.Sweep(); v.Requirements() < 40 {
		t.Error("requirements are forgotten that were asked for a moment ago")
	}
	v.Judge(first, 0).End()
	if v.Sweep(); v.Requirements() != 1 {
		t.Errorf("%d requirements are kept, want the one that was asked for since the last time", v.Requirements())
	}
}

// hostile returns a fleet of different nodes, and a requirement that takes long to evaluate on each of them.
func hostile(t *testing.T, nodes int) (*index.Index, *requirements.Requirements) {
	in := facts.NewInterner()
	v := index.New()
	for i := range nodes {
		flags := []string{fmt.Sprint("NODE_", i)}
		for k := range 200 {
			flags = append(flags, fmt.Sprintf("CONFIG_%d_%s", k, strings.Repeat("a", 40)))
		}
		v.Put(node(in, fmt.Sprint("n", i), flags...))
	}
	var patterns []string
	for i := range 40 { // the maximum size of a requirement
		patterns = append(patterns, fmt.Sprintf("'^[A-Z]+_[0-9]+_[ab]+[c-z]{%d}$'", i+1)) // each string must be scanned to its end
	}
	return v, reqs(t, "matchFeatures: [{feature: cpu.cpuid, matchName: {op: InRegexp, value: ["+strings.Join(patterns, ",")+"]}}]")
}

// TestOthersAreServedWhileARequirementIsNew: any user who can create a pod can use an expensive requirement. It must not delay the
// pods of others.
func TestOthersAreServedWhileARequirementIsNew(t *testing.T) {
	v, costly := hostile(t, 100)
	cheap := reqs(t, exists("NODE_7"))
	why(v, cheap, 0, "n7")
	done := make(chan map[string]string)
	go func() { done <- why(v, costly, 0, "n7") }()
	served := 0
	for {
		select {
		case got := <-done:
			if got["n7"] == "" {
				t.Error("the costly requirement is met")
			}
			if served < 10 {
				t.Errorf("others were served %d times meanwhile", served)
			}
			return
		default:
			if got := why(v, cheap, 0, "n7")["n7"]; got != "" {
				t.Fatalf("another pod gets %q", got)
			}
			served++
		}
	}
}

// A requirement that takes too long on all nodes together is given up, for all nodes: replicas evaluate nodes in different orders.
func TestGivesUpWhatTakesTooLong(t *testing.T) {
	v, costly := hostile(t, 20)
	v.Bound(1 << 20)
	const want = "node feature requirement not met: patterns that are too expensive to evaluate on all nodes"
	for name, got := range why(v, costly, 0, "n0", "n19") {
		if got != want {
			t.Errorf("%s: got %q", name, got)
		}
	}
	v.Put(node(facts.NewInterner(), "new", "AVX"))
	if got := why(v, costly, 0, "new")["new"]; got != want {
		t.Errorf("a node that comes later: got %q", got)
	}
	if got := why(v, reqs(t, exists("NODE_3")), 0, "n3")["n3"]; got != "" {
		t.Errorf("another requirement: got %q", got)
	}
	if got := v.Query(costly, 3); got.Matching != 0 || got.Nodes != 21 {
		t.Errorf("got %+v", got)
	}
}

// BenchmarkChangeOfOneNode changes the facts of one of 5,000 nodes to new content while the index keeps 200 requirements, all of
// which read the changed feature.
func BenchmarkChangeOfOneNode(b *testing.B) {
	in := facts.NewInterner()
	v := index.New()
	for i := range 5000 {
		v.Put(node(in, fmt.Sprintf("node-%d", i), "AVX", fmt.Sprintf("K%d", i%20)))
	}
	for i := range 200 {
		v.Judge(reqs(b, exists("AVX", fmt.Sprintf("F%d", i))), 0).End()
	}
	changes := make([]index.Node, 1024)
	for i := range changes {
		changes[i] = node(in, "node-77", "AVX", fmt.Sprintf("U%d", i))
	}
	i := 0
	for b.Loop() {
		v.Put(changes[i%len(changes)])
		i++
	}
	b.ReportMetric(float64(v.Requirements()), "requirements")
}

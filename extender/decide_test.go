package extender_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

const amx = "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMXBF16: {op: Exists}}}]"

func matcher(flag string) nfdv1alpha1.FeatureMatcher {
	return nfdv1alpha1.FeatureMatcher{{
		Feature: "cpu.cpuid", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{flag: {Op: nfdv1alpha1.MatchExists}},
	}}
}

// decider returns a Decider for a cluster in which n0 to n9 have AVX, and n2 also has AMXBF16.
func decider(t testing.TB) *extender.Decider {
	t.Helper()
	in := facts.NewInterner()
	v := index.New()
	for i := range 10 {
		flags := []string{"AVX"}
		if i == 2 {
			flags = append(flags, "AMXBF16")
		}
		v.Put(index.Node{Input: rules.Input{
			Node:  rules.Node{Name: fmt.Sprintf("n%d", i)},
			Facts: facts.FromMap(map[string]facts.Feature{"cpu.cpuid": {Flags: facts.NewFlags(flags...)}}, in),
		}})
	}
	v.SetSynced()
	known := podrequirements.New(rules.Options{})
	known.PutNamespace("batch", map[string]string{"assay.dev/scheduling": "enabled"})
	known.PutNamespace("other", map[string]string{})
	known.PutRequest(&assayv1alpha1.NodeFeatureRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "amx"},
		Spec: assayv1alpha1.NodeFeatureRequestSpec{PodRequirements: assayv1alpha1.PodRequirements{
			Required: &assayv1alpha1.Requirement{MatchFeatures: matcher("AMXBF16")},
			Preferred: []assayv1alpha1.Preference{
				{Weight: 30, Requirement: assayv1alpha1.Requirement{MatchFeatures: matcher("AVX")}},
				{Weight: 10, Requirement: assayv1alpha1.Requirement{MatchFeatures: matcher("AMXBF16")}},
			},
		}},
	})
	known.PutPolicy(&assayv1alpha1.NodeFeatureSchedulingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "batch"},
		Spec: assayv1alpha1.NodeFeatureSchedulingPolicySpec{
			NamespaceSelector: &metav1.LabelSelector{},
			PodRequirements:   assayv1alpha1.PodRequirements{Required: &assayv1alpha1.Requirement{MatchFeatures: matcher("AMXBF16")}},
		},
	})
	return &extender.Decider{Index: v, Requirements: known, Now: func() time.Time { return time.Unix(1000, 0) }}
}

func pod(namespace string, labels, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "p", UID: types.UID("u"), Labels: labels, Annotations: annotations,
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: `quote " and { bracket`}}},
	}
}

func body(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func filter(t testing.TB, d *extender.Decider, request []byte) extenderv1.ExtenderFilterResult {
	t.Helper()
	answer, _, _ := d.Filter(request, nil)
	var out extenderv1.ExtenderFilterResult
	if err := json.Unmarshal(answer, &out); err != nil {
		t.Fatalf("the answer is not JSON: %v\n%s", err, answer)
	}
	if out.NodeNames == nil {
		t.Errorf("NodeNames is null: %s", answer)
	}
	return out
}

func TestFilter(t *testing.T) {
	required := map[string]string{"assay.dev/required-features": amx}
	const lacks = "node feature requirement not met: cpu.cpuid/AMXBF16"
	for name, test := range map[string]struct {
		reason string
		pod    *corev1.Pod
		names  []string
		want   []string
		failed map[string]string
	}{
		"annotation": {
			reason: "only the node with the feature is left, and eviction cannot help the others",
			pod:    pod("ml", nil, required), names: []string{"n1", "n2", "n3"}, want: []string{"n2"},
			failed: map[string]string{"n1": lacks, "n3": lacks},
		},
		"request by name": {
			reason: "the label chooses a NodeFeatureRequest of the pod's namespace",
			pod:    pod("ml", map[string]string{"assay.dev/feature-request": "amx"}, nil), names: []string{"n1", "n2"}, want: []string{"n2"},
			failed: map[string]string{"n1": lacks},
		},
		"request of another namespace": {
			reason: "a request that does not exist does not allow placing the pod anywhere",
			pod:    pod("other", map[string]string{"assay.dev/feature-request": "amx"}, nil), names: []string{"n2"}, want: []string{},
			failed: map[string]string{"n2": "node feature requirement not met: NodeFeatureRequest other/amx does not exist"},
		},
		"policy": {
			reason: "the namespace is labeled for scheduling",
			pod:    pod("batch", nil, nil), names: []string{"n1", "n2"}, want: []string{"n2"}, failed: map[string]string{"n1": lacks},
		},
		"no policy": {
			reason: "a policy leaves namespaces alone that are not labeled for scheduling",
			pod:    pod("other", nil, nil), names: []string{"n1", "n2"}, want: []string{"n1", "n2"},
		},
		"no node has it": {
			reason: "the event says that no node of the cluster would do",
			pod:    pod("ml", nil, map[string]string{"assay.dev/required-features": strings.ReplaceAll(amx, "AMXBF16", "AMXFP64")}),
			names:  []string{"n1", "n2"}, want: []string{}, failed: map[string]string{
				"n1": "node feature requirement not met: cpu.cpuid/AMXFP64 (no node has it)",
				"n2": "node feature requirement not met: cpu.cpuid/AMXFP64 (no node has it)",
			},
		},
		"unknown node": {
			reason: "what is not known of is not chosen",
			pod:    pod("ml", nil, required), names: []string{"zz"}, want: []string{},
			failed: map[string]string{"zz": "node feature requirement not met: nothing is known of the node"},
		},
		"no nodes": {reason: "an empty list stays one", pod: pod("ml", nil, required), names: []string{}, want: []string{}},
		"broken annotation": {
			reason: "without a webhook, only the event reports the error",
			pod:    pod("ml", nil, map[string]string{"assay.dev/required-features": "matchFeatures: 7"}), names: []string{"n2"}, want: []string{},
			failed: map[string]string{"n2": "node feature requirement not met: metadata.annotations[assay.dev/required-features]: Invalid value: " +
				"matchFeatures cannot be a number; expected a map with matchFeatures, matchAny or conditions"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := filter(t, decider(t), body(t, extenderv1.ExtenderArgs{Pod: test.pod, NodeNames: &test.names}))
			want := extenderv1.ExtenderFilterResult{NodeNames: &test.want, FailedAndUnresolvableNodes: test.failed}
			if test.failed == nil {
				got.FailedAndUnresolvableNodes = nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}

func TestRefusesWithAReason(t *testing.T) {
	d := decider(t)
	unready := decider(t)
	unready.Index = index.New()
	names := []string{"n2"}
	ask := pod("ml", nil, map[string]string{"assay.dev/required-features": amx})
	many := make([]string, 200_000)
	for i := range many {
		many[i] = fmt.Sprintf("node-%d", i)
	}
	long := []string{strings.Repeat("n", 1<<20)}
	for name, test := range map[string]struct {
		d    *extender.Decider
		body []byte
		want string
	}{
		"whole nodes":     {d, body(t, extenderv1.ExtenderArgs{Pod: ask, Nodes: &corev1.NodeList{Items: make([]corev1.Node, 3)}}), "nodeCacheCapable: true"},
		"null names":      {d, []byte(`{"Pod":{},"NodeNames":null}`), "nodeCacheCapable: true"},
		"not synced":      {unready, body(t, extenderv1.ExtenderArgs{Pod: ask, NodeNames: &names}), "not filled yet"},
		"nothing":         {d, nil, "not the JSON"},
		"no JSON":         {d, []byte("hello"), "not the JSON"},
		"cut":             {d, []byte(`{"Pod":{"metadata":{"name":"a`), "not the JSON"},
		"wrong brackets":  {d, []byte(`{"Pod":[}]}`), "not the JSON"},
		"more behind":     {d, []byte(`{"NodeNames":[]} {}`), "not the JSON"},
		"names no list":   {d, []byte(`{"NodeNames":{"a":1}}`), "not the JSON"},
		"names no text":   {d, []byte(`{"NodeNames":[1]}`), "not the JSON"},
		"deep":            {d, []byte(`{"Pod":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "}"), "not the JSON"},
		"200,000 names":   {d, body(t, extenderv1.ExtenderArgs{Pod: ask, NodeNames: &many}), "more than 50000"},
		"name of a MB":    {d, body(t, extenderv1.ExtenderArgs{Pod: ask, NodeNames: &long}), "which is too long"},
		"pod is a string": {d, []byte(`{"Pod":"x","NodeNames":[]}`), "not the JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			got := filter(t, test.d, test.body)
			if !strings.Contains(got.Error, test.want) || len(*got.NodeNames) != 0 {
				t.Errorf("got %+v, want an error with %q", got, test.want)
			}
			if _, err := test.d.Prioritize(test.body); err == nil {
				t.Error("prioritize answers")
			}
		})
	}
}

// TestLimits sends requests at each limit, which succeed, and above it.
func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		limit   int
		request func(n int) string
		want    string
	}{
		"names": {50_000, func(n int) string {
			return `{"Pod":{},"NodeNames":["n"` + strings.Repeat(`,"n"`, n-1) + `]}`
		}, "more than 50000 nodes"},
		"name": {253 * 6, func(n int) string {
			return `{"Pod":{},"NodeNames":["` + strings.Repeat("n", n-2) + `"]}` // the quotes count
		}, "which is too long"},
		"depth of the pod": {64, func(n int) string {
			return `{"Pod":` + strings.Repeat(`{"a":`, n-1) + "[]" + strings.Repeat("}", n-1) + `,"NodeNames":["n"]}`
		}, "not the JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			d := decider(t)
			if got := filter(t, d, []byte(test.request(test.limit))); got.Error != "" || len(*got.NodeNames) == 0 {
				t.Errorf("at the limit: %q, %d nodes", got.Error, len(*got.NodeNames))
			}
			if got := filter(t, d, []byte(test.request(test.limit+1))); !strings.Contains(got.Error, test.want) || len(*got.NodeNames) != 0 {
				t.Errorf("beyond: %q, %d nodes, want %q", got.Error, len(*got.NodeNames), test.want)
			}
		})
	}
}

func TestExplainListsOriginsAndStaleFeatures(t *testing.T) {
	d := decider(t)
	d.Requirements.PutPolicy(&assayv1alpha1.NodeFeatureSchedulingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "fresh"},
		Spec: assayv1alpha1.NodeFeatureSchedulingPolicySpec{
			NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"fresh": "yes"}},
			StaleAfter: &metav1.Duration{Duration: time.Minute}, OnStale: assayv1alpha1.StaleReject,
		},
	})
	d.Requirements.PutNamespace("ml", map[string]string{"assay.dev/scheduling": "enabled"})
	d.Requirements.RemovePolicy("batch")
	d.Index.Seen("n2", 930)
	p := pod("ml", map[string]string{"assay.dev/feature-request": "amx", "fresh": "yes"}, nil)
	const stale = "its features are stale"
	got := d.Explain(p, "n2")
	if diff := cmp.Diff([]string{"NodeFeatureRequest ml/amx", "policy fresh"}, got.Origins); diff != "" {
		t.Error(diff)
	}
	want := []index.Finding{
		{Origin: "NodeFeatureRequest ml/amx", Met: true},
		{Origin: "policy fresh", Lacks: stale, Why: "its features were last known 1m10s ago; at most 1m0s are allowed"},
		{Origin: "NodeFeatureRequest ml/amx", Weight: 30, Met: true}, {Origin: "NodeFeatureRequest ml/amx", Weight: 10, Met: true},
	}
	if diff := cmp.Diff(want, got.Findings); diff != "" || got.Matching != 0 {
		t.Errorf("%d match (-want +got):\n%s", got.Matching, diff)
	}
	alone := d.Explain(pod("ml", map[string]string{"fresh": "yes"}, nil), "")
	for i := range 10 {
		d.Index.Seen(fmt.Sprintf("n%d", i), 930)
	}
	if none := d.Explain(pod("ml", map[string]string{"fresh": "yes"}, nil), ""); none.Matching != 0 || none.Nearest != "" || none.Lacks != "" {
		t.Errorf("no node is nearest to a pod that requires no feature: %+v", none)
	}
	if got := d.Explain(pod("ml", nil, map[string]string{"assay.dev/required-features": strings.ReplaceAll(amx, "AMXBF16", "AMXFP64")}), ""); got.Nearest == "" || got.Lacks != "cpu.cpuid/AMXFP64" {
		t.Errorf("the node that lacks least of a feature that none has: %+v", got)
	}
	if alone.Matching != 9 || len(alone.Origins) != 1 || len(alone.Missing) != 1 || !strings.Contains(alone.Missing[0].Reason, stale) {
		t.Errorf("a pod of which only freshness is asked: %+v", alone)
	}
}

func TestEscapedNamesAreFound(t *testing.T) {
	got := filter(t, decider(t), []byte(`{"Pod":{"metadata":{"namespace":"batch"}},"NodeNames":["\u006e2","\u006e3"]}`))
	if !cmp.Equal(*got.NodeNames, []string{"n2"}) || len(got.FailedAndUnresolvableNodes) != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestOnlyMetadataIsRead: fields of the same names elsewhere, and names of the same length, do not count.
func TestOnlyMetadataIsRead(t *testing.T) {
	for name, request := range map[string]string{
		"Spec":         `{"Pod":{"metadata":{"namespace":"batch"},"spec":{"namespace":"other"}},"NodeNames":["n2","n3"]}`,
		"OfSameLength": `{"Pod":{"metadata":{"namespace":"batch","namespice":"other"},"metadatx":{"namespace":"other"}},"NodeNames":["n2","n3"]}`,
	} {
		if got := filter(t, decider(t), []byte(request)); !cmp.Equal(*got.NodeNames, []string{"n2"}) {
			t.Errorf("%s: %+v, want n2, which has what the policy of the namespace batch requires", name, got)
		}
	}
}

func TestPodsThatAskForNothingAreLetThrough(t *testing.T) {
	for name, request := range map[string]string{
		"null metadata": `{"Pod":{"metadata":null},"NodeNames":["a","b"]}`,
		"no pod":        `{"NodeNames":["a","b"]}`,
		"null pod":      `{"Pod":null,"NodeNames":["a","b"]}`,
		"no metadata":   `{"Pod":{"spec":{}},"NodeNames":["a","b"]}`,
		"lower case":    `{"pod":{},"nodenames":["a","b"]}`,
	} {
		if got := filter(t, decider(t), []byte(request)); !cmp.Equal(*got.NodeNames, []string{"a", "b"}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestPrioritizeAddsUpWeights(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string
		names  []string
		want   extenderv1.HostPriorityList
	}{
		// n1 has 30 of 40: 7.5, rounded. Nodes without any of the features are omitted.
		"some have it":         {prefersAMX, []string{"n1", "n2", "zz"}, extenderv1.HostPriorityList{{Host: "n1", Score: 8}, {Host: "n2", Score: 10}}},
		"all have the same":    {prefersAMX, []string{"n2"}, extenderv1.HostPriorityList{}},
		"none has it":          {prefersAMX, []string{"yy", "zz"}, extenderv1.HostPriorityList{}},
		"nothing is preferred": {nil, []string{"n1", "n2"}, extenderv1.HostPriorityList{}},
	} {
		t.Run(name, func(t *testing.T) {
			request := body(t, extenderv1.ExtenderArgs{Pod: pod("ml", test.labels, nil), NodeNames: &test.names})
			answer, err := decider(t).Prioritize(request)
			if err != nil {
				t.Fatal(err)
			}
			got := extenderv1.HostPriorityList{}
			if err := json.Unmarshal(answer, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

var prefersAMX = map[string]string{"assay.dev/feature-request": "amx"}

func TestPreemptDropsNodesWithoutTheFeature(t *testing.T) {
	args := extenderv1.ExtenderPreemptionArgs{
		Pod: pod("batch", nil, nil),
		NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{
			"n1": {Pods: []*extenderv1.MetaPod{{UID: "a"}}},
			"n2": {Pods: []*extenderv1.MetaPod{{UID: "b"}, {UID: "c"}}, NumPDBViolations: 1},
		},
	}
	answer, err := decider(t).Preempt(body(t, args))
	if err != nil {
		t.Fatal(err)
	}
	var got extenderv1.ExtenderPreemptionResult
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatal(err)
	}
	want := extenderv1.ExtenderPreemptionResult{
		NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{"n2": args.NodeNameToMetaVictims["n2"]},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	whole := extenderv1.ExtenderPreemptionArgs{Pod: args.Pod, NodeNameToVictims: map[string]*extenderv1.Victims{"n1": {}}}
	if _, err := decider(t).Preempt(body(t, whole)); err == nil {
		t.Error("whole victims are accepted")
	}
	for request, want := range map[string]string{
		`{"Pod":{"metadata":{"namespace":"batch"}}}`:                                                                 `{"NodeNameToMetaVictims":{}}`,
		`{"Pod":{"metadata":{"namespace":"batch"}},"NodeNameToVictims":{"n2":{}},"NodeNameToMetaVictims":{"n2":{}}}`: `{"NodeNameToMetaVictims":{"n2":{"Pods":null,"NumPDBViolations":0}}}`,
	} {
		if got, err := decider(t).Preempt([]byte(request)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", request, got, err, want)
		}
	}
}

// BenchmarkFilter answers a request of kube-scheduler for a pod that requires a feature of every tenth node.
func BenchmarkFilter(b *testing.B) {
	for _, n := range []int{500, 750, 5000, 15000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, request := benchRequest(b, n)
			_, spare, err := d.Filter(request, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(request)))
			b.ReportAllocs()
			for b.Loop() {
				_, spare, _ = d.Filter(request, spare)
			}
		})
	}
}

// BenchmarkPrioritize scores the nodes for the same pod.
func BenchmarkPrioritize(b *testing.B) {
	d, request := benchRequest(b, 5000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Prioritize(request); err != nil {
			b.Fatal(err)
		}
	}
}

func benchRequest(b testing.TB, n int) (*extender.Decider, []byte) {
	d := decider(b)
	in := facts.NewInterner()
	names := make([]string, n)
	for i := range n {
		flags := []string{"AVX"}
		if i%10 == 0 {
			flags = append(flags, "AMXBF16")
		}
		names[i] = fmt.Sprintf("ip-10-%d-%d-%d.example", i>>16, i>>8&255, i&255)
		d.Index.Put(index.Node{Input: rules.Input{
			Node:  rules.Node{Name: names[i]},
			Facts: facts.FromMap(map[string]facts.Feature{"cpu.cpuid": {Flags: facts.NewFlags(flags...)}}, in),
		}})
	}
	return d, body(b, extenderv1.ExtenderArgs{Pod: pod("ml", nil, map[string]string{
		"assay.dev/required-features":  amx,
		"assay.dev/preferred-features": "- weight: 50\n  " + amx,
	}), NodeNames: &names})
}

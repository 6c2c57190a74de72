package preview_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/inputs/inputstest"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/preview"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/gather"
)

// world holds the nodes and rules of a cluster.
type world struct {
	*preview.Nodes
	*inputstest.Cache
	rules *assembly.Registry
}

// newWorld returns a world with objects that exist when the process starts.
func newWorld(objects ...client.Object) (*world, *inputs.Nodes) {
	w := &world{rules: assembly.NewRegistry(rules.Options{}), Cache: inputstest.New(objects...)}
	nodes := inputs.New(inputs.Options{Policy: gather.Policy{Namespace: "assay-system"}})
	w.Nodes = preview.New(nodes, w.rules)
	return w, nodes
}

// start runs the world until the test ends.
func start(t testing.TB, objects ...client.Object) *world {
	t.Helper()
	w, nodes := newWorld(objects...)
	w.rules.Ready()
	if err := nodes.Watch(t.Context(), w.Cache); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- nodes.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := nodes.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) PutRules(set *rules.RuleSet) { w.rules.Replace([]assembly.Rules{{Set: set}}, nil) }

func node(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// published returns a NodeFeature in its cached form.
func published(t testing.TB, namespace, name, node, features string) *nodefeature.NodeFeature {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(fmt.Sprintf("metadata: {namespace: %q, name: %q, labels: {%s: %q}}\nspec: {features: %s}",
		namespace, name, nfdv1alpha1.NodeNameLabel, node, features)))
	if err != nil {
		t.Fatal(err)
	}
	f := &nodefeature.NodeFeature{}
	if err := json.Unmarshal(data, f); err != nil {
		t.Fatal(err)
	}
	return f
}

func compile(t testing.TB, name, spec string) *rules.RuleSet {
	t.Helper()
	o := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &o.Spec); err != nil {
		t.Fatal(err)
	}
	set, report := rules.Compile(o, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors)
	}
	return set
}

const (
	withGPU    = `{flags: {kernel.loadedmodule: {elements: {nvidia: {}}}}}`
	withoutGPU = `{flags: {kernel.loadedmodule: {elements: {ip_tables: {}}}}}`
	gpuRule    = `{rules: [
		{name: none, labels: {a: "1"}, matchFeatures: [{feature: kernel.loadedmodule, matchExpressions: {zfs: {op: Exists}}}]},
		{name: gpu, labels: {gpu: "1"}, matchFeatures: [{feature: kernel.loadedmodule, matchExpressions: {nvidia: {op: Exists}}}]}]}`
)

func TestCount(t *testing.T) {
	type want struct {
		Matched    map[int]int
		Tried, All int
		OK         bool
	}
	tests := map[string]struct {
		reason string
		change func(*world)
		rule   string
		want   want
	}{
		"CountsByIndex": {rule: gpuRule, want: want{map[int]int{1: 2}, 3, 3, true}},
		"NodesThatPublishedNothingDoNotCount": {
			reason: "their worker has just not started",
			change: func(n *world) { n.Put(node("n9", nil)) },
			rule:   gpuRule, want: want{map[int]int{1: 2}, 3, 3, true},
		},
		"FeaturesWithoutANodeDoNotCount": {
			change: func(n *world) { n.Remove(node("n1", nil)) },
			rule:   gpuRule, want: want{map[int]int{1: 1}, 2, 2, true},
		},
		"NothingIsSaidOfAnEmptyCluster": {
			change: func(n *world) {
				for _, name := range []string{"n1", "n2", "n3"} {
					n.Remove(node(name, nil))
				}
			},
			rule: gpuRule,
		},
		"WhatChangesCounts": {
			change: func(n *world) { n.Put(published(t, "assay-system", "n3", "n3", withGPU)) },
			rule:   gpuRule, want: want{map[int]int{1: 3}, 3, 3, true},
		},
		"AnObjectThatIsAboutAnotherNodeNowLeavesTheFirst": {
			change: func(n *world) {
				n.Put(published(t, "assay-system", "n1", "n3", withGPU))
			},
			rule: gpuRule, want: want{map[int]int{1: 2}, 2, 2, true},
		},
		"SelectorsSeeLabels": {
			rule: `{nodeSelector: {matchLabels: {pool: a}}, rules: [{name: all, labels: {a: "1"}}]}`, want: want{map[int]int{0: 1}, 3, 3, true},
		},
		"WhatOtherRulesProduceCounts": {
			change: func(n *world) { n.PutRules(compile(t, "other", gpuRule)) },
			rule:   `{rules: [{name: after, labels: {z: "1"}, matchFeatures: [{feature: rule.matched, matchExpressions: {gpu: {op: Exists}}}]}]}`,
			want:   want{map[int]int{0: 2}, 3, 3, true},
		},
		"WhatEarlyRulesMakeUpCounts": {
			change: func(n *world) {
				n.PutRules(compile(t, "early", `{phase: early, rules: [{name: e, matchFeatures: [{feature: kernel.loadedmodule, `+
					`matchExpressions: {nvidia: {op: Exists}}}], actions: [{op: set-feature, args: {feature: site.gpu, element: present, value: "true"}}]}]}`))
			},
			rule: `{rules: [{name: main, labels: {z: "1"}, matchFeatures: [{feature: site.gpu, matchExpressions: {present: {op: Exists}}}]}]}`,
			want: want{map[int]int{0: 2}, 3, 3, true},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			for i, features := range []string{withGPU, withGPU, withoutGPU} {
				name := fmt.Sprintf("n%d", i+1)
				labels := map[string]string{}
				if i == 0 {
					labels["pool"] = "a"
				}
				objects = append(objects, node(name, labels), published(t, "assay-system", name, name, features))
			}
			n := start(t, objects...)
			if tc.change != nil {
				tc.change(n)
			}
			set := compile(t, "r", tc.rule)
			testkit.Eventually(t, "the rule matches where it should", func(ctx context.Context) error {
				var got want
				got.Matched, got.Tried, got.All, got.OK = n.Count(ctx, set)
				if diff := cmp.Diff(tc.want, got); diff != "" {
					return fmt.Errorf("%s\n%s", tc.reason, diff)
				}
				return nil
			})
		})
	}
}

func TestNothingIsGuessed(t *testing.T) {
	n, _ := newWorld(node("n1", nil), published(t, "a", "n1", "n1", withGPU))
	n.rules.Ready()
	if _, _, _, ok := n.Count(t.Context(), compile(t, "r", gpuRule)); ok {
		t.Error("got a count before all nodes were known")
	}
	if _, ok := n.Published("kernel.config"); ok {
		t.Error("got features before all nodes were known")
	}
	n = start(t, node("n1", nil), published(t, "a", "n1", "n1", withGPU))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, ok := n.Count(ended, compile(t, "r", gpuRule)); ok {
		t.Error("counted although the time is over")
	}
}

func TestHasNode(t *testing.T) {
	n := start(t, node("n1", nil))
	for name, want := range map[string]bool{"n1": true, "n2": false} {
		if has, known := n.HasNode(name); has != want || !known {
			t.Errorf("%s: %v, %v", name, has, known)
		}
	}
}

func TestPublished(t *testing.T) {
	if _, ok := start(t, node("n1", nil)).Published("kernel.loadedmodule"); ok {
		t.Error("a cluster in which nothing was published can tell nothing")
	}
	f := published(t, "gpu", "x", "n1", `{flags: {Vendor.Gauge: {elements: {a: {}}}}}`)
	n := start(t, node("n1", nil), f)
	n.Remove(f)
	n.PutRules(compile(t, "early", `{phase: early, rules: [{name: e, actions: [{op: set-feature, args: {feature: site.gpu, element: present, value: "true"}}]}]}`))
	for feature, want := range map[string]bool{"vendor.gauge": true, "kubernetes.node": true, "site.gpu": true, "vendor.other": false} {
		if got, ok := n.Published(feature); !ok || got != want {
			t.Errorf("%s: %v, %v", feature, got, ok)
		}
	}
}

func TestLabels(t *testing.T) {
	if _, known := start(t).Labels(); known {
		t.Error("a cluster without nodes has no labels, and nothing is wrong with a label")
	}
	n := start(t, node("n1", map[string]string{"example.com/rack": "r1"}), node("n2", map[string]string{"example.com/rack": "r2", "example.com/block": "b1"}))
	n.PutRules(compile(t, "site", `{rules: [{name: row, labels: {example.com/row: "1"}}]}`))
	list, known := n.Labels()
	if diff := cmp.Diff([]string{"example.com/block", "example.com/rack", "example.com/row"}, list); diff != "" || !known {
		t.Errorf("labels, known %v: %s", known, diff)
	}
}

// BenchmarkCount previews one rule on two thousand nodes with different names.
func BenchmarkCount(b *testing.B) {
	var objects []client.Object
	for i := range 2000 {
		name := fmt.Sprintf("n%d", i)
		objects = append(objects, node(name, nil), published(b, "assay-system", name, name,
			`{flags: {kernel.loadedmodule: {elements: {nvidia: {}}}}, attributes: {system.name: {elements: {nodename: `+name+`}}}}`))
	}
	n := start(b, objects...)
	set := compile(b, "r", gpuRule)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, ok := n.Count(b.Context(), set); !ok {
			b.Fatal("not counted")
		}
	}
}

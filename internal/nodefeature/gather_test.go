package nodefeature_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
)

// node returns one of many similar nodes, each with its own name in the cloud.
func node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"pool": "a"}}}
	n.Spec.ProviderID = fmt.Sprintf("aws:///a/i-%d", i)
	n.Status.NodeInfo = corev1.NodeSystemInfo{
		KernelVersion: "6.1.79", OSImage: "Debian", KubeletVersion: "v1.36.3", ContainerRuntimeVersion: "containerd://2.1.4",
		OperatingSystem: "linux", Architecture: "amd64",
	}
	return n
}

// published returns what the worker of a server publishes.
func published(t testing.TB) *nodefeature.NodeFeature {
	t.Helper()
	text, err := os.ReadFile("../../test/hosts/server/nodefeature.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err = yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	f := &nodefeature.NodeFeature{}
	if err := json.Unmarshal(text, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// input returns the input of rules as the controller keeps it.
func input(node *corev1.Node, list ...*nodefeature.NodeFeature) rules.Input {
	selected, _ := gather.Select(gather.Policy{}, gather.Stored(node), nil, list) // without namespaces there is no error
	in := selected.Input(gather.Stored(node), nodefeature.Interner())
	in.Labels = nodefeature.ShareLabels(in.Labels)
	return in
}

func TestInputHoldsWhatTheNodeSays(t *testing.T) {
	list := []*nodefeature.NodeFeature{published(t)}
	first := input(node(1), list...)
	second := input(node(2), list...)
	for name, want := range map[string]map[string]string{
		facts.ProviderFeature: {"name": "aws", "id": "aws:///a/i-1"},
		"kernel.version":      list[0].Spec.Features.Feature("kernel.version").Attributes.Map(),
	} {
		if diff := cmp.Diff(want, first.Facts.Feature(name).Attributes.Map()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, name := range first.Facts.Names() {
		if shared := first.Facts.Feature(name) == second.Facts.Feature(name); shared != (name != facts.ProviderFeature) {
			t.Errorf("%s is one for both nodes: %t", name, shared)
		}
	}
	if !first.Facts.Same(input(node(1), list...).Facts) {
		t.Error("the same node is another one the second time")
	}
	if first.Facts.Same(second.Facts) {
		t.Error("two nodes of two names in the cloud are the same")
	}
	if len(first.Publishers) != 1 {
		t.Errorf("%d publishers, although the Node itself is none", len(first.Publishers))
	}
}

// TestSharesLabels: the labels that workers request are the same on all nodes of a kind, and are stored once.
func TestSharesLabels(t *testing.T) {
	cached := func() *nodefeature.NodeFeature {
		f := published(t)
		if _, err := nodefeature.Slim(f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	same := func(a, b map[string]string) bool {
		return len(a) > 0 && reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
	}
	a, b := cached(), cached()
	if !same(a.Spec.Labels, b.Spec.Labels) {
		t.Error("two objects have a copy each")
	}
	if !same(input(node(1), a).Labels, input(node(2), b).Labels) {
		t.Error("what rules are given of two nodes is two copies")
	}
	other := published(t)
	other.Spec.Labels = map[string]string{"short": "1", "example.com/a": "2"}
	before := maps.Clone(a.Spec.Labels)
	in := input(node(1), a, other)
	if in.Labels["feature.node.kubernetes.io/short"] != "1" || len(in.Labels) != len(before)+2 {
		t.Errorf("merged, they are %v", in.Labels)
	}
	if !maps.Equal(a.Spec.Labels, before) {
		t.Error("the shared labels have changed")
	}
	other.Spec.Labels["example.com/a"] = "3"
	if _, err := nodefeature.Slim(other); err != nil || other.Spec.Labels["example.com/a"] != "3" {
		t.Errorf("labels of its own became %v (%v)", other.Spec.Labels, err)
	}
}

// TestSlimKeepsWhatIsRead: the metadata that is read of cached objects, and none that is not, which can have 256 kB.
func TestSlimKeepsWhatIsRead(t *testing.T) {
	for name, node := range map[string]string{"Worker": "a", "Other": "b", "None": ""} {
		t.Run(name, func(t *testing.T) {
			f := &nodefeature.NodeFeature{ObjectMeta: metav1.ObjectMeta{
				Name: "a", Labels: map[string]string{"unread": "x"},
				Annotations: map[string]string{nfdv1alpha1.WorkerVersionAnnotation: "1", "unread": "x"},
			}}
			if node != "" {
				f.Labels[nfdv1alpha1.NodeNameLabel] = node
			}
			for range 2 { // informers can transform an object twice
				if _, err := nodefeature.Slim(f); err != nil {
					t.Fatal(err)
				}
				if got := f.NodeName(); got != node {
					t.Errorf("it describes the Node %q, want %q", got, node)
				}
			}
			if got := f.DeepCopyObject().(*nodefeature.NodeFeature).NodeName(); got != node {
				t.Errorf("a copy describes the Node %q, want %q", got, node)
			}
			if want := map[string]string{nfdv1alpha1.WorkerVersionAnnotation: "1"}; !maps.Equal(f.Annotations, want) || f.Labels["unread"] != "" {
				t.Errorf("annotations %v, want %v; labels %v", f.Annotations, want, f.Labels)
			}
		})
	}
}

// BenchmarkInput measures building and keeping the inputs of rules for a server.
func BenchmarkInput(b *testing.B) {
	const fleet = 5000
	list := []*nodefeature.NodeFeature{published(b)}
	b.Run("Time", func(b *testing.B) {
		n := node(1)
		b.ReportAllocs()
		for b.Loop() {
			input(n, list...)
		}
	})
	b.Run("Memory", func(b *testing.B) {
		for b.Loop() {
			before := heap()
			kept := make([]rules.Input, fleet)
			for i := range kept {
				kept[i] = input(node(i), list...)
			}
			b.ReportMetric(float64(heap()-before)/fleet, "B/node")
			runtime.KeepAlive(kept)
		}
	})
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

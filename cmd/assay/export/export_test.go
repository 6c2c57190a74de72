package export

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

type m = map[string]string

func shape(name, pool, instance string, labels m) assayv1alpha1.NodeShape {
	return assayv1alpha1.NodeShape{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: assayv1alpha1.NodeShapeStatus{
		Key: m{assayv1alpha1.NodePoolLabel: pool, corev1.LabelInstanceTypeStable: instance}, Labels: labels,
	}}
}

// render renders shapes and joins the notes.
func render(t *testing.T, target string, opt Options, shapes ...assayv1alpha1.NodeShape) (text, notes string) {
	t.Helper()
	r, err := Render(target, shapes, opt)
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return string(out), strings.Join(r.Notes, "\n")
}

// TestANodePoolDeclaresWhatAllItsInstanceTypesHave: a label that one instance type lacks would make Karpenter buy that type for it.
func TestANodePoolDeclaresWhatAllItsInstanceTypesHave(t *testing.T) {
	small, large := shape("small", "p", "s", m{"v/a": "1", "v/b": "1"}), shape("large", "p", "l", m{"v/a": "1", "v/c": "1"})
	small.Status.Taints = []corev1.Taint{{Key: "v/t", Effect: corev1.TaintEffectNoSchedule}}
	text, notes := render(t, Karpenter, Options{}, small, large)
	if !strings.Contains(text, `v/a: "1"`) || strings.Contains(text, "v/b") || strings.Contains(text, "v/t") {
		t.Errorf("the output is\n%s", text)
	}
	if want := "Node group p: only some of its instance types have v/b, v/c."; !strings.Contains(notes, want) {
		t.Errorf("the notes are %q, want %q", notes, want)
	}
}

func TestANodePoolHasAtMostOneHundredLabels(t *testing.T) {
	labels := m{assayv1alpha1.RequestLabelNamespace + "/z.z": "true"}
	for i := range 120 {
		labels[fmt.Sprintf("v/%03d", i)] = "1"
	}
	pool := NodePool{Metadata: metadata{Name: "p"}}
	pool.Spec.Template.Metadata.Labels = m{"team": "ml", "v/000": "mine"}
	r, err := Render(Karpenter, []assayv1alpha1.NodeShape{shape("s", "p", "t", labels)}, Options{Pools: []NodePool{pool}, All: true})
	if err != nil {
		t.Fatal(err)
	}
	got := r.Documents[0].(*NodePool).Spec.Template.Metadata
	if len(got.Labels) != maxPoolLabels || got.Labels[assayv1alpha1.RequestLabelNamespace+"/z.z"] == "" || got.Labels["team"] != "ml" {
		t.Errorf("the pool has %d labels: %v", len(got.Labels), got.Labels)
	}
	// A label that others wrote stays theirs: the controller must not remove it from nodes.
	if record := got.Annotations["nfd.node.kubernetes.io/feature-labels"]; got.Labels["v/000"] != "mine" || strings.Contains(record, "v/000") {
		t.Errorf("v/000 is %q, and the record is %s", got.Labels["v/000"], record)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "22 labels are left out") {
		t.Errorf("the notes are %q", r.Notes)
	}
}

// TestAnExportIsRepeatable: the pool that an export has written, exported again, gives the same, and loses what the shapes lost.
func TestAnExportIsRepeatable(t *testing.T) {
	s := shape("s", "p", "t", m{"v/a": "1", "v/b": "1"})
	s.Status.Taints = []corev1.Taint{{Key: "v/t", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	pool := NodePool{Metadata: metadata{Name: "p"}}
	pool.Spec.Template.Metadata.Labels = m{"team": "ml"}
	pool.Spec.Template.Spec = &poolSpec{[]corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoExecute}}}
	next := func(s assayv1alpha1.NodeShape, pool NodePool) NodePool {
		r, err := Render(Karpenter, []assayv1alpha1.NodeShape{s}, Options{Pools: []NodePool{pool}, All: true})
		if err != nil || len(r.Documents) != 1 {
			t.Fatalf("%v: %v", err, r.Documents)
		}
		return *r.Documents[0].(*NodePool)
	}
	first := next(s, pool)
	second := next(s, first)
	if diff := cmp.Diff(first, second, cmp.AllowUnexported(NodePool{})); diff != "" || len(first.Spec.Template.Spec.Taints) != 2 || len(first.Spec.Template.Metadata.Labels) != 3 {
		t.Errorf("the first is %+v, the second differs:\n%s", first, diff)
	}
	s.Status.Labels, s.Status.Taints = nil, nil
	last := next(s, second).Spec.Template
	if len(last.Metadata.Labels) != 1 || len(last.Spec.Taints) != 1 || len(last.Metadata.Annotations) != 0 {
		t.Errorf("without anything to export the pool is %v", last)
	}
	// The last taint goes with an empty list: an API server rejects a server-side apply without spec after one with taints.
	first.Spec.Template.Spec.Taints = first.Spec.Template.Spec.Taints[1:]
	if last := next(s, first).Spec.Template; last.Spec == nil || last.Spec.Taints == nil || len(last.Spec.Taints) != 0 {
		t.Errorf("without the last taint the pool is %v", last)
	}
}

// TestAWholeNodePoolKeepsWhatOthersWrote: kubectl apply removes a field that an earlier apply contained and the output does not.
func TestAWholeNodePoolKeepsWhatOthersWrote(t *testing.T) {
	const mine = `apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  annotations:
    a: b
  name: p
spec:
  limits:
    cpu: 1k
  template:
    metadata:
      labels:
        team: ml
    spec:
      expireAfter: 720h
`
	apply := func(text string, s assayv1alpha1.NodeShape) string {
		t.Helper()
		var pool NodePool
		if err := yaml.Unmarshal([]byte(text), &pool); err != nil {
			t.Fatal(err)
		}
		out, notes := render(t, Karpenter, Options{Pools: []NodePool{pool}, All: true}, s)
		if notes != "" {
			t.Errorf("the notes are %s", notes)
		}
		return out
	}
	s := shape("s", "p", "t", m{"v/a": "1"})
	s.Status.Taints = []corev1.Taint{{Key: "v/t", Effect: corev1.TaintEffectNoSchedule}}
	first := apply(mine, s)
	for _, want := range []string{"cpu: 1k", "expireAfter: 720h", "team: ml", "v/a: \"1\"", "key: v/t"} {
		if !strings.Contains(first, want) {
			t.Errorf("the output lacks %s:\n%s", want, first)
		}
	}
	if diff := cmp.Diff(first, apply(first, s)); diff != "" {
		t.Errorf("the second output differs:\n%s", diff)
	}
	if diff := cmp.Diff(mine, apply(first, shape("s", "p", "t", nil))); diff != "" {
		t.Errorf("without anything to export the pool is not as before:\n%s", diff)
	}
}

func TestShapesOfOtherAutoscalersAreLeftOut(t *testing.T) {
	s := shape("s", "p", "t", m{"v/a": "1"})
	for target, want := range map[string]string{
		ClusterAPI:        "NodeShape s is left out: it has no label node.cluster.x-k8s.io/deployment-name.",
		ClusterAutoscaler: "NodeShape s is left out: it has no label of a node group.",
	} {
		if text, notes := render(t, target, Options{}, s); text != "" || notes != want {
			t.Errorf("%s: %q with the notes %q", target, text, notes)
		}
	}
	if text, notes := render(t, Karpenter, Options{All: true}, s); text != "" || notes != "NodePool p is left out: it does not exist any more." {
		t.Errorf("a deleted pool: %q with the notes %q", text, notes)
	}
}

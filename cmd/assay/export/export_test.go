package export

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
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
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "left out are v/") {
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

// TestTagsStayWithinTheLimitsOfTheClouds: AWS rejects a node group with more than 50 tags, or with a name of more than 128 characters.
func TestTagsStayWithinTheLimitsOfTheClouds(t *testing.T) {
	request, long := assayv1alpha1.RequestLabelNamespace+"/z.z", "v/"+strings.Repeat("x", 63)
	long = strings.Repeat("d", 40) + long
	labels := m{request: "true", long: "1"}
	for i := range 60 {
		labels[fmt.Sprintf("v/%03d", i)] = "1"
	}
	s := groupShape("eks.amazonaws.com/nodegroup", labels)
	s.Status.Taints = []corev1.Taint{{Key: "v/t", Effect: corev1.TaintEffectNoSchedule}}
	for form, limit := range map[string]int{Tags: 128, AzureTags: 512} {
		r, err := Render(ClusterAutoscaler, []assayv1alpha1.NodeShape{s}, Options{Form: form})
		if err != nil {
			t.Fatal(err)
		}
		tags := r.Documents[0].(*nodeGroup).Tags
		if len(tags) > 50 {
			t.Errorf("%s: %d tags", form, len(tags))
		}
		text := fmt.Sprint(tags)
		for name := range tags {
			if len(name) > limit {
				t.Errorf("%s: the name %s has %d characters", form, name, len(name))
			}
		}
		if !strings.Contains(text, "z.z:true") || !strings.Contains(text, "v/t::NoSchedule") && !strings.Contains(text, "v_t::NoSchedule") {
			t.Errorf("%s: the label of the request or the taint is left out: %s", form, text)
		}
		if !strings.Contains(r.Notes[0], "Node group g: left out are") || !strings.Contains(r.Notes[0], "more:") {
			t.Errorf("%s: the notes are %q", form, r.Notes)
		}
	}
	if _, notes := render(t, ClusterAutoscaler, Options{Labels: []string{request, long}}, s); !strings.Contains(notes, "left out are "+long+":") {
		t.Errorf("the notes are %s", notes)
	}
}

// TestAzureDecodesItsTags decodes tags as Cluster Autoscaler does: "_" is "/", and then "~2" is "_", except in resources.
func TestAzureDecodesItsTags(t *testing.T) {
	s := groupShape("kubernetes.azure.com/agentpool", m{"v.io/a_b": "1", "v.io/A_B": "2", "plain": "3"})
	s.Status.ExtendedResources = corev1.ResourceList{"v.io/slices": resource.MustParse("2"), "v.io/a_b": resource.MustParse("1")}
	r, err := Render(ClusterAutoscaler, []assayv1alpha1.NodeShape{s}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := m{}
	for name, value := range r.Documents[0].(*nodeGroup).Tags {
		_, name, _ = strings.Cut(name, "k8s.io_cluster-autoscaler_node-template_")
		kind, name, _ := strings.Cut(name, "_")
		got[kind+" "+strings.ReplaceAll(strings.ReplaceAll(name, "_", "/"), "~2", "_")] = value
	}
	// Names of tags on Azure are not case-sensitive: one of two labels that differ only in case is left out.
	want := m{"label v.io/A_B": "2", "label plain": "3", "resources v.io/slices": "2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the tags differ:\n%s", diff)
	}
	if !strings.Contains(r.Notes[0], "left out are v.io/a_b, v.io/a_b:") {
		t.Errorf("the notes are %q", r.Notes)
	}
}

// TestTwoEffectsOfATaint: the name of a tag is the key of the taint, so the tag of one effect replaced that of the other.
func TestTwoEffectsOfATaint(t *testing.T) {
	s := groupShape("eks.amazonaws.com/nodegroup", nil)
	s.Status.Taints = []corev1.Taint{{Key: "v/t", Value: "a", Effect: corev1.TaintEffectNoExecute}, {Key: "v/t", Value: "b", Effect: corev1.TaintEffectNoSchedule}}
	text, notes := render(t, ClusterAutoscaler, Options{}, s)
	if !strings.Contains(text, "taint/v/t: a:NoExecute") || !strings.Contains(notes, "the taint v/t=b:NoSchedule is left out") {
		t.Errorf("the output is\n%s\nwith the notes %s", text, notes)
	}
	s.Status.Key = m{assayv1alpha1.MachineDeploymentLabel: "g"}
	if text, _ := render(t, ClusterAPI, Options{}, s); !strings.Contains(text, "v/t=a:NoExecute,v/t=b:NoSchedule") {
		t.Errorf("for Cluster API the output is\n%s", text)
	}
	if text, _ := render(t, ClusterAutoscaler, Options{Form: Nodes}, s); strings.Count(text, "key: v/t") != 2 {
		t.Errorf("as a Node the output is\n%s", text)
	}
}

func TestGoogleReadsNoTags(t *testing.T) {
	text, notes := render(t, ClusterAutoscaler, Options{}, groupShape("cloud.google.com/gke-nodepool", m{"v/a": "1"}))
	if text != "" || !strings.Contains(notes, "Cluster Autoscaler reads no tags on Google Cloud") {
		t.Errorf("the output is\n%s\nwith the notes %s", text, notes)
	}
}

// TestAMachineDeploymentKeepsItsOwner: a label or taint that users declared wins, and stays when the shapes have nothing any more.
func TestAMachineDeploymentKeepsItsOwner(t *testing.T) {
	s := groupShape(assayv1alpha1.MachineDeploymentLabel, m{"v/a": "1", "team": "other"})
	s.Status.Taints = []corev1.Taint{{Key: "v/t", Effect: corev1.TaintEffectNoSchedule}, {Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	mine := MachineDeployment{APIVersion: "cluster.x-k8s.io/v1beta1", Metadata: metadata{Name: "g", Namespace: "n", Annotations: m{
		capacityLabels: "team=ml", capacityTaints: "dedicated=ml:NoSchedule",
	}}}
	next := func(s assayv1alpha1.NodeShape, d MachineDeployment) []any {
		r, err := Render(ClusterAPI, []assayv1alpha1.NodeShape{s}, Options{Namespace: "n", Deployments: []MachineDeployment{d}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Documents
	}
	first := next(s, mine)[0].(*MachineDeployment)
	want := m{
		capacityLabels: "team=ml,v/a=1", exportedLabels: "v/a",
		capacityTaints: "dedicated=ml:NoSchedule,v/t=:NoSchedule", exportedTaints: "v/t=:NoSchedule",
	}
	if diff := cmp.Diff(want, first.Metadata.Annotations); diff != "" {
		t.Errorf("the annotations differ:\n%s", diff)
	}
	s.Status.Labels, s.Status.Taints = nil, nil
	last := next(s, *first)[0].(*MachineDeployment)
	if diff := cmp.Diff(mine.Metadata, last.Metadata); diff != "" {
		t.Errorf("without anything to export the annotations are not as before:\n%s", diff)
	}
	if got := next(s, *last); len(got) != 0 {
		t.Errorf("a MachineDeployment without anything to export: %v", got)
	}
}

// TestAResourceFlavorHasAtMostEightLabels: Kueue's CustomResourceDefinition rejects more.
func TestAResourceFlavorHasAtMostEightLabels(t *testing.T) {
	labels := m{"v/other": "1"}
	for i := range 10 {
		labels[fmt.Sprintf("%s/n.%d", assayv1alpha1.RequestLabelNamespace, i)] = "true"
	}
	r, err := Render(Kueue, []assayv1alpha1.NodeShape{shape("s", "p", "t", labels)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := r.Documents[0].(*resourceFlavor).Spec.NodeLabels
	if len(got) != 8 || got[assayv1alpha1.NodePoolLabel] != "p" || got["v/other"] != "" {
		t.Errorf("the labels are %v", got)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "left out are features.assay.dev/n.6,") {
		t.Errorf("the notes are %q", r.Notes)
	}
}

// groupShape is a shape of the node group g.
func groupShape(label string, labels m) assayv1alpha1.NodeShape {
	return assayv1alpha1.NodeShape{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Status: assayv1alpha1.NodeShapeStatus{Key: m{label: "g"}, Labels: labels}}
}

// TestAMachineDeploymentDeclaresTheGPUsOfADRADriver with the annotations of which Cluster Autoscaler makes a ResourceSlice. What users
// declared wins.
func TestAMachineDeploymentDeclaresTheGPUsOfADRADriver(t *testing.T) {
	const complete = "feature.node.kubernetes.io/dra-complete."
	gpus := m{"nvidia.com/gpu.count": "8", complete + "gpu.nvidia.com": "true"}
	declared := func(was, labels m) map[string]string {
		t.Helper()
		r, err := Render(ClusterAPI, []assayv1alpha1.NodeShape{groupShape(assayv1alpha1.MachineDeploymentLabel, labels)}, Options{
			Deployments: []MachineDeployment{{Metadata: metadata{Name: "g", Annotations: was}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, d := range r.Documents {
			for name, value := range d.(*MachineDeployment).Metadata.Annotations {
				if short, ok := strings.CutPrefix(name, "capacity.cluster-autoscaler.kubernetes.io/"); ok && short != "labels" {
					out[short] = value
				}
			}
		}
		return out
	}
	want := map[string]string{"dra-driver": "gpu.nvidia.com", "gpu-count": "8"}
	exported := m{
		"capacity.cluster-autoscaler.kubernetes.io/dra-driver": "gpu.nvidia.com", "capacity.cluster-autoscaler.kubernetes.io/gpu-count": "4",
		"assay.dev/exported-gpus": "gpu.nvidia.com=4",
	}
	for name, tt := range map[string]struct {
		was, labels m
		want        map[string]string
	}{
		"no annotations":               {nil, gpus, want},
		"those of an earlier export":   {exported, gpus, want},
		"lost since then":              {exported, m{}, nil},
		"of a device plugin":           {nil, m{"nvidia.com/gpu.count": "8"}, nil},
		"none":                         {nil, m{"nvidia.com/gpu.count": "0", complete + "gpu.nvidia.com": "true"}, nil},
		"not a number":                 {nil, m{"nvidia.com/gpu.count": "many", complete + "gpu.nvidia.com": "true"}, nil},
		"users declared a number":      {m{"capacity.cluster-autoscaler.kubernetes.io/gpu-count": "2"}, gpus, nil},
		"users declared a device type": {m{"capacity.cluster-autoscaler.kubernetes.io/gpu-type": "nvidia.com/gpu"}, gpus, nil},
		"two drivers": {nil, m{
			"nvidia.com/gpu.count": "8", complete + "gpu.nvidia.com": "true", "amd.com/gpu.count": "8", complete + "gpu.amd.com": "true",
		}, nil},
	} {
		if got := declared(tt.was, tt.labels); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestTagsAreForImportantLabels: the labels of a processor took 40 tags in alphabetical order, and those of rules with later names had none.
func TestTagsAreForImportantLabels(t *testing.T) {
	const builtIn = "feature.node.kubernetes.io/"
	labels := m{
		assayv1alpha1.RequestLabelNamespace + "/z.z": "true", "vendor.example.com/z": "1", builtIn + "zone-of-a-rule": "1",
		builtIn + "pci-10de.present": "true", builtIn + "system-os_release.ID": "ubuntu",
	}
	for i := range maxTags {
		labels[fmt.Sprintf("%scpu-cpuid.F%02d", builtIn, i)] = "true"
	}
	s := shape("s", "p", "t", labels)
	s.Status.Key = m{"eks.amazonaws.com/nodegroup": "p"}
	text, notes := render(t, ClusterAutoscaler, Options{}, s)
	for label := range labels {
		if want := !strings.Contains(label, "cpuid") || label < builtIn+fmt.Sprintf("cpu-cpuid.F%02d", maxTags-5); strings.Contains(text, "/label/"+label+":") != want {
			t.Errorf("%s is exported: %t, want %t", label, !want, want)
		}
	}
	if !strings.Contains(notes, "left out are "+builtIn+"cpu-cpuid.F35, ") {
		t.Errorf("the notes are %q", notes)
	}
	var opt Options
	opt.Pod(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: m{builtIn + "cpu-cpuid.F39": "true"}}})
	opt.Pod(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: m{builtIn + "cpu-cpuid.F37": "true"}, NodeName: "n"}})
	opt.Pod(&corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: builtIn + "cpu-cpuid.F38", Operator: corev1.NodeSelectorOpExists}},
		}}},
	}}}})
	opt.Requirements(&assayv1alpha1.PodRequirements{Required: &assayv1alpha1.Requirement{MatchFeatures: nfdv1alpha1.FeatureMatcher{{
		Feature: nfdv1alpha1.RuleMatchedFeature, MatchExpressions: &nfdv1alpha1.MatchExpressionSet{builtIn + "cpu-cpuid.F36": nil},
	}}}})
	text, _ = render(t, ClusterAutoscaler, opt, s)
	for label, want := range map[string]bool{"F39": true, "F38": true, "F37": false, "F36": true, "F35": false, "F32": false, "F31": true} {
		if strings.Contains(text, "/label/"+builtIn+"cpu-cpuid."+label+":") != want {
			t.Errorf("with pods that select labels, %s is exported: %t, want %t", label, !want, want)
		}
	}
}

// TestAPartOfANodePoolSaysWhatToComplete: the output looked like a whole NodePool, and creating it failed with what the API server lacks.
func TestAPartOfANodePoolSaysWhatToComplete(t *testing.T) {
	s := shape("s", "p", "t", m{"v/a": "1"})
	text, _ := render(t, Karpenter, Options{}, s)
	const want = "      labels:\n        v/a: \"1\"\n    # To create the NodePool, add nodeClassRef and requirements here."
	if !strings.Contains(text, want) || !strings.HasSuffix(text, "\n    # spec: {nodeClassRef: {group: GROUP, kind: KIND, name: NAME}, requirements: []}\n") {
		t.Errorf("without taints:\n%s", text)
	}
	s.Status.Taints = []corev1.Taint{{Key: "v/t", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	if text, _ = render(t, Karpenter, Options{}, s); !strings.Contains(text, "\n    spec:\n      # To create the NodePool,") {
		t.Errorf("with a taint:\n%s", text)
	}
	var pool NodePool
	if err := yaml.UnmarshalStrict([]byte("{metadata: {name: p}, spec: {template: {spec: {requirements: []}}}}"), &pool); err != nil {
		t.Fatal(err)
	}
	if text, _ = render(t, Karpenter, Options{Pools: []NodePool{pool}}, s); strings.Contains(text, "#") {
		t.Errorf("a whole NodePool:\n%s", text)
	}
}

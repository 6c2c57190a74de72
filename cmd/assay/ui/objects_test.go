package ui_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	topologyv1alpha2 "github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
	"github.com/assay-project/assay/cmd/assay/ui"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// kinds are the pages with lists of objects.
var kinds = map[string]string{
	"nodefeaturerequests": "NodeFeatureRequest", "nodefeatureschedulingpolicies": "NodeFeatureSchedulingPolicy", "nodebaselines": "NodeBaseline",
	"nodefeaturegroups": "NodeFeatureGroup", "nodeshapes": "NodeShape", "nodefeaturesets": "NodeFeatureSet",
}

// stored are objects as kubectl prints them.
func stored(t testing.TB) (out ui.Objects) {
	t.Helper()
	into := func(object any, text string) {
		if err := yaml.Unmarshal([]byte(text), object); err != nil {
			t.Fatal(err)
		}
	}
	into(&out.Requests.Items, `
- metadata:
    namespace: ml
    name: amd
    creationTimestamp: "2026-01-01T03:04:05Z"
    managedFields:
    - {manager: kubectl-apply, operation: Apply, time: "2026-01-02T03:01:05Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:required": {}}}}
  spec: {required: {matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: In, value: [AMD]}}}]}}
  status:
    matchingNodes: 2
    label: features.assay.dev/ml.amd
    conditions: [{type: Ready, status: "True", reason: Accepted, message: The request is valid.}]
- metadata: {namespace: ml, name: arm}
  spec: {required: {matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: In, value: [ARM]}}}]}}
  status: {conditions: [{type: Ready, status: "False", reason: Invalid, message: See the field.}]}
`)
	into(&out.Policies.Items, `
- metadata: {name: training}
  spec: {namespaceSelector: {matchLabels: {team: ml}}, required: {matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: In, value: [AMD]}}}]}}
`)
	into(&out.Baselines.Items, `
- metadata: {name: all-alike}
  status: {nodes: 3, conforming: 3, deviating: 0, unknown: 0}
- metadata: {name: firmware}
  status:
    nodes: 3
    deviating: 1
    unknown: 1
    checks: [{name: bios, deviating: 1, values: [{value: "2.1", nodes: 2}, {value: "1.9", nodes: 1}]}]
    deviations: [{node: a, check: bios, message: "1.9; 2 of 3 nodes have 2.1", since: "2026-01-02T02:04:05Z"}]
    levels: [{name: rack, domains: 8, smallest: 14, largest: 18}]
`)
	into(&out.Groups.Items, `
- metadata: {namespace: default, name: fast}
  status: {count: 1, nodes: [{name: a}]}
`)
	into(&out.Shapes.Items, `
- metadata: {name: p5}
  status:
    key: {node.kubernetes.io/instance-type: p5}
    labels: {example.com/intel: "true"}
    nodes: 2
    differences: [{output: label, name: example.com/fast, contradictedBy: b}]
`)
	into(&out.Sets.Items, `
- metadata: {namespace: assay-system, name: kernel-config-1}
  status: {feature: kernel.config, nodes: 3, elements: 4000, bytes: 123456}
`)
	return out
}

// live is a source of what pages read when they are shown.
type live struct {
	events []corev1.Event
	pods   []corev1.Pod
	zones  *topologyv1alpha2.NodeResourceTopology
	err    error
}

func (l *live) Events(_ context.Context, kind, _, name string) (out []corev1.Event, err error) {
	for _, e := range l.events {
		if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name {
			out = append(out, e)
		}
	}
	return out, l.err
}

func (l *live) Zones(context.Context, string) (*topologyv1alpha2.NodeResourceTopology, error) {
	return l.zones, l.err
}

func (l *live) Why(_ context.Context, nodes *index.Index, namespace, name, node string) (*corev1.Pod, *serving.Answer, error) {
	for i := range l.pods {
		if p := &l.pods[i]; p.Namespace == namespace && p.Name == name {
			d := extender.Decider{Index: nodes, Requirements: podrequirements.New(rules.Options{})}
			return p, &serving.Answer{
				Explanation: d.Explain(p, node), Ways: []serving.Way{{Part: "annotation x", Problem: "no scheduler checks it"}},
				Warnings: []string{"metadata.labels[x] means nothing"},
			}, l.err
		}
	}
	return nil, nil, l.err
}

// waiting is a pod that requires a CPU of a vendor.
func waiting(name, vendor string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, Annotations: map[string]string{
			assayv1alpha1.RequiredFeaturesAnnotation: "matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: In, value: [" + vendor + "]}}}]",
		}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"},
		}},
	}
}

func TestPagesOfObjects(t *testing.T) {
	data := snapshot(t)
	data.Objects, data.Live = stored(t), &live{}
	s := serve(t, data, nil)
	want(t, s.get(t, "objects", http.StatusOK), "Requests", "amd", "arm", "Invalid", "features.assay.dev/ml.amd")
	for id, kind := range kinds {
		want(t, s.get(t, "objects?kind="+id, http.StatusOK), `aria-current="page"`)
		want(t, s.get(t, "object?kind="+id+"&name=none", http.StatusNotFound), kind+" none not found.")
	}
	list := s.get(t, "objects?kind=nodebaselines", http.StatusOK)
	if strings.Index(list, "firmware") > strings.Index(list, "all-alike") {
		t.Error("the baseline without deviating nodes is first")
	}
	want(t, s.get(t, "object?kind=nodefeaturerequests&namespace=ml&name=amd", http.StatusOK),
		"1 of 3 nodes meet the requirements now.", "The status says 2", `<a href="node?name=b">`, "kubectl-apply", "spec.required", "kubectl describe nodefeaturerequests -n ml amd")
	want(t, s.get(t, "object?kind=nodefeaturerequests&namespace=ml&name=arm", http.StatusOK), "0 of 3", "Nearest node", "cpu.model/vendor_id", "See the field.")
	want(t, s.get(t, "object?kind=nodefeatureschedulingpolicies&name=training", http.StatusOK), "1 of 3 nodes", "team")
	want(t, s.get(t, "object?kind=nodebaselines&name=firmware", http.StatusOK), "1 of 3 nodes deviate", `<a href="node?name=a">`, "2 of 3 nodes have 2.1", "2.1 (2 nodes)", "Levels", "rack", "18")
	want(t, s.get(t, "object?kind=nodefeaturegroups&namespace=default&name=fast", http.StatusOK), `<a href="node?name=a">`)
	want(t, s.get(t, "object?kind=nodeshapes&name=p5", http.StatusOK), "example.com/intel", "example.com/fast", `<a href="node?name=b">`)
	want(t, s.get(t, "object?kind=nodefeaturesets&namespace=assay-system&name=kernel-config-1", http.StatusOK), "kernel.config", "123.5 kB")
	s.get(t, "objects?kind=secrets", http.StatusNotFound)
	s.get(t, "object?kind=secrets&name=x", http.StatusNotFound)
}

func TestWhatCannotBeReadIsNotAnEmptyTable(t *testing.T) {
	data := snapshot(t)
	const forbidden = `nodebaselines.assay.dev is forbidden: User "eve" cannot list`
	data.Objects = ui.Objects{
		Requests: ui.Kind[assayv1alpha1.NodeFeatureRequest]{Unknown: forbidden}, Policies: ui.Kind[assayv1alpha1.NodeFeatureSchedulingPolicy]{Unknown: forbidden},
		Groups: ui.Kind[nfdv1alpha1.NodeFeatureGroup]{Unknown: forbidden}, Baselines: ui.Kind[assayv1alpha1.NodeBaseline]{Unknown: forbidden},
		Shapes: ui.Kind[assayv1alpha1.NodeShape]{Unknown: forbidden}, Sets: ui.Kind[assayv1alpha1.NodeFeatureSet]{Unknown: forbidden},
	}
	data.Nodes[0].Object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	data.Live = &live{err: errors.New("pods is forbidden"), pods: []corev1.Pod{waiting("x", "AMD")}}
	data.Objects.Waiting.Unknown = "pods is forbidden"
	s := serve(t, data, nil)
	for id := range kinds {
		page := s.get(t, "objects?kind="+id, http.StatusOK)
		want(t, page, "Not known: nodebaselines.assay.dev is forbidden")
		if strings.Contains(page, "There are none") {
			t.Errorf("%s: the page says that there are none", id)
		}
	}
	want(t, s.get(t, "pods", http.StatusOK), "Not known: pods is forbidden")
	want(t, s.get(t, "pod?namespace=ml&name=x", http.StatusOK), "Not known: pods is forbidden")
	want(t, s.get(t, "node?name=a", http.StatusOK), "Events are not known: pods is forbidden", "Not known: pods is forbidden")
	data.Live = nil
	s = serve(t, data, nil)
	want(t, s.get(t, "pods", http.StatusOK), "Pods are read from a cluster")
	want(t, s.get(t, "node?name=a", http.StatusOK), "Events are read from a cluster only")
}

func TestPodPageAnswersWhy(t *testing.T) {
	data := snapshot(t)
	pods := []corev1.Pod{waiting("fits", "AMD"), waiting("waits", "ARM")}
	data.Live, data.Objects.Waiting.Items = &live{pods: pods}, pods
	s := serve(t, data, nil)
	want(t, s.get(t, "pods", http.StatusOK), "fits", "waits", "0/3 nodes are available", assayv1alpha1.RequiredFeaturesAnnotation)
	want(t, s.get(t, "pod?namespace=ml&name=fits", http.StatusOK), "1 of 3 nodes meet its requirements", `<a href="node?name=b">`, "no scheduler checks it", "means nothing")
	want(t, s.get(t, "pod?name=ml/waits", http.StatusOK), "0 of 3 nodes meet", "The closest node", "cpu.model/vendor_id", "assay why pod ml/waits")
	want(t, s.get(t, "pod?namespace=ml&name=waits&node=a", http.StatusOK), "On node a", "required")
	want(t, s.get(t, "pod?name=none", http.StatusNotFound), "Pod default/none not found.")
}

func TestNodeShowsWhatChanged(t *testing.T) {
	data := snapshot(t)
	data.Objects = stored(t)
	data.Nodes[0].Object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{"rack": "7", "features.assay.dev/ml.amd": "true", "example.com/gone": "1"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "rack-labeler", Operation: "Update", Time: ptr.To(metav1.NewTime(data.At.Add(-time.Hour))), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:rack":{}}}}`)},
			{Manager: "kubelet", Operation: "Update", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{}}}}`)},
		},
	}}
	data.Live = &live{
		events: []corev1.Event{{
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "a"}, Type: "Warning", Reason: "RemovalHeld", Message: "Removal held until later",
			LastTimestamp: metav1.NewTime(data.At.Add(-5 * time.Minute)), Count: 3,
		}},
		zones: &topologyv1alpha2.NodeResourceTopology{Zones: []topologyv1alpha2.Zone{{
			Name: "node-0", Type: "Node", Costs: []topologyv1alpha2.Cost{{Name: "node-0", Value: 10}},
			Resources: []topologyv1alpha2.Resource{{Name: "cpu", Capacity: resource.MustParse("8"), Allocatable: resource.MustParse("7"), Available: resource.MustParse("3")}},
		}}},
	}
	page := serve(t, data, nil).get(t, "node?name=a", http.StatusOK)
	want(t, page, "RemovalHeld", "Removal held until later", "5m", "rack-labeler", "60m", "metadata.labels: rack", "status.conditions: Ready",
		"Update of status",
		"Deviates from baselines", "firmware", "node-0", "kubectl describe node a", "assay explain a", "data-copy")
}

func TestHostileObjectsStayText(t *testing.T) {
	const script = `</td><script>alert(1)</script>`
	data := snapshot(t, node(facts.NewInterner(), "a", "Intel", nil))
	data.Objects = stored(t)
	data.Objects.Requests.Items[0].Name, data.Objects.Baselines.Items[1].Status.Deviations[0].Message = script, script
	data.Objects.Shapes.Items[0].Status.Labels[script] = script
	pod := waiting(script, "AMD")
	pod.Status.Conditions[0].Message = script
	data.Objects.Waiting.Items = []corev1.Pod{pod}
	data.Live = &live{pods: []corev1.Pod{pod}, events: []corev1.Event{{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: script}, Message: script, Reason: script}}}
	s := serve(t, data, nil)
	for _, page := range []string{
		"objects", "object?kind=nodefeaturerequests&namespace=ml&name=" + url.QueryEscape(script), "object?kind=nodebaselines&name=firmware", "object?kind=nodeshapes&name=p5",
		"pods", "pod?namespace=ml&name=" + url.QueryEscape(script),
	} {
		text := s.get(t, page, http.StatusOK)
		if strings.Contains(text, "<script>alert") || strings.Contains(text, `" onmouseover="`) {
			t.Errorf("%s: a value is not escaped:\n%s", page, text)
		}
	}
	want(t, s.get(t, "pod?namespace=ml&name="+url.QueryEscape(script), http.StatusOK), `&#39;&lt;/td&gt;`)
}

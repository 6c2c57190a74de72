package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/cmd/assay/serving"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/requirements"
)

// workload is a kind of objects that have a pod, or create pods from a template.
type workload struct {
	kind  string
	names []string // as kubectl accepts them
	of    schema.GroupVersionResource
	// template is the path of the template; empty: the object is a pod.
	template []string
}

var podTemplate = []string{"spec", "template"}

// workloads are the kinds that assay why explains. The first is that of a name without a type.
var workloads = []workload{
	{"Pod", podKinds, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, nil},
	{"Deployment", []string{"deployment", "deployments", "deploy"}, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, podTemplate},
	{"StatefulSet", []string{"statefulset", "statefulsets", "sts"}, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}, podTemplate},
	{"DaemonSet", []string{"daemonset", "daemonsets", "ds"}, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, podTemplate},
	{"ReplicaSet", []string{"replicaset", "replicasets", "rs"}, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, podTemplate},
	{"Job", []string{"job", "jobs"}, schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, podTemplate},
	{
		"CronJob", []string{"cronjob", "cronjobs", "cj"}, schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"},
		[]string{"spec", "jobTemplate", "spec", "template"},
	},
}

// workloadNamed returns the kind with a name, or nil.
func workloadNamed(name string) *workload {
	for i := range workloads {
		if slices.Contains(workloads[i].names, strings.ToLower(name)) {
			return &workloads[i]
		}
	}
	return nil
}

// podTarget is what assay why explains: the pod of an object, or what its template makes.
type podTarget struct {
	of              *workload
	namespace, name string
}

// newPodTarget returns the target of the arguments NAME, KIND NAME or KIND/NAME, and NAMESPACE/NAME for a pod.
func newPodTarget(args []string, namespace string) (podTarget, error) {
	t := podTarget{of: &workloads[0], namespace: namespace, name: args[0]}
	kind, name, slash := strings.Cut(args[0], "/")
	switch {
	case len(args) == 2:
		if t.of = workloadNamed(args[0]); t.of == nil {
			return t, fmt.Errorf("unknown type %q: use pod %s, or one of %s", args[0], args[1], kindsOfWorkloads())
		}
		t.name = args[1]
	case slash && workloadNamed(kind) != nil:
		t.of, t.name = workloadNamed(kind), name
	case slash:
		return t, fmt.Errorf("unknown type %q: use pod NAME or pod/NAME, or one of %s, with -n NAMESPACE for another namespace", kind, kindsOfWorkloads())
	case workloadNamed(args[0]) != nil:
		kind := workloadNamed(args[0]).names[0]
		return t, fmt.Errorf("no name of a %s: use assay why %s NAME", kind, kind)
	}
	if before, after, ok := strings.Cut(t.name, "/"); ok {
		t.namespace, t.name = before, after
	}
	return t, nil
}

func kindsOfWorkloads() string {
	var out []string
	for i := range workloads[1:] {
		out = append(out, workloads[i+1].names[0])
	}
	return strings.Join(out, ", ")
}

// pod returns the pod of a target in the cluster, or in the files if the client is nil.
func (w *world) pod(ctx context.Context, c *cluster.Client, t podTarget) (*corev1.Pod, error) {
	if c == nil {
		for i := range w.scheduling.pods {
			if p := &w.scheduling.pods[i]; t.of.template == nil && p.Name == t.name && p.Namespace == t.namespace {
				return p, nil
			}
		}
		for i := range w.scheduling.workloads {
			if o := &w.scheduling.workloads[i]; o.podTarget == t {
				return &o.pod, nil
			}
		}
		return nil, notFound(schema.GroupResource{Group: t.of.of.Group, Resource: t.of.of.Resource}, t.name, elsewhere(t.namespace))
	}
	if t.of.template == nil {
		return c.Pod(ctx, t.namespace, t.name)
	}
	object, err := c.Object(ctx, t.of.of, t.namespace, t.name)
	if err != nil {
		return nil, err
	}
	return t.of.pod(object)
}

// pod returns the pod that the template of an object makes.
func (k *workload) pod(object map[string]any) (*corev1.Pod, error) {
	var meta struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := convertJSON(object, &meta); err != nil {
		return nil, err
	}
	var at any = object
	for _, field := range k.template {
		m, _ := at.(map[string]any)
		at = m[field]
	}
	out := &corev1.Pod{}
	err := convertJSON(at, out)
	out.Namespace, out.Name = meta.Metadata.Namespace, meta.Metadata.Name
	return out, err
}

func convertJSON(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

// filedWorkload is an object with a template in a file.
type filedWorkload struct {
	podTarget
	pod corev1.Pod
}

// workload keeps an object with a template, if the document is one.
func (s *filedScheduling) workload(d *manifest.Document) error {
	for i := range workloads {
		k := &workloads[i]
		if k.kind != d.Kind || d.APIVersion != k.of.GroupVersion().String() || k.template == nil {
			continue
		}
		var object map[string]any
		if err := manifest.DecodeObject(d, &object); err != nil {
			return err
		}
		pod, err := k.pod(object)
		if err != nil {
			return err
		}
		inNamespace(&pod.ObjectMeta)
		s.workloads = append(s.workloads, filedWorkload{podTarget{k, pod.Namespace, pod.Name}, *pod})
	}
	return nil
}

// admitted returns a pod as it is after admission: its namespace's admission adds the label of its request to the node selector.
func admitted(pod *corev1.Pod, installed *serving.Installed) *corev1.Pod {
	name := pod.Labels[assayv1alpha1.FeatureRequestLabel]
	if name == "" || installed.Policy == "" && installed.Webhook == "" {
		return pod
	}
	out := pod.DeepCopy()
	if out.Spec.NodeSelector == nil {
		out.Spec.NodeSelector = map[string]string{}
	}
	out.Spec.NodeSelector[requirements.LabelOf(pod.Namespace, name)] = "true"
	return out
}

// otherwise names the workloads of the name of a pod that does not exist, for the end of an error.
func (w *world) otherwise(ctx context.Context, c *cluster.Client, t podTarget) string {
	for i := range workloads[1:] {
		other := podTarget{&workloads[i+1], t.namespace, t.name}
		if _, err := w.pod(ctx, c, other); err == nil {
			return fmt.Sprintf("; did you mean %s/%s?", other.of.names[0], t.name)
		}
	}
	return elsewhere(t.namespace)
}

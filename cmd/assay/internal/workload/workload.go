// Package workload names the kinds of objects that have a pod, or create pods from a template.
package workload

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
)

// Kind is a kind of objects that have a pod, or create pods from a template.
type Kind struct {
	Name     string
	Names    []string // as kubectl accepts them
	Resource schema.GroupVersionResource
	// Template is the path of the template; empty: the object is a pod.
	Template []string
}

var podTemplate = []string{"spec", "template"}

// Kinds are the kinds that assay why explains. The first is that of a name without a type.
var Kinds = []Kind{
	{"Pod", cli.PodKinds, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, nil},
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

// Named returns the kind with a name, or nil.
func Named(name string) *Kind {
	for i := range Kinds {
		if slices.Contains(Kinds[i].Names, strings.ToLower(name)) {
			return &Kinds[i]
		}
	}
	return nil
}

// Target is what assay why explains: the pod of an object, or what its template makes.
type Target struct {
	Of              *Kind
	Namespace, Name string
}

// NewTarget returns the target of the arguments NAME, KIND NAME or KIND/NAME, and NAMESPACE/NAME for a pod.
func NewTarget(args []string, namespace string) (Target, error) {
	t := Target{Of: &Kinds[0], Namespace: namespace, Name: args[0]}
	kind, name, slash := strings.Cut(args[0], "/")
	switch {
	case len(args) == 2:
		if t.Of = Named(args[0]); t.Of == nil {
			return t, fmt.Errorf("unknown type %q: use pod %s, or one of %s", args[0], args[1], kindsOfWorkloads())
		}
		t.Name = args[1]
	case slash && Named(kind) != nil:
		t.Of, t.Name = Named(kind), name
	case slash:
		return t, fmt.Errorf("unknown type %q: use pod NAME or pod/NAME, or one of %s, with -n NAMESPACE for another namespace", kind, kindsOfWorkloads())
	case Named(args[0]) != nil:
		kind := Named(args[0]).Names[0]
		return t, fmt.Errorf("no name of a %s: use assay why %s NAME", kind, kind)
	}
	if before, after, ok := strings.Cut(t.Name, "/"); ok {
		t.Namespace, t.Name = before, after
	}
	return t, nil
}

func kindsOfWorkloads() string {
	var out []string
	for i := range Kinds[1:] {
		out = append(out, Kinds[i+1].Names[0])
	}
	return strings.Join(out, ", ")
}

// Pod returns the pod that the template of an object makes.
func (k *Kind) Pod(object map[string]any) (*corev1.Pod, error) {
	var meta struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := convertJSON(object, &meta); err != nil {
		return nil, err
	}
	var at any = object
	for _, field := range k.Template {
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

package review

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/rules/warning"
)

// Pods holds the pod metadata of an object: of a pod, or of the pod template of a workload.
type Pods struct {
	Labels, Annotations map[string]string
	// Path is the path of the metadata in the object.
	Path *field.Path
	// Single is set if the object is a pod. Errors in its annotations are warnings, because a controller would create the rejected
	// pod again and again.
	Single bool
	// Spec is the spec of the pods; nil: unknown.
	Spec *corev1.PodSpec
	// Misplaced are annotations in the metadata of a workload, where they have no effect on its pods.
	Misplaced []string
}

// podKind holds the version of a kind and the path of its pod metadata.
type podKind struct {
	apiVersion string
	path       []string
}

// podKinds lists pods and the kinds that create pods.
var podKinds = map[string]podKind{
	"Pod":                   {"v1", []string{"metadata"}},
	"PodTemplate":           {"v1", []string{"template", "metadata"}},
	"ReplicationController": {"v1", []string{"spec", "template", "metadata"}},
	"Deployment":            {"apps/v1", []string{"spec", "template", "metadata"}},
	"ReplicaSet":            {"apps/v1", []string{"spec", "template", "metadata"}},
	"StatefulSet":           {"apps/v1", []string{"spec", "template", "metadata"}},
	"DaemonSet":             {"apps/v1", []string{"spec", "template", "metadata"}},
	"Job":                   {"batch/v1", []string{"spec", "template", "metadata"}},
	"CronJob":               {"batch/v1", []string{"spec", "jobTemplate", "spec", "template", "metadata"}},
}

// PodsOf returns the pod metadata of an object in JSON, or nil for kinds that do not create pods.
func PodsOf(kind string, object []byte) (*Pods, error) {
	k, ok := podKinds[kind]
	if !ok {
		return nil, nil
	}
	out := k.pods(kind)
	var own metav1.PartialObjectMetadata
	if err := json.Unmarshal(object, &own); err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	out.misplaced(func(key string) bool { return own.Annotations[key] != "" })
	raw := json.RawMessage(object)
	for _, part := range k.path[:len(k.path)-1] {
		var level map[string]json.RawMessage
		if err := json.Unmarshal(raw, &level); err != nil {
			return nil, fmt.Errorf("read %s: %w", out.Path, err)
		}
		if raw = level[part]; raw == nil {
			return out, nil
		}
	}
	var pod struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     *corev1.PodSpec   `json:"spec"`
	}
	if err := json.Unmarshal(raw, &pod); err != nil {
		return nil, fmt.Errorf("read %s: %w", out.Path, err)
	}
	out.Labels, out.Annotations, out.Spec = pod.Metadata.Labels, pod.Metadata.Annotations, pod.Spec
	return out, nil
}

func (k podKind) pods(kind string) *Pods {
	return &Pods{Path: field.NewPath(k.path[0], k.path[1:]...), Single: kind == "Pod"}
}

// ReadPods returns the pod metadata of a document, or nil if it does not create pods, or if neither the pods nor the document
// itself require or prefer features.
func ReadPods(d *manifest.Document) *Pods {
	k, ok := podKinds[d.Kind]
	if !ok || d.APIVersion != k.apiVersion {
		return nil
	}
	out := k.pods(d.Kind)
	out.Labels, out.Annotations = ours(d.Child(k.path...), "labels"), ours(d.Child(k.path...), "annotations")
	own := manifest.Field(d.Child("metadata"), "annotations")
	out.misplaced(func(key string) bool { n := manifest.Field(own, key); return n != nil && n.Value != "" })
	if len(out.Annotations)+len(out.Misplaced)+len(requirements.UnknownKeys(out.Labels, nil)) == 0 {
		return nil
	}
	return out
}

// ours returns the values of a map of metadata whose keys are below assay.dev/.
func ours(metadata *yaml.Node, name string) map[string]string {
	out := map[string]string{}
	all := manifest.Field(metadata, name)
	for i := 0; all != nil && all.Kind == yaml.MappingNode && i+1 < len(all.Content); i += 2 {
		if key, value := all.Content[i].Value, all.Content[i+1].Value; strings.HasPrefix(key, assayv1alpha1.GroupName+"/") && value != "" {
			out[key] = value
		}
	}
	return out
}

// misplaced sets Misplaced, given which annotations the object itself has.
func (p *Pods) misplaced(has func(key string) bool) {
	for _, key := range requirements.AnnotationKeys {
		if !p.Single && has(key) {
			p.Misplaced = append(p.Misplaced, key)
		}
	}
}

// pods reviews the annotations with which pods require or prefer features.
func (k *Known) pods(p *Pods) Findings {
	f := Findings{}
	spec, errs := requirements.ReadAnnotations(p.Annotations, p.Path)
	f.Errors = errs
	if len(errs) == 0 {
		reqs, report := requirements.CompileAnnotations(spec, p.Path, k.Rules)
		f.Requirements = reqs
		f.report(report, k)
		k.requirements(&f, spec, requirements.AnnotationPath(p.Path, assayv1alpha1.RequiredFeaturesAnnotation),
			requirements.AnnotationPath(p.Path, assayv1alpha1.PreferredFeaturesAnnotation))
	}
	for _, u := range requirements.UnknownKeys(p.Labels, p.Annotations) {
		f.Warn(p.Path.Child(u.Map).Key(u.Key).String(), warning.Defect, "%s", u.Message)
	}
	for _, key := range p.Misplaced {
		f.Warn(requirements.AnnotationPath(field.NewPath("metadata"), key).String(), warning.Defect,
			"has no effect here: move it to %s.annotations, the metadata of the pods", p.Path)
	}
	if p.Single {
		for _, e := range f.Errors {
			f.Warn(e.Field, warning.Defect, "%s", Text(e))
		}
		f.Errors = nil
	}
	return f
}

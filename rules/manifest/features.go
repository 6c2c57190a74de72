package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/yamltree"
)

// Published is the content of one NodeFeature.
type Published = gather.Published

// wire is the JSON of a NodeFeature, a List of them, features without an object, or a spec.
type wire struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name              string                  `json:"name"`
		Namespace         string                  `json:"namespace"`
		Labels            map[string]string       `json:"labels"`
		OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
		DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
		CreationTimestamp metav1.Time             `json:"creationTimestamp"`

		ManagedFields []metav1.ManagedFieldsEntry `json:"managedFields"`
	} `json:"metadata"`
	Spec *struct {
		Features         json.RawMessage   `json:"features"`
		Labels           map[string]string `json:"labels"`
		FeatureSets      []string          `json:"featureSets"`
		EncodedInstances string            `json:"encodedInstances"`
	} `json:"spec"`
	Items []json.RawMessage `json:"items"`

	Features   json.RawMessage   `json:"features"`
	Labels     map[string]string `json:"labels"`
	Flags      json.RawMessage   `json:"flags"`
	Attributes json.RawMessage   `json:"attributes"`
	Instances  json.RawMessage   `json:"instances"`
}

// Features reads NodeFeatures from YAML or JSON, or features without an object: a map with flags, attributes and instances. It
// skips objects of other kinds. Input without features is an error.
func Features(name string, data []byte, in *facts.Interner) ([]Published, error) {
	out, err := FeaturesJSON(data, in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if out != nil {
		return out, nil
	}
	f := Parse(name, data)
	if len(f.Problems) > 0 {
		return nil, fmt.Errorf("%s:%w", name, f.Problems[0])
	}
	for _, d := range f.Documents {
		list, err := Publish(d, in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, list...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no features found; expected a NodeFeature, or a map with flags, attributes and instances", name)
	}
	return out, nil
}

// FeaturesJSON is like Features, for JSON, which is parsed about twenty times faster than YAML. It returns nil for other input: for
// YAML, and for JSON without features. It skips objects of other kinds, which OthersJSON returns.
func FeaturesJSON(data []byte, in *facts.Interner) ([]Published, error) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(data) {
		return nil, nil
	}
	return published(data, in)
}

// OthersJSON returns the objects of other kinds than NodeFeature in a List in JSON, as documents without positions.
func OthersJSON(name string, data []byte) (*File, error) {
	f := &File{Name: name}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for i, item := range list.Items {
		var object struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(item, &object); err != nil || object.Kind == KindFeature || object.Kind == "" {
			continue // FeaturesJSON reads it, or reports it
		}
		d, err := FromJSON(item)
		if err != nil {
			return nil, fmt.Errorf("%s: items[%d]: %w", name, i, err)
		}
		d.file = f
		f.Documents = append(f.Documents, d)
	}
	return f, nil
}

// errUnlabeled is why the controller does not read a NodeFeature without the name of its node.
var errUnlabeled = errors.New("label " + nfdv1alpha1.NodeNameLabel + " is missing; the controller ignores this object")

func published(text []byte, in *facts.Interner) ([]Published, error) {
	var w wire
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if len(w.Items) > 0 {
		var out []Published
		for i, item := range w.Items {
			list, err := published(item, in)
			if err != nil {
				return nil, fmt.Errorf("items[%d]: %w", i, err)
			}
			out = append(out, list...)
		}
		return out, nil
	}
	m := &w.Metadata
	p := gather.Describe(&metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, Labels: m.Labels, OwnerReferences: m.OwnerReferences, DeletionTimestamp: m.DeletionTimestamp,
		CreationTimestamp: m.CreationTimestamp, ManagedFields: m.ManagedFields,
	})
	var raw []byte
	encoded := ""
	if w.Spec != nil {
		p.FeatureSets, encoded = w.Spec.FeatureSets, w.Spec.EncodedInstances
	}
	switch {
	case w.Kind == KindFeature && w.Spec != nil:
		raw, p.Labels = w.Spec.Features, w.Spec.Labels
		if p.Node == "" {
			p.Node, p.Err = w.Metadata.Name, errUnlabeled // a note about it needs a node
		}
	case w.Kind != "":
		return nil, nil
	case w.Spec != nil:
		raw, p.Labels = w.Spec.Features, w.Spec.Labels
	case w.Features != nil:
		raw, p.Labels = w.Features, w.Labels
	case w.Flags != nil || w.Attributes != nil || w.Instances != nil:
		raw, p.Labels = text, w.Labels
	default:
		return nil, nil
	}
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	f, err := facts.DecodeWith(string(raw), encoded, in)
	if err != nil {
		return nil, err
	}
	p.Facts, p.Bytes = f, len(raw)+len(encoded)
	return []Published{p}, nil
}

// Publish returns the content of a NodeFeature, or of a document with features without an object.
func Publish(d *Document, in *facts.Interner) ([]Published, error) {
	list, err := published(yamltree.JSON(d.Root), in)
	if err == nil {
		return list, nil
	}
	// The decoder reports offsets in generated JSON; checking the types here gives positions in the file.
	var problems []Problem
	if d.Kind == KindFeature {
		problems = d.Decode(&nfdv1alpha1.NodeFeature{})
	} else {
		problems = d.Decode(&bare{})
	}
	for _, p := range problems {
		if p.Severity == Error {
			return nil, errors.New(p.String())
		}
	}
	return nil, err
}

// bare holds features without an object.
type bare struct {
	nfdv1alpha1.Features `json:",inline"`

	Spec    *nfdv1alpha1.NodeFeatureSpec `json:"spec"`
	Wrapped *nfdv1alpha1.Features        `json:"features"`
	Labels  map[string]string            `json:"labels"`
}

// DecodeNode decodes a Node.
func DecodeNode(d *Document) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, DecodeObject(d, node)
}

// DecodeObject decodes an object of a Kubernetes kind. Unlike Decode, it ignores unknown fields.
func DecodeObject(d *Document, out any) error {
	if err := json.Unmarshal(yamltree.JSON(d.Root), out); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// Node decodes a Node in the output of `kubectl get node NAME -o yaml`.
func Node(name string, data []byte) (*corev1.Node, error) {
	f := Parse(name, data)
	if len(f.Problems) > 0 {
		return nil, fmt.Errorf("%s:%w", name, f.Problems[0])
	}
	for _, d := range f.Documents {
		if d.Kind != "Node" {
			continue
		}
		node, err := DecodeNode(d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return node, nil
	}
	return nil, fmt.Errorf("%s: no Node found", name)
}

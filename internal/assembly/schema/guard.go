// Package schema guards against rules that the API server has cut short.
//
// If another chart has installed the definition of NodeFeatureRule, the API server drops every field that Node Feature
// Discovery does not know, without a word to clients that do not ask for it. A rule whose conditions are dropped matches more
// nodes than its author meant. kubectl and server-side apply refuse such objects; Helm 3 and most programs do not.
package schema

import (
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/api/crds"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Definition is the name of the CustomResourceDefinition that is looked at.
const Definition = "nodefeaturerules.nfd.k8s-sigs.io"

// Guard knows which fields of a NodeFeatureRule the API server drops. It is safe for concurrent use.
type Guard struct {
	reader client.Reader

	mu      sync.Mutex
	version string // of the definition that was last looked at
	missing []string
}

// New returns a guard that has not looked yet. The reader asks the API server, since a definition is large and read rarely.
func New(reader client.Reader) *Guard { return &Guard{reader: reader} }

// Refresh looks whether the definition is another one, and reports whether other fields are missing than before. As long as
// it is the same, that costs a request for a few hundred bytes.
func (g *Guard) Refresh(ctx context.Context) (changed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	head := &metav1.PartialObjectMetadata{}
	head.SetGroupVersionKind(Kind)
	if err := g.reader.Get(ctx, client.ObjectKey{Name: Definition}, head); err != nil {
		return false, fmt.Errorf("read definition %s: %w", Definition, err)
	}
	if version := string(head.UID) + "/" + fmt.Sprint(head.Generation); version == g.version {
		return false, nil
	}
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(Kind)
	if err := g.reader.Get(ctx, client.ObjectKey{Name: Definition}, crd); err != nil {
		return false, fmt.Errorf("read definition %s: %w", Definition, err)
	}
	missing, err := compare(crd.Object)
	if err != nil {
		return false, err
	}
	changed = !slices.Equal(g.missing, missing)
	g.version, g.missing = string(crd.GetUID())+"/"+fmt.Sprint(crd.GetGeneration()), missing
	return changed, nil
}

// Missing returns the fields that the API server drops, such as spec.rules[].conditions, sorted. It is read only.
func (g *Guard) Missing() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.missing
}

// Kind is the kind of definitions.
var Kind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// compare returns the fields of our own definition that a served one lacks.
func compare(served map[string]any) ([]string, error) {
	own, err := ours()
	if err != nil {
		return nil, err
	}
	return lacking("spec", own, specOf(served)), nil
}

// ours is the schema of the spec in our own definition.
var ours = sync.OnceValues(func() (map[string]any, error) {
	var crd map[string]any
	if err := yaml.Unmarshal(crds.All()["nfd.k8s-sigs.io_nodefeaturerules.yaml"], &crd); err != nil {
		return nil, err
	}
	return specOf(crd), nil
})

// specOf finds the schema of the spec in a definition; nil if there is none.
func specOf(crd map[string]any) map[string]any {
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if version["name"] != nfdv1alpha1.GroupVersion.Version {
			continue
		}
		out, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec")
		return out
	}
	return nil
}

// lacking returns the fields under path that the one schema has and the other drops, sorted. Of a field that is dropped,
// those below it are not named.
func lacking(path string, own, served map[string]any) (out []string) {
	if served["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	if items, ok := own["items"].(map[string]any); ok {
		theirs, _ := served["items"].(map[string]any)
		return lacking(path+"[]", items, theirs)
	}
	fields, _ := own["properties"].(map[string]any)
	theirs, _ := served["properties"].(map[string]any)
	for name, field := range fields {
		at := path + "." + name
		if sub, ok := theirs[name].(map[string]any); ok {
			mine, _ := field.(map[string]any)
			out = append(out, lacking(at, mine, sub)...)
			continue
		}
		out = append(out, at)
	}
	slices.Sort(out)
	return out
}

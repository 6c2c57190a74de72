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

	"github.com/assay-project/assay/internal/assembly/schema/fields"
	"github.com/assay-project/assay/internal/turn"
)

// Definition is the name of the CustomResourceDefinition that Guard reads.
const Definition = "nodefeaturerules.nfd.k8s-sigs.io"

// Guard knows which fields of a NodeFeatureRule the API server drops. It is safe for concurrent use.
type Guard struct {
	reader client.Reader

	turn    turn.Lock // of those who refresh
	version string    // of the definition that was last read

	mu      sync.Mutex
	missing []string
}

// New returns a Guard that has not read the definition yet. The reader must not be a cache: a definition is large and read rarely.
func New(reader client.Reader) *Guard { return &Guard{reader: reader, turn: turn.New()} }

// Refresh looks whether the definition is another one, and reports whether other fields are missing than before. As long as
// it is the same, that costs a request for a few hundred bytes.
func (g *Guard) Refresh(ctx context.Context) (changed bool, err error) {
	release, err := g.turn.Take(ctx)
	if err != nil {
		return false, err
	}
	defer release()
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
	g.mu.Lock()
	defer g.mu.Unlock()
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

// compare returns the fields of the spec of our own definition that a served one lacks.
func compare(served map[string]any) ([]string, error) {
	return fields.Missing(Definition, served, "spec")
}

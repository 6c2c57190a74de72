// Package schema detects that the API server drops fields of rules.
//
// If another chart has installed the NodeFeatureRule CRD, the API server silently drops all fields that NFD does not have, unless
// clients request validation. A rule without its conditions matches more nodes than intended. kubectl and server-side apply report
// an error; Helm 3 and most programs do not.
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

// Guard holds the fields of a NodeFeatureRule that the API server drops. It is safe for concurrent use.
type Guard struct {
	reader client.Reader

	turn    turn.Lock // held by callers of Refresh
	version string    // resourceVersion of the last CRD

	mu      sync.Mutex
	missing []string
}

// New returns a Guard that has not read the CRD yet. The reader should not be a cache, because the CRD is large and rarely read.
func New(reader client.Reader) *Guard { return &Guard{reader: reader, turn: turn.New()} }

// Refresh reads the CRD if it has changed, and reports whether the missing fields have changed. If the CRD has not changed, this
// costs a request of a few hundred bytes.
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

// Missing returns the sorted fields that the API server drops, such as spec.rules[].conditions. The slice is shared: do not modify
// it.
func (g *Guard) Missing() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.missing
}

// Kind is the kind of CRDs.
var Kind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// compare returns the fields of the spec that the served CRD lacks.
func compare(served map[string]any) ([]string, error) {
	return fields.Missing(Definition, served, "spec")
}

package featuresets

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
)

const (
	// MaxUnusedBytes is the maximum total size in bytes of the features in memory that no NodeFeature names. It holds the sets of a
	// large fleet several times, so that only junk is dropped: a client with a worker's token can create as many sets as the quota
	// allows, of 256 KiB each. It is as much as NodeFeatures of Nodes that do not exist may use.
	MaxUnusedBytes = nodefeature.MaxMissingBytes
	// MaxBytes is the maximum size in bytes of a NodeFeature with its sets: that of a request to etcd, which limits a NodeFeature
	// without sets. Otherwise the token of one node could name 64 sets of 256 KiB.
	MaxBytes = 3 << 19
	// readAgain is the time after which a set is read again that could not be read.
	readAgain = 5 * time.Second
)

// Read reads a set from the API server.
type Read func(ctx context.Context, name string) (*assayv1alpha1.NodeFeatureSet, error)

// Dropped returns the number of sets whose features are not in memory: no NodeFeature names them, and they exceed the budget.
func (s *Store) Dropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// trim drops features that no NodeFeature names, oldest sets first, until the others fit in the budget. It needs the lock.
func (s *Store) trim() {
	if s.unused <= MaxUnusedBytes || s.read == nil {
		return
	}
	var unused []string
	for name, h := range s.sets {
		if h.facts != nil && s.refs[name] == 0 {
			unused = append(unused, name)
		}
	}
	slices.SortFunc(unused, func(a, b string) int {
		return cmp.Or(s.sets[a].created.Compare(s.sets[b].created), strings.Compare(a, b))
	})
	for _, name := range unused {
		// To half of it, so that not every further set sorts them again.
		if s.unused <= MaxUnusedBytes/2 {
			break
		}
		h := s.sets[name]
		h.facts, s.unused, s.dropped = nil, s.unused-h.content.Bytes, s.dropped+1
	}
	if !s.reported {
		s.reported = true
		klog.Background().Info("Evicted unreferenced NodeFeatureSets from memory", "count", s.dropped, "maxBytes", MaxUnusedBytes,
			"labelWithTheirNodes", assayv1alpha1.CreatedByNodeLabel)
	}
}

// oversized returns an error if a NodeFeature is too large with the sets that it names. It needs the lock.
func (s *Store) oversized(f *nodefeature.NodeFeature) error {
	bytes := f.Spec.Features.Bytes
	for _, name := range f.Spec.FeatureSets {
		if h := s.sets[name]; h != nil {
			bytes += h.content.Bytes
		}
	}
	if bytes <= MaxBytes {
		return nil
	}
	return &MissingError{Bytes: bytes}
}

// needed returns the sets that NodeFeatures name and whose features were dropped. It needs the lock.
func (s *Store) needed() (names []string) {
	if s.dropped == 0 {
		return nil
	}
	for name := range s.refs {
		if h := s.sets[name]; h != nil && h.facts == nil {
			names = append(names, name)
		}
	}
	return names
}

// reload reads the sets again that NodeFeatures name and whose features were dropped.
func (s *Store) reload(ctx context.Context) {
	s.mu.Lock()
	names := s.needed()
	s.mu.Unlock()
	for _, name := range names {
		ctx, cancel := context.WithTimeout(ctx, setsPatience)
		set, err := s.read(ctx, name)
		cancel()
		switch {
		case err == nil:
			s.Put(set)
		case !apierrors.IsNotFound(err): // otherwise its deletion is about to be watched
			utilruntime.HandleErrorWithContext(ctx, err, "Cannot read a NodeFeatureSet that is named again", "set", name)
			time.AfterFunc(readAgain, func() { tell(s.wake) })
			return
		}
	}
}

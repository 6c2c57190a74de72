package featuresets

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
)

// sized returns a set with about this many bytes. A higher number means a later creation time.
func sized(t *testing.T, number, bytes int) *assayv1alpha1.NodeFeatureSet {
	t.Helper()
	text := fmt.Sprintf(`{"attributes":{"junk.f%d":{"elements":{"v":%q}}}}`, number, strings.Repeat("x", bytes))
	s := set(t, nameOf(t, text), text)
	s.UID, s.CreationTimestamp = types.UID(fmt.Sprint("u", number)), metav1.Unix(int64(number), 0)
	return s
}

// memory returns the sizes of all features in memory.
func (s *Store) memory() (total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.sets {
		if h.facts != nil {
			total += h.content.Bytes
		}
	}
	return total
}

// reads has the store read dropped sets from a list, and counts that.
func (s *Store) reads(list ...*assayv1alpha1.NodeFeatureSet) *atomic.Int32 {
	n := &atomic.Int32{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = func(_ context.Context, name string) (*assayv1alpha1.NodeFeatureSet, error) {
		n.Add(1)
		for _, set := range list {
			if set.Name == name {
				return set, nil
			}
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return n
}

// TestJunkDoesNotFillTheMemory: a stolen token creates as many sets as the quota allows. Those that nodes name stay in memory, and
// one that was dropped is read again when a node names it.
func TestJunkDoesNotFillTheMemory(t *testing.T) {
	a := serve(t)
	used := set(t, nameOf(t, kernel), kernel) // the oldest
	a.Put(used)
	a.write(naming(t, "own", `{}`, used.Name))
	a.shows(a.facts(kernel))

	const size = 200 << 10
	first := sized(t, 0, size)
	a.Put(first)
	reads := a.reads(first)
	count := 2 * MaxUnusedBytes / size
	for i := range count {
		a.Put(sized(t, i+1, size))
	}
	if got := a.memory(); got > MaxUnusedBytes+featureset.Size(&used.Spec.Features) {
		t.Errorf("%d sets of %d bytes use %d bytes of memory, want at most %d", count, size, got, MaxUnusedBytes)
	}
	if a.Dropped() == 0 {
		t.Error("no set was dropped")
	}
	a.shows(a.facts(kernel))
	if newest, _ := a.Resolve(naming(t, "own", `{}`, sized(t, count, size).Name)); newest.Spec.Features.Names() == nil {
		t.Error("the newest set was dropped, which its node is about to name")
	}
	if usage := a.Usage(); len(usage.Missing) > 0 || usage.Nodes[used.Name] != 1 {
		t.Errorf("usage %v, want that one node names the set, and that no worker is asked for another", usage)
	}

	before := a.Dropped()
	a.write(naming(t, "own", `{}`, used.Name, first.Name))
	a.shows(a.facts(`{"attributes":{"kernel.config":{"elements":{"A":"y","B":"m"}},"junk.f0":{"elements":{"v":"` + strings.Repeat("x", size) + `"}}}}`))
	if got := reads.Load(); got != 1 || a.Dropped() != before-1 {
		t.Errorf("%d reads, want one of the set that is named again; %d sets are dropped, want %d", got, a.Dropped(), before-1)
	}
	a.Remove(first)
	if _, ok := a.Content(first.Name); ok {
		t.Error("the set is known after it was deleted")
	}
}

// TestOneNodeCannotNameMoreThanItCouldPublish: 64 sets of 256 KiB would be ten times what fits in a NodeFeature.
func TestOneNodeCannotNameMoreThanItCouldPublish(t *testing.T) {
	a := serve(t)
	a.reads()
	used := set(t, nameOf(t, kernel), kernel)
	a.Put(used)
	a.write(naming(t, "own", `{}`, used.Name))
	a.shows(a.facts(kernel))
	names := []string{used.Name}
	const size = 255 << 10
	for i := range MaxBytes/size + 1 {
		s := sized(t, i, size)
		names = append(names, s.Name)
		if i > 0 { // the first one arrives later
			a.Put(s)
		}
	}
	a.write(naming(t, "own", cpu, names...))
	a.Put(sized(t, 0, size))
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		return len(a.Usage().Nodes) == 0, nil
	})
	if err != nil {
		t.Fatalf("%v are named, want that none is kept for a NodeFeature that is too large", a.Usage().Nodes)
	}
	a.shows(a.facts(kernel)) // as of before
	a.write(naming(t, "own", cpu, used.Name))
	a.shows(a.facts(`{"attributes":{"kernel.config":{"elements":{"A":"y","B":"m"}}},"flags":{"cpu.cpuid":{"elements":{"AVX":{}}}}}`))
}

// TestASetThatWasReplacedIsNotRemoved: a list that lacks the old one arrives after the new one.
func TestASetThatWasReplacedIsNotRemoved(t *testing.T) {
	s, old, replaced := New("own"), set(t, nameOf(t, cpu), cpu), set(t, nameOf(t, cpu), cpu)
	old.UID, replaced.UID = "old", "new"
	s.Put(old)
	s.Put(replaced)
	s.Remove(old)
	if _, ok := s.Content(old.Name); !ok {
		t.Error("the set is gone")
	}
}

package featuresets

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

// apiServer is a fake API server with NodeFeatures, and an informer that watches it.
type apiServer struct {
	*testing.T
	*Store
	events  *watch.RaceFreeFakeWatcher
	cache   toolscache.Store
	version int
}

func serve(t *testing.T, stored ...*nodefeature.NodeFeature) *apiServer {
	a := &apiServer{T: t, Store: New("own"), events: watch.NewRaceFreeFake(), version: 100}
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &nodefeature.NodeFeatureList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}
			for _, f := range stored {
				f.ResourceVersion = list.ResourceVersion
				list.Items = append(list.Items, *f)
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return a.events, nil },
	}
	informer := a.Informers(toolscache.NewSharedIndexInformer)(toolscache.ToListWatcherWithWatchListSemantics(lw, noStreaming{}), &nodefeature.NodeFeature{}, 0, nil)
	a.cache = informer.GetStore()
	go informer.RunWithContext(t.Context())
	if !toolscache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer has not synced")
	}
	return a
}

type noStreaming struct{}

// IsWatchListSemanticsUnSupported reports that lists are not streamed.
func (noStreaming) IsWatchListSemanticsUnSupported() bool { return true }

// write updates the NodeFeature.
func (a *apiServer) write(f *nodefeature.NodeFeature) {
	a.version++
	f.ResourceVersion = fmt.Sprint(a.version)
	a.events.Modify(f)
}

// shows waits until the informer has the NodeFeature with these facts, or without any because sets are missing.
func (a *apiServer) shows(want *facts.Facts) {
	a.Helper()
	var last string
	err := wait.PollUntilContextTimeout(a.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		o, ok, err := a.cache.GetByKey("own/n")
		if err != nil || !ok {
			last = fmt.Sprint("nothing ", err)
			return false, nil
		}
		features := o.(*nodefeature.NodeFeature).Spec.Features
		last = fmt.Sprint(features.Names(), features.Err)
		var missing *MissingError
		if want == nil {
			return errors.As(features.Err, &missing), nil
		}
		return features.Err == nil && features.Same(want), nil
	})
	if err != nil {
		a.Fatalf("%v; the informer shows %s, want %v", err, last, want.Names())
	}
}

func (a *apiServer) facts(features string) *facts.Facts {
	f, missing := a.Resolve(naming(a.T, "own", features))
	if missing != nil {
		a.Fatal(missing)
	}
	return f.Spec.Features.Facts
}

func TestANewNodeWaitsForItsSets(t *testing.T) {
	name := nameOf(t, kernel)
	a := serve(t, naming(t, "own", cpu, name))
	a.shows(nil)
	a.Put(set(t, name, kernel))
	a.shows(a.facts(`{"attributes":{"kernel.config":{"elements":{"A":"y","B":"m"}}},"flags":{"cpu.cpuid":{"elements":{"AVX":{}}}}}`))
}

func TestAKnownNodeKeepsItsLastCompleteFeatures(t *testing.T) {
	name := nameOf(t, kernel)
	a := serve(t)
	a.Put(set(t, name, kernel))
	a.write(naming(t, "own", `{}`, name))
	a.shows(a.facts(kernel))

	// Its set is deleted, and then the NodeFeature changes.
	a.Remove(set(t, name, kernel))
	a.write(naming(t, "own", cpu, name))
	a.write(naming(t, "own", cpu, name, nameOf(t, cpu)))
	a.shows(a.facts(kernel))

	// The set that it names exists again.
	a.Put(set(t, nameOf(t, cpu), cpu))
	a.Put(set(t, name, kernel))
	a.shows(a.facts(`{"attributes":{"kernel.config":{"elements":{"A":"y","B":"m"}}},"flags":{"cpu.cpuid":{"elements":{"AVX":{}}}}}`))
	if missing := a.Usage().Missing; len(missing) > 0 {
		t.Errorf("missing %v, want nothing", missing)
	}
}

func TestAnotherObjectOfTheSameNameStartsAgain(t *testing.T) {
	name := nameOf(t, kernel)
	a := serve(t)
	a.Put(set(t, name, kernel))
	first := naming(t, "own", `{}`, name)
	a.write(first)
	a.shows(a.facts(kernel))
	a.Remove(set(t, name, kernel))
	a.events.Delete(first)
	a.write(naming(t, "own", `{}`, name))
	a.shows(nil)
}

// TestAnObjectThatWasReplacedStartsAgain: the watch did not show that the object of before was deleted.
func TestAnObjectThatWasReplacedStartsAgain(t *testing.T) {
	name := nameOf(t, kernel)
	a := serve(t)
	a.Put(set(t, name, kernel))
	first, second := naming(t, "own", `{}`, name), naming(t, "own", `{}`, name)
	first.UID, second.UID = "first", "second"
	a.write(first)
	a.shows(a.facts(kernel))
	a.Remove(set(t, name, kernel))
	a.write(second)
	a.shows(nil)
}

func TestANodeThatSharesNoLongerShowsItsOwnFeatures(t *testing.T) {
	name := nameOf(t, kernel)
	a := serve(t, naming(t, "own", `{}`, name))
	a.shows(nil)
	a.write(naming(t, "own", cpu))
	a.shows(a.facts(cpu))
	if missing := a.Usage().Missing; len(missing) > 0 {
		t.Errorf("missing %v, want nothing", missing)
	}
}

package follow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/inputs/inputstest"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/gather"
)

// live is a fake API server with the content of the cache.
type live struct{ *inputstest.Cache }

func (l live) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	var f nodefeature.NodeFeature
	if err := l.Cache.Get(ctx, key, &f); err != nil {
		return err
	}
	into.SetNamespace(f.Namespace)
	into.SetName(f.Name)
	into.SetLabels(f.Labels)
	into.SetDeletionTimestamp(f.DeletionTimestamp)
	into.SetOwnerReferences(f.OwnerReferences)
	return nil
}

// TestTheExtenderAndTheControllerAgree creates, deletes and corrupts NodeFeatures of a worker and another publisher, and compares
// the inputs of the controller, which determine a node's labels, with those of the extender.
func TestTheExtenderAndTheControllerAgree(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { agree(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func agree(t *testing.T, random *rand.Rand) {
	cache, clock := inputstest.New(), clocktesting.NewFakeClock(time.Unix(1700000000, 0))
	opt := inputs.Options{Policy: gather.Policy{Namespace: own}, Grace: grace, Clock: clock}
	extender, view := inputs.New(opt), index.New()
	New(view, extender, Options{})
	seen := make(chan inputs.Change, 1000)
	extender.OnChange(func(c inputs.Change) { seen <- c })
	opt.Live = live{cache}
	controller := inputs.New(opt)
	if err := errors.Join(extender.Watch(t.Context(), cache), controller.Watch(t.Context(), cache)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- extender.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "0"}}
	held := 0
	for step := range 60 {
		node = node.DeepCopy()
		what := change(random, cache, node, step)
		if random.IntN(3) == 0 {
			clock.Step(time.Duration(random.IntN(int(grace))))
		}
		// Once the extender has processed this change, it has processed all earlier ones.
		node.Labels = map[string]string{"step": strconv.Itoa(step)}
		cache.Put(node)
	wait:
		for timeout := time.After(time.Minute); ; {
			select {
			case <-timeout:
				t.Fatalf("step %d, %s: the extender does not see it", step, what)
			case <-seen:
			}
			if s, _ := extender.Get("n1"); s.Input.Node.Labels["step"] == node.Labels["step"] {
				break wait
			}
		}
		want, err := controller.Of(t.Context(), node)
		if err != nil {
			t.Fatalf("step %d, %s: %v", step, what, err)
		}
		if want.Held() && !want.Blind {
			held++
		}
		got, _, _ := view.Input("n1")
		if names(got.Publishers) != names(want.Input.Publishers) {
			t.Fatalf("step %d, %s: the extender knows what %s say, the controller what %s say (held until %s)",
				step, what, names(got.Publishers), names(want.Input.Publishers), want.HeldUntil)
		}
	}
	if held == 0 {
		t.Error("the worker has never vanished: the test shows nothing")
	}
}

func names(list []rules.Publisher) (out string) {
	for _, p := range list {
		out += p.Name + " "
	}
	return out
}

// change makes a random change to the objects, and returns a description.
func change(random *rand.Rand, cache *inputstest.Cache, node *corev1.Node, step int) string {
	worker := published(own, "n1")
	worker.ResourceVersion = strconv.Itoa(step)
	switch random.IntN(8) {
	case 0:
		cache.Remove(worker)
		return "the worker's object vanishes"
	case 1:
		worker.DeletionTimestamp, worker.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/never"}
		cache.Put(worker)
		return "the worker's object waits for a finalizer"
	case 2:
		worker.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "earlier"}}
		cache.Put(worker)
		return "the worker's object belongs to an earlier Node"
	case 3:
		worker.Labels = map[string]string{nfdv1alpha1.NodeNameLabel: "n2"}
		cache.Put(worker)
		return "the worker's object is about another node"
	case 4:
		worker.Spec.Features.Err = errors.New("unreadable")
		cache.Put(worker)
		return "the worker's object cannot be read"
	case 5:
		node.UID = types.UID(strconv.Itoa(step))
		return "the Node is replaced by another one"
	case 6:
		other := published("vendor", "n1")
		if random.IntN(2) == 0 {
			cache.Remove(other)
			return "another publisher's object vanishes"
		}
		cache.Put(other)
		return "another publisher appears"
	}
	cache.Put(worker)
	return "the worker publishes"
}

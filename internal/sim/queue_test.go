package sim

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/assay-project/assay/internal/assembly"
)

// gates are the queues of the controllers in one program. An item leaves its queue when the simulator releases it: informers fill
// queues in Go's random map order, which no seed determines.
type gates struct {
	ctrl.Manager
	mu       sync.Mutex
	list     map[string]gate
	released map[[2]string]time.Time // by controller and item: when it was released last
	leads    time.Time               // when the first item of the leader was released
}

// gate is a queue.
type gate interface {
	ready() []string
	release(item string)
}

// Add registers a controller or another runnable, and gives it a gated queue.
func (g *gates) Add(r manager.Runnable) error {
	if v := reflect.Indirect(reflect.ValueOf(r)); v.Kind() == reflect.Struct {
		field := v.FieldByName("NewQueue")
		switch {
		case !field.IsValid():
		case field.Type() == reflect.TypeOf(gated[reconcile.Request](g)):
			field.Set(reflect.ValueOf(gated[reconcile.Request](g)))
		case field.Type() == reflect.TypeOf(gated[assembly.Ref](g)):
			field.Set(reflect.ValueOf(gated[assembly.Ref](g)))
		default:
			return fmt.Errorf("no gate for queues of %s", field.Type())
		}
	}
	return g.Manager.Add(r)
}

// ready returns the items that can be processed, as controller and item, sorted.
func (g *gates) ready() (out [][2]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(g.list)) {
		for _, item := range g.list[name].ready() {
			out = append(out, [2]string{name, item})
		}
	}
	return out
}

func (g *gates) release(item [2]string) {
	g.released[item] = time.Now()
	if item[0] == "node" && g.leads.IsZero() {
		g.leads = time.Now()
	}
	g.list[item[0]].release(item[1])
}

// gated returns a constructor of queues.
func gated[T comparable](g *gates) func(string, workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
	return func(name string, limiter workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
		q := &queue[T]{waiting: map[T]string{}, working: map[T]bool{}}
		q.cond = sync.NewCond(&q.mu)
		g.mu.Lock()
		g.list[name] = q
		g.mu.Unlock()
		delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Queue: q, Clock: idle{}})
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: delaying})
	}
}

// idle is a clock for delaying queues that never ticks: their periodic check every 10 seconds would keep time from passing.
type idle struct{ clock.RealClock }

// NewTicker implements clock.WithTicker.
func (idle) NewTicker(time.Duration) clock.Ticker { return idle{} }

// C implements clock.Ticker.
func (idle) C() <-chan time.Time { return nil }

// Stop implements clock.Ticker.
func (idle) Stop() {}

// queue is a work queue whose items wait until they are released. It implements workqueue.TypedInterface.
type queue[T comparable] struct {
	mu       sync.Mutex
	cond     *sync.Cond
	waiting  map[T]string // with the item as text
	working  map[T]bool
	released []T
	down     bool
}

func (q *queue[T]) ready() (out []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for item, text := range q.waiting {
		if !q.working[item] && !slices.Contains(q.released, item) {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

func (q *queue[T]) release(text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for item, is := range q.waiting {
		if is == text {
			q.released = append(q.released, item)
			q.cond.Broadcast()
			return
		}
	}
}

// Add implements workqueue.TypedInterface.
func (q *queue[T]) Add(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.down {
		q.waiting[item] = fmt.Sprint(item)
	}
}

// Len implements workqueue.TypedInterface.
func (q *queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Get implements workqueue.TypedInterface.
func (q *queue[T]) Get() (item T, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.released) == 0 && !q.down {
		q.cond.Wait()
	}
	if q.down {
		return item, true
	}
	item = q.released[0]
	q.released = q.released[1:]
	delete(q.waiting, item)
	q.working[item] = true
	return item, false
}

// Done implements workqueue.TypedInterface.
func (q *queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.working, item)
}

// ShutDown implements workqueue.TypedInterface.
func (q *queue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.down = true
	q.cond.Broadcast()
}

// ShutDownWithDrain implements workqueue.TypedInterface.
func (q *queue[T]) ShutDownWithDrain() { q.ShutDown() }

// ShuttingDown implements workqueue.TypedInterface.
func (q *queue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.down
}

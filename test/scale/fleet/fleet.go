//go:build linux

// Package fleet runs the publishers of many nodes in one process, each with its own connection.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-project/assay/discovery/publish"
)

// Node is a created Node.
type Node struct {
	Number    int
	Name, UID string
	// Token of its worker's ServiceAccount; empty: the worker has the credentials of Config.
	Token string
}

// Fleet runs the publishers of all nodes. Set its exported fields before the first call. Its methods are safe for concurrent use,
// for different nodes.
type Fleet struct {
	// Config is the connection to the API server.
	Config *publish.Config
	// Namespace is the namespace of the NodeFeatures.
	Namespace string
	// Content returns what the worker of a node publishes for a value.
	Content func(n Node, value string) publish.Content
	// FirstValue is the value of nodes until the first call of Publish or Set.
	FirstValue string
	// Share publishes large features as NodeFeatureSets.
	Share bool
	// Parallel is the number of concurrent first publications.
	Parallel int

	mu      sync.Mutex
	workers map[string]*worker // by node
	values  map[string]string  // by node; FirstValue if absent
	failed  atomic.Int64       // attempts
	exits   atomic.Int64
}

// worker is a running publisher.
type worker struct {
	node     Node
	contents chan publish.Content
	done     chan time.Time // when something was published; holds the latest time
	stop     context.CancelFunc
	ended    chan struct{}
}

// Start runs the workers of nodes, and returns once each has published. Generation is that of their pods. progress is called after
// each node.
func (f *Fleet) Start(ctx context.Context, nodes []Node, generation int, progress func(done int)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, f.Parallel)
	var starting sync.WaitGroup
	var done atomic.Int64
	for _, n := range nodes {
		slots <- struct{}{}
		starting.Go(func() {
			defer func() { <-slots }()
			if err := f.startOne(ctx, n, generation); err != nil {
				cancel(err)
			}
			progress(int(done.Add(1)))
		})
	}
	starting.Wait()
	return context.Cause(ctx)
}

func (f *Fleet) startOne(ctx context.Context, n Node, generation int) error {
	if err := f.Launch(ctx, n, generation); err != nil {
		return err
	}
	_, err := f.published(ctx, f.worker(n))
	return err
}

func (f *Fleet) worker(n Node) *worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.workers[n.Name]
}

// Launch runs the worker of a node, and returns at once. The worker publishes the last value.
func (f *Fleet) Launch(ctx context.Context, n Node, generation int) error {
	config := *f.Config
	if n.Token != "" {
		config.Cert, config.Key, config.Token = nil, nil, n.Token
	}
	client, err := publish.NewClient(&config)
	if err != nil {
		return err
	}
	w := &worker{node: n, contents: make(chan publish.Content, 1), done: make(chan time.Time, 1), ended: make(chan struct{})}
	id := publish.Identity{
		Node: n.Name, NodeUID: n.UID, Pod: "worker-" + n.Name, PodUID: fmt.Sprintf("pod-%d-%d", n.Number, generation), Namespace: f.Namespace,
	}
	p := publish.New(client, publish.Options{
		Namespace: f.Namespace, Version: "test", Share: f.Share,
		Identify: func(context.Context) (publish.Identity, error) { return id, nil },
		Observe:  func(e publish.Event) { f.observe(w, e) },
	})
	var running context.Context
	running, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.mu.Lock()
	if f.workers == nil {
		f.workers, f.values = map[string]*worker{}, map[string]string{}
	}
	f.workers[n.Name] = w
	f.mu.Unlock()
	w.contents <- f.Content(n, f.value(n))
	go func() {
		defer close(w.ended)
		p.Run(running, w.contents)
		if running.Err() == nil {
			f.exits.Add(1)
		}
	}()
	return nil
}

func (f *Fleet) observe(w *worker, e publish.Event) {
	switch {
	case e.Err != nil:
		f.failed.Add(1)
	case e.Change != "":
		select {
		case <-w.done: // no one waited for the previous one
		default:
		}
		w.done <- time.Now()
	}
}

func (f *Fleet) value(n Node) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if value, ok := f.values[n.Name]; ok {
		return value
	}
	return f.FirstValue
}

// Set makes the worker of a node publish a value, and returns at once. A worker that is not running publishes it when it starts.
func (f *Fleet) Set(n Node, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values[n.Name] = value
	w := f.workers[n.Name]
	if w == nil {
		return
	}
	select { // an older value that the worker has not read yet
	case <-w.contents:
	default:
	}
	w.contents <- f.Content(n, value)
}

// Publish makes the running worker of a node publish a value, and returns when that was done.
func (f *Fleet) Publish(ctx context.Context, n Node, value string) (time.Time, error) {
	w := f.worker(n)
	select { // from something else, such as a repair
	case <-w.done:
	default:
	}
	f.Set(n, value)
	return f.published(ctx, w)
}

// published waits until a worker has published something.
func (f *Fleet) published(ctx context.Context, w *worker) (time.Time, error) {
	select {
	case at := <-w.done:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, errors.Join(fmt.Errorf("publish for %s: %d attempts failed", w.node.Name, f.failed.Load()), context.Cause(ctx))
	}
}

// End ends the workers of nodes.
func (f *Fleet) End(nodes []Node) {
	var ended []*worker
	f.mu.Lock()
	for _, n := range nodes {
		if w := f.workers[n.Name]; w != nil {
			w.stop()
			delete(f.workers, n.Name)
			ended = append(ended, w)
		}
	}
	f.mu.Unlock()
	for _, w := range ended {
		<-w.ended
	}
}

// Failed returns the number of failed attempts to publish.
func (f *Fleet) Failed() int { return int(f.failed.Load()) }

// Exits returns the number of workers that ended although they were not told to.
func (f *Fleet) Exits() int { return int(f.exits.Load()) }

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-project/assay/discovery/publish"
)

// fleet runs the publishers of all nodes, each with its own connection.
type fleet struct {
	config   *publish.Config
	hosts    hosts
	shared   bool
	parallel int // number of concurrent first publications

	mu      sync.Mutex
	workers map[string]*worker // by node
	values  map[string]string  // of ownFeature, by node; firstValue if absent
	failed  atomic.Int64       // attempts
}

// worker is a running publisher.
type worker struct {
	number   int
	id       publish.Identity
	contents chan publish.Content
	done     chan time.Time // when something was published; holds the latest time
	stop     context.CancelFunc
	ended    chan struct{}
}

// start runs the workers of nodes, and returns once each has published. Generation is that of their pods.
func (f *fleet) start(ctx context.Context, nodes []node, generation int, progress func(done int)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, f.parallel)
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

func (f *fleet) startOne(ctx context.Context, n node, generation int) error {
	client, err := publish.NewClient(f.config)
	if err != nil {
		return err
	}
	w := &worker{
		number: n.number, contents: make(chan publish.Content, 1), done: make(chan time.Time, 1), ended: make(chan struct{}),
		id: publish.Identity{
			Node: n.name, NodeUID: n.uid, Pod: "worker-" + n.name, PodUID: fmt.Sprintf("pod-%d-%d", n.number, generation), Namespace: namespace,
		},
	}
	p := publish.New(client, publish.Options{
		Namespace: namespace, Version: "scale", Share: f.shared,
		Identify: func(context.Context) (publish.Identity, error) { return w.id, nil },
		Observe: func(e publish.Event) {
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
		},
	})
	var running context.Context
	running, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.mu.Lock()
	f.workers[n.name] = w
	f.mu.Unlock()
	go func() {
		defer close(w.ended)
		p.Run(running, w.contents)
	}()
	f.mu.Lock()
	value, ok := f.values[n.name]
	f.mu.Unlock()
	if !ok {
		value = firstValue
	}
	_, err = f.publish(ctx, n.name, value)
	return err
}

// publish makes a worker publish a value, and returns when that was done.
func (f *fleet) publish(ctx context.Context, node, value string) (time.Time, error) {
	f.mu.Lock()
	w := f.workers[node]
	f.values[node] = value
	f.mu.Unlock()
	select { // from something else, such as a repair
	case <-w.done:
	default:
	}
	w.contents <- f.hosts.content(w.number, node, value)
	select {
	case at := <-w.done:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, errors.Join(fmt.Errorf("publish for %s: %d attempts failed", node, f.failed.Load()), context.Cause(ctx))
	}
}

// end ends the workers of nodes.
func (f *fleet) end(nodes []node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range nodes {
		if w := f.workers[n.name]; w != nil {
			w.stop()
		}
	}
	for _, n := range nodes {
		if w := f.workers[n.name]; w != nil {
			<-w.ended
			delete(f.workers, n.name)
		}
	}
}

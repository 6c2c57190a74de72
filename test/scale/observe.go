//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/test/scale/fleet"
)

// observer watches the labels of all Nodes.
type observer struct {
	client client.WithWatch

	mu      sync.Mutex
	labels  map[string]map[string]string // by Node
	changed chan struct{}                // closed at the next change
}

func observe(ctx context.Context, c client.WithWatch) *observer {
	o := &observer{client: c, labels: map[string]map[string]string{}, changed: make(chan struct{})}
	go func() {
		for ctx.Err() == nil {
			if o.follow(ctx) != nil { // the API server restarts
				time.Sleep(reconnect)
			}
		}
	}()
	return o
}

// reconnect is the delay between two attempts to watch.
const reconnect = 100 * time.Millisecond

// follow lists and watches until the watch ends.
func (o *observer) follow(ctx context.Context) error {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := o.client.List(ctx, list); err != nil {
		return err
	}
	all := make(map[string]map[string]string, len(list.Items))
	for i := range list.Items {
		all[list.Items[i].Name] = list.Items[i].Labels
	}
	o.change(func() { o.labels = all })
	w, err := o.client.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		m, ok := e.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("watch Nodes: %v", e.Object)
		}
		o.change(func() {
			if e.Type == watch.Deleted {
				delete(o.labels, m.Name)
			} else {
				o.labels[m.Name] = m.Labels
			}
		})
	}
	return nil
}

func (o *observer) change(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
	close(o.changed)
	o.changed = make(chan struct{})
}

// has reports whether a node had a label at the last event.
func (o *observer) has(n fleet.Node, label string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, has := o.labels[n.Name][label]
	return has
}

const (
	// manyNodes is the number of nodes from which on wait does not look at them after each event, but after together: with thousands of
	// nodes it would use more CPU time than what is measured.
	manyNodes = 100
	together  = 20 * time.Millisecond
)

// wait returns when each of these nodes has had the label with this value.
func (o *observer) wait(ctx context.Context, nodes []fleet.Node, label, value string, progress func(done int)) (time.Time, error) {
	for left := slices.Clone(nodes); ; {
		o.mu.Lock()
		changed := o.changed
		left = slices.DeleteFunc(left, func(n fleet.Node) bool {
			v, ok := o.labels[n.Name][label]
			return ok && v == value
		})
		o.mu.Unlock()
		if len(left) == 0 {
			return time.Now(), nil
		}
		done := len(nodes) - len(left)
		progress(done)
		if len(left) > manyNodes {
			time.Sleep(together)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%d of %d nodes have the label %s=%s: %w", done, len(nodes), label, value, context.Cause(ctx))
		}
	}
}

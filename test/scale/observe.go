//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// wait returns when all of these nodes have the label with this value.
func (o *observer) wait(ctx context.Context, nodes []node, label, value string, progress func(done int)) (time.Time, error) {
	for {
		o.mu.Lock()
		done, changed := 0, o.changed
		for _, n := range nodes {
			if v, ok := o.labels[n.name][label]; ok && v == value {
				done++
			}
		}
		o.mu.Unlock()
		if done == len(nodes) {
			return time.Now(), nil
		}
		progress(done)
		select {
		case <-changed:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%d of %d nodes have the label %s=%s: %w", done, len(nodes), label, value, context.Cause(ctx))
		}
	}
}

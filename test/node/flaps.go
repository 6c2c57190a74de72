//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// flaps watches the labels of the Node and notes each that goes away or changes.
type flaps struct {
	mu     sync.Mutex
	labels map[string]string
	seen   []string
	events int
	stop   context.CancelFunc
}

// watchLabels begins to watch.
func (s *story) watchLabels(ctx context.Context) (*flaps, error) {
	node, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w, err := s.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", nodeName).String(), ResourceVersion: node.ResourceVersion,
	})
	if err != nil {
		stop()
		return nil, err
	}
	f := &flaps{labels: node.Labels, stop: stop}
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			f.look(event)
		}
	}()
	return f, nil
}

func (f *flaps) look(event watch.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node, ok := event.Object.(*corev1.Node)
	if !ok {
		f.seen = append(f.seen, fmt.Sprintf("the watch said %v", event.Object))
		return
	}
	f.events++
	for key, value := range f.labels {
		switch now, there := node.Labels[key]; {
		case !there:
			f.seen = append(f.seen, key+" went away")
		case now != value:
			f.seen = append(f.seen, fmt.Sprintf("%s changed from %q to %q", key, value, now))
		}
	}
	f.labels = node.Labels
}

// end ends the watch and fails if a label went away or changed.
func (f *flaps) end() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop()
	if len(f.seen) > 0 {
		return fmt.Errorf("labels flapped: %v", f.seen)
	}
	return nil
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/assay-project/assay/test/cluster"
)

// flaps watches the labels of the Node and records each that is removed or changed. Until done is closed, only its version may be
// read.
type flaps struct {
	labels   map[string]string
	version  atomic.Value // last seen resourceVersion of the Node
	seen     []string
	versions int  // number of versions of the Node
	away     bool // the API server was unavailable for a while
	done     chan struct{}
}

// watched runs a function during which no label may be removed or changed, and reports the number of versions of the Node.
func (s *story) watched(ctx context.Context, do func() error) error {
	node, err := s.node(ctx)
	if err != nil {
		return err
	}
	f := &flaps{labels: node.Labels, done: make(chan struct{})}
	f.version.Store(node.ResourceVersion)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go f.watch(watching, s)
	done := do()
	// Wait until all changes so far were seen. A kubelet keeps writing, so read the Node again each time.
	caughtUp := cluster.WaitFor(ctx, "the watch of the Node", func(ctx context.Context) error {
		node, err := s.node(ctx)
		if err != nil {
			return err
		}
		if seen := f.version.Load(); seen != node.ResourceVersion {
			return fmt.Errorf("it is at %s, and the Node at %s", seen, node.ResourceVersion)
		}
		return nil
	})
	stop()
	<-f.done
	if len(f.seen) > 0 {
		return errors.Join(done, fmt.Errorf("labels flapped: %s", strings.Join(f.seen, "; ")))
	}
	if err := errors.Join(done, caughtUp); err != nil {
		return err
	}
	also := ""
	if f.away {
		also = ", and after the API server was away"
	}
	s.note("none of %d labels went away or changed, in %d versions of the Node%s", len(f.labels), f.versions, also)
	return nil
}

// watch processes every version of the Node until the context ends. After the API server was unavailable, it continues with the
// current state.
func (f *flaps) watch(ctx context.Context, s *story) {
	defer close(f.done)
	for ctx.Err() == nil {
		_ = f.follow(ctx, s) // the reason does not matter: the next watch continues where this one ended, or after a gap
		if ctx.Err() != nil {
			return
		}
		f.away = true
		_ = cluster.WaitFor(ctx, "the Node", func(ctx context.Context) error {
			node, err := s.node(ctx)
			if err == nil {
				f.look(node)
			}
			return err
		})
	}
}

func (f *flaps) follow(ctx context.Context, s *story) error {
	w, err := s.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", nodeName).String(), ResourceVersion: f.version.Load().(string),
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		node, ok := event.Object.(*corev1.Node)
		if !ok {
			return fmt.Errorf("the watch sent %v", event.Object)
		}
		f.versions++
		f.look(node)
	}
	return nil
}

// look compares labels with those of the previous version.
func (f *flaps) look(node *corev1.Node) {
	for key, value := range f.labels {
		switch now, there := node.Labels[key]; {
		case !there:
			f.seen = append(f.seen, key+" went away")
		case now != value:
			f.seen = append(f.seen, fmt.Sprintf("%s changed from %q to %q", key, value, now))
		}
	}
	f.labels = node.Labels
	f.version.Store(node.ResourceVersion)
}

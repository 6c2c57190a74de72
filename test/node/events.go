//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/assay-project/assay/test/cluster"
)

const (
	// hourOfEvents is the number of events in an hour on a node with an event every 15 seconds.
	hourOfEvents = 240
	// samples is the number of memory measurements.
	samples = 12
	// mayGrow is the maximum growth of the worker's memory from the first half to the second: half of what it uses; if each event
	// were kept in memory with its NodeFeature, it would be ten times that.
	mayGrow = 8 << 20
	// gust is the number of changes at once.
	gust = 300
)

// featureFile replaces the content of a feature file atomically.
func (s *story) featureFile(name, text string) error {
	next := s.path("next-feature-file")
	if err := os.WriteFile(next, []byte(text+"\n"), 0o644); err != nil { //nolint:gosec // readable for the worker
		return err
	}
	return os.Rename(next, filepath.Join(s.path("features.d"), name))
}

// anHourOfEvents changes a feature file repeatedly. Each change is published before the next one, and the worker's memory does not
// grow. Then many changes occur at once, of which the last one counts.
func anHourOfEvents(ctx context.Context, s *story) error {
	worker, err := process("assay-worker")
	if err != nil {
		return err
	}
	published, err := s.watchNodeFeature(ctx)
	if err != nil {
		return err
	}
	defer published.Stop()
	began := time.Now()
	var sizes []uint64
	for i := range hourOfEvents {
		// A new element each time: an element that changes repeatedly is held after the third change.
		label := fmt.Sprintf("event-%d", i)
		if err := s.featureFile("events", label); err != nil {
			return err
		}
		if err := waitPublished(ctx, published, label); err != nil {
			return err
		}
		if (i+1)%(hourOfEvents/samples) == 0 {
			size, err := memoryOf(worker)
			if err != nil {
				return err
			}
			sizes = append(sizes, size.now)
		}
	}
	var texts []string
	for _, size := range sizes {
		texts = append(texts, megabytes(size))
	}
	s.figure("%d events, each published, in %.0f s; memory of the worker meanwhile: %s MB", hourOfEvents, time.Since(began).Seconds(), strings.Join(texts, " "))
	if first, second := slices.Max(sizes[:samples/2]), slices.Max(sizes[samples/2:]); second > first+mayGrow {
		return fmt.Errorf("the worker's memory grows: at most %s MB in the first half, %s MB in the second", megabytes(first), megabytes(second))
	}
	for i := range gust {
		if err := s.featureFile("events", fmt.Sprintf("gust-%d", i)); err != nil {
			return err
		}
	}
	began = time.Now()
	if err := s.waitLabel(ctx, featureNS+fmt.Sprintf("gust-%d", gust-1)); err != nil {
		return err
	}
	s.note("%.1f s from the last of %d changes at once to its label", time.Since(began).Seconds(), gust)
	if err := os.Remove(filepath.Join(s.path("features.d"), "events")); err != nil {
		return err
	}
	err = cluster.WaitFor(ctx, "the end of the labels", func(ctx context.Context) error {
		node, err := s.node(ctx)
		if err != nil {
			return err
		}
		for key := range node.Labels {
			if strings.HasPrefix(key, featureNS+"event-") || strings.HasPrefix(key, featureNS+"gust-") {
				return errors.New(key + " is still there")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.allReady(ctx)
}

// watchNodeFeature watches the worker's NodeFeature.
func (s *story) watchNodeFeature(ctx context.Context) (watch.Interface, error) {
	client, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		return nil, err
	}
	resource := schema.GroupVersionResource{Group: "nfd.k8s-sigs.io", Version: "v1alpha1", Resource: "nodefeatures"}
	return client.Resource(resource).Namespace(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", nodeName).String()})
}

// waitPublished waits for a label.
func waitPublished(ctx context.Context, published watch.Interface, label string) error {
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("label %s is not published", label)
		case event, ok := <-published.ResultChan():
			object, is := event.Object.(*unstructured.Unstructured)
			if !ok || !is {
				return fmt.Errorf("the watch of the NodeFeature sent %v", event.Object)
			}
			labels, _, _ := unstructured.NestedMap(object.Object, "spec", "labels")
			if _, there := labels[label]; there {
				return nil
			}
		}
	}
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// history is every version of every Node.
type history struct {
	mu  sync.Mutex
	all map[string][]map[string]string // by Node: its keys, oldest first
	err error                          // why the watch has ended
	// older and newer are the keys of Nodes at rest with one of the versions.
	older, newer map[string]map[string]string
}

// follow watches all Nodes from now on.
func follow(ctx context.Context, c client.WithWatch) (*history, error) {
	h := &history{all: map[string][]map[string]string{}}
	var list corev1.NodeList
	if err := c.List(ctx, &list); err != nil {
		return nil, err
	}
	events, err := c.Watch(ctx, &corev1.NodeList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return nil, err
	}
	go func() {
		<-ctx.Done()
		events.Stop()
	}()
	go func() {
		for e := range events.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok {
				h.add(n)
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.err = errors.New("the watch of the Nodes has ended") // a version could be missing
	}()
	return h, nil
}

func (h *history) add(n *corev1.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[n.Name] = append(h.all[n.Name], keysOf(n))
}

// keysOf returns the labels, annotations and resources that workers and rules give.
func keysOf(n *corev1.Node) map[string]string {
	return stage.Keys(n, func(key string) bool {
		return strings.HasPrefix(key, nfdv1alpha1.FeatureLabelNamespace+"/") || strings.HasPrefix(key, domain)
	})
}

func (h *history) versions() (count int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, list := range h.all {
		count += len(list)
	}
	return count
}

// wait waits until each Node has the label of a step, and keeps the keys that they have then.
func (h *history) wait(ctx context.Context, nodes []string, step string, into *map[string]map[string]string) error {
	return cluster.WaitFor(ctx, "labels of step "+step, func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.err != nil {
			return h.err
		}
		now := map[string]map[string]string{}
		for _, node := range nodes {
			list := h.all[node]
			if len(list) == 0 || list[len(list)-1]["label "+stepLabel] != step {
				return fmt.Errorf("%s does not have it", node)
			}
			now[node] = list[len(list)-1]
		}
		if into != nil {
			*into = now
		}
		return nil
	})
}

// judge reports each key that both versions give a Node, and that was missing in a version of it after it had been there.
func (h *history) judge(out io.Writer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lost []string
	keys, changed, gone := 0, map[string]bool{}, map[string]bool{}
	for _, node := range slices.Sorted(maps.Keys(h.older)) {
		for _, key := range slices.Sorted(maps.Keys(h.older[node])) {
			value, both := h.newer[node][key]
			if !both {
				gone[key] = true
				continue
			}
			if keys++; value != h.older[node][key] && key != "label "+stepLabel && !strings.HasSuffix(key, "file-step") {
				changed[key] = true
			}
			lost = append(lost, missing(node, key, h.all[node])...)
		}
	}
	_, _ = fmt.Fprintf(out, "%d keys of %d Nodes that both versions give; %d were missing at some time\n", keys, len(h.older), len(lost))
	_, _ = fmt.Fprintf(out, "other values in the newer version: %v\nonly in the older version: %v\n", slices.Sorted(maps.Keys(changed)), slices.Sorted(maps.Keys(gone)))
	if len(lost) > 0 {
		return fmt.Errorf("%d keys were missing for a time:\n  %s", len(lost), strings.Join(lost[:min(len(lost), maxPrinted)], "\n  "))
	}
	if keys == 0 {
		return errors.New("no keys were compared")
	}
	return nil
}

// maxPrinted is the maximum number of lost keys that are printed.
const maxPrinted = 12

// missing describes when a key that a Node had was missing; nothing if it never was.
func missing(node, key string, versions []map[string]string) []string {
	had := false
	for i, v := range versions {
		_, has := v[key]
		if had && !has {
			return []string{fmt.Sprintf("%s: %s was missing in version %d of %d", node, key, i+1, len(versions))}
		}
		had = had || has
	}
	return nil
}

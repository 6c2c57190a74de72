//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/stage"
)

// prefix is the prefix of all keys that the rules of this test create.
const prefix = "faults.example.com/"

// checker watches all Nodes through every API server, with connections that no fault disturbs, and reports keys that vanish, values
// that go back, and records that differ from the keys. One API server can be away without a version of a Node being missed.
type checker struct {
	// removed reports whether a key may be removed.
	removed func(key string) bool

	mu         sync.Mutex
	nodes      map[string]*seenNode
	violations []violation
	versions   int
	changed    chan struct{} // closed at the next change
}

// seenNode is the last version of a Node.
type seenNode struct {
	version  string
	keys     map[string]string // such as "label faults.example.com/a"
	vanished map[string]bool
	history  []string // the latest changes, oldest first
}

// violation is a broken promise.
type violation struct {
	at         time.Time
	node, what string
	history    []string
}

func (v violation) String() string {
	return fmt.Sprintf("%s %s: %s\n    %s", v.at.Format(clockFormat), v.node, v.what, strings.Join(v.history, "\n    "))
}

const (
	clockFormat = "15:04:05.000"
	// historyLength is the number of changes of a Node that a violation quotes.
	historyLength = 12
)

func newChecker(removed func(key string) bool) *checker {
	return &checker{removed: removed, nodes: map[string]*seenNode{}, changed: make(chan struct{})}
}

// watch follows the Nodes through one API server until the context ends.
func (c *checker) watch(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			_ = c.follow(ctx, client) // it is away, or its watch ended
			select {
			case <-ctx.Done():
			case <-time.After(reconnect):
			}
		}
	}()
	return nil
}

// reconnect is the delay between two attempts to watch.
const reconnect = 100 * time.Millisecond

func (c *checker) follow(ctx context.Context, client kubernetes.Interface) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		c.look(&list.Items[i])
	}
	w, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		node, ok := e.Object.(*corev1.Node)
		if !ok || e.Type == watch.Deleted {
			return fmt.Errorf("watch Nodes: %s %v", e.Type, e.Object)
		}
		c.look(node)
	}
	return nil
}

// look checks a version of a Node, unless it is older than another one.
func (c *checker) look(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.nodes[node.Name]
	if known == nil {
		known = &seenNode{keys: map[string]string{}, vanished: map[string]bool{}}
		c.nodes[node.Name] = known
	}
	if !stage.Older(known.version, node.ResourceVersion) {
		return
	}
	now := keysOf(node)
	c.versions++
	known.version = node.ResourceVersion
	wrong := append(c.compare(known, now), records(node)...)
	known.keys = now
	for _, what := range wrong {
		c.violations = append(c.violations, violation{time.Now(), node.Name, what, slices.Clone(known.history)})
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// compare records the changes of a Node, and returns what must not happen.
func (c *checker) compare(known *seenNode, now map[string]string) (wrong []string) {
	note := func(format string, args ...any) {
		line := fmt.Sprintf("%s version %s: %s", time.Now().Format(clockFormat), known.version, fmt.Sprintf(format, args...))
		known.history = append(known.history, line)
		known.history = known.history[max(0, len(known.history)-historyLength):]
	}
	for _, key := range slices.Sorted(maps.Keys(known.keys)) {
		if _, ok := now[key]; ok {
			continue
		}
		note("%s went away", key)
		known.vanished[key] = true
		if !c.removed(key) {
			wrong = append(wrong, key+" vanished, although its rule and its facts are there")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		before, had := known.keys[key]
		value := now[key]
		switch {
		case !had && known.vanished[key]:
			note("%s=%s came back", key, value)
			wrong = append(wrong, key+" came back after it had vanished")
		case !had:
			note("%s=%s", key, value)
		case before != value:
			note("%s changed from %s to %s", key, before, value)
			if number(value) < number(before) {
				wrong = append(wrong, fmt.Sprintf("%s went back from %s to %s", key, before, value))
			}
		}
	}
	return wrong
}

// number returns the number of a value; all changing values of this test are numbers that grow.
func number(value string) int {
	n, _ := strconv.Atoi(value)
	return n
}

// keysOf returns the keys of this test's rules on a Node, with their values.
func keysOf(node *corev1.Node) map[string]string {
	return stage.Keys(node, func(key string) bool { return strings.HasPrefix(key, prefix) })
}

// records checks that the record on a Node has exactly the keys on it. A taint is recorded one write earlier, and its record is
// removed one write later.
func records(node *corev1.Node) (wrong []string) {
	keys := keysOf(node)
	for kind, annotation := range map[string]string{
		"label ": nfdv1alpha1.FeatureLabelsAnnotation, "annotation ": nfdv1alpha1.FeatureAnnotationsAnnotation,
		"extended resource ": nfdv1alpha1.ExtendedResourcesAnnotation, "taint ": nfdv1alpha1.TaintsAnnotation,
	} {
		recorded := map[string]bool{}
		for entry := range strings.SplitSeq(node.Annotations[annotation], ",") {
			name, value, _ := strings.Cut(entry, "=")
			if kind == "taint " { // recorded as key=value:effect
				_, effect, _ := strings.Cut(value, ":")
				name += ":" + effect
			}
			recorded[kind+name] = true
			if _, ok := keys[kind+name]; !ok && strings.HasPrefix(name, prefix) && kind != "taint " {
				wrong = append(wrong, kind+name+" is recorded, and not on the Node")
			}
		}
		for key := range keys {
			if strings.HasPrefix(key, kind) && !recorded[key] {
				wrong = append(wrong, key+" is on the Node, and not recorded")
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// Violations returns the violations so far, and the number of versions of Nodes that were checked.
func (c *checker) Violations() ([]violation, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.violations), c.versions
}

// differ returns how the Nodes differ from the wanted keys. The caller holds the lock.
func (c *checker) differ(want map[string]map[string]string) (different []string) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		known := c.nodes[name]
		if known == nil {
			different = append(different, name+" was never seen")
		} else if !maps.Equal(known.keys, want[name]) {
			different = append(different, fmt.Sprintf("%s has %v, want %v", name, known.keys, want[name]))
		}
	}
	return different
}

// together is the delay between two comparisons of all Nodes.
const together = 50 * time.Millisecond

// wait returns when the Nodes have exactly the wanted keys.
func (c *checker) wait(ctx context.Context, want map[string]map[string]string) error {
	return c.until(ctx, func() []string { return c.differ(want) })
}

// reach returns when the given versions of Nodes have been checked.
func (c *checker) reach(ctx context.Context, nodes []corev1.Node) error {
	return c.until(ctx, func() (behind []string) {
		for i := range nodes {
			n := &nodes[i]
			if known := c.nodes[n.Name]; known == nil || stage.Older(known.version, n.ResourceVersion) {
				behind = append(behind, n.Name+" was not seen in its present version")
			}
		}
		return behind
	})
}

// until calls a function after each change, with the lock held, until it returns nothing.
func (c *checker) until(ctx context.Context, left func() []string) error {
	for {
		c.mu.Lock()
		missing, changed := left(), c.changed
		c.mu.Unlock()
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-changed:
			time.Sleep(together)
		case <-ctx.Done():
			return fmt.Errorf("%d Nodes: %s: %w", len(missing), missing[0], context.Cause(ctx))
		}
	}
}

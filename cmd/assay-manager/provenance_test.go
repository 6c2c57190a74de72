//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
)

// number returns the number in an environment variable, or otherwise if it is not set.
func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// manyNodes creates nodes with one published attribute each.
func manyNodes(t *testing.T, k client.Client, namespace string, nodes int) {
	t.Helper()
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		testkit.Node(t, k, name)
		f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: name},
		}}
		f.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{"test.attr": {Elements: map[string]string{"host": name}}}
		testkit.Create(t, k, f)
	}
}

// edition returns the n-th version of the spec of a rule: one label changes its value, one is added and removed, and so are labels
// of a template, which have different names on each node.
func edition(n int) nfdv1alpha1.NodeFeatureRuleSpec {
	labels := map[string]string{"vendor.io/edition": strconv.Itoa(n), "vendor.io/fixed": "1"}
	template := `{{range .test.attr}}vendor.io/odd-{{.Value}}=1{{end}}`
	if n%2 == 0 {
		labels["vendor.io/even"] = "1"
		template = `{{range .test.attr}}vendor.io/even-{{.Value}}=1{{end}}`
	}
	return nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
		Name: "r", Labels: labels, LabelsTemplate: template,
		MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "test.attr", MatchName: &nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchExists}}},
	}}}
}

// wanted returns the labels of a node for a version of the rule.
func wanted(n int, node string) map[string]string {
	out := map[string]string{"vendor.io/edition": strconv.Itoa(n), "vendor.io/fixed": "1", "vendor.io/stays": "1"}
	if n%2 == 0 {
		out["vendor.io/even"], out["vendor.io/even-"+node] = "1", "1"
	} else {
		out["vendor.io/odd-"+node] = "1"
	}
	return out
}

// write writes a version of the rule and retries on conflicts.
func write(ctx context.Context, k client.Client, rule *nfdv1alpha1.NodeFeatureRule, n int) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := k.Get(ctx, client.ObjectKeyFromObject(rule), rule); err != nil {
			return err
		}
		rule.Spec = edition(n)
		return k.Update(ctx, rule)
	})
}

// edit writes a version of the rule.
func edit(t *testing.T, k client.Client, rule *nfdv1alpha1.NodeFeatureRule, n int) {
	t.Helper()
	if err := write(t.Context(), k, rule, n); err != nil {
		t.Fatal(err)
	}
}

// converged waits until all nodes have exactly the labels that want returns, and the record of each lists them.
func converged(t *testing.T, k client.Client, what string, want func(node string) map[string]string) {
	t.Helper()
	start := time.Now()
	testkit.Eventually(t, what, func(ctx context.Context) error {
		var list corev1.NodeList
		if err := k.List(ctx, &list); err != nil {
			return err
		}
		wrong := 0
		var first error
		for i := range list.Items {
			if err := has(&list.Items[i], want(list.Items[i].Name)); err != nil {
				wrong++
				first = errors.Join(first, err)
				if wrong > 1 {
					continue
				}
			}
		}
		if wrong > 0 {
			return fmt.Errorf("%d of %d nodes: %w", wrong, len(list.Items), first)
		}
		return nil
	})
	t.Logf("%s: converged after %s", what, time.Since(start).Round(10*time.Millisecond))
}

func has(n *corev1.Node, want map[string]string) error {
	for key, value := range want {
		if n.Labels[key] != value {
			return fmt.Errorf("%s: %s is %q, want %q", n.Name, key, n.Labels[key], value)
		}
	}
	if len(n.Labels) != len(want) {
		return fmt.Errorf("%s has %d labels, want %d: %v", n.Name, len(n.Labels), len(want), n.Labels)
	}
	return nil
}

// TestARuleEditNextToARestartActsAtOnce edits and deletes rules while no controller is running, while one is killed, and while the
// leader is frozen, on more nodes than the budget of removals allows.
func TestARuleEditNextToARestartActsAtOnce(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	nodes := number("ASSAY_TEST_NODES", 40)
	manyNodes(t, k, namespace, nodes)
	ruleWith(t, k, "stays", "vendor.io/stays")
	rule := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "edited"}, Spec: edition(1)}
	testkit.Create(t, k, rule)
	of := func(n int) func(string) map[string]string {
		return func(node string) map[string]string { return wanted(n, node) }
	}
	r := startController(t, c, namespace)
	converged(t, k, "the first edition", of(1))

	_ = r.end(syscall.SIGKILL)
	edit(t, k, rule, 2)
	r = startController(t, c, namespace)
	converged(t, k, "an edit while no controller runs", of(2))

	edit(t, k, rule, 3)
	testkit.Eventually(t, "some nodes of the third edition", func(ctx context.Context) error {
		var list corev1.NodeList
		if err := k.List(ctx, &list, client.MatchingLabels{"vendor.io/edition": "3"}); err != nil || len(list.Items) == 0 {
			return fmt.Errorf("none (%w)", err)
		}
		return nil
	})
	_ = r.end(syscall.SIGKILL)
	edit(t, k, rule, 2) // restores labels that some nodes still have
	r = startController(t, c, namespace)
	converged(t, k, "an edit that is taken back around a kill", of(2))
	_ = r.end(syscall.SIGTERM)

	election := []string{"-enable-leader-election", "-options", "leaderElection: {leaseDuration: 2s, renewDeadline: 1500ms, retryPeriod: 300ms}"}
	leader := startController(t, c, namespace, election...)
	edit(t, k, rule, 4)
	converged(t, k, "an edit under the leader", of(4))
	standby := startController(t, c, namespace, election...)
	if err := leader.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	edit(t, k, rule, 5)
	converged(t, k, "an edit while the leader is frozen", of(5))
	_ = leader.Process.Signal(syscall.SIGCONT) // it learns that it has lost the lease
	edit(t, k, rule, 6)
	converged(t, k, "an edit after it was woken", of(6))

	_ = standby.end(syscall.SIGKILL)
	_ = leader.end(syscall.SIGKILL)
	if err := k.Delete(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	startController(t, c, namespace)
	converged(t, k, "a deletion while no controller runs", func(string) map[string]string {
		return map[string]string{"vendor.io/stays": "1"}
	})
}

// labelWatch detects invalid changes of labels while a rule is edited.
type labelWatch struct {
	mu     sync.Mutex
	faults []string
	seen   map[string]map[string]string // node -> its labels
	events int
}

// note compares the labels of a Node with the previous ones: the fixed labels must stay, and no version may follow a later one.
func (l *labelWatch) note(n *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events++
	before := l.seen[n.Name]
	l.seen[n.Name] = n.Labels
	for _, key := range []string{"vendor.io/stays", "vendor.io/fixed", "vendor.io/edition"} {
		if before[key] != "" && n.Labels[key] == "" {
			l.faults = append(l.faults, fmt.Sprintf("%s lost %s at %s", n.Name, key, n.ResourceVersion))
		}
	}
	if n.Labels["vendor.io/edition"] == "" {
		return
	}
	old, _ := strconv.Atoi(before["vendor.io/edition"])
	now, _ := strconv.Atoi(n.Labels["vendor.io/edition"])
	if now < old {
		l.faults = append(l.faults, fmt.Sprintf("%s went back from edition %d to %d at %s", n.Name, old, now, n.ResourceVersion))
	}
	if err := has(n, wanted(now, n.Name)); err != nil {
		l.faults = append(l.faults, fmt.Sprintf("half an edition at %s: %v", n.ResourceVersion, err))
	}
}

// TestKillsDuringEditsLoseNoLabel kills the controller repeatedly while a rule is edited, and watches all labels of all nodes.
// $ASSAY_TEST_KILLS is the number of kills.
func TestKillsDuringEditsLoseNoLabel(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	manyNodes(t, k, namespace, number("ASSAY_TEST_NODES", 40))
	ruleWith(t, k, "stays", "vendor.io/stays")
	rule := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "edited"}, Spec: edition(1)}
	testkit.Create(t, k, rule)
	r := startController(t, c, namespace)
	converged(t, k, "the first edition", func(node string) map[string]string { return wanted(1, node) })
	l := &labelWatch{seen: map[string]map[string]string{}}
	watcher, err := k.Watch(t.Context(), &corev1.NodeList{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	go func() {
		for e := range watcher.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok && e.Type != watch.Deleted {
				l.note(n)
			}
		}
	}()

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var edits errgroup.Group
	last := 1
	edits.Go(func() error {
		for ctx.Err() == nil {
			last++
			if err := write(t.Context(), k, rule, last); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(100+rand.IntN(400)) * time.Millisecond): //nolint:gosec // for variety
			}
		}
		return nil
	})
	for range number("ASSAY_TEST_KILLS", 4) {
		time.Sleep(time.Duration(rand.IntN(700)) * time.Millisecond) //nolint:gosec // the moment of the kill is the test's input
		_ = r.end(syscall.SIGKILL)
		r = startController(t, c, namespace)
	}
	stop()
	if err := edits.Wait(); err != nil {
		t.Fatal(err)
	}
	converged(t, k, fmt.Sprintf("edition %d", last), func(node string) map[string]string { return wanted(last, node) })
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("%d changes of nodes, %d editions, %d faults", l.events, last, len(l.faults))
	for i, fault := range l.faults {
		if i == 10 {
			break
		}
		t.Error(fault)
	}
}

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
)

// ownValues is a fleet whose nodes all have values of their own in instances that occur once: a card in the NodeFeature of a third party,
// and a network interface in a whole NodeFeature as NFD's worker writes it, with a label that it requests. A bare Node has no NodeFeature.
type ownValues struct {
	client client.WithWatch
	rule   *nfdv1alpha1.NodeFeatureRule
	nodes  int
}

const bareNode = "bare"

func newOwnValues(t *testing.T, k client.WithWatch, namespace string, nodes int) *ownValues {
	t.Helper()
	o := &ownValues{client: k, nodes: nodes, rule: &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "values"}, Spec: valuesRule(0)}}
	testkit.Create(t, k, o.rule)
	vendor := testkit.Namespace(t, k)
	for i := range nodes {
		name := nodeOf(i)
		o.takenOver(t, name)
		card := feature(vendor, "vendor-"+name, name)
		card.Spec.Features.Instances = instance("vendor.card", "model", "model-"+modelOf(name))
		testkit.Create(t, k, card)
		worker := feature(namespace, name, name)
		worker.Spec.Features.Instances = instance("network.device", "name", "eth-"+modelOf(name))
		worker.Spec.Labels = map[string]string{nfdv1alpha1.FeatureLabelNamespace + "/nic": "eth-" + modelOf(name)}
		testkit.Create(t, k, worker)
	}
	testkit.Node(t, k, bareNode)
	return o
}

// takenOver creates a Node that NFD's master has labeled.
func (o *ownValues) takenOver(t *testing.T, name string) {
	t.Helper()
	node := testkit.Node(t, o.client, name)
	before := node.DeepCopy()
	node.Labels = map[string]string{nfdv1alpha1.FeatureLabelNamespace + "/nic": "eth-" + modelOf(name)}
	node.Annotations = map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "nic"}
	if err := o.client.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func nodeOf(i int) string { return fmt.Sprintf("node-%d", i) }

// modelOf returns a value that has another length on some nodes.
func modelOf(node string) string { return strings.TrimPrefix(node, "node-") + "-of-30" }

func feature(namespace, name, node string) *nfdv1alpha1.NodeFeature {
	return &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node},
	}}
}

func instance(name, attribute, value string) map[string]nfdv1alpha1.InstanceFeatureSet {
	return map[string]nfdv1alpha1.InstanceFeatureSet{name: {Elements: []nfdv1alpha1.InstanceFeature{{Attributes: map[string]string{attribute: value}}}}}
}

// valuesRule gives all nodes the labels always and edition, and nodes with the instances their values.
func valuesRule(edition int) nfdv1alpha1.NodeFeatureRuleSpec {
	return nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{
		{Name: "always", Labels: map[string]string{"vendor.io/always": "1", "vendor.io/edition": strconv.Itoa(edition)}},
		{Name: "card", LabelsTemplate: "{{range .vendor.card}}vendor.io/card={{.model}}{{end}}", MatchFeatures: exists("vendor.card", "model")},
		{Name: "port", LabelsTemplate: "{{range .network.device}}vendor.io/port={{.name}}{{end}}", MatchFeatures: exists("network.device", "name")},
	}}
}

func exists(feature, attribute string) nfdv1alpha1.FeatureMatcher {
	terms := nfdv1alpha1.MatchExpressionSet{attribute: {Op: nfdv1alpha1.MatchExists}}
	return nfdv1alpha1.FeatureMatcher{{Feature: feature, MatchExpressions: &terms}}
}

// edit writes another edition of the rule.
func (o *ownValues) edit(t *testing.T, edition int) {
	t.Helper()
	before := o.rule.DeepCopy()
	o.rule.Spec = valuesRule(edition)
	if err := o.client.Patch(t.Context(), o.rule, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// want returns all labels of a node.
func (o *ownValues) want(edition int, node string) map[string]string {
	out := map[string]string{"vendor.io/always": "1", "vendor.io/edition": strconv.Itoa(edition)}
	if node != bareNode {
		out["vendor.io/card"] = "model-" + modelOf(node)
		out["vendor.io/port"] = "eth-" + modelOf(node)
		out[nfdv1alpha1.FeatureLabelNamespace+"/nic"] = "eth-" + modelOf(node)
	}
	return out
}

// watchLabels records labels that a Node loses, or that have a value that is not its own, until stop is called.
func (o *ownValues) watchLabels(t *testing.T) (stop func() []string) {
	t.Helper()
	watcher, err := o.client.Watch(t.Context(), &corev1.NodeList{})
	if err != nil {
		t.Fatal(err)
	}
	var faults []string
	var done sync.WaitGroup
	done.Go(func() {
		seen := map[string]map[string]string{}
		for e := range watcher.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			if !ok || e.Type == watch.Deleted {
				continue
			}
			want := o.want(0, n.Name)
			for _, key := range slices.Sorted(maps.Keys(seen[n.Name])) {
				if _, still := n.Labels[key]; !still {
					faults = append(faults, fmt.Sprintf("%s lost %s at %s", n.Name, key, n.ResourceVersion))
				}
			}
			for key, value := range n.Labels {
				if key != "vendor.io/edition" && want[key] != value {
					faults = append(faults, fmt.Sprintf("%s has %s=%s at %s, want %q", n.Name, key, value, n.ResourceVersion, want[key]))
				}
			}
			seen[n.Name] = n.Labels
		}
	})
	return func() []string {
		watcher.Stop()
		done.Wait()
		return faults
	}
}

// TestNodesKeepTheirOwnValuesOverRestarts takes 30 nodes over from NFD, adds NodeFeatures of a third party and a bare Node, and restarts the
// controller three times. Nodes once got values of the NodeFeature that the controller received next, lost labels after a restart, and
// a Node without NodeFeatures got the labels that another one's request.
func TestNodesKeepTheirOwnValuesOverRestarts(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	o := newOwnValues(t, k, namespace, 30)
	stop := o.watchLabels(t)
	r := startController(t, c, namespace)
	for restart := range 4 {
		if restart > 0 {
			_ = r.end(syscall.SIGTERM)
			r = startController(t, c, namespace)
		}
		// The new edition shows that this process has evaluated the rules on each node.
		o.edit(t, restart+1)
		converged(t, k, fmt.Sprintf("restart %d", restart), func(node string) map[string]string { return o.want(restart+1, node) })
	}
	// A later event of the watch, in the same process.
	testkit.Create(t, k, feature(namespace, "late", nodeOf(3)))
	o.edit(t, 9)
	converged(t, k, "another NodeFeature", func(node string) map[string]string { return o.want(9, node) })
	for i, fault := range stop() {
		if i == 10 {
			break
		}
		t.Error(fault)
	}
}

// TestAKernelUpgradeOfAllNodesIsNotHeld changes the kernel of 300 nodes within a minute, as a rolling upgrade does: a label that gets another
// value is not lost, and the nodes become ready. The budget of removals once kept the old value on most of them for five minutes.
func TestAKernelUpgradeOfAllNodesIsNotHeld(t *testing.T) {
	const nodes = 300
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	testkit.Create(t, k, &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "kernel"}, Spec: nfdv1alpha1.NodeFeatureRuleSpec{
		Rules: []nfdv1alpha1.Rule{{Name: "kernel", Labels: map[string]string{"vendor.io/kernel": "@kernel.version.full"}, MatchFeatures: exists("kernel.version", "full")}},
	}})
	published := make([]*nfdv1alpha1.NodeFeature, nodes)
	booted := func(i int, boot, kernel string) {
		node := &corev1.Node{}
		if err := k.Get(t.Context(), client.ObjectKey{Name: nodeOf(i)}, node); err != nil {
			t.Fatal(err)
		}
		before := node.DeepCopy()
		node.Status.NodeInfo.BootID = boot
		if err := k.Status().Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		published[i].Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{
			"kernel.version": {Elements: map[string]string{"full": kernel}},
			"system.boot":    {Elements: map[string]string{"id": boot}},
		}
	}
	for i := range nodes {
		testkit.Node(t, k, nodeOf(i))
		published[i] = feature(namespace, nodeOf(i), nodeOf(i))
		booted(i, "boot-1", "6.1")
		testkit.Create(t, k, published[i])
	}
	startController(t, c, namespace)
	are := func(kernel string) func(context.Context) error {
		return func(ctx context.Context) error {
			var list corev1.NodeList
			if err := k.List(ctx, &list); err != nil {
				return err
			}
			for i := range list.Items {
				n := &list.Items[i]
				ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
					return c.Type == assayv1alpha1.FeaturesReadyCondition && c.Status == corev1.ConditionTrue
				})
				if got := n.Labels["vendor.io/kernel"]; got != kernel || !ready {
					return fmt.Errorf("%s: the label is %q, want %q, and the features are ready: %t", n.Name, got, kernel, ready)
				}
			}
			return nil
		}
	}
	testkit.Eventually(t, "labels of the first kernel", are("6.1"))
	start := time.Now()
	for i := range nodes {
		booted(i, "boot-2", "6.12")
		if err := k.Update(t.Context(), published[i]); err != nil {
			t.Fatal(err)
		}
	}
	changed := time.Now()
	testkit.Eventually(t, "labels of the second kernel", are("6.12"))
	t.Logf("%d nodes changed within %s; all had their labels and were ready %s later", nodes, changed.Sub(start).Round(time.Second), time.Since(changed).Round(time.Millisecond))
}

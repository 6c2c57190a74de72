package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/testkit"
)

// firstAttr copies the attribute a of test.attr to a label.
const firstAttr = `{rules: [{name: first, labels: {a: "@test.attr.a"}, matchFeatures: [{feature: test.attr, matchExpressions: {a: {op: Exists}}}]}]}`

// shareable returns content whose only feature is large enough for a set.
func shareable(attributes M) publish.Content {
	elements := M{"filler": strings.Repeat("x", 2<<10)}
	for name, value := range attributes {
		elements[name] = value
	}
	return publish.Content{Features: nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"test.attr": {Elements: elements}}}}
}

// worker runs the publisher of a worker. The content is published until stop is called or the test ends.
func (w *world) worker(node *corev1.Node, share bool, c publish.Content) (contents chan<- publish.Content, stop func()) {
	w.Helper()
	config, err := publish.FromKubeconfig(w.user.Kubeconfig)
	if err != nil {
		w.Fatal(err)
	}
	api, err := publish.NewClient(config)
	if err != nil {
		w.Fatal(err)
	}
	p := publish.New(api, publish.Options{
		Namespace: w.namespace, Share: share, Rand: func() float64 { return 0 }, // changes to sets at once
		Identify: func(context.Context) (publish.Identity, error) {
			return publish.Identity{Node: node.Name, NodeUID: string(node.UID)}, nil
		},
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	in, done := make(chan publish.Content, 1), make(chan struct{})
	in <- c
	go func() {
		defer close(done)
		p.Run(ctx, in)
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.Cleanup(stop)
	return in, stop
}

// announced waits until workers may share features.
func (w *world) announced() {
	w.Helper()
	testkit.Eventually(w, "the marker for workers", func(ctx context.Context) error {
		return w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: assayv1alpha1.FeatureSetMarker}, &corev1.ConfigMap{})
	})
}

// names waits until a node's NodeFeature names sets, or none, and returns them.
func (w *world) names(node string, some bool) (names []string) {
	w.Helper()
	f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: node}}
	becomes(w, f, fmt.Sprintf("NodeFeature that names sets: %t", some), func(f *nfdv1alpha1.NodeFeature) bool {
		return some == (len(f.Spec.FeatureSets) > 0)
	})
	return f.Spec.FeatureSets
}

// TestNoLabelIsMissingWhileANodeChangesItsForm upgrades and downgrades a worker between whole objects and sets, with a restart of the
// controller after each.
func TestNoLabelIsMissingWhileANodeChangesItsForm(t *testing.T) {
	w := newWorld(t)
	w.rule("first", firstAttr)
	node := w.node("n1")
	_, stop := w.worker(node, true, shareable(M{"a": "0"})) // there is no controller yet
	w.names("n1", false)
	m := w.start()
	w.labels("n1", M{"a": "0"})
	w.announced()
	history := w.record("n1")
	for i, share := range []bool{true, false, true} {
		stop()
		value := fmt.Sprint(i + 1)
		_, stop = w.worker(node, share, shareable(M{"a": value}))
		w.names("n1", share)
		w.labels("n1", M{"a": value})
		m.stop()
		m = w.start()
		// The second node shows that the new process writes.
		other := w.node(fmt.Sprint("other-", i))
		w.publish(w.namespace, other.Name, other.Name, M{"a": "1"}, nil)
		w.labels(other.Name, M{"a": "1"})
		w.labels("n1", M{"a": value})
	}
	history.always(w, feature+"a")
}

// TestEncodedInstancesBecomeLabels tests that rules match instances that a worker publishes as one string.
func TestEncodedInstancesBecomeLabels(t *testing.T) {
	w := newWorld(t)
	w.rule("veth", `{rules: [{name: veth, labels: {veth: "true"}, matchFeatures: [{feature: network.virtual, matchExpressions: {name: {op: In, value: [veth0]}}}]}]}`)
	node := w.node("n1")
	w.start()
	w.announced()
	c := shareable(M{"a": "0"})
	c.Features.Instances = map[string]nfdv1alpha1.InstanceFeatureSet{"network.virtual": {Elements: []nfdv1alpha1.InstanceFeature{{Attributes: M{"name": "veth0"}}}}}
	_, stop := w.worker(node, true, c)
	w.labels("n1", M{"veth": "true"})
	f := &nfdv1alpha1.NodeFeature{}
	if err := w.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "n1"}, f); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(f.Spec.EncodedInstances, "veth0") || len(f.Spec.Features.Instances) > 0 {
		t.Errorf("encoded instances %q, instances %v, want all to be encoded", f.Spec.EncodedInstances, f.Spec.Features.Instances)
	}
	history := w.record("n1")
	stop()
	w.worker(node, false, c)
	w.names("n1", false)
	history.always(w, feature+"veth")
}

// TestASetThatIsCollectedWhileItsNodeReturns has a node name a set again after the controller has listed all NodeFeatures, and before the
// deletion of the set arrives.
func TestASetThatIsCollectedWhileItsNodeReturns(t *testing.T) {
	w := newWorld(t)
	w.rule("first", firstAttr)
	clock, useClock := setClock()
	node := w.node("n1")
	var collected, returned atomic.Pointer[string]
	var contents chan<- publish.Content
	m := &traffic{}
	m.fails = func(r *http.Request) int {
		if name := collected.Load(); name != nil && r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/"+*name) && returned.CompareAndSwap(nil, name) {
			contents <- shareable(M{"a": "old"})
			_ = waitFor(r.Context(), func() bool {
				f := &nfdv1alpha1.NodeFeature{}
				err := w.Get(r.Context(), client.ObjectKey{Namespace: w.namespace, Name: "n1"}, f)
				return err == nil && len(f.Spec.FeatureSets) == 1 && f.Spec.FeatureSets[0] == *name
			})
		}
		return 0
	}
	w.startWith(m, useClock)
	w.announced()
	contents, _ = w.worker(node, true, shareable(M{"a": "old"}))
	w.labels("n1", M{"a": "old"})
	old := &assayv1alpha1.NodeFeatureSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.names("n1", true)[0]}}
	w.becomesAfter(clock, time.Second, old, "counted set", counted(1))
	uid := becomes(w, old, "old set", func(*assayv1alpha1.NodeFeatureSet) bool { return true }).UID
	history := w.record("n1")

	contents <- shareable(M{"a": "new"})
	w.labels("n1", M{"a": "new"})
	collected.Store(&old.Name)
	w.becomesAfter(clock, time.Hour, old, "set that is collected, and that the worker creates again", func(s *assayv1alpha1.NodeFeatureSet) bool {
		return s != nil && s.UID != uid
	})
	if returned.Load() == nil {
		t.Error("the set was deleted in another way")
	}
	w.labels("n1", M{"a": "old"})
	history.always(w, feature+"a")
}

// waitFor waits for a condition for some seconds.
func waitFor(ctx context.Context, met func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !met() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// TestLabelsStayWhenTheAPIServerDropsTheNamesOfSets: another chart has installed a definition of NodeFeature without the field. The worker is
// asked to publish the whole object.
func TestLabelsStayWhenTheAPIServerDropsTheNamesOfSets(t *testing.T) {
	w := newWorld(t)
	w.rule("first", firstAttr)
	node := w.node("n1")
	m := w.start()
	w.announced()
	_, stop := w.worker(node, true, shareable(M{"a": "1"}))
	w.labels("n1", M{"a": "1"})
	w.names("n1", true)
	stop()
	history := w.record("n1")
	f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "n1"}}
	change(w, f, func(f *nfdv1alpha1.NodeFeature) { f.Spec.FeatureSets = nil })
	w.asked(f, assayv1alpha1.PrunedFeatureSets)
	w.event("n1", "FeatureSetsMissing", "apply the CustomResourceDefinition nodefeatures.nfd.k8s-sigs.io of Assay")
	m.stop()
	w.start()
	other := w.node("n2")
	w.publish(w.namespace, other.Name, other.Name, M{"a": "2"}, nil)
	w.labels("n2", M{"a": "2"})
	w.labels("n1", M{"a": "1"})

	w.worker(node, true, shareable(M{"a": "3"}))
	w.labels("n1", M{"a": "3"})
	w.asked(f)
	history.always(w, feature+"a")
}

// TestWorkersWaitForNFDsMasterToGo: it shares the namespace during a take-over, and does not read sets.
func TestWorkersWaitForNFDsMasterToGo(t *testing.T) {
	w := newWorld(t)
	labels := map[string]string{"app": "nfd"}
	master := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "nfd-node-feature-discovery-master"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "master", Image: "none", Command: []string{"nfd-master"}}},
			}},
		},
	}
	testkit.Create(t, w, master)
	sharesWithout(t, w, master, "Workers do not share features until NFD's master is gone")
}

// sharesWithout checks that workers do not share features while the obstacle exists, that the controller says so once, and that they
// do when the obstacle is gone.
func sharesWithout(t *testing.T, w *world, obstacle client.Object, message string) {
	t.Helper()
	clock, useClock := setClock()
	m := w.start(useClock)
	testkit.Eventually(t, "a log message", func(context.Context) error {
		if !strings.Contains(m.log.String(), message) {
			return errors.New("it is not there")
		}
		return nil
	})
	key := client.ObjectKey{Namespace: w.namespace, Name: assayv1alpha1.FeatureSetMarker}
	if err := w.Get(t.Context(), key, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the marker: %v, want that it does not exist yet", err)
	}
	if err := w.Delete(t.Context(), obstacle); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the marker", func(ctx context.Context) error {
		clock.Step(time.Minute)
		return w.Get(ctx, key, &corev1.ConfigMap{})
	})
	if n := strings.Count(m.log.String(), "Workers do not share features"); n != 1 {
		t.Errorf("the log says %d times that workers do not share features, want once", n)
	}
}

// TestWorkersWaitForTheQuotaOfSets: in a new installation, Kubernetes refuses all sets until it has counted them, for up to 5 minutes.
// Workers that tried published 130 kB inline for 10 minutes, with a warning for each set.
func TestWorkersWaitForTheQuotaOfSets(t *testing.T) {
	w := newWorld(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "assay-worker"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/nodefeaturesets.assay.dev": resource.MustParse("0")}},
	}
	testkit.Create(t, w, quota)
	probe := &assayv1alpha1.NodeFeatureSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "probe"}}
	probe.Spec.Features.Flags = map[string]nfdv1alpha1.FlagFeatureSet{"test.flag": {Elements: map[string]nfdv1alpha1.Nil{}}}
	testkit.Eventually(t, "that the API server refuses sets", func(ctx context.Context) error {
		err := w.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		if apierrors.IsForbidden(err) {
			return nil
		}
		return errors.Join(errors.New("it does not"), err)
	})
	sharesWithout(t, w, quota, "Workers do not share features until NodeFeatureSets can be created")
}

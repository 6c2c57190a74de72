//go:build linux

package scheduling

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/go-logr/logr"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/testkit"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(echoAt); address != "" {
		fmt.Fprintln(os.Stderr, serveEcho(address))
		os.Exit(1)
	}
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// Names of the schedulers: one that waits for the extender, one that continues without it, and the cluster's own, which has none.
const (
	strict  = "assay"
	lenient = "assay-lenient"
	plain   = corev1.DefaultSchedulerName
)

func TestScheduling(t *testing.T) {
	w := newWorld(t, 1000)
	w.scheduler(t, strict, "", false)
	w.scheduler(t, lenient, "", true)
	w.plainScheduler(t, plain)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"RequiredFeaturePlacesThePodOnTheOneNodeThatHasIt", w.required},
		{"RequestByNameDoesTheSame", w.requestByName},
		{"PreferredFeatureWinsAgainstEqualNodes", w.preferred},
		{"ImpossiblePodSaysWhyAndIsPlacedOnceANodeGainsTheFeature", w.impossible},
		{"PreemptionNeverEvictsForAMissingFeature", w.preemption},
		{"PolicyAppliesToItsNamespaceOnly", w.policy},
		{"ShippedPoliciesDoWhatTheirLanguageAllows", w.policies},
		{"SchedulersShowTheirCertificatesAndAreToldWhatIsWrongWithThem", w.certificates},
		{"SchedulersReadTheConfigurationsThatArePrintedForThem", w.printed},
		{"AFailingExtenderHoldsPodsOrLetsThemThroughAsConfigured", w.failing},
	} {
		t.Run(test.name, test.run)
	}
}

func (w *world) required(t *testing.T) {
	w.publish(t, "n637", "AVX", "AMXBF16")
	ns := w.namespace(t, nil)
	for i := range 3 {
		p := newPod(ns, fmt.Sprintf("needs-amx-%d", i), strict, requires("AMXBF16"))
		w.create(t, p)
		if node := w.placed(t, p); node != "n637" {
			t.Errorf("%s runs on %s, want n637", p.Name, node)
		}
	}
}

func (w *world) requestByName(t *testing.T) {
	w.publish(t, "n200", "AVX", "ByName")
	ns := w.namespace(t, nil)
	w.create(t, &assayv1alpha1.NodeFeatureRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "special"},
		Spec:       assayv1alpha1.NodeFeatureRequestSpec{PodRequirements: assayv1alpha1.PodRequirements{Required: requirement("ByName")}},
	})
	p := newPod(ns, "named", strict)
	p.Labels = map[string]string{assayv1alpha1.FeatureRequestLabel: "special"}
	w.create(t, p)
	if node := w.placed(t, p); node != "n200" {
		t.Errorf("it runs on %s, want n200", node)
	}
}

// preferred tests that the score decides: without it, the probability that five pods are placed on five given nodes of 1,000 is
// 10⁻¹⁵.
func (w *world) preferred(t *testing.T) {
	ns := w.namespace(t, nil)
	for i := range 5 {
		node, flag := fmt.Sprintf("n%d", 900+i), fmt.Sprintf("Nice%d", i)
		w.publish(t, node, "AVX", flag)
		p := newPod(ns, "prefers-"+node, strict, prefers(flag))
		w.create(t, p)
		if got := w.placed(t, p); got != node {
			t.Errorf("%s runs on %s", p.Name, got)
		}
	}
}

func (w *world) impossible(t *testing.T) {
	p := newPod(w.namespace(t, nil), "impossible", strict, requires("AMXFP64"))
	w.create(t, p)
	w.rejected(t, p, "0/1000 nodes are available: 1000 node feature requirement not met: cpu.cpuid/AMXFP64 (no node has it)")
	t.Logf("the scheduler says: %s", message(p))
	if e := w.explain(t, p); e.Nearest == "" || e.Lacks != "cpu.cpuid/AMXFP64" || e.Matching != 0 {
		t.Errorf("the explanation is %+v", e)
	}
	w.publish(t, "n5", "AVX", "AMXFP64")
	w.notify(t, "n5", "2")
	if node := w.placed(t, p); node != "n5" {
		t.Errorf("it runs on %s, want n5", node)
	}
	if e := w.explain(t, p); e.Matching != 1 || e.Sample[0] != "n5" {
		t.Errorf("the explanation afterwards is %+v", e)
	}
}

// notify does what the controller does when the features of a node change, since the scheduler only watches Nodes.
func (w *world) notify(t *testing.T, node, generation string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, assayv1alpha1.FeaturesGenerationAnnotation, generation)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := w.api.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func (w *world) explain(t *testing.T, p *corev1.Pod) (out extender.Explanation) {
	t.Helper()
	resp, err := http.Get(w.proxy.url + "/v1/explain?pod=" + url.QueryEscape(p.Namespace+"/"+p.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// preemption: the node with the feature is full of pods with the same priority, others have room or pods that could be evicted. No
// pod may be evicted.
func (w *world) preemption(t *testing.T) {
	for name, value := range map[string]int32{"high": 1000, "low": 1} {
		w.create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	priority := func(class string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.PriorityClassName = class }
	}
	on := func(node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
	}
	w.publish(t, "n10", "AVX", "Rare")
	ns := w.namespace(t, nil)
	cheap := newPod(ns, "cheap", strict, priority("low"), on("n11"), requests(corev1.ResourceCPU, "60"))
	dear := newPod(ns, "dear", strict, priority("high"), on("n10"), requests(corev1.ResourceCPU, "60"))
	for _, p := range []*corev1.Pod{cheap, dear} {
		w.create(t, p)
		w.placed(t, p)
	}
	wants := newPod(ns, "wants-rare", strict, priority("high"), requires("Rare"), requests(corev1.ResourceCPU, "60"))
	w.create(t, wants)
	w.rejected(t, wants, "node feature requirement not met: cpu.cpuid/Rare")
	t.Logf("the scheduler says: %s", message(wants))
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(cheap), cheap); err != nil || cheap.DeletionTimestamp != nil {
		t.Errorf("a pod was evicted from a node without the feature: %v", err)
	}
	if wants.Status.NominatedNodeName != "" {
		t.Errorf("it waits for %s", wants.Status.NominatedNodeName)
	}
	// The same pod without the requirement does evict: the requirement protected the other pod.
	evicts := newPod(ns, "evicts", strict, priority("high"), on("n11"), requests(corev1.ResourceCPU, "60"))
	w.create(t, evicts)
	testkit.Eventually(t, "a pod without the requirement evicts", func(ctx context.Context) error {
		err := w.api.Get(ctx, client.ObjectKeyFromObject(cheap), cheap)
		if err == nil && cheap.DeletionTimestamp == nil {
			return fmt.Errorf("the pod is still there")
		}
		return client.IgnoreNotFound(err)
	})
}

func (w *world) policy(t *testing.T) {
	w.publish(t, "n300", "AVX", "Modern")
	labeled := w.namespace(t, map[string]string{assayv1alpha1.SchedulingLabel: assayv1alpha1.SchedulingLabelEnabled, "team": "batch"})
	other := w.namespace(t, map[string]string{"team": "batch"})
	w.create(t, &assayv1alpha1.NodeFeatureSchedulingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "modern"},
		Spec: assayv1alpha1.NodeFeatureSchedulingPolicySpec{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "batch"}},
			PodRequirements:   assayv1alpha1.PodRequirements{Required: requirement("Modern")},
		},
	})
	testkit.Eventually(t, "the extender knows the policy", func(context.Context) error {
		p := newPod(labeled, "probe", strict)
		w.create(t, p)
		defer func() { _ = w.api.Delete(t.Context(), p, client.GracePeriodSeconds(0)) }()
		if e := w.explain(t, p); len(e.Origins) == 0 {
			return fmt.Errorf("pods of the namespace ask for nothing yet")
		}
		return nil
	})
	for i := range 3 {
		p := newPod(labeled, fmt.Sprintf("p%d", i), strict)
		w.create(t, p)
		if node := w.placed(t, p); node != "n300" {
			t.Errorf("a pod of the namespace runs on %s, want n300", node)
		}
	}
	p := newPod(other, "free", strict, prefers("AVX"))
	w.create(t, p)
	w.placed(t, p)
	if e := w.explain(t, p); len(e.Origins) != 1 {
		t.Errorf("a pod of a namespace that is not labeled for scheduling asks for %v", e.Origins)
	}
}

func (w *world) failing(t *testing.T) {
	w.publish(t, "n500", "AVX", "Sturdy")
	ns := w.namespace(t, nil)
	for name, failure := range failures {
		t.Run(name, func(t *testing.T) {
			w.proxy.breakBy(failure)
			defer w.proxy.mend()
			waits := newPod(ns, "waits-"+name, strict, requires("Sturdy"))
			goes := newPod(ns, "goes-"+name, lenient, requires("Sturdy"))
			before := w.proxy.count(strict).Load()
			w.create(t, waits)
			testkit.Eventually(t, "the scheduler has asked in vain", func(context.Context) error {
				if w.proxy.count(strict).Load() == before {
					return fmt.Errorf("it has not asked")
				}
				return nil
			})
			w.create(t, goes)
			w.placed(t, goes)
			if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(waits), waits); err != nil || waits.Spec.NodeName != "" {
				t.Errorf("with ignorable: false the pod was placed on %q without the extender (%v)", waits.Spec.NodeName, err)
			}
			w.proxy.mend()
			if node := w.placed(t, waits); node != "n500" {
				t.Errorf("after the extender is back, the pod runs on %s, want n500", node)
			}
		})
	}
}

func requirement(flag string) *assayv1alpha1.Requirement {
	return &assayv1alpha1.Requirement{MatchFeatures: nfdv1alpha1.FeatureMatcher{{
		Feature: "cpu.cpuid", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{flag: {Op: nfdv1alpha1.MatchExists}},
	}}}
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
)

// The memory limits in the chart.
const (
	controllerLimit = 512 << 20
	webhookLimit    = 256 << 20
	extenderLimit   = 512 << 20
)

// webhookGoal is the GOMEMLIMIT of webhooks in tests: they collect garbage instead of growing, so that the peak shows what they
// need. Together with 45 MiB of the executable in memory it is slightly less than half of the container's limit.
const webhookGoal = "64MiB"

// remains checks that the process with an argument never used half of its memory limit.
func remains(t *testing.T, program, argument string, limit int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if line, err := os.ReadFile(path); err != nil || !strings.Contains(string(line), "\x00"+argument+"\x00") {
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "VmHWM:")
		var peak int
		if _, err := fmt.Sscanf(rest, "%d kB", &peak); err != nil {
			t.Fatal(err)
		}
		t.Logf("the %s has taken at most %d MiB of %d", program, peak>>10, limit>>20)
		if peak<<10 > limit/2 {
			t.Errorf("the %s has taken %d MiB, which is more than half of %d MiB", program, peak>>10, limit>>20)
		}
		return
	}
	t.Errorf("the %s has ended", program)
}

// patterns returns a list of different regular expressions without common substrings.
func patterns(of string, n, length int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%q,", fmt.Sprintf("^%s-%d-[a-f]{3}%s$", of, i, strings.Repeat("x", length)))
	}
	return strings.TrimSuffix(b.String(), ",")
}

// everywhere calls do for each number concurrently.
func everywhere(n int, do func(i int)) {
	var wg sync.WaitGroup
	numbers := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range numbers {
				do(i)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
}

// The patterns of one pod used to take 3 MB in the extender, and those of 1,200 pods all of its memory.
func TestPodsDoNotExhaustTheExtender(t *testing.T) {
	c := testkit.Cluster(t)
	testkit.Node(t, testkit.Client(t, c.User), "n1")
	e := startExtender(t, c, "", nil)
	var bad sync.Map
	everywhere(400, func(i int) {
		n := []int{144, 70}[i%2] // more than the limit for a pod, and less
		_, err := e.filter(fmt.Sprintf("matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: InRegexp, value: [%s]}}}]",
			patterns(fmt.Sprint("p", i), n, 16)), "n1")
		if err != nil {
			bad.Store(i, err)
		}
	})
	bad.Range(func(i, err any) bool {
		t.Errorf("question %v has no answer: %v", i, err)
		return true
	})
	got, err := e.filter(`conditions: [{op: eq, args: {values: ["{node.name}", n1]}}]`, "n1", "n2")
	if err != nil || len(*got.NodeNames) != 1 {
		t.Errorf("an ordinary pod gets %+v (%v)", got, err)
	}
	remains(t, "extender", "--address="+e.address, extenderLimit)
}

// Five objects used to take 1,170 MB in the controller and 853 MB in the webhook, and rules were accepted without a complete
// review.
func TestRulesDoNotExhaustControllerAndWebhook(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	testkit.Node(t, k, "n1")
	large := func(i int) *nfdv1alpha1.NodeFeatureRule {
		o := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", i)}}
		for j := range 60 {
			o.Spec.Rules = append(o.Spec.Rules, object(t, fmt.Sprintf(
				`{rules: [{name: r%d, labels: {l%d-%d: "1"}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: InRegexp, value: [%s]}}}]}]}`,
				j, i, j, patterns(fmt.Sprint(i, "-", j), 200, 4))).Spec.Rules...)
		}
		return o
	}
	ruleWith(t, k, "an-ordinary", "vendor.io/ordinary") // the oldest, or the first by name if created in the same second; the others fill the limit
	for i := range 5 {
		testkit.Create(t, k, large(i)) // no webhook is registered yet
	}
	namespace := testkit.Namespace(t, k)
	controller := startController(t, c, namespace)
	labeled(t, k, "n1", "vendor.io/ordinary", "1")
	testkit.Eventually(t, "the objects are rejected", func(ctx context.Context) error {
		for i := range 5 {
			var o nfdv1alpha1.NodeFeatureRule
			if err := k.Get(ctx, client.ObjectKey{Name: fmt.Sprint("large-", i)}, &o); err != nil {
				return err
			}
			if !strings.Contains(fmt.Sprint(o.Status.Conditions), "memory when") {
				return fmt.Errorf("conditions are %v", o.Status.Conditions)
			}
		}
		return nil
	})
	p := startWebhook(t, c, "--failure-policy=Ignore")
	for i := range 5 {
		if err := k.Create(t.Context(), renamed(large(i), fmt.Sprint("again-", i))); err == nil {
			t.Errorf("object %d is accepted", i)
		}
		if err := k.Create(t.Context(), object(t, broken), client.DryRunAll); !apierrors.IsInvalid(err) {
			t.Errorf("an invalid rule is not reviewed: %v", err)
		}
	}
	remains(t, "controller", "-port="+testkit.Port(controller.health), controllerLimit)
	remains(t, "webhook", "--webhook-port="+testkit.Port(p.serve), webhookLimit)
}

func renamed(o *nfdv1alpha1.NodeFeatureRule, name string) *nfdv1alpha1.NodeFeatureRule {
	o.Name = name
	return o
}

// 120 NodeFeatures of 0.8 MB used to take 120 MB in each program, for a Node that does not exist. Half of them exceed the budget
// six times.
func TestNodeFeaturesDoNotExhaustAnyProgram(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	testkit.Node(t, k, "n1")
	namespace, tenant := testkit.Namespace(t, k), testkit.Namespace(t, k)
	ordinary := &nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "a", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n1"}},
		Spec:       nfdv1alpha1.NodeFeatureSpec{Labels: map[string]string{"vendor.io/counts": "1"}},
	}
	large := func(i int) *nfdv1alpha1.NodeFeature {
		elements := map[string]string{}
		for j := range 400 {
			elements[fmt.Sprintf("e%d-%d", i, j)] = strings.Repeat(fmt.Sprint(i%10), 2000)
		}
		return &nfdv1alpha1.NodeFeature{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: tenant, Name: fmt.Sprint("large-", i), Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "no-such-node"},
			},
			Spec: nfdv1alpha1.NodeFeatureSpec{Features: nfdv1alpha1.Features{
				Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"a": {Elements: elements}},
			}},
		}
	}
	testkit.Create(t, k, ordinary)
	everywhere(30, func(i int) { testkit.Create(t, k, large(i)) })
	controller := startController(t, c, namespace) // these objects are listed, the later ones are watched
	e := startExtender(t, c, "", nil)
	everywhere(30, func(i int) { testkit.Create(t, k, large(30+i)) })
	p := startWebhook(t, c)
	labeled(t, k, "n1", "vendor.io/counts", "1")
	testkit.Eventually(t, "the extender leaves out most of them", func(ctx context.Context) error {
		text, err := testkit.Get(ctx, "http://"+e.address+"/metrics")
		if err != nil || !strings.Contains(text, "assay_nodefeatures_left_out 50") { // of 60
			return fmt.Errorf("it is not ready, or it keeps more (%w)", err)
		}
		return nil
	})
	if got, err := e.filter(`conditions: [{op: eq, args: {values: ["{node.name}", n1]}}]`, "n1"); err != nil || len(*got.NodeNames) != 1 {
		t.Errorf("an ordinary pod gets %+v (%v)", got, err)
	}
	err := k.Create(t.Context(), large(60))
	if err == nil || !strings.Contains(err.Error(), "NodeFeatures of Nodes that do not exist are limited to 256 objects and 8388608 bytes") {
		t.Errorf("one more is answered by %v", err)
	}
	remains(t, "controller", "-port="+testkit.Port(controller.health), controllerLimit)
	remains(t, "extender", "--address="+e.address, extenderLimit)
	remains(t, "webhook", "--webhook-port="+testkit.Port(p.serve), webhookLimit)
}

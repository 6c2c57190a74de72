//go:build linux

package request_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/request"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/test/cluster"
)

// start runs the controllers until the test ends.
func start(t *testing.T, c *cluster.Cluster, o request.Options, counts inputs.Options) {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, nodefeature.AddToScheme, assayv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	sameNames := true // each test has a manager of its own
	mgr, err := ctrl.NewManager(c.RESTConfig(), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &sameNames},
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Nodes = inputs.New(counts)
	if err := errors.Join(o.Nodes.Watch(t.Context(), mgr.GetCache()), mgr.Add(o.Nodes)); err != nil {
		t.Fatal(err)
	}
	o.Rules = assembly.NewRegistry(rules.Options{})
	o.Rules.Ready() // there are no rules
	if err := request.Add(mgr, o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func features(node, namespace string, flags ...string) *nfdv1alpha1.NodeFeature {
	set := nfdv1alpha1.FlagFeatureSet{Elements: map[string]nfdv1alpha1.Nil{}}
	for _, f := range flags {
		set.Elements[f] = nfdv1alpha1.Nil{}
	}
	return &nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: node, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node}},
		Spec: nfdv1alpha1.NodeFeatureSpec{Features: nfdv1alpha1.Features{
			Flags:      map[string]nfdv1alpha1.FlagFeatureSet{"cpu.cpuid": set},
			Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{}, Instances: map[string]nfdv1alpha1.InstanceFeatureSet{},
		}},
	}
}

// state formats a status on one line.
func state(s assayv1alpha1.RequestStatus) string {
	count := "?"
	if s.MatchingNodes != nil {
		count = fmt.Sprint(*s.MatchingNodes)
	}
	out := fmt.Sprintf("%s nodes %v", count, s.SampleNodes)
	for _, kind := range []string{nfdv1alpha1.ConditionAccepted, assayv1alpha1.ConditionSatisfiable} {
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
			out += fmt.Sprintf(", %s=%s %s", kind, c.Status, c.Message)
		}
	}
	return out
}

func TestStatusAndLostFeatures(t *testing.T) {
	c := testkit.Cluster(t)
	api := testkit.Client(t, c.User)
	ns := testkit.Namespace(t, api)
	for _, name := range []string{"req-a", "req-b"} {
		testkit.Node(t, api, name)
	}
	a := features("req-a", ns, "AVX", "AMX")
	testkit.Create(t, api, a)
	testkit.Create(t, api, features("req-b", ns, "AVX"))
	spec := func(flag string) assayv1alpha1.PodRequirements {
		return assayv1alpha1.PodRequirements{Required: &assayv1alpha1.Requirement{MatchFeatures: nfdv1alpha1.FeatureMatcher{{
			Feature: "cpu.cpuid", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{flag: {Op: nfdv1alpha1.MatchExists}},
		}}}}
	}
	req := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "r"}}
	req.Spec.PodRequirements = spec("AMX")
	testkit.Create(t, api, req)
	broken := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "broken"}}
	broken.Spec.Required = &assayv1alpha1.Requirement{}
	testkit.Create(t, api, broken)
	policy := &assayv1alpha1.NodeFeatureSchedulingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "req-policy"}}
	policy.Spec.NamespaceSelector, policy.Spec.PodRequirements = &metav1.LabelSelector{}, spec("AVX")
	testkit.Create(t, api, policy)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", Labels: map[string]string{assayv1alpha1.FeatureRequestLabel: "r"}},
		Spec:       corev1.PodSpec{NodeName: "req-a", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	testkit.Eventually(t, "create a pod", func(ctx context.Context) error { return api.Create(ctx, pod) })
	// It is unknown whether these pods ever required what their node lacks: the request of one was edited since, the other is only
	// selected by a policy, and no admission has recorded their requirements.
	edited := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "edited"}}
	edited.Spec.PodRequirements = spec("AVX")
	testkit.Create(t, api, edited)
	if edited.Spec.PodRequirements = spec("AMX"); api.Update(t.Context(), edited) != nil {
		t.Fatal("the request cannot be edited")
	}
	enable := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`,
		assayv1alpha1.SchedulingLabel, assayv1alpha1.SchedulingLabelEnabled))
	if err := api.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, enable); err != nil {
		t.Fatal(err)
	}
	amx := policy.DeepCopy()
	amx.ObjectMeta = metav1.ObjectMeta{Name: "req-amx"}
	amx.Spec.PodRequirements = spec("AMX")
	testkit.Create(t, api, amx)
	for name, labels := range map[string]map[string]string{
		"by-edited": {assayv1alpha1.FeatureRequestLabel: "edited"}, "by-policy": nil,
	} {
		testkit.Create(t, api, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}, Spec: pod.Spec,
		})
	}
	start(t, c, request.Options{Pods: true}, inputs.Options{})

	reaches := func(obj client.Object, status func() assayv1alpha1.RequestStatus, want string) {
		t.Helper()
		testkit.Eventually(t, "the status of "+obj.GetName(), func(ctx context.Context) error {
			if err := api.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
			if got := state(status()); got != want {
				return fmt.Errorf("it is %q, want %q", got, want)
			}
			return nil
		})
	}
	reaches(req, func() assayv1alpha1.RequestStatus { return req.Status }, "1 nodes [req-a], Accepted=True , Satisfiable=True ")
	reaches(policy, func() assayv1alpha1.RequestStatus { return policy.Status }, "2 nodes [req-a req-b], Accepted=True , Satisfiable=True ")
	reaches(broken, func() assayv1alpha1.RequestStatus { return broken.Status },
		"? nodes [], Accepted=False spec.required: Required value: write matchFeatures, matchAny or conditions, "+
			"or remove it, Satisfiable=Unknown the requirements are invalid: see the condition Accepted")

	a.Spec = features("req-a", ns, "AVX").Spec
	if err := api.Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	reaches(req, func() assayv1alpha1.RequestStatus { return req.Status },
		"0 nodes [], Accepted=True , Satisfiable=False no node has it; the nearest, req-a, lacks cpu.cpuid/AMX")
	testkit.Eventually(t, "the pod gets an event", func(ctx context.Context) error {
		var list corev1.EventList
		if err := api.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		told := map[string]string{}
		for _, e := range list.Items {
			if e.Reason == request.ReasonFeaturesLost {
				told[e.InvolvedObject.Name] = e.Message
			}
		}
		want := map[string]string{"p": "node req-a lacks cpu.cpuid/AMX, which the pod asked for; the pod goes on running"}
		if diff := cmp.Diff(want, told); diff != "" {
			return fmt.Errorf("the events of the pods are (-want +got):\n%s", diff)
		}
		return nil
	})
}

func TestOnlyTrustedNamespacesCount(t *testing.T) {
	c := testkit.Cluster(t)
	api := testkit.Client(t, c.User)
	ns := testkit.Namespace(t, api)
	testkit.Node(t, api, "trust-a")
	testkit.Create(t, api, features("trust-a", ns, "AMX"))
	req := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "r"}}
	req.Spec.Required = &assayv1alpha1.Requirement{MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "cpu.cpuid"}}}
	testkit.Create(t, api, req)
	start(t, c, request.Options{}, inputs.Options{Policy: gather.Policy{Namespaces: labels.SelectorFromSet(labels.Set{"trusted": "yes"})}})
	matches := func(want int32) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("%d nodes match", want), func(ctx context.Context) error {
			if err := api.Get(ctx, client.ObjectKeyFromObject(req), req); err != nil {
				return err
			}
			if n := req.Status.MatchingNodes; n == nil || *n != want {
				return fmt.Errorf("the status is %s", state(req.Status))
			}
			return nil
		})
	}
	matches(0)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"trusted":"yes"}}}`))
	if err := api.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, patch); err != nil {
		t.Fatal(err)
	}
	matches(1)
}

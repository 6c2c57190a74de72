//go:build linux

package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/webhook"
)

// requestSpecs are the requests of the tests by name, and whether their pods wait for a label.
var requestSpecs = map[string]struct {
	spec  string
	waits bool
}{
	"amx":       {"required: {matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}}}]}", true},
	"any":       {"required: {matchAny: [{matchFeatures: [{feature: cpu.cpuid}]}]}", true},
	"always":    {"{materialize: Always, required: {conditions: [{op: is-true, args: {value: '{@cpu.model.family}'}}]}}", true},
	"never":     {"{materialize: Never, required: {matchFeatures: [{feature: cpu.cpuid}]}}", false},
	"soft":      {"preferred: [{weight: 1, matchFeatures: [{feature: cpu.cpuid}]}]", false},
	"reads":     {"required: {matchFeatures: [{feature: rule.matched, matchExpressions: {a: {op: Exists}}}]}", false},
	"reads-any": {"required: {matchAny: [{matchFeatures: [{feature: Rule.Matched, matchExpressions: {a: {op: Exists}}}]}]}", false},
	"reported":  {"required: {conditions: [{op: is-true, args: {value: '{fast}'}}]}", false}, // the controller reports that it reads rules
	"outdated":  {"required: {conditions: [{op: is-true, args: {value: '{@cpu.model.family}'}}]}", true},
}

// createRequests creates the requests in a namespace with the status that a controller writes.
func createRequests(t *testing.T, api client.Client, namespace string) {
	t.Helper()
	for name, r := range requestSpecs {
		o := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := yaml.UnmarshalStrict([]byte(r.spec), &o.Spec); err != nil {
			t.Fatal(name, err)
		}
		testkit.Create(t, api, o)
		observed, found := map[string]int64{"reported": o.Generation, "outdated": o.Generation - 1}[name]
		if !found {
			continue
		}
		meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
			Type: assayv1alpha1.ConditionMaterialized, Status: metav1.ConditionFalse, Reason: requirements.ReasonReadsRules, ObservedGeneration: observed,
		})
		if err := api.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPodsOfRequestsWithoutALabelDoNotWait: the function by which the webhook, assay why and assay doctor decide.
func TestPodsOfRequestsWithoutALabelDoNotWait(t *testing.T) {
	api := testkit.Client(t, testkit.Cluster(t).User)
	namespace := testkit.Namespace(t, api)
	createRequests(t, api, namespace)
	for name, want := range requestSpecs {
		var o assayv1alpha1.NodeFeatureRequest
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &o); err != nil {
			t.Fatal(err)
		}
		if why := requirements.WithoutLabel(&o); (why == "") != want.waits {
			t.Errorf("%s: got %q, want a label: %t", name, why, want.waits)
		}
	}
}

// TestWebhookAndPolicyWriteTheSameSelector sends random pods, DaemonSets and Jobs to an API server with the policy and to the webhook, and
// compares both with what the names of the requests say.
func TestWebhookAndPolicyWriteTheSameSelector(t *testing.T) {
	c := testkit.Cluster(t)
	api := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, api)
	createRequests(t, api, namespace)
	served := requestPolicies(t, api, namespace)
	server, err := webhook.New(webhook.Options{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("not used") },
		Request: func(ctx context.Context, namespace, name string) (*assayv1alpha1.NodeFeatureRequest, error) {
			o := &assayv1alpha1.NodeFeatureRequest{}
			err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
			if apierrors.IsNotFound(err) {
				o, err = nil, nil
			}
			return o, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if served {
		testkit.Eventually(t, "both policies apply", func(ctx context.Context) error {
			for name, want := range map[string]bool{"amx": true, "never": false} {
				o := draw(rand.New(rand.NewPCG(1, 1)), namespace)
				o.labels[assayv1alpha1.FeatureRequestLabel], o.selector = name, nil
				pod := o.object("Pod")
				if err := api.Create(ctx, pod, client.DryRunAll); err != nil {
					return err
				}
				if has := len(selectorOf(pod)) > 0; has != want {
					return fmt.Errorf("a pod of %s has the selector %v", name, selectorOf(pod))
				}
			}
			return nil
		})
	}
	const seed, objects = 42, 200
	random := rand.New(rand.NewPCG(seed, seed))
	for i := range objects {
		kind := []string{"Pod", "Pod", "DaemonSet", "Job"}[random.IntN(4)]
		o := draw(random, namespace)
		want, what := o.want(), fmt.Sprintf("%d: %s of %q with selector %v", i, kind, o.labels[assayv1alpha1.FeatureRequestLabel], o.selector)
		got := reviewed(t, server, admissionv1.Create, o.object(kind), nil)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: the webhook writes (-want +got):\n%s", what, diff)
		}
		if !served {
			continue
		}
		made := o.object(kind)
		if err := api.Create(t.Context(), made, client.DryRunAll); err != nil {
			t.Fatal(what, err)
		}
		if diff := cmp.Diff(want, selectorOf(made), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: the policy writes (-want +got):\n%s", what, diff)
		}
	}
	// Another request, or none, in the template of a DaemonSet.
	for _, from := range []string{"amx", "never", ""} {
		for _, to := range []string{"amx", "any", "soft", ""} {
			start := drawn{namespace: namespace, labels: map[string]string{"app": "x"}, selector: map[string]string{"disk": "ssd"}}
			if from != "" {
				start.labels[assayv1alpha1.FeatureRequestLabel] = from
			}
			start.selector = start.want()
			end := drawn{namespace: namespace, labels: map[string]string{"app": "x"}, selector: start.selector}
			if to != "" {
				end.labels[assayv1alpha1.FeatureRequestLabel] = to
			}
			want := drawn{namespace: namespace, labels: end.labels, selector: map[string]string{"disk": "ssd"}}.want()
			got := reviewed(t, server, admissionv1.Update, end.object("DaemonSet"), start.object("DaemonSet"))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("from %q to %q the webhook writes (-want +got):\n%s", from, to, diff)
			}
			if !served {
				continue
			}
			live := start.object("DaemonSet")
			testkit.Create(t, api, live)
			changed := end.object("DaemonSet")
			changed.SetName(live.GetName())
			if err := api.Update(t.Context(), changed); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, selectorOf(changed)); diff != "" {
				t.Errorf("from %q to %q the policy writes (-want +got):\n%s", from, to, diff)
			}
		}
	}
}

// requestPolicies creates the shipped policies for one namespace, if the API server has the kind.
func requestPolicies(t *testing.T, api client.Client, namespace string) bool {
	t.Helper()
	err := api.List(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyList{})
	if meta.IsNoMatchError(err) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range bytes.Split(charts.SchedulingPolicy(charts.FeatureRequest), []byte("\n---\n")) {
		var object client.Object = &admissionregistrationv1.MutatingAdmissionPolicy{}
		if bytes.Contains(document, []byte("kind: MutatingAdmissionPolicyBinding")) {
			object = &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
		}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Fatal(err)
		}
		if b, ok := object.(*admissionregistrationv1.MutatingAdmissionPolicyBinding); ok {
			if b.Spec.MatchResources == nil {
				b.Spec.MatchResources = &admissionregistrationv1.MatchResources{}
			}
			b.Spec.MatchResources.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
		}
		testkit.Create(t, api, object)
	}
	return true
}

// drawn is the part of a pod or its template that differs in the test.
type drawn struct {
	namespace        string
	labels, selector map[string]string
}

// draw returns random content.
func draw(random *rand.Rand, namespace string) drawn {
	tooLong := strings.Repeat("x", 63-len(namespace))
	names := []string{"amx", "any", "always", "never", "soft", "reads", "reads-any", "reported", "outdated", "unknown", "", tooLong, tooLong[1:]}
	d := drawn{namespace: namespace, labels: map[string]string{"app": "x"}, selector: map[string]string{}}
	if random.IntN(8) > 0 {
		d.labels[assayv1alpha1.FeatureRequestLabel] = names[random.IntN(len(names))]
	}
	if random.IntN(2) == 0 {
		d.selector["disk"] = "ssd"
	}
	if random.IntN(4) == 0 {
		d.selector["features.assay.dev/"+namespace+".amx"] = []string{"true", "false"}[random.IntN(2)]
	}
	return d
}

// want returns the selector that admission must write.
func (d drawn) want() map[string]string {
	out := map[string]string{}
	for key, value := range d.selector {
		out[key] = value
	}
	name, asks := d.labels[assayv1alpha1.FeatureRequestLabel]
	if !asks {
		return out
	}
	key := "features.assay.dev/" + d.namespace + "." + name
	if r, known := requestSpecs[name]; known && !r.waits {
		delete(out, key)
		return out
	}
	if name == "" || len(d.namespace)+1+len(name) > 63 {
		key = "features.assay.dev/invalid-feature-request"
	}
	out[key] = "true"
	return out
}

// object returns an object of a kind with this content.
func (d drawn) object(kind string) client.Object {
	spec := corev1.PodSpec{NodeSelector: d.selector, Containers: []corev1.Container{{Name: "c", Image: "none"}}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: d.labels}, Spec: spec}
	m := metav1.ObjectMeta{Namespace: d.namespace, GenerateName: "x-"}
	switch kind {
	case "DaemonSet":
		return &appsv1.DaemonSet{ObjectMeta: m, Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, Template: template}}
	case "Job":
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		return &batchv1.Job{ObjectMeta: m, Spec: batchv1.JobSpec{Template: template}}
	}
	m.Labels = d.labels
	return &corev1.Pod{ObjectMeta: m, Spec: spec}
}

func selectorOf(o client.Object) map[string]string {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return o.Spec.Template.Spec.NodeSelector
	case *batchv1.Job:
		return o.Spec.Template.Spec.NodeSelector
	case *corev1.Pod:
		return o.Spec.NodeSelector
	}
	return nil
}

// reviewed returns the node selector of an object after the response of the webhook.
func reviewed(t *testing.T, server *webhook.Server, op admissionv1.Operation, object, old client.Object) map[string]string {
	t.Helper()
	encode := func(o client.Object) runtime.RawExtension {
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: data}
	}
	req := &admissionv1.AdmissionRequest{UID: "1", Operation: op, Namespace: object.GetNamespace(), Object: encode(object)}
	if old != nil {
		req.OldObject = encode(old)
	}
	switch object.(type) {
	case *appsv1.DaemonSet:
		req.Resource = metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	case *batchv1.Job:
		req.Resource = metav1.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	default:
		req.Resource = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	}
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Request: req,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, webhook.SelectorPath, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	server.Handler().ServeHTTP(w, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil || !answer.Response.Allowed {
		t.Fatalf("the webhook answers %d %s", w.Code, w.Body)
	}
	out := req.Object.Raw
	if len(answer.Response.Patch) > 0 {
		if ptr.Deref(answer.Response.PatchType, "") != admissionv1.PatchTypeJSONPatch {
			t.Errorf("the patch has the type %v", answer.Response.PatchType)
		}
		patch, err := jsonpatch.DecodePatch(answer.Response.Patch)
		if err != nil {
			t.Fatal(err)
		}
		if out, err = patch.Apply(out); err != nil {
			t.Fatalf("%v: %s", err, answer.Response.Patch)
		}
	}
	result := object.DeepCopyObject().(client.Object)
	switch o := result.(type) { // Unmarshal keeps keys of maps that the patch removes
	case *appsv1.DaemonSet:
		o.Spec.Template.Spec.NodeSelector = nil
	case *batchv1.Job:
		o.Spec.Template.Spec.NodeSelector = nil
	case *corev1.Pod:
		o.Spec.NodeSelector = nil
	}
	if err := json.Unmarshal(out, result); err != nil {
		t.Fatal(err)
	}
	return selectorOf(result)
}

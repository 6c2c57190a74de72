//go:build linux

package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/podadmission"
	"github.com/assay-project/assay/webhook"
)

// oneCertificate returns a self-signed certificate for the loopback address.
func oneCertificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

const amxRule = `
metadata: {name: amx}
spec: {rules: [{name: amx, labels: {amx: "true"}, matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}}}]}]}
`

// scheduling is the state of the webhook in these tests: two nodes, one of them with AMX, and a policy.
func scheduling(t *testing.T) *webhook.Scheduling {
	t.Helper()
	known, view := podrequirements.New(rules.Options{}), index.New()
	for name, flags := range map[string][]string{"plain": {"AVX"}, "amx": {"AVX", "AMX"}} {
		view.Put(index.Node{Input: rules.Input{
			Node:  rules.Node{Name: name},
			Facts: facts.FromMap(map[string]facts.Feature{"cpu.cpuid": {Flags: facts.NewFlags(flags...)}}, nil),
		}})
	}
	view.SetSynced()
	labels := map[string]string{assayv1alpha1.SchedulingLabel: assayv1alpha1.SchedulingLabelEnabled, assayv1alpha1.SchedulerLabel: "assay"}
	known.PutPolicy(&assayv1alpha1.NodeFeatureSchedulingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: assayv1alpha1.NodeFeatureSchedulingPolicySpec{
			NamespaceSelector: &metav1.LabelSelector{},
			PodRequirements: assayv1alpha1.PodRequirements{Required: &assayv1alpha1.Requirement{
				MatchFeatures: nfdv1alpha1.FeatureMatcher{{
					Feature: "cpu.cpuid", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"AMX": {Op: nfdv1alpha1.MatchExists}},
				}},
			}},
		},
	})
	var rule nfdv1alpha1.NodeFeatureRule
	if err := yaml.Unmarshal([]byte(amxRule), &rule); err != nil {
		t.Fatal(err)
	}
	set, _ := rules.Compile(&rule, rules.Options{})
	exact := podadmission.LabelsOf([]podadmission.Rules{{Set: set, Spec: &rule.Spec}}, rules.Options{})
	return &webhook.Scheduling{
		Requirements: known, Index: view, Labels: func() podadmission.Labels { return exact },
		Namespace: func(name string) map[string]string {
			if strings.HasPrefix(name, "labeled-") {
				known.PutNamespace(name, labels)
				return labels
			}
			return nil
		},
	}
}

func TestPodsAndWorkloadsOnARealAPIServer(t *testing.T) {
	c := testkit.Cluster(t)
	warnings := &warned{}
	config := rest.CopyConfig(c.RESTConfig())
	config.WarningHandler = warnings
	api, err := client.New(config, client.Options{Scheme: testkit.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	cert, bundle := oneCertificate(t)
	var asked atomic.Int64
	s := scheduling(t)
	server, err := webhook.New(webhook.Options{
		Addr: "127.0.0.1:0", Scheduling: s,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil },
		Observe:        func(string, string, time.Duration) { asked.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, "the webhook answers", server.Answers)
	mutating, validating := webhook.SchedulingConfigurations(webhook.ConfigurationOptions{
		Namespace: "assay-system", URL: "https://" + server.Addr(), CABundle: bundle,
	})
	plain := testkit.Namespace(t, api)
	labeled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "labeled-", Labels: map[string]string{assayv1alpha1.SchedulingLabel: assayv1alpha1.SchedulingLabelEnabled},
	}}
	testkit.Create(t, api, labeled)
	s.Namespace(labeled.Name)
	testkit.Create(t, api, mutating)
	testkit.Create(t, api, validating)

	const needs = "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {%s: {op: Exists}}}]"
	newPod := func(namespace, required string) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "p-"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		if required != "" {
			p.Annotations = map[string]string{assayv1alpha1.RequiredFeaturesAnnotation: required}
		}
		return p
	}
	const amx = "feature.node.kubernetes.io/amx"
	dryRun := &client.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	testkit.Eventually(t, "pods that ask are changed", func(ctx context.Context) error {
		p := newPod(plain, fmt.Sprintf(needs, "AMX"))
		if err := api.Create(ctx, p, dryRun); err != nil {
			return err
		}
		if p.Spec.NodeSelector[amx] != "true" || p.Annotations[assayv1alpha1.RequirementHashAnnotation] == "" {
			return fmt.Errorf("node selector %v, annotations %v", p.Spec.NodeSelector, p.Annotations)
		}
		return nil
	})
	before := asked.Load()
	if err := api.Create(t.Context(), newPod(plain, ""), dryRun); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load() - before; n != 0 {
		t.Errorf("a pod that asks for nothing was reviewed %d times", n)
	}
	silent := newPod(labeled.Name, "")
	if err := api.Create(t.Context(), silent, dryRun); err != nil {
		t.Fatal(err)
	}
	if silent.Spec.NodeSelector[amx] != "true" || silent.Spec.SchedulerName != "assay" {
		t.Errorf("the policy of the namespace is not applied: %+v", silent.Spec)
	}

	template := func(required string) corev1.PodTemplateSpec {
		p := newPod(plain, required)
		p.Labels = map[string]string{"app": "x"}
		p.GenerateName, p.Namespace = "", ""
		return corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
	}
	once := template("matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exist}}}]")
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	meta := metav1.ObjectMeta{Namespace: plain, Name: "w"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	for path, object := range map[string]client.Object{
		"spec.template.metadata": &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template("matchFeatures: 1")}},
		"spec.jobTemplate.spec.template.metadata": &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
			Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}},
		}},
	} {
		err := api.Create(t.Context(), object, dryRun)
		if want := path + ".annotations[assay.dev/required-features]"; !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a refusal at %s", err, want)
		}
	}
	misplaced := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template("")}}
	misplaced.Annotations = map[string]string{assayv1alpha1.RequiredFeaturesAnnotation: fmt.Sprintf(needs, "AMX")}
	rare := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template(fmt.Sprintf(needs, "FP64"))}}
	for want, object := range map[string]client.Object{
		"spec.template.metadata.annotations[assay.dev/required-features]: 0 of 2 nodes satisfy this now; closest: amx lacks cpu.cpuid/FP64": rare,
		"metadata.annotations[assay.dev/required-features]: has no effect here: move it to spec.template.metadata.annotations":              misplaced,
	} {
		if err := api.Create(t.Context(), object, dryRun); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(warnings.texts, "\n"), want) {
			t.Errorf("the warnings are %q, want %q", warnings.texts, want)
		}
	}
}

// warned collects the warnings of an API server.
type warned struct{ texts []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warned) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

// TestPodsWhoseRequirementsNothingEnforcesAreWarnedAbout reviews pods and Deployments with the default scheduler: the webhook warns
// unless it adds a node selector or a scheduler, or the pod has one that enforces the requirements.
func TestPodsWhoseRequirementsNothingEnforcesAreWarnedAbout(t *testing.T) {
	const (
		amx = "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}}}]" // as the rule
		avx = "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}]"
	)
	for name, test := range map[string]struct {
		annotation, spec, namespace string
		attached, warns             bool
	}{
		"NoLabel":           {avx, `{}`, "plain", false, true},
		"DefaultScheduler":  {avx, `{"schedulerName": "default-scheduler"}`, "plain", false, true},
		"OtherSelector":     {avx, `{"nodeSelector": {"pool": "a"}}`, "plain", false, true},
		"Attached":          {avx, `{}`, "plain", true, false},
		"LabelOfRule":       {amx, `{}`, "plain", false, false},
		"SchedulerOfPod":    {avx, `{"schedulerName": "assay"}`, "plain", false, false},
		"SelectsLabel":      {avx, `{"nodeSelector": {"feature.node.kubernetes.io/avx": "true"}}`, "plain", false, false},
		"SchedulerOfPolicy": {avx, `{}`, "labeled-a", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := scheduling(t)
			s.Attached = test.attached
			server, err := webhook.New(webhook.Options{
				Addr: "127.0.0.1:0", Scheduling: s, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			pod := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}, "spec": %s}`, assayv1alpha1.RequiredFeaturesAnnotation, test.annotation, test.spec)
			for kind, object := range map[string]string{"Pod": pod, "Deployment": `{"spec": {"template": ` + pod + `}}`} {
				req := &admissionv1.AdmissionRequest{
					UID: "u", Operation: admissionv1.Create, Namespace: test.namespace, Kind: metav1.GroupVersionKind{Version: "v1", Kind: kind},
					Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Object: runtime.RawExtension{Raw: []byte(object)},
				}
				if kind == "Deployment" {
					req.Kind.Group, req.Resource = "apps", metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
				}
				response := server.Review(t.Context(), req)
				if !response.Allowed {
					t.Fatalf("%s: %v", kind, response.Result)
				}
				if warns := strings.Contains(strings.Join(response.Warnings, "\n"), "nothing enforces these requirements"); warns != test.warns {
					t.Errorf("%s: warnings %q, want one: %t", kind, response.Warnings, test.warns)
				}
			}
		})
	}
}

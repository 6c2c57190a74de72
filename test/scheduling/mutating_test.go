//go:build linux

package scheduling

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// install creates a MutatingAdmissionPolicy with its binding until the end of the test.
func (w *world) install(t *testing.T, name string) {
	t.Helper()
	policy, binding, _ := bytes.Cut(charts.SchedulingPolicy(name), []byte("\n---\n"))
	for _, part := range []struct {
		data []byte
		into client.Object
	}{
		{policy, &admissionregistrationv1.MutatingAdmissionPolicy{}},
		{binding, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}},
	} {
		if err := yaml.UnmarshalStrict(part.data, part.into); err != nil {
			t.Fatal(err)
		}
		testkit.Create(t, w.api, part.into)
	}
}

// policies tests that the shipped policies do the same as the webhook, as far as CEL allows.
func (w *world) policies(t *testing.T) {
	if err := w.api.List(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyList{}); meta.IsNoMatchError(err) && os.Getenv(cluster.EmulatedVersion) != "" {
		t.Skip("this version of Kubernetes does not have MutatingAdmissionPolicies")
	}
	w.install(t, charts.PodScheduler)
	ns := w.namespace(t, map[string]string{assayv1alpha1.SchedulerLabel: strict})
	testkit.Eventually(t, "a pod gets the scheduler of its namespace", func(ctx context.Context) error {
		p := newPod(ns, "asks", "", requires("AVX"))
		if err := w.api.Create(ctx, p, client.DryRunAll); err != nil {
			return err
		}
		if p.Spec.SchedulerName != strict {
			return fmt.Errorf("it is %q", p.Spec.SchedulerName)
		}
		return nil
	})
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"asks for nothing":     {newPod(ns, "p", ""), corev1.DefaultSchedulerName},
		"has a scheduler":      {newPod(ns, "p", "mine", requires("AVX")), "mine"},
		"of another namespace": {newPod(w.namespace(t, nil), "p", "", requires("AVX")), corev1.DefaultSchedulerName},
	} {
		w.createDry(t, test.pod)
		if test.pod.Spec.SchedulerName != test.want {
			t.Errorf("a pod that %s: got %q, want %q", name, test.pod.Spec.SchedulerName, test.want)
		}
	}
	w.publish(t, "n410", "AVX", "ByPolicy")
	chosen := newPod(ns, "chosen", "", requires("ByPolicy"))
	w.create(t, chosen)
	if node := w.placed(t, chosen); node != "n410" {
		t.Errorf("the pod that got a scheduler runs on %s, want n410", node)
	}
}

func (w *world) createDry(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := w.api.Create(t.Context(), p, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
}

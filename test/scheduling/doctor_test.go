//go:build linux

package scheduling

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
)

// doctor: an installation that works is broken part by part, and mended.
func (in *installation) doctor(t *testing.T) {
	in.create(t, &assayv1alpha1.NodeFeatureRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "amx"},
		Spec:       assayv1alpha1.NodeFeatureRequestSpec{Required: requirement("AMXBF16")},
	})
	early := newPod("default", "early", strict, requires("AMXBF16"))
	in.create(t, early)
	in.diagnosed(t, 1, "BAD  waiting for the scheduler assay, which does not run: 1 pod, default/early")

	in.runScheduler(t)
	in.placed(t, early, "node-2")
	in.diagnosed(t, 0,
		"ok   3 nodes, all of which have features", "ok   NodeFeatureRequest ml/amx", "ok   the second scheduler runs",
		"ok   no pod waits for a scheduler that does not look at its features")

	// The scheduler asks nobody.
	if err := in.Terminate(t.Context(), "extender"); err != nil {
		t.Fatal(err)
	}
	unasked := newPod("default", "unasked", strict, requires("AMXBF16"))
	in.create(t, unasked)
	in.diagnosed(t, 1, "BAD  waiting because the scheduler fails: 1 pod, default/unasked. It says: ", "connection refused")
	in.runExtender(t)
	in.placed(t, unasked, "node-2")
	in.diagnosed(t, 0)

	// A pod of the installation crashes; there is no kubelet here to say so.
	crashing := newPod(ownNamespace, "assay-scheduler-0", "none")
	crashing.Labels = map[string]string{"app.kubernetes.io/name": "assay"}
	in.create(t, crashing)
	crashing.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	}}
	if err := in.api.Status().Update(t.Context(), crashing); err != nil {
		t.Fatal(err)
	}
	in.diagnosed(t, 1, "BAD  pod assay-scheduler-0 is not ready: container c waits: CrashLoopBackOff. "+
		"See kubectl -n assay-system logs assay-scheduler-0 -c c")
	if err := in.api.Delete(t.Context(), crashing, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}

	// The scheduler ends; it gives its Lease back, which is as fresh as ever then.
	if err := in.Terminate(t.Context(), "second"); err != nil {
		t.Fatal(err)
	}
	in.create(t, newPod("default", "late", strict, requires("AMXBF16")))
	in.create(t, newPod("default", "unheard", "", requires("AMXBF16")))
	in.diagnosed(t, 1, "BAD  waiting for the scheduler assay, which does not run: 1 pod, default/late",
		"BAD  asking for features and waiting for the default scheduler: 1 pod, default/unheard.")
}

// diagnosed waits until assay doctor says all that, and ends with that code.
func (in *installation) diagnosed(t *testing.T, code int, want ...string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("the doctor says %q", want), func(context.Context) error {
		out, err := in.assay(t, "doctor")
		got := 0
		if err != nil {
			got = 1
		}
		for _, text := range want {
			if !strings.Contains(out, text) {
				return fmt.Errorf("no %q in\n%s", text, out)
			}
		}
		if got != code {
			return fmt.Errorf("it ends with %d, not %d:\n%s", got, code, out)
		}
		return nil
	})
}

// placed waits until a pod is placed.
func (in *installation) placed(t *testing.T, p *corev1.Pod, node string) {
	t.Helper()
	testkit.Eventually(t, "pod "+p.Name+" is placed", func(ctx context.Context) error {
		if err := in.api.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Spec.NodeName != node {
			return fmt.Errorf("it is on %q: %s", p.Spec.NodeName, message(p))
		}
		return nil
	})
}

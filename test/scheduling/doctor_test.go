//go:build linux

package scheduling

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
)

// doctor breaks a working installation part by part, and repairs it.
func (in *installation) doctor(t *testing.T) {
	in.chart(t)
	in.create(t, &assayv1alpha1.NodeFeatureRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "amx"},
		Spec:       assayv1alpha1.NodeFeatureRequestSpec{PodRequirements: assayv1alpha1.PodRequirements{Required: requirement("AMXBF16")}},
	})
	early := newPod("default", "early", strict, requires("AMXBF16"))
	in.create(t, early)
	in.diagnosed(t, 1, "BAD  1 pod: default/early: waiting for the scheduler assay, which does not run")

	in.runScheduler(t)
	in.placed(t, early, "node-2")
	// What earlier steps did to labels is over, and the doctor reports it for ten minutes.
	if err := in.api.DeleteAllOf(t.Context(), &corev1.Event{}, client.InNamespace(metav1.NamespaceDefault), client.MatchingFields{"reason": "UnmetLabelRemoved"}); err != nil {
		t.Fatal(err)
	}
	in.diagnosed(t, 0,
		"ok   3 of 3 Nodes have a ready worker and features", "ok   NodeFeatureRequest ml/amx is satisfiable", "ok   the second scheduler runs",
		"ok   no pod waits for a scheduler that does not check its features")

	// The extender is not running.
	if err := in.Terminate(t.Context(), "extender"); err != nil {
		t.Fatal(err)
	}
	unasked := newPod("default", "unasked", strict, requires("AMXBF16"))
	in.create(t, unasked)
	in.diagnosed(t, 1, "BAD  1 pod: default/unasked: waiting because the scheduler fails: ", "connection refused")
	if err := in.Restart(t.Context(), "extender"); err != nil {
		t.Fatal(err)
	}
	in.placed(t, unasked, "node-2")
	in.diagnosed(t, 0)

	// A pod of the installation crashes; there is no kubelet here to report it.
	crashing := in.ownPod(t, "assay-controller-1", "controller", "node-1", corev1.ContainerStatus{
		Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	})
	in.diagnosed(t, 1, "BAD  pod assay-system/assay-controller-1 is not ready: container c is waiting: CrashLoopBackOff",
		"kubectl -n assay-system logs assay-controller-1 -c c")
	if err := in.api.Delete(t.Context(), crashing, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}

	// The scheduler ends and releases its Lease, which is then still recent.
	if err := in.Terminate(t.Context(), "second"); err != nil {
		t.Fatal(err)
	}
	in.create(t, newPod("default", "late", strict, requires("AMXBF16")))
	in.create(t, newPod("default", "unheard", "", requires("AMXBF16")))
	selecting := newPod("ml", "selecting", "")
	selecting.Spec.NodeSelector = map[string]string{"features.assay.dev/ml.amx": "true"}
	in.create(t, selecting)
	in.diagnosed(t, 1, "BAD  1 pod: default/late: waiting for the scheduler assay, which does not run",
		"BAD  1 pod waiting: default/unheard: annotation assay.dev/required-features: not served: the default scheduler does not check it",
		"ok   1 pod waiting: ml/selecting: NodeFeatureRequest ml/amx: served by node selector features.assay.dev/ml.amx of the pod")
}

// chart creates the workloads of the chart, whose processes the test runs.
func (in *installation) chart(t *testing.T) {
	t.Helper()
	host, err := os.Hostname() // the name of the pod in the holder of a Lease
	if err != nil {
		t.Fatal(err)
	}
	ready := corev1.ContainerStatus{Name: "c", Ready: true}
	meta := func(part string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ownNamespace, Name: "assay-" + part, Labels: map[string]string{
			"app.kubernetes.io/part-of": "assay", "app.kubernetes.io/component": part,
		}}
	}
	selector := func(part string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/component": part}}
	}
	template := func(part string) corev1.PodTemplateSpec {
		of := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector(part).MatchLabels}, Spec: newPod("", "", "").Spec}
		of.Spec.ServiceAccountName = testkit.Account(part)
		return of
	}
	for part, pod := range map[string]string{"controller": host, "webhook": "assay-webhook-0"} {
		d := &appsv1.Deployment{ObjectMeta: meta(part), Spec: appsv1.DeploymentSpec{Selector: selector(part), Template: template(part)}}
		in.create(t, d)
		d.Status.Replicas, d.Status.ReadyReplicas = 1, 1
		if err := in.api.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		in.ownPod(t, pod, part, "node-1", ready)
	}
	testkit.Rights(t, in.api, ownNamespace)
	testkit.Policies(t, in.api, ownNamespace)
	in.create(t, &appsv1.DaemonSet{ObjectMeta: meta("worker"), Spec: appsv1.DaemonSetSpec{Selector: selector("worker"), Template: template("worker")}})
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		in.ownPod(t, "assay-worker-"+node, "worker", node, ready)
	}
}

// ownPod creates a pod of a component of Assay; there is no kubelet to report its status.
func (in *installation) ownPod(t *testing.T, name, part, node string, status corev1.ContainerStatus) *corev1.Pod {
	t.Helper()
	p := newPod(ownNamespace, name, "none")
	p.Labels, p.Spec.NodeName = map[string]string{"app.kubernetes.io/component": part}, node
	in.create(t, p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	if err := in.api.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// diagnosed waits until the output of assay doctor contains all strings and the exit code matches.
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

//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/webhook"
)

// schedulingRole returns the additional permissions for --scheduling, as rendered by the chart.
func schedulingRole(t *testing.T) *rbacv1.ClusterRole {
	t.Helper()
	const name = "assay-webhook-scheduling"
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: fromChart[rbacv1.ClusterRole](t, "ClusterRole", name).Rules}
}

// withScheduling creates the additional objects for --scheduling.
func withScheduling(t *testing.T, k client.Client) {
	t.Helper()
	role := schedulingRole(t)
	testkit.Create(t, k, role)
	testkit.Create(t, k, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:authenticated"}},
	})
	for _, o := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		o.SetName(webhook.SchedulingConfigurationName)
		testkit.Create(t, k, o)
	}
}

func TestWebhookReviewsPodsIfAsked(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	withScheduling(t, k)
	startWebhook(t, c, "--scheduling")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "test-", Labels: map[string]string{assayv1alpha1.SchedulerLabel: "assay"},
	}}
	testkit.Create(t, k, ns)
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}
	meta := func(required string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: ns.Name, Name: "x", Labels: map[string]string{"app": "x"},
			Annotations: map[string]string{assayv1alpha1.RequiredFeaturesAnnotation: required},
		}
	}
	testkit.Eventually(t, "a pod gets the scheduler of its namespace", func(ctx context.Context) error {
		p := &corev1.Pod{ObjectMeta: meta("matchFeatures: [{feature: cpu.cpuid}]"), Spec: spec}
		if err := k.Create(ctx, p, client.DryRunAll); err != nil {
			return err
		}
		if p.Spec.SchedulerName != "assay" || p.Annotations[assayv1alpha1.RequirementHashAnnotation] == "" {
			return fmt.Errorf("it is %q, the annotations are %v", p.Spec.SchedulerName, p.Annotations)
		}
		return nil
	})
	err := k.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "x"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: meta("matchFeatures: 7"), Spec: spec},
		},
	}, client.DryRunAll)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.template.metadata.annotations[assay.dev/required-features]") {
		t.Errorf("got %v, want a refusal with the path", err)
	}
}

//go:build linux

package scheduling

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

// workload returns a workload of a kind with pods like this one.
func workload(kind string, pod *corev1.Pod) client.Object {
	meta := metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}
	labels := map[string]string{"app": pod.Name}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: pod.Annotations}, Spec: pod.Spec}
	once := template
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	switch kind {
	case "Deployment":
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}
	case "StatefulSet":
		return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template}}
	case "DaemonSet":
		return &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
	case "ReplicaSet":
		return &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}}
	case "Job":
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: once}}
	case "CronJob":
		return &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
			Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}},
		}}
	}
	panic(kind)
}

// workloads: for every kind that creates pods, invalid requirements are rejected when it is applied, with the path of the field in
// this kind, and requirements that no node meets cause a warning.
func (in *installation) workloads(t *testing.T) {
	for kind, path := range map[string]string{
		"Deployment": "spec.template", "StatefulSet": "spec.template", "DaemonSet": "spec.template", "ReplicaSet": "spec.template",
		"Job": "spec.template", "CronJob": "spec.jobTemplate.spec.template",
	} {
		t.Run(kind, func(t *testing.T) {
			for name, test := range map[string]struct {
				ask  func(*corev1.Pod)
				want string
			}{
				"no-yaml": {
					annotated(assayv1alpha1.RequiredFeaturesAnnotation, "matchFeatures: ["),
					".metadata.annotations[assay.dev/required-features]: Invalid value: line 1: did not find expected node content; expected a map with matchFeatures, matchAny or conditions",
				},
				"operator": {
					annotated(assayv1alpha1.RequiredFeaturesAnnotation, "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exist}}}]"),
					".metadata.annotations[assay.dev/required-features].matchFeatures[0].matchExpressions[AVX].op",
				},
				"weight": {
					annotated(assayv1alpha1.PreferredFeaturesAnnotation, "- {weight: 101, matchFeatures: [{feature: cpu.cpuid}]}"),
					".metadata.annotations[assay.dev/preferred-features][0].weight: Invalid value: 101: must be 1 to 100",
				},
			} {
				err := in.api.Create(t.Context(), workload(kind, newPod("default", name, "", test.ask)), client.DryRunAll)
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), path+test.want) {
					t.Errorf("%s: got %v, want a refusal at %s", name, err, path+test.want)
				}
			}
			const want = "0 of 3 nodes satisfy this now; closest: node-1 lacks cpu.cpuid/FP64"
			got, err := in.warnings(t.Context(), workload(kind, newPod("default", "rare", "", requires("FP64"))))
			if err != nil || !strings.Contains(got, want) {
				t.Errorf("the warnings are %q, want %q (%v)", got, want, err)
			}
			got, err = in.warnings(t.Context(), workload(kind, newPod("default", "plain", "", requires("AMXBF16"))))
			if err != nil || got != "" {
				t.Errorf("where a node has it, the warnings are %q (%v)", got, err)
			}
		})
	}
}

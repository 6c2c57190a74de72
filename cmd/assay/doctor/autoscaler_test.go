package doctor

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestAStartupTaintThatClusterAutoscalerDoesNotKnowDrawsAWarning: it would add node after node.
func TestAStartupTaintThatClusterAutoscalerDoesNotKnowDrawsAWarning(t *testing.T) {
	deployment := func(image string, args ...string) appsv1.Deployment {
		d := appsv1.Deployment{}
		d.Namespace, d.Name = "kube-system", "scaler"
		d.Spec.Template.Spec.Containers = []corev1.Container{{Image: image, Args: args}}
		return d
	}
	const own, known = "--startup-taint=assay.dev/pending", "--startup-taint=startup-taint.cluster-autoscaler.kubernetes.io/features"
	image := "registry.example.com/autoscaling/cluster-autoscaler-amd64:v1.36.1"
	for name, test := range map[string]struct {
		controller []string
		others     []appsv1.Deployment
		warns      bool
	}{
		"OwnKey":           {[]string{own}, []appsv1.Deployment{deployment("nginx"), deployment(image)}, true},
		"ByItsCommand":     {[]string{own}, []appsv1.Deployment{deployment("example.com/scaler", "./cluster-autoscaler")}, true},
		"OtherFlag":        {[]string{own}, []appsv1.Deployment{deployment(image, "--startup-taint=other.example.com/x")}, true},
		"GivenToIt":        {[]string{own}, []appsv1.Deployment{deployment(image, own)}, false},
		"ItsPrefix":        {[]string{known}, []appsv1.Deployment{deployment(image)}, false},
		"NoTaint":          {nil, []appsv1.Deployment{deployment(image)}, false},
		"NoAutoscaler":     {[]string{own}, []appsv1.Deployment{deployment("nginx")}, false},
		"AnotherOfTheName": {[]string{own}, []appsv1.Deployment{deployment("example.com/my-cluster-autoscaler-exporter")}, false},
	} {
		controller := deployment("assay-manager", test.controller...)
		text, fix := unknownTaint(&controller, test.others)
		if warns := text != ""; warns != test.warns || warns && (!strings.Contains(text, "kube-system/scaler") || !strings.Contains(fix, own)) {
			t.Errorf("%s: %q, %q", name, text, fix)
		}
	}
}

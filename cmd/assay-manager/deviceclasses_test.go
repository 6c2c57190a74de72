//go:build linux

package main

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/assay-project/assay/internal/testkit"
)

// TestDeviceClassesClaimResources reads DeviceClasses from a real API server. The field is behind a feature gate: without it, nothing is
// claimed.
func TestDeviceClassesClaimResources(t *testing.T) {
	api := testkit.Client(t, testkit.Cluster(t).User)
	class := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "gpu-"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/gpu")},
	}
	testkit.Create(t, api, class)
	want := class.Name
	if class.Spec.ExtendedResourceName == nil {
		want = ""
	}
	d := &deviceClasses{api: api}
	if got := d.of("example.com/gpu"); got != want {
		t.Errorf("the class is %q, want %q", got, want)
	}
	if got := d.of("example.com/other"); got != "" {
		t.Errorf("another resource is claimed by %q", got)
	}
}

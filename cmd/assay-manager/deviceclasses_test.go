//go:build linux

package main

import (
	"context"
	"net/http"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/assay-project/assay/internal/fleet/resourceslice"
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
	of := claimed(api)
	if got := of("example.com/gpu"); got != want {
		t.Errorf("the class is %q, want %q", got, want)
	}
	if got := of("example.com/other"); got != "" {
		t.Errorf("another resource is claimed by %q", got)
	}
}

// TestReviewsKnowWhetherNodesCanHaveDevices asks a real API server that serves ResourceSlices. One that does not answers with status 404; an
// API server of this version does not start without them.
func TestReviewsKnowWhetherNodesCanHaveDevices(t *testing.T) {
	api := testkit.Client(t, testkit.Cluster(t).User)
	if why := noDevices(api)(); why != "" {
		t.Errorf("no devices, because %s", why)
	}
	old := interceptor.NewClient(api, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}
	}})
	if why := noDevices(old)(); why != resourceslice.ErrNotServed.Error() {
		t.Errorf("the reason for missing devices: %q", why)
	}
}

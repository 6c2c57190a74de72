package rule

import (
	"context"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/assay-project/assay/controller/provenance"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/sim/apiserver"
)

// TestTheResultOfAnObjectGoesWithTheObject starts a manager with stored results: of an object that exists, and of one that was deleted
// while no manager was running.
func TestTheResultOfAnObjectGoesWithTheObject(t *testing.T) {
	server := apiserver.New(apiserver.Resources()...)
	if code, answer := server.Do("user", http.MethodPost, "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeaturerules", apiserver.Object{
		"metadata": apiserver.Object{"name": "here"},
	}); code >= http.StatusMultipleChoices {
		t.Fatalf("%d %s", code, answer)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, nodefeature.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	api, err := client.NewWithWatch(&rest.Config{
		Host: "http://model", Transport: server.NewClient("controller").Direct(), QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	stored := &corev1.ConfigMap{BinaryData: map[string][]byte{"here": []byte("1"), "gone": []byte("2")}}
	stored.Namespace, stored.Name = "assay", "state"
	if err := api.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	results := func() map[string][]byte {
		t.Helper()
		var m corev1.ConfigMap
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(stored), &m); err != nil {
			t.Fatal(err)
		}
		return m.BinaryData
	}
	away := interceptor.NewClient(api, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return apierrors.NewServiceUnavailable("away")
	}})
	k := &keeper{live: away, store: provenance.NewStore(api, api, "assay", "state")}
	if err := k.keep(t.Context(), "new", nil); !apierrors.IsServiceUnavailable(err) || len(results()) != 2 {
		t.Errorf("the API server is away: error %v, and %d results are left", err, len(results()))
	}
	k.live = api
	if err := k.keep(t.Context(), "new", nil); err != nil {
		t.Fatal(err)
	}
	if got := results(); len(got) != 1 || string(got["here"]) != "1" {
		t.Errorf("the stored results are %q", got)
	}
}

package nodefeature

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// oldServer is a fake API server that has five NodeFeatures and does not support streaming.
type oldServer struct{ pages chan metav1.ListOptions }

func (s *oldServer) list(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.pages <- o
	first, last := 0, 5
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &first); err != nil {
			return nil, err
		}
	}
	list := &NodeFeatureList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	if o.Limit > 0 && first+int(o.Limit) < last {
		last = first + int(o.Limit)
		list.Continue = fmt.Sprint(last)
	}
	for i := first; i < last; i++ {
		list.Items = append(list.Items, NodeFeature{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), ResourceVersion: "7"}})
	}
	return list, nil
}

func (s *oldServer) watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "watch", schema.GroupResource{}, "", "sendInitialEvents is forbidden", 0, false)
	}
	return watch.NewFake(), nil
}

func TestOldServersAreAskedForPages(t *testing.T) {
	server := &oldServer{pages: make(chan metav1.ListOptions, 10)}
	lw := &cache.ListWatch{ListWithContextFunc: server.list, WatchFuncWithContext: server.watch}
	informer := Paged(2)(lw, &NodeFeature{}, 0, nil)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer has not listed")
	}
	if n := len(informer.GetStore().ListKeys()); n != 5 {
		t.Errorf("it has %d NodeFeatures, want 5", n)
	}
	if len(server.pages) != 3 {
		t.Fatalf("there were %d requests, want 3", len(server.pages))
	}
	for range 3 {
		if o := <-server.pages; o.Limit != 2 || o.ResourceVersion != "" {
			t.Errorf("asked for limit %d at version %q, want 2 at the latest", o.Limit, o.ResourceVersion)
		}
	}
}

package nodefeature

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// Paged returns a constructor of informers that list NodeFeatures in pages of size objects (0: no paging) if they must be listed.
// API servers from Kubernetes 1.34 on stream them one by one instead. An older one builds the whole list in memory if it serves it
// from the watch cache, which ignores limits: therefore pages are read from etcd.
func Paged(size int64) NewInformer {
	return func(lw cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		if _, large := object.(*NodeFeature); large && size > 0 {
			lw = paged{lw, size}
		}
		return cache.NewSharedIndexInformer(lw, object, resync, indexers)
	}
}

// paged adds a limit to lists.
type paged struct {
	cache.ListerWatcher
	size int64
}

// ListWithContext returns a page of the list.
func (p paged) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.Limit = p.size
	if options.ResourceVersion == "0" {
		options.ResourceVersion = "" // "0" asks for the watch cache
	}
	return cache.ToListerWithContext(p.ListerWatcher).ListWithContext(ctx, options)
}

// WatchWithContext returns the unmodified watch, including streamed lists.
func (p paged) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return cache.ToWatcherWithContext(p.ListerWatcher).WatchWithContext(ctx, options)
}

// IsWatchListSemanticsUnSupported is the method by which client-go checks for streaming support.
func (p paged) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(p.ListerWatcher)
}

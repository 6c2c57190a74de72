package main

import (
	"context"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/resourceslice"
)

const (
	// recentFor is how long what reviews have read of the cluster is used. A review asks once for each extended resource of its rules, of
	// which there can be thousands: a request for each would exceed the timeout of the webhook. A warning that is missing or late for so
	// long does no harm.
	recentFor = 10 * time.Second
	// recentTimeout is the maximum time that such a review waits for the API server. A warning may be missing, but the review must answer.
	recentTimeout = 500 * time.Millisecond
)

// recent reads something from the API server when it is needed, and not more often than every recentFor. It is safe for concurrent use.
type recent[T any] struct {
	read func(context.Context) T

	mu    sync.Mutex
	at    time.Time
	value T
}

func (r *recent[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) > recentFor {
		ctx, cancel := context.WithTimeout(context.Background(), recentTimeout)
		defer cancel()
		r.at, r.value = time.Now(), r.read(ctx)
	}
	return r.value
}

// claimed returns a lookup of the DeviceClass that claims an extended resource: "" also if the cluster does not serve DeviceClasses, or if
// they cannot be read.
func claimed(api client.Reader) func(resource string) string {
	classes := &recent[map[string]string]{read: func(ctx context.Context) map[string]string {
		var list resourcev1.DeviceClassList
		if err := api.List(ctx, &list); err != nil {
			return nil
		}
		return resourceslice.Claimed(list.Items)
	}}
	return func(resource string) string { return classes.get()[resource] }
}

// noDevices returns a function that returns why no node of the cluster can have devices of DRA drivers: "" also if that is not known.
func noDevices(api client.Reader) func() string {
	return (&recent[string]{read: func(ctx context.Context) string {
		if err, absent := devices.Served(ctx, api); absent {
			return err.Error()
		}
		return ""
	}}).get
}

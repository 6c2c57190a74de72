package main

import (
	"context"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/fleet/resourceslice"
)

const (
	// classesFor is how long a list of DeviceClasses is used. A review asks once for each extended resource of its rules, of which there can
	// be thousands: a list for each would exceed the timeout of the webhook. A warning that is missing or late for so long does no harm.
	classesFor = 10 * time.Second
	// classesTimeout is the maximum time that such a review waits for the list. A warning may be missing, but the review must answer.
	classesTimeout = 500 * time.Millisecond
)

// deviceClasses knows the extended resources that DeviceClasses claim. It lists them when asked: there are few, and they are rarely needed.
// It is safe for concurrent use.
type deviceClasses struct {
	api client.Reader

	mu      sync.Mutex
	listed  time.Time
	claimed map[string]string // classes by resource
}

// of returns the class that claims an extended resource, or "": also if the cluster does not serve DeviceClasses, or if they cannot be read.
func (d *deviceClasses) of(resource string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.listed) > classesFor {
		d.listed, d.claimed = time.Now(), d.list()
	}
	return d.claimed[resource]
}

func (d *deviceClasses) list() map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), classesTimeout)
	defer cancel()
	var list resourcev1.DeviceClassList
	if err := d.api.List(ctx, &list); err != nil {
		return nil
	}
	return resourceslice.Claimed(list.Items)
}

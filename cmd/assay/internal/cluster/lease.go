package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

const (
	// missedRenewals is the number of lease durations after which the holder counts as dead. Another replica takes over after one.
	missedRenewals = 2
	// defaultLease is the duration of a Lease without a duration.
	defaultLease = 15 * time.Second
)

// Leader is the replica of a controller that holds its Lease.
type Leader struct {
	// Lease is the namespace and name of the Lease, Pod the holder; empty: no replica holds it.
	Lease string `json:"lease"`
	Pod   string `json:"pod,omitempty"`
	// Renewed is the time since the last renewal, in seconds in JSON.
	Renewed time.Duration `json:"-"`
	// Alive is set if the holder renews the Lease in time.
	Alive bool `json:"alive"`
}

// LeaderOf returns the holder of the Lease of a controller; l is nil if the Lease does not exist.
func LeaderOf(l *coordinationv1.Lease, namespace, instance string, now time.Time) Leader {
	out := Leader{Lease: namespace + "/" + nfdv1alpha1.LeaseName(instance)}
	if l == nil || ptr.Deref(l.Spec.HolderIdentity, "") == "" {
		return out
	}
	out.Pod, _, _ = strings.Cut(*l.Spec.HolderIdentity, "_")
	life := defaultLease
	if seconds := ptr.Deref(l.Spec.LeaseDurationSeconds, 0); seconds > 0 {
		life = time.Duration(seconds) * time.Second
	}
	if l.Spec.RenewTime != nil {
		out.Renewed = max(0, now.Sub(l.Spec.RenewTime.Time))
		out.Alive = out.Renewed <= missedRenewals*life
	}
	return out
}

// String describes the holder.
func (l Leader) String() string {
	switch {
	case l.Pod == "":
		return fmt.Sprintf("no replica of the controller holds Lease %s, or it runs without --enable-leader-election", l.Lease)
	case !l.Alive:
		return fmt.Sprintf("the controller does not run: %s has not renewed Lease %s for %s", l.Pod, l.Lease, l.Renewed.Round(time.Second))
	}
	return fmt.Sprintf("the controller runs: %s renewed Lease %s %s ago", l.Pod, l.Lease, l.Renewed.Round(time.Second))
}

// Leader returns the replica of a controller that holds its Lease.
func (c *Client) Leader(ctx context.Context, namespace, instance string) (Leader, error) {
	path := within("/apis/coordination.k8s.io/v1", namespace, "leases")
	l, err := get[coordinationv1.Lease](ctx, c, path, nfdv1alpha1.LeaseName(instance))
	if IsNotFound(err) {
		l, err = nil, nil
	}
	return LeaderOf(l, namespace, instance, c.Now()), err
}

// Leases returns the Leases of a namespace.
func (c *Client) Leases(ctx context.Context, namespace string) ([]coordinationv1.Lease, error) {
	return list[coordinationv1.Lease](ctx, c, within("/apis/coordination.k8s.io/v1", namespace, "leases"), nil)
}

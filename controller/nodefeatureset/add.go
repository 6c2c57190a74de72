// Package nodefeatureset keeps the NodeFeatureSets of the cluster complete, correct and in use.
//
// It announces to workers that sets are read, asks workers for sets that are missing, deletes sets whose content is not what their
// names say and sets that no NodeFeature names, and counts the nodes of each set.
package nodefeatureset

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/assay-project/assay/internal/fleet/featuresets"
)

// Options say when sets are deleted. The zero value is for production.
type Options struct {
	// Unused is how long a set is kept that no NodeFeature names any more.
	Unused time.Duration
	// Junk is how long a set is kept that no NodeFeature has ever named.
	Junk time.Duration
	// Interval is the maximum time between two passes; 0: 30 seconds.
	Interval time.Duration
	// Lease is the name of the controller's Lease in the namespace; empty without leader election.
	Lease string
	// Writable reports whether NodeFeatures and NodeFeatureSets may be written, and what is read of them is what workers wrote; nil: they may.
	Writable func() bool
	// Clock is for tests.
	Clock clock.Clock
}

// Add registers the reconciler, which runs on the leader only.
func Add(mgr ctrl.Manager, sets *featuresets.Store, namespace string, opt Options) error {
	if opt.Unused == 0 {
		opt.Unused = defaultUnused
	}
	if opt.Junk == 0 {
		opt.Junk = defaultJunk
	}
	if opt.Interval == 0 {
		opt.Interval = defaultInterval
	}
	if opt.Writable == nil {
		opt.Writable = func() bool { return true }
	}
	if opt.Clock == nil {
		opt.Clock = clock.RealClock{}
	}
	return mgr.Add(&reconciler{
		namespace: namespace, sets: sets, client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: opt.Clock, opt: opt,
		events:  mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
		missing: map[string]*missing{}, wrong: map[string]int{}, counts: map[types.UID]*count{},
	})
}

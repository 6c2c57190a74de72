package nodefeatureset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/featuresets"
)

const (
	// defaultUnused is the age at which a set that no NodeFeature names is deleted: a node that is away for repair finds it again.
	defaultUnused = 24 * time.Hour
	// defaultJunk is the age at which a set is deleted that no NodeFeature has ever named: a worker names a set within seconds of
	// creating it.
	defaultJunk = 10 * time.Minute
	// missingPatience is how long a name must be unresolved before workers are asked for the set: a NodeFeature may arrive before a
	// set that was created before it.
	missingPatience = 2 * time.Second
	// askAgain is how long the workers that were asked have time to create a set, before twice as many are asked.
	askAgain = 10 * time.Second
	// askFirst is the number of workers that are asked first. Thousands of nodes may name one set, and one worker is enough.
	askFirst = 3
	// takenAfter is the number of wrong sets of one name after which workers publish the feature in their NodeFeatures: a client creates them
	// again and again, and a worker takes a set for present by its name.
	takenAfter = 2
	// askPruned is the number of workers that are asked at once to publish whole NodeFeatures, after the API server dropped the names of
	// sets or a client took them: each writes 130 kB.
	askPruned = 32
	// defaultInterval is the maximum time between two passes, and collectInterval that between two searches for sets to delete.
	defaultInterval = 30 * time.Second
	collectInterval = 2 * time.Minute
	// discoverInterval is the time between two searches for any set, while no NodeFeature names one.
	discoverInterval = 10 * time.Minute
	// maxKnown is the maximum number of sets that the marker lists: 8 kB, which every worker reads when it starts. Nodes of 20 kinds have
	// about 120. Workers read the sets that are not listed one by one.
	maxKnown = 128
	// pause is the minimum time between two passes: a fleet that starts changes what is in use thousands of times.
	pause = time.Second
	// retry is the time after which a pass that failed is repeated.
	retry = 5 * time.Second
)

// reconciler is the runnable of the leader. Only its own goroutine uses it.
type reconciler struct {
	namespace string
	sets      *featuresets.Store
	client    client.Client
	live      client.Reader
	events    record.EventRecorder
	clock     clock.Clock
	opt       Options

	missing    map[string]*missing           // by set
	wrong      map[string]int                // number of wrong sets that were deleted, by name, of those that NodeFeatures name
	asked      map[types.NamespacedName]bool // NodeFeatures that may have the annotation; nil: unknown
	counts     map[types.UID]*count          // by set
	unnamed    map[types.UID]time.Time       // since when no NodeFeature names a set that was never named, or is of an unknown version, as this process has seen
	collected  time.Time                     // when sets to delete were last searched for
	discovered time.Time                     // when sets were last searched for at all
	announcer  string                        // the value of AnnouncedByAnnotation; empty: not known yet
	obstructed string                        // why workers cannot share features yet
}

// Start implements manager.Runnable.
func (r *reconciler) Start(ctx context.Context) error {
	for {
		wait, err := r.pass(ctx)
		if err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "Cannot maintain NodeFeatureSets")
			wait = retry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.clock.After(pause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.sets.Changed():
		case <-r.clock.After(max(wait-pause, 0)):
		}
	}
}

// pass does everything that is due, and returns when something is due again. An error in one step does not keep the others. While the
// definition of one of the kinds is not whole, it does nothing: sets seem to be unused whose names the API server drops when it answers, and an
// annotation would make it store NodeFeatures without these names. Workers find out by themselves that they have to publish without sets.
func (r *reconciler) pass(ctx context.Context) (time.Duration, error) {
	if !r.opt.Writable() {
		return pause, nil
	}
	if !r.sets.Synced() {
		return r.opt.Interval, errors.Join(r.announce(ctx, nil), r.discover(ctx))
	}
	usage := r.sets.Usage()
	wait, failed := r.request(ctx, usage)
	var list assayv1alpha1.NodeFeatureSetList
	if listed := r.client.List(ctx, &list, client.InNamespace(r.namespace), client.UnsafeDisableDeepCopy); listed != nil {
		return r.opt.Interval, errors.Join(failed, fmt.Errorf("list NodeFeatureSets: %w", listed))
	}
	slices.SortFunc(list.Items, func(a, b assayv1alpha1.NodeFeatureSet) int { return strings.Compare(a.Name, b.Name) })
	err := errors.Join(failed, r.announce(ctx, inUse(list.Items, usage)), r.deleteWrong(ctx), r.markUnused(ctx, list.Items, usage), r.collect(ctx, list.Items, usage))
	later, failed := r.report(ctx, list.Items, usage)
	return min(wait, later, r.opt.Interval), errors.Join(err, failed)
}

// patch changes metadata or the status of a set, and of nothing else.
func (r *reconciler) patch(ctx context.Context, o client.Object, body string, status bool) error {
	meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
	meta.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	patch := client.RawPatch(types.MergePatchType, []byte(body))
	if status {
		return client.IgnoreNotFound(r.client.Status().Patch(ctx, meta, patch))
	}
	return client.IgnoreNotFound(r.client.Patch(ctx, meta, patch))
}

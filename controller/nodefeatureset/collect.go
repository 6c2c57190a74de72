package nodefeatureset

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/listing"
	"github.com/assay-project/assay/internal/nodefeature"
)

// deleteWrong deletes the sets whose content is not what their names say. Workers create the correct ones.
func (r *reconciler) deleteWrong(ctx context.Context) error {
	var errs []error
	for _, set := range r.sets.Wrong() {
		deleted, err := r.remove(ctx, set)
		if err != nil {
			errs = append(errs, err)
		} else if deleted {
			r.wrong[set.Name]++
			node := set.Labels[assayv1alpha1.CreatedByNodeLabel]
			logf.FromContext(ctx).Info("Deleted a NodeFeatureSet whose content does not match its name", "set", set.Name, "createdByNode", node)
			r.events.Eventf(set, corev1.EventTypeWarning, "WrongFeatureSet",
				"deleted, because its features do not have the digest that its name contains; its label says that node %q created it", node)
		}
	}
	return errors.Join(errs...)
}

// remove deletes a set as it is known, and reports whether that was so.
func (r *reconciler) remove(ctx context.Context, set *assayv1alpha1.NodeFeatureSet) (bool, error) {
	err := r.client.Delete(ctx, set.DeepCopy(), client.Preconditions{UID: &set.UID, ResourceVersion: &set.ResourceVersion})
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false, nil
	}
	return false, fmt.Errorf("delete NodeFeatureSet %s: %w", set.Name, err)
}

// named reports whether a NodeFeature has named the set at some time: then its nodes have been counted.
func named(set *assayv1alpha1.NodeFeatureSet) bool { return set.Status.Nodes != nil }

// markUnused notes on sets since when no NodeFeature names them. The next leader goes on from there.
func (r *reconciler) markUnused(ctx context.Context, list []assayv1alpha1.NodeFeatureSet, usage featuresets.Usage) error {
	var errs []error
	for i := range list {
		set := &list[i]
		var value string
		marked := !unusedSince(set).IsZero()
		switch {
		case featureset.Known(set.Name) != nil:
			continue
		case usage.Nodes[set.Name] > 0 && set.Annotations[assayv1alpha1.UnusedSinceAnnotation] != "":
			value = "null"
		case usage.Nodes[set.Name] == 0 && named(set) && !marked:
			value = fmt.Sprintf("%q", r.clock.Now().UTC().Format(time.RFC3339))
		default:
			continue
		}
		set.SetGroupVersionKind(assayv1alpha1.NodeFeatureSetGVK)
		if err := r.patch(ctx, set, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, assayv1alpha1.UnusedSinceAnnotation, value), false); err != nil {
			errs = append(errs, fmt.Errorf("annotate NodeFeatureSet %s: %w", set.Name, err))
		}
	}
	return errors.Join(errs...)
}

// unusedSince returns since when no NodeFeature names a set, as noted on it; zero: nothing valid is noted.
func unusedSince(set *assayv1alpha1.NodeFeatureSet) time.Time {
	t, err := time.Parse(time.RFC3339, set.Annotations[assayv1alpha1.UnusedSinceAnnotation])
	if err != nil {
		return time.Time{}
	}
	return t
}

// collect deletes sets that no NodeFeature has named for a while, once a list of all NodeFeatures confirms it. Sets that were never named are
// counted from when this process saw them first: a worker is about to name one that it has just created, and by the clock of another machine it
// could be old. Sets of an unknown format version, which this controller does not annotate, are deleted like them: any name could be one of them.
func (r *reconciler) collect(ctx context.Context, list []assayv1alpha1.NodeFeatureSet, usage featuresets.Usage) error {
	now := r.clock.Now()
	if now.Sub(r.collected) < collectInterval {
		return nil
	}
	r.collected = now
	var due []*assayv1alpha1.NodeFeatureSet
	unnamed := map[types.UID]time.Time{}
	for i := range list {
		switch set := &list[i]; {
		case usage.Nodes[set.Name] > 0:
		case featureset.Known(set.Name) != nil || !named(set):
			since := r.unnamed[set.UID]
			if since.IsZero() {
				since = now
			}
			if unnamed[set.UID] = since; now.Sub(since) >= r.opt.Junk {
				due = append(due, set)
			}
		case r.expired(set, now):
			due = append(due, set)
		}
	}
	r.unnamed = unnamed
	if len(due) == 0 {
		return nil
	}
	used := map[string]bool{}
	err := listing.Pages(ctx, r.live, func(list *nodefeature.NodeFeatureList) {
		for i := range list.Items {
			for _, name := range list.Items[i].Spec.FeatureSets {
				used[name] = true
			}
		}
	}, client.InNamespace(r.namespace))
	if err != nil {
		return fmt.Errorf("list NodeFeatures: %w", err)
	}
	var errs []error
	deleted := 0
	for _, set := range due {
		if used[set.Name] {
			continue // the cache is behind
		}
		ok, err := r.remove(ctx, set)
		if err != nil {
			errs = append(errs, err)
		} else if ok {
			deleted++
		}
	}
	if deleted > 0 {
		logf.FromContext(ctx).Info("Deleted NodeFeatureSets that no NodeFeature names", "number", deleted)
	}
	return errors.Join(errs...)
}

// expired reports whether a set that no NodeFeature names any more has been kept long enough.
func (r *reconciler) expired(set *assayv1alpha1.NodeFeatureSet, now time.Time) bool {
	since := unusedSince(set)
	return !since.IsZero() && now.Sub(since) >= r.opt.Unused
}

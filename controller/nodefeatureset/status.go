package nodefeatureset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	"github.com/assay-project/assay/internal/fleet/featuresets"
)

const (
	// settled is how long the number of nodes of a set must be the same before it is written: each write is sent to all readers of the
	// set, with its features.
	settled = 10 * time.Second
	// overdue is how long it may keep changing without being written.
	overdue = 5 * time.Minute
)

// count is a number of nodes that the status of a set does not show yet.
type count struct {
	nodes   int
	since   time.Time // since when it is this number
	changed time.Time // since when the status shows another number
	written bool
}

// report writes the status of sets whose number of nodes has changed, and returns when something is due again.
func (r *reconciler) report(ctx context.Context, list []assayv1alpha1.NodeFeatureSet, usage featuresets.Usage) (time.Duration, error) {
	wait, now := r.opt.Interval, r.clock.Now()
	var errs []error
	counts := map[types.UID]*count{}
	for i := range list {
		set := &list[i]
		nodes := usage.Nodes[set.Name]
		if shown := set.Status.Nodes; featureset.Known(set.Name) != nil || shown == nil && nodes == 0 || shown != nil && int(*shown) == nodes {
			continue
		}
		c := r.counts[set.UID]
		if c == nil {
			c = &count{nodes: nodes, since: now, changed: now}
		}
		if c.nodes != nodes {
			c = &count{nodes: nodes, since: now, changed: c.changed}
		}
		counts[set.UID] = c
		if c.written {
			continue // the cache is behind
		}
		if left := min(settled-now.Sub(c.since), overdue-now.Sub(c.changed)); left > 0 {
			wait = min(wait, left)
			continue
		}
		if err := r.writeStatus(ctx, set, nodes); err != nil {
			errs = append(errs, err)
			continue
		}
		c.written, c.changed = true, now
	}
	r.counts = counts
	return wait, errors.Join(errs...)
}

// writeStatus writes the status of a set.
func (r *reconciler) writeStatus(ctx context.Context, set *assayv1alpha1.NodeFeatureSet, nodes int) error {
	content, ok := r.sets.Content(set.Name)
	if !ok {
		return nil // it is wrong, and about to be deleted
	}
	body, err := json.Marshal(map[string]any{"status": assayv1alpha1.NodeFeatureSetStatus{
		Feature: content.Feature, Nodes: ptr.To(int32(nodes)), Elements: ptr.To(int32(content.Elements)), Bytes: ptr.To(int64(content.Bytes)), //nolint:gosec // far below 2³¹
	}})
	if err != nil {
		return err
	}
	set.SetGroupVersionKind(assayv1alpha1.NodeFeatureSetGVK)
	if err := r.patch(ctx, set, string(body), true); err != nil {
		return fmt.Errorf("write the status of NodeFeatureSet %s: %w", set.Name, err)
	}
	return nil
}

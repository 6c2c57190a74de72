package node

import (
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/plan"
)

// nudgeEvery is the minimum interval between writes to a Node that only notify schedulers, in case a feature changes ten times a
// second.
const nudgeEvery = 10 * time.Second

// nudge returns the value of the annotation that notifies schedulers of changed features, and when to check again if the write has
// to wait; empty: no change.
//
// The scheduler retries a pod that the extender rejected when a Node changes, or else after five minutes. It does not watch
// NodeFeatures. The value is computed from the objects alone, so that a restart causes no write.
func (r *Reconciler) nudge(node *corev1.Node, features []*nodefeature.NodeFeature, known *memo) (value string, again time.Duration) {
	if !r.nudges {
		// The annotation was enabled before. Remove it before the first write only: another instance that still uses it would write
		// it again.
		if known.written == "" {
			return plan.NoGeneration, 0
		}
		return "", 0
	}
	h := fnv.New64a()
	for _, f := range features {
		fmt.Fprintf(h, "%s %d\n", f.UID, f.Generation)
	}
	value = fmt.Sprintf("%016x", h.Sum64())
	now, current := r.clock.Now(), node.Annotations[assayv1alpha1.FeaturesGenerationAnnotation]
	if value == current {
		return value, 0
	}
	if wait := nudgeEvery - now.Sub(known.nudged); current != "" && wait > 0 && !known.nudged.IsZero() {
		return current, wait
	}
	known.nudged = now
	return value, 0
}

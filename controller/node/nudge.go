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

// nudgeEvery is how often a Node is written only because its features have changed. A feature that changes ten times a second
// must not.
const nudgeEvery = 10 * time.Second

// nudge returns what the annotation says by which schedulers notice that features of a node have changed, and when to look
// again if it has to wait; empty: nothing is to be changed.
//
// A pod that the extender has rejected is tried again when something happens to a Node, else after five minutes. A change of a
// NodeFeature is nothing that a scheduler hears of. The value is made of the objects alone, so that a restart writes nothing.
func (r *Reconciler) nudge(node *corev1.Node, features []*nodefeature.NodeFeature, known *memo) (value string, again time.Duration) {
	if !r.nudges {
		// It was wanted once. Before the first write only: another instance may want it still, and would write it again.
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

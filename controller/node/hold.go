package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
)

// DefaultGrace is how long what a worker has published goes on counting after its object has vanished without its Node: time
// to reinstall a DaemonSet, and to notice that one has deleted a namespace.
const DefaultGrace = 10 * time.Minute

// gather returns the NodeFeatures that count for a node. If the worker's own one has vanished, the last one seen goes on
// counting for a while; held says how long still. A process that never saw one holds removals instead (see guard).
//
// An object that is missing from the cache is only believed to be gone once the API server says so too.
func (r *Reconciler) gather(ctx context.Context, node *corev1.Node, known *memo) (list []*nodefeature.NodeFeature, held time.Duration, err error) {
	list, left, err := r.list(ctx, node)
	if err != nil {
		return nil, 0, err
	}
	if err := r.confirmLost(ctx, node, known, list, left); err != nil {
		return nil, 0, err
	}
	for _, f := range list {
		if r.merge.Own(f) {
			known.own, known.lostAt, known.stranger = f, time.Time{}, false
			return list, 0, nil
		}
	}
	if known.lostAt.IsZero() {
		known.lostAt = r.clock.Now()
	}
	held = r.grace - r.clock.Since(known.lostAt)
	if held <= 0 {
		known.own, known.stranger = nil, false
		return list, 0, nil
	}
	if known.own == nil {
		return list, held, nil
	}
	list = append(list, known.own)
	r.merge.Sort(list)
	return list, held, nil
}

// confirmLost asks the API server itself for each object that counted with the last pass and is no longer in the cache (left
// are there and do not count), and on the first pass for the worker's object: a cache may have been filled from a list that lacked some.
func (r *Reconciler) confirmLost(ctx context.Context, node *corev1.Node, known *memo, list []*nodefeature.NodeFeature, left []client.ObjectKey) error {
	seen := make(map[client.ObjectKey]bool, len(list)+len(left))
	for _, key := range left {
		seen[key] = true
	}
	for _, f := range list {
		seen[client.ObjectKeyFromObject(f)] = true
	}
	before := known.seen
	if before == nil {
		before = map[client.ObjectKey]bool{{Namespace: r.sources.Namespace, Name: node.Name}: true}
	}
	for _, key := range slices.SortedFunc(maps.Keys(before), compareKeys) {
		if seen[key] {
			continue
		}
		here, err := r.stillThere(ctx, key, node)
		if err != nil {
			return err
		}
		if here {
			return errStale
		}
	}
	known.seen = seen
	return nil
}

func compareKeys(a, b client.ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// confirmFacts asks the API server, before a first pass takes away what facts explain, whether the cache has all that is published for
// the node: nothing is known of what counted before this process, and a list may have been cut short.
func (r *Reconciler) confirmFacts(ctx context.Context, node *corev1.Node, known *memo) error {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(nfdv1alpha1.GroupVersion.WithKind("NodeFeatureList"))
	if err := r.live.List(ctx, &list, client.MatchingLabels{nfdv1alpha1.NodeNameLabel: node.Name}); err != nil {
		return err
	}
	for i := range list.Items {
		f := &list.Items[i]
		key := client.ObjectKeyFromObject(f)
		if f.DeletionTimestamp != nil || known.seen[key] {
			continue
		}
		err := r.client.Get(ctx, key, &nodefeature.NodeFeature{}, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			return errStale
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stillThere asks the API server itself whether an object that counts for the node exists.
func (r *Reconciler) stillThere(ctx context.Context, key client.ObjectKey, node *corev1.Node) (bool, error) {
	var f metav1.PartialObjectMetadata
	f.SetGroupVersionKind(nfdv1alpha1.GroupVersion.WithKind("NodeFeature"))
	if err := r.live.Get(ctx, key, &f); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if f.Labels[nfdv1alpha1.NodeNameLabel] != node.Name || f.DeletionTimestamp != nil || !r.merge.Counts(&f, node) {
		return false, nil
	}
	return r.trusted(ctx, f.Namespace)
}

package nodefeatureset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/nodefeature"
)

// missing is what is known of a set that NodeFeatures name and that does not exist.
type missing struct {
	since   time.Time
	checked time.Time // when the API server last confirmed that it does not exist; zero: not yet
	ask     int       // number of workers to ask
}

// request asks workers to create sets that are missing: in an annotation of their NodeFeatures, which it removes again when the sets
// are there. It returns when something is due again.
func (r *reconciler) request(ctx context.Context, usage featuresets.Usage) (time.Duration, error) {
	wait, now := r.opt.Interval, r.clock.Now()
	for name := range r.missing {
		if usage.Missing[name] == nil {
			delete(r.missing, name)
		}
	}
	maps.DeleteFunc(r.wrong, func(name string, _ int) bool { return usage.Nodes[name] == 0 })
	wanted := map[types.NamespacedName][]string{}
	byName := func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(usage.Pruned, byName)
	for _, key := range usage.Pruned[:min(askPruned, len(usage.Pruned))] {
		wanted[key] = []string{assayv1alpha1.PrunedFeatureSets}
	}
	for _, name := range slices.Sorted(maps.Keys(usage.Missing)) {
		m, keys := r.missing[name], usage.Missing[name]
		if r.wrong[name] >= takenAfter {
			slices.SortFunc(keys, byName)
			for _, key := range keys[:min(askPruned, len(keys))] {
				wanted[key] = append(wanted[key], assayv1alpha1.InlineFeatureSet+name)
			}
			continue
		}
		if m == nil {
			m = &missing{since: now}
			r.missing[name] = m
		}
		due, err := r.confirm(ctx, name, m, len(keys))
		if err != nil {
			return retry, err
		}
		wait = min(wait, due)
		slices.SortFunc(keys, byName)
		for _, key := range keys[:min(m.ask, len(keys))] {
			wanted[key] = append(wanted[key], name)
		}
	}
	return wait, r.annotate(ctx, wanted)
}

// confirm decides how many workers to ask for a set, and returns when to decide again. The cache may be behind: only the API server knows
// that a set does not exist.
func (r *reconciler) confirm(ctx context.Context, name string, m *missing, nodes int) (time.Duration, error) {
	now := r.clock.Now()
	due := m.since.Add(missingPatience)
	if !m.checked.IsZero() {
		due = m.checked.Add(askAgain)
	}
	if now.Before(due) {
		return due.Sub(now), nil
	}
	set := &metav1.PartialObjectMetadata{}
	set.SetGroupVersionKind(assayv1alpha1.NodeFeatureSetGVK)
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: name}, set)
	if client.IgnoreNotFound(err) != nil {
		return retry, fmt.Errorf("look up NodeFeatureSet %s: %w", name, err)
	}
	m.checked = now
	switch {
	case err == nil:
		m.ask = 0
	case m.ask == 0:
		m.ask = askFirst
	default:
		m.ask = min(2*m.ask, nodes)
	}
	return askAgain, nil
}

// annotate makes the annotations of NodeFeatures say which sets are missing.
func (r *reconciler) annotate(ctx context.Context, wanted map[types.NamespacedName][]string) error {
	if r.asked == nil { // by the leader before this one
		var list nodefeature.NodeFeatureList
		if err := r.client.List(ctx, &list, client.InNamespace(r.namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list NodeFeatures: %w", err)
		}
		r.asked = map[types.NamespacedName]bool{}
		for i := range list.Items {
			if f := &list.Items[i]; f.Annotations[assayv1alpha1.MissingFeatureSetsAnnotation] != "" {
				r.asked[client.ObjectKeyFromObject(f)] = true
			}
		}
	}
	for key := range wanted {
		r.asked[key] = true
	}
	byName := func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) } // all are in one namespace
	for _, key := range slices.SortedFunc(maps.Keys(r.asked), byName) {
		if err := r.ask(ctx, key, wanted[key]); err != nil {
			return fmt.Errorf("annotate NodeFeature %s: %w", key, err)
		}
		if wanted[key] == nil {
			delete(r.asked, key)
		}
	}
	return nil
}

// ask makes the annotation of a NodeFeature name these sets; none removes it, also if the cache does not show it yet.
func (r *reconciler) ask(ctx context.Context, key types.NamespacedName, sets []string) error {
	value := "null"
	if len(sets) > 0 {
		var f nodefeature.NodeFeature
		if err := r.client.Get(ctx, key, &f, client.UnsafeDisableDeepCopy); err != nil {
			return client.IgnoreNotFound(err)
		}
		slices.Sort(sets)
		text := strings.Join(sets, ",")
		if f.Annotations[assayv1alpha1.MissingFeatureSetsAnnotation] == text {
			return nil
		}
		value = fmt.Sprintf("%q", text)
	}
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	o.SetGroupVersionKind(nfdv1alpha1.GroupVersion.WithKind("NodeFeature"))
	err := r.patch(ctx, o, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, assayv1alpha1.MissingFeatureSetsAnnotation, value), false)
	if err == nil && len(sets) > 0 {
		r.events.Eventf(o, corev1.EventTypeWarning, "FeatureSetsMissing",
			"%v; the last complete features stay active", &featuresets.MissingError{Sets: names(sets)})
	}
	return err
}

// names returns the names of sets that a worker is asked for.
func names(asked []string) []string {
	out := slices.Clone(asked)
	for i := range out {
		out[i] = strings.TrimPrefix(out[i], assayv1alpha1.InlineFeatureSet)
	}
	return out
}

package inputs

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/gather"
)

// ErrStale is returned when the cache is known to lack an object that the API server has.
var ErrStale = errors.New("the cache is stale; retrying")

// confirmLost reads from the API server each object that counted the last time and is no longer in the cache (ignored objects are
// in the cache and do not count), and the first time also the worker's object: the cache may have been filled from an incomplete
// list.
func (n *Nodes) confirmLost(ctx context.Context, node *corev1.Node, m *memory, s *State) error {
	seen := s.objects()
	before := m.seen
	if before == nil {
		before = []client.ObjectKey{{Namespace: n.opt.Policy.Namespace, Name: node.Name}}
	}
	for _, key := range before {
		if seen[key] {
			continue
		}
		here, err := n.stillThere(ctx, key, node)
		if err != nil {
			return err
		}
		if here {
			return ErrStale
		}
	}
	m.seen = slices.AppendSeq(make([]client.ObjectKey, 0, len(seen)), maps.Keys(seen)) // a map would have 1 kB for each node
	slices.SortFunc(m.seen, compareKeys)
	return nil
}

func compareKeys(a, b client.ObjectKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// stillThere reads from the API server whether an object that counts for the node exists.
func (n *Nodes) stillThere(ctx context.Context, key client.ObjectKey, node *corev1.Node) (bool, error) {
	if n.opt.Live == nil {
		return false, nil
	}
	var f metav1.PartialObjectMetadata
	f.SetGroupVersionKind(nfdv1alpha1.GroupVersion.WithKind("NodeFeature"))
	if err := n.opt.Live.Get(ctx, key, &f); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	published := gather.Describe(&f)
	if published.Node != node.Name {
		return false, nil
	}
	return n.counts(ctx, published, node)
}

// Confirm checks with the API server that a State includes every NodeFeature of its node, and returns ErrStale if it does not. What
// counted before this process started is unknown, and a list may have been incomplete.
func (n *Nodes) Confirm(ctx context.Context, s State) error {
	node, seen := s.Node, s.objects()
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(nodeFeatureList)
	if err := n.opt.Live.List(ctx, &list, client.MatchingLabels{nfdv1alpha1.NodeNameLabel: node.Name}); err != nil {
		return err
	}
	for i := range list.Items {
		f := &list.Items[i]
		if seen[client.ObjectKeyFromObject(f)] {
			continue
		}
		// It can be in the cache by now: it was not when the State was made.
		counts, err := n.counts(ctx, gather.Describe(f), node)
		if err != nil {
			return err
		}
		if counts {
			return ErrStale
		}
	}
	return nil
}

// ConfirmStart is like Confirm for objects that existed when ConfirmStart was called first: later ones arrive in watches. It lists the
// objects of all nodes once, and then those of a node only if the State lacks one of them. It does not compare the worker's object, which
// Of reads from the API server if it is missing.
func (n *Nodes) ConfirmStart(ctx context.Context, s State) error {
	others, err := n.othersAtStart(ctx)
	if err != nil {
		return err
	}
	seen := s.objects()
	if slices.ContainsFunc(others[s.Node.Name], func(key client.ObjectKey) bool { return !seen[key] }) {
		return n.Confirm(ctx, s)
	}
	return nil
}

// startPage is the number of objects per request of othersAtStart.
const startPage = 500

// othersAtStart returns, by node, the objects that are not workers' and that existed when it was called first.
func (n *Nodes) othersAtStart(ctx context.Context) (map[string][]client.ObjectKey, error) {
	release, err := n.startTurn.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if n.others != nil {
		return n.others, nil
	}
	others := map[string][]client.ObjectKey{}
	for next := ""; ; {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(nodeFeatureList)
		if err := n.opt.Live.List(ctx, &list, client.Limit(startPage), client.Continue(next)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			f := &list.Items[i]
			if node := f.Labels[nfdv1alpha1.NodeNameLabel]; f.Name != node || f.Namespace != n.opt.Policy.Namespace {
				others[node] = append(others[node], client.ObjectKeyFromObject(f))
			}
		}
		if next = list.Continue; next == "" {
			n.others = others
			return others, nil
		}
	}
}

var nodeFeatureList = nfdv1alpha1.GroupVersion.WithKind("NodeFeatureList")

// objects returns the objects that a State was made from.
func (s *State) objects() map[client.ObjectKey]bool {
	seen := map[client.ObjectKey]bool{}
	for _, f := range s.Features.All() {
		seen[client.ObjectKeyFromObject(f)] = true
	}
	for _, left := range s.LeftOut {
		seen[client.ObjectKeyFromObject(left.Object)] = true
	}
	return seen
}

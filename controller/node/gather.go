package node

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/feed"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// byNode is the index of NodeFeatures by the Node they describe. Without it each look-up would read all of them.
const byNode = "assay.dev/node"

func indexByNode(o client.Object) []string {
	if name := o.(*feed.NodeFeature).NodeName(); name != "" {
		return []string{name}
	}
	return nil
}

// Sources says which NodeFeatures count.
type Sources struct {
	// Namespace is the manager's and the worker's own.
	Namespace string
	// Namespaces chooses the namespaces whose NodeFeatures count by their labels; nil: all of them.
	Namespaces labels.Selector
	// IgnoreLabels leaves out spec.labels of all but the worker's own objects.
	IgnoreLabels bool
}

// own reports whether a NodeFeature is the worker's.
func (s Sources) own(f *feed.NodeFeature) bool {
	return f.Namespace == s.Namespace && f.Name == f.NodeName()
}

// list returns the NodeFeatures of a node in the order of their merging, the last one winning: the manager's own namespace
// first, then by name, then by namespace, as NFD does it.
func (r *Reconciler) list(ctx context.Context, node string) ([]*feed.NodeFeature, error) {
	var list feed.NodeFeatureList
	err := r.client.List(ctx, &list, client.MatchingFields{byNode: node}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	out := make([]*feed.NodeFeature, 0, len(list.Items))
	for i := range list.Items {
		f := &list.Items[i]
		ok, err := r.counts(ctx, f)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b *feed.NodeFeature) int {
		return cmp.Or(
			-compareBool(a.Namespace == r.sources.Namespace, b.Namespace == r.sources.Namespace),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Namespace, b.Namespace),
		)
	})
	return out, nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// counts reports whether the namespace of a NodeFeature is one whose features count.
func (r *Reconciler) counts(ctx context.Context, f *feed.NodeFeature) (bool, error) {
	if f.DeletionTimestamp != nil && len(f.Finalizers) == 0 {
		return false, nil
	}
	if r.sources.Namespaces == nil || f.Namespace == r.sources.Namespace {
		return true, nil
	}
	var ns corev1.Namespace
	if err := r.client.Get(ctx, client.ObjectKey{Name: f.Namespace}, &ns); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return r.sources.Namespaces.Matches(labels.Set(ns.Labels)), nil
}

// input is everything that the rules are given of a node.
func (r *Reconciler) input(node *corev1.Node, features []*feed.NodeFeature) rules.Input {
	in := rules.Input{Node: rules.Node{
		Name:        node.Name,
		Labels:      r.foreign(node.Labels, node.Annotations[r.policy.Record.Labels()]),
		Annotations: r.foreign(node.Annotations, node.Annotations[r.policy.Record.Annotations()]),
	}}
	all := make([]*facts.Facts, 0, len(features))
	for _, f := range features {
		all = append(all, f.Spec.Features.Facts)
		in.Publishers = append(in.Publishers, rules.Publisher{Name: f.Publisher(), Facts: f.Spec.Features.Facts})
		if r.sources.IgnoreLabels && !r.sources.own(f) {
			continue
		}
		for name, value := range f.Spec.Labels {
			if in.Labels == nil {
				in.Labels = map[string]string{}
			}
			in.Labels[r.keys.Qualify(name)] = value
		}
	}
	in.Facts = facts.Merge(feed.Interner(), all...)
	return in
}

// foreign leaves out the keys that Assay has written itself: a rule that selects nodes by what rules write would chase its
// own tail.
func (r *Reconciler) foreign(all map[string]string, owned string) map[string]string {
	out := make(map[string]string, len(all))
	for k, v := range all {
		out[k] = v
	}
	for _, k := range r.policy.Record.Parse(owned) {
		delete(out, k)
	}
	return out
}

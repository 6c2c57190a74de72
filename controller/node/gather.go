package node

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/feed"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
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

// sort puts NodeFeatures in the order of their merging, the last one winning: the manager's own namespace first, then by
// name, then by namespace, as NFD does it.
func (s Sources) sort(list []*feed.NodeFeature) []*feed.NodeFeature {
	foreign := func(f *feed.NodeFeature) int {
		if f.Namespace == s.Namespace {
			return 0
		}
		return 1
	}
	slices.SortFunc(list, func(a, b *feed.NodeFeature) int {
		return cmp.Or(
			cmp.Compare(foreign(a), foreign(b)),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Namespace, b.Namespace),
		)
	})
	return list
}

// list returns the NodeFeatures that count for a node, in the order of their merging.
func (r *Reconciler) list(ctx context.Context, node string) ([]*feed.NodeFeature, error) {
	var list feed.NodeFeatureList
	err := r.client.List(ctx, &list, client.MatchingFields{byNode: node}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	out := make([]*feed.NodeFeature, 0, len(list.Items))
	for i := range list.Items {
		f := &list.Items[i]
		if f.DeletionTimestamp != nil {
			continue
		}
		if f.Spec.Features.Err != nil {
			logf.FromContext(ctx).Error(f.Spec.Features.Err, "a NodeFeature cannot be read and is left out", "object", f.Publisher())
			continue
		}
		ok, err := r.trusted(ctx, f.Namespace)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, f)
		}
	}
	return r.sources.sort(out), nil
}

// trusted reports whether a namespace is one whose NodeFeatures count.
func (r *Reconciler) trusted(ctx context.Context, namespace string) (bool, error) {
	if r.sources.Namespaces == nil || namespace == r.sources.Namespace {
		return true, nil
	}
	ns := namespaceMetadata()
	if err := r.client.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return r.sources.Namespaces.Matches(labels.Set(ns.Labels)), nil
}

// namespaceMetadata is a Namespace of which only the metadata is read and cached.
func namespaceMetadata() *metav1.PartialObjectMetadata {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns
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

// foreign leaves out the keys that Assay has written itself, and its record of them: a rule that selects nodes by what rules
// write would chase its own tail.
func (r *Reconciler) foreign(all map[string]string, owned string) map[string]string {
	out := make(map[string]string, len(all))
	for k, v := range all {
		if !bookkeeping(k) {
			out[k] = v
		}
	}
	for _, k := range r.policy.Record.Parse(owned) {
		delete(out, k)
	}
	return out
}

func bookkeeping(key string) bool {
	namespace, _ := keys.Split(key)
	return namespace == nfdv1alpha1.BookkeepingNamespace ||
		strings.HasSuffix(namespace, "."+nfdv1alpha1.BookkeepingNamespace) || key == assayv1alpha1.FailedAnnotation
}

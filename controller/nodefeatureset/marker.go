package nodefeatureset

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/featuresets"
)

// announce writes the ConfigMap without which workers publish neither sets nor encoded instances. It waits while something in the
// namespace is in the way, see obstacle. It also lists the sets in use; nil: they are not known yet.
func (r *reconciler) announce(ctx context.Context, inUse []string) error {
	marker := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: r.namespace, Name: assayv1alpha1.FeatureSetMarker}
	err := r.client.Get(ctx, key, marker)
	announced := marker.DeepCopy()
	announced.Namespace, announced.Name = key.Namespace, key.Name
	for name, value := range featureset.Announcement() {
		metav1.SetMetaDataAnnotation(&announced.ObjectMeta, name, value)
	}
	if announcer, err := r.announcedBy(ctx, marker.Annotations[assayv1alpha1.AnnouncedByAnnotation]); err != nil {
		return err
	} else if announcer != "" {
		metav1.SetMetaDataAnnotation(&announced.ObjectMeta, assayv1alpha1.AnnouncedByAnnotation, announcer)
	} else {
		delete(announced.Annotations, assayv1alpha1.AnnouncedByAnnotation)
	}
	if known := marker.Annotations[assayv1alpha1.KnownFeatureSetsAnnotation]; inUse != nil {
		metav1.SetMetaDataAnnotation(&announced.ObjectMeta, assayv1alpha1.KnownFeatureSetsAnnotation, join(known, inUse))
	}
	if err == nil && maps.Equal(marker.Annotations, announced.Annotations) {
		return nil
	}
	missing := apierrors.IsNotFound(err)
	if obstacle, err := r.obstacle(ctx, missing); err != nil || obstacle != "" {
		if obstacle != r.obstructed && obstacle != "" {
			logf.FromContext(ctx).Info("Cannot announce that this controller reads NodeFeatureSets", "reason", obstacle)
		}
		r.obstructed = obstacle
		return err
	}
	switch {
	case missing:
		if err = r.client.Create(ctx, announced); apierrors.IsAlreadyExists(err) {
			return nil // the cache is behind
		}
	case err == nil:
		err = r.client.Patch(ctx, announced, client.MergeFrom(marker))
	}
	if err != nil {
		return fmt.Errorf("announce feature sets in ConfigMap %s: %w", key, err)
	}
	return nil
}

// announcedBy returns the Lease and the holder to announce. Controllers with different instance names share the announcement: the one
// that is stored stays while its controller runs.
func (r *reconciler) announcedBy(ctx context.Context, stored string) (string, error) {
	if r.opt.Lease == "" || stored == r.announcer && stored != "" {
		return r.announcer, nil
	}
	var list coordinationv1.LeaseList
	if err := r.live.List(ctx, &list, client.InNamespace(r.namespace)); err != nil {
		return "", fmt.Errorf("list Leases, to announce feature sets: %w", err)
	}
	for i := range list.Items {
		holder := list.Items[i].Name + "/" + ptr.Deref(list.Items[i].Spec.HolderIdentity, "")
		if holder == stored {
			return stored, nil
		}
		if list.Items[i].Name == r.opt.Lease { // only the leader runs this
			r.announcer = holder
		}
	}
	return r.announcer, nil
}

// obstacle returns why workers cannot share features yet, or an empty string. A master of NFD is about to be
// replaced: it does not read sets, and would remove the labels that depend on them. The ResourceQuota of a new installation refuses all
// sets until Kubernetes has counted them, up to 5 minutes after it learned of their kind (--resource-quota-sync-period). Workers that
// tried would publish inline for longer than that. Once workers share, it is not asked about again.
func (r *reconciler) obstacle(ctx context.Context, first bool) (string, error) {
	master, err := r.predecessor(ctx)
	switch {
	case err != nil:
		return "", err
	case master != "":
		return "Workers do not share features until NFD's master is gone: Deployment " + master, nil
	case !first:
		return "", nil
	}
	probe := &assayv1alpha1.NodeFeatureSet{Spec: assayv1alpha1.NodeFeatureSetSpec{Features: nfdv1alpha1.Features{
		Flags: map[string]nfdv1alpha1.FlagFeatureSet{"assay.probe": {Elements: map[string]nfdv1alpha1.Nil{}}},
	}}}
	if probe.Name, err = featureset.Name(&probe.Spec.Features); err != nil {
		return "", err
	}
	probe.Namespace = r.namespace
	err = r.client.Create(ctx, probe, client.DryRunAll)
	switch {
	case apierrors.IsForbidden(err):
		return "Workers do not share features until NodeFeatureSets can be created: " + err.Error(), nil
	case err == nil, apierrors.IsAlreadyExists(err), meta.IsNoMatchError(err), apierrors.IsNotFound(err): // workers handle an unknown kind
		return "", nil
	}
	return "", fmt.Errorf("create a NodeFeatureSet as a dry run: %w", err)
}

// join returns a list of at most maxKnown sets in use. Those that are listed already stay, so that the list changes rarely.
func join(known string, inUse []string) string {
	listed := strings.Split(known, ",")
	list := slices.DeleteFunc(slices.Clone(inUse), func(name string) bool { return !slices.Contains(listed, name) })
	for _, name := range inUse {
		if len(list) < maxKnown && !slices.Contains(listed, name) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// inUse returns the sets that NodeFeatures name and that are not about to be deleted, those of most nodes first.
func inUse(list []assayv1alpha1.NodeFeatureSet, usage featuresets.Usage) []string {
	names := []string{}
	for i := range list {
		if set := &list[i]; featureset.Known(set.Name) == nil && usage.Missing[set.Name] == nil && unusedSince(set).IsZero() && (named(set) || usage.Nodes[set.Name] > 0) {
			names = append(names, set.Name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return usage.Nodes[b] - usage.Nodes[a] })
	return names
}

// predecessor returns the name of a Deployment in the namespace that runs a master of NFD, or an empty string.
func (r *reconciler) predecessor(ctx context.Context) (string, error) {
	var list appsv1.DeploymentList
	if err := r.live.List(ctx, &list, client.InNamespace(r.namespace)); err != nil {
		return "", fmt.Errorf("list Deployments, to find a master of NFD: %w", err)
	}
	for i := range list.Items {
		d := &list.Items[i]
		if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			if slices.ContainsFunc(slices.Concat(c.Command, c.Args, []string{c.Name}), func(s string) bool { return path.Base(s) == "nfd-master" }) {
				return d.Name, nil
			}
		}
	}
	return "", nil
}

// discover has sets watched if there are any although no NodeFeature names one: they may have to be deleted.
func (r *reconciler) discover(ctx context.Context) error {
	now := r.clock.Now()
	if !r.discovered.IsZero() && now.Sub(r.discovered) < discoverInterval {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(assayv1alpha1.NodeFeatureSetGVK.GroupVersion().WithKind("NodeFeatureSetList"))
	err := r.live.List(ctx, list, client.InNamespace(r.namespace), client.Limit(1))
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return nil // the cluster does not have the kind
	case err != nil:
		return fmt.Errorf("list NodeFeatureSets: %w", err)
	case len(list.Items) > 0:
		r.sets.Watch()
	}
	r.discovered = now
	return nil
}

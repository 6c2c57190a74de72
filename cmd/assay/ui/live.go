package ui

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	topologyv1alpha2 "github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/placement"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
	"github.com/assay-project/assay/cmd/assay/internal/workload"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/rules/manifest"
)

// live reads what the pages of assay ui show in addition to nodes and rules. It implements Live.
type live struct {
	*world.Options
	world  *world.World
	client *cluster.Client // nil: files
}

// known returns a list, or why it is unknown.
func known[T any](kind string, list []T, err error) Kind[T] {
	switch {
	case err == nil:
		return Kind[T]{Items: list}
	case cluster.IsNotFound(err):
		return Kind[T]{Absent: true, Unknown: "the cluster has no kind " + kind + ", because its CustomResourceDefinition is not installed."}
	}
	return Kind[T]{Unknown: err.Error()}
}

// objects reads the objects that have pages. A kind that cannot be read is unknown.
func (l *live) objects(ctx context.Context) (out Objects) {
	if l.client == nil {
		w := l.world
		return Objects{
			Requests: Kind[assayv1alpha1.NodeFeatureRequest]{Items: w.Scheduling.Requests},
			Policies: Kind[assayv1alpha1.NodeFeatureSchedulingPolicy]{Items: w.Scheduling.Policies},
			Groups:   Kind[nfdv1alpha1.NodeFeatureGroup]{Items: w.Filed.Groups}, Baselines: Kind[assayv1alpha1.NodeBaseline]{Items: w.Baselines},
			Shapes: Kind[assayv1alpha1.NodeShape]{Items: w.Filed.Shapes}, Sets: Kind[assayv1alpha1.NodeFeatureSet]{Items: w.Filed.Sets},
			Waiting: Kind[corev1.Pod]{Items: waiting(w.Scheduling.Pods)}, Events: l.eventsOfAssay(),
		}
	}
	var group errgroup.Group
	of := assayv1alpha1.GroupVersion
	read(ctx, &group, l.client, &out.Requests, of.WithResource("nodefeaturerequests"), manifest.KindRequest)
	read(ctx, &group, l.client, &out.Policies, of.WithResource("nodefeatureschedulingpolicies"), manifest.KindPolicy)
	read(ctx, &group, l.client, &out.Groups, nfdv1alpha1.GroupVersion.WithResource("nodefeaturegroups"), manifest.KindGroup)
	read(ctx, &group, l.client, &out.Baselines, of.WithResource("nodebaselines"), manifest.KindBaseline)
	read(ctx, &group, l.client, &out.Shapes, assayv1alpha1.NodeShapeResource, manifest.KindShape)
	group.Go(func() error {
		// The features themselves are large, and are those of the nodes.
		list, err := cluster.List[struct {
			metav1.ObjectMeta `json:"metadata"`
			Status            assayv1alpha1.NodeFeatureSetStatus `json:"status"`
		}](ctx, l.client, assayv1alpha1.NodeFeatureSetResource)
		sets := make([]assayv1alpha1.NodeFeatureSet, len(list))
		for i := range list {
			sets[i].ObjectMeta, sets[i].Status = list[i].ObjectMeta, list[i].Status
		}
		out.Sets = known(manifest.KindSet, sets, err)
		return nil
	})
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	group.Go(func() error {
		pods, err := l.client.PendingPods(limited)
		out.Waiting = known("Pod", waiting(pods), err)
		return nil
	})
	group.Go(func() error {
		events, err := l.client.EventsFrom(limited, cluster.EventSource)
		out.Events = known("Event", events, err)
		return nil
	})
	_ = group.Wait()
	return out
}

// read reads all objects of a kind.
func read[T any](ctx context.Context, group *errgroup.Group, c *cluster.Client, into *Kind[T], resource schema.GroupVersionResource, kind string) {
	group.Go(func() error {
		list, err := cluster.List[T](ctx, c, resource)
		*into = known(kind, list, err)
		return nil
	})
}

// Events implements Live.
func (l *live) Events(ctx context.Context, kind, namespace, name string) ([]corev1.Event, error) {
	if l.client != nil {
		return l.client.EventsOf(ctx, kind, namespace, name)
	}
	if len(l.world.Filed.Events) == 0 {
		return nil, l.noEvents()
	}
	var out []corev1.Event
	for i := range l.world.Filed.Events {
		if of := &l.world.Filed.Events[i].InvolvedObject; of.Kind == kind && of.Name == name && (namespace == "" || of.Namespace == namespace) {
			out = append(out, l.world.Filed.Events[i])
		}
	}
	return out, nil
}

// listTimeout is the maximum time to list Events and pods without a node: API servers do not index Events.
const listTimeout = 20 * time.Second

// waiting returns the pods that have no node.
func waiting(list []corev1.Pod) (out []corev1.Pod) {
	for i := range list {
		if list[i].Spec.NodeName == "" {
			out = append(out, list[i])
		}
	}
	return out
}

// eventsOfAssay returns the Events of Assay's programs in files.
func (l *live) eventsOfAssay() (out Kind[corev1.Event]) {
	if len(l.world.Filed.Events) == 0 {
		out.Unknown = l.noEvents().Error()
	}
	for i := range l.world.Filed.Events {
		if e := &l.world.Filed.Events[i]; cmp.Or(e.Source.Component, e.ReportingController) == cluster.EventSource {
			out.Items = append(out.Items, *e)
		}
	}
	return out
}

func (l *live) noEvents() error {
	return fmt.Errorf("%s has no Events; add those that kubectl get events -A -o yaml prints", l.world.Where)
}

// Why implements Live.
func (l *live) Why(ctx context.Context, nodes *index.Index, namespace, name, node string) (*corev1.Pod, *serving.Answer, error) {
	t := workload.Target{Of: &workload.Kinds[0], Namespace: namespace, Name: name}
	w := l.world
	pod, err := placement.Pod(ctx, w, l.client, t)
	if cluster.IsNotFound(err) || l.client == nil && err != nil {
		return nil, nil, nil //nolint:nilerr // the only error without a cluster: the files do not have the pod
	}
	if err != nil {
		return nil, nil, err
	}
	known, err := placement.Requirements(ctx, w, l.client)
	if err != nil {
		return nil, nil, err
	}
	answer, err := placement.Answer(ctx, l.Options, l.client, w, &extender.Decider{Index: nodes, Requirements: known}, t, pod, cmp.Or(node, pod.Spec.NodeName))
	if err != nil {
		answer.Warnings = append(answer.Warnings, "What makes the scheduler respect the requirements is not known: "+err.Error())
	}
	return pod, &answer, nil
}

// Zones implements Live.
func (l *live) Zones(ctx context.Context, node string) (*topologyv1alpha2.NodeResourceTopology, error) {
	if l.client != nil {
		out, err := l.client.Topology(ctx, node)
		if cluster.IsNotFound(err) { // the topology of nodes is off by default
			return nil, nil
		}
		return out, err
	}
	for i := range l.world.Filed.Topologies {
		if t := &l.world.Filed.Topologies[i]; t.Name == node {
			return t, nil
		}
	}
	return nil, nil
}

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
)

// The reasons of Events about the definitions of kinds.
const (
	reasonNotWhole = "DefinitionNotWhole"
	reasonWhole    = "DefinitionWhole"
)

// definitionEvents reports definitions that are not whole, in Events about the controller's Deployment. It runs on the leader.
type definitionEvents struct {
	live        client.Reader
	events      record.EventRecorder
	namespace   string
	definitions *follow.Definitions
	changed     chan struct{} // holds an element after a change

	said map[string]definition.State // by definition
}

func reportDefinitions(mgr ctrl.Manager, definitions *follow.Definitions, namespace string) error {
	e := &definitionEvents{
		live: mgr.GetAPIReader(), namespace: namespace, definitions: definitions, changed: make(chan struct{}, 1), said: map[string]definition.State{},
		events: mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
	}
	definitions.OnChange(func(follow.Change) {
		select {
		case e.changed <- struct{}{}:
		default: // all are about to be reported
		}
	})
	return mgr.Add(e)
}

// Start implements manager.Runnable.
func (e *definitionEvents) Start(ctx context.Context) error {
	for {
		e.report(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-e.changed:
		}
	}
}

// report emits an Event for each definition whose state has changed since the last one.
func (e *definitionEvents) report(ctx context.Context) {
	type message struct{ kind, reason, text string }
	var list []message
	all := e.definitions.All()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d := all[name]
		before, reported := e.said[name]
		if e.said[name] = d.State; before == d.State || !reported && d.State == definition.Whole {
			continue
		}
		if d.State == definition.Whole {
			list = append(list, message{corev1.EventTypeNormal, reasonWhole, "definition " + name + " is whole again, and its objects were listed"})
			continue
		}
		text := fmt.Sprintf("definition %s is %s: what was accepted before stays on Nodes, new objects of the kind wait, and none is written", name, d.State)
		if len(d.Missing) > 0 {
			text += "; the API server drops " + strings.Join(d.Missing[:min(len(d.Missing), maxMissing)], ", ")
		}
		list = append(list, message{corev1.EventTypeWarning, reasonNotWhole, text})
	}
	if len(list) == 0 {
		return
	}
	var deployments metav1.PartialObjectMetadataList
	deployments.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	own := client.MatchingLabels{"app.kubernetes.io/part-of": "assay", "app.kubernetes.io/component": "controller"}
	if err := e.live.List(ctx, &deployments, client.InNamespace(e.namespace), own); err != nil {
		logf.FromContext(ctx).Error(err, "Cannot report the state of definitions in an Event")
		return
	}
	for i := range deployments.Items {
		for _, m := range list {
			e.events.Event(&deployments.Items[i], m.kind, m.reason, m.text)
		}
	}
}

// maxMissing is the number of fields that an Event names.
const maxMissing = 5

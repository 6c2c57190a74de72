// Package request reports which nodes match NodeFeatureRequests and NodeFeatureSchedulingPolicies, and which running pods have lost
// required features.
package request

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	definitions "github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/internal/fleet/follow"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/internal/informer"
	"github.com/assay-project/assay/internal/replicas"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/rules/review"
)

const (
	// statusDelay is how long changes of nodes are batched before status is updated: a rollout that changes 1,000 nodes causes one
	// status write per request every two seconds, not 1,000 writes.
	statusDelay = 2 * time.Second
	// retryUnsynced is the delay before a retry while the caches are not filled.
	retryUnsynced = time.Second
	// maxSample is the maximum number of nodes in a status.
	maxSample = 10
)

// Options configure the controllers.
type Options struct {
	// Nodes are the inputs of rules for each node. They are watched and started elsewhere.
	Nodes *inputs.Nodes
	// Rules are the rules of the cluster.
	Rules *assembly.Registry
	// Materialized holds the rules that materialize requests; nil: none are.
	Materialized *compile.Rules
	// IDs returns the names of PCI and USB ids for warnings; nil: unknown.
	IDs lint.IDs
	// Pods enables Events on running pods whose node has lost required features.
	Pods bool
	// Losses tracks which nodes lack features that their pods require, for objects with onLoss: Taint; nil: no node is tainted.
	Losses *loss.Tracker
	// Withholding says whether the taints are written.
	Withholding rules.Withholding
}

// Reconciler writes the status of requests and policies. It is the only writer of that status.
type Reconciler struct {
	client client.Client
	events record.EventRecorder
	view   *index.Index
	known  review.Known
	rule   func(name string) *assembly.Object // returns what materializes a request; nil: requests are not materialized

	devices func(features []string) string // see inputs.Nodes.DevicesProblem
	enabled func(namespace string) bool    // reports whether nodes may be tainted because of the pods of a namespace
}

// Add registers the controllers. They watch:
//
//   - Nodes, NodeFeatures, and changes of the rules, through an index.Index of their own, for the features of nodes.
//   - NodeFeatureRequests and policies.
//   - if enabled, running Pods: their nodes could have lost the features that they require.
//
// Every replica watches the nodes, so that a new leader has them at hand; only the leader writes.
func Add(mgr ctrl.Manager, opt Options) error {
	view, known := index.New(), podrequirements.New(opt.Rules.Options())
	changed := make(chan event.GenericEvent, 1)
	change := func() {
		select {
		case changed <- event.GenericEvent{Object: &assayv1alpha1.NodeFeatureRequest{}}:
		default: // an event is already waiting
		}
	}
	watch := newWatch(view, known, recorder(mgr), opt)
	watch.responses = newResponses(func() {
		if opt.Losses != nil {
			watch.touch("")
		}
		change()
	})
	opt.Nodes.OnDevicesProblem(change)
	follower := follow.New(view, opt.Nodes, follow.Options{Rules: opt.Rules, OnChange: func(node string) {
		watch.touch(node)
		change()
	}})
	if err := mgr.Add(replicas.Every(func(ctx context.Context) error {
		if err := errors.Join(
			follow.Requirements(ctx, mgr.GetCache(), known), watch.responses.watch(ctx, mgr.GetCache()), follower.Sync(ctx, mgr.GetCache()),
		); err != nil {
			return err
		}
		watch.touch("")
		return follower.Run(ctx)
	})); err != nil {
		return err
	}
	if opt.Pods {
		if err := watch.add(mgr); err != nil {
			return err
		}
	}
	r := &Reconciler{
		client: mgr.GetClient(), events: recorder(mgr), view: view,
		known:   review.Known{Rules: opt.Rules.Options(), IDs: opt.IDs, Withholding: opt.Withholding},
		enabled: watch.responses.allows, devices: opt.Nodes.DevicesProblem,
	}
	if opt.Materialized != nil && opt.Materialized.Materializes() {
		r.rule = opt.Materialized.Object
		opt.Materialized.OnObject(func(name string) {
			if _, _, ok := requirements.RequestOf(name); ok {
				change()
			}
		})
	}
	requests, policies := make(chan event.GenericEvent, 1), make(chan event.GenericEvent, 1)
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return spread(ctx, changed, requests, policies)
	})); err != nil {
		return err
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("request-status").
		For(&assayv1alpha1.NodeFeatureRequest{}, builder.WithPredicates(informer.SpecChanged)).
		WatchesRawSource(source.Channel(requests, handler.EnqueueRequestsFromMapFunc(r.allRequests))).
		Complete(definitions.Gate(opt.Materialized.Definitions(), definition.Requests, reconcile.Func(r.Request)))
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("policy-status").
		For(&assayv1alpha1.NodeFeatureSchedulingPolicy{}, builder.WithPredicates(informer.SpecChanged)).
		WatchesRawSource(source.Channel(policies, handler.EnqueueRequestsFromMapFunc(r.allPolicies))).
		Complete(definitions.Gate(opt.Materialized.Definitions(), definition.Policies, reconcile.Func(r.Policy)))
}

func recorder(mgr ctrl.Manager) record.EventRecorder {
	return mgr.GetEventRecorderFor("assay-controller") //nolint:staticcheck // the new API has no deduplicating recorder yet
}

// spread forwards changes, at most one per statusDelay.
func spread(ctx context.Context, from <-chan event.GenericEvent, to ...chan<- event.GenericEvent) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-from:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(statusDelay):
			}
			for _, c := range to {
				select {
				case c <- e:
				default: // an event is already waiting, after which all objects are processed
				}
			}
		}
	}
}

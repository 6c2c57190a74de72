// Package template updates the status of NodeFeatureRuleTemplates. It is the only writer of that status.
package template

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/internal/informer"
)

// delay is how long changes of templates are batched before the templates that could be based on them are checked.
const delay = time.Second

// Add registers the controller; only the leader writes. It watches templates: a changed one is checked immediately, and all others
// after a short delay, since they could be based on it. A cluster has tens of them.
func Add(mgr ctrl.Manager, rules *compile.Rules) error {
	r := &reporter{
		client: mgr.GetClient(), rules: rules,
		events: mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
	}
	changed := builder.WithPredicates(informer.SpecChanged)
	return ctrl.NewControllerManagedBy(mgr).
		Named("template-status").
		For(&assayv1alpha1.NodeFeatureRuleTemplate{}, changed).
		Watches(&assayv1alpha1.NodeFeatureRuleTemplate{}, r.others(), changed).
		Complete(follow.Gate(rules.Definitions(), definition.Templates, reconcile.Func(r.Reconcile)))
}

// others enqueues the templates that have bases.
func (r *reporter) others() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(ctx context.Context, q queue) {
		var list assayv1alpha1.NodeFeatureRuleTemplateList
		if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return // only before the cache has started; every template is enqueued then anyway
		}
		for i := range list.Items {
			if len(list.Items[i].Spec.BasedOn) > 0 {
				q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, delay)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q queue) { enqueue(ctx, q) },
		UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, q queue) { enqueue(ctx, q) },
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) { enqueue(ctx, q) },
	}
}

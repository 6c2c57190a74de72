package template

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/condition"
)

// reporter writes the status of templates.
type reporter struct {
	client client.Client
	events record.EventRecorder
	rules  *compile.Rules
}

// Reconcile updates the status of a template if it has changed.
func (r *reporter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj assayv1alpha1.NodeFeatureRuleTemplate
	if err := r.client.Get(ctx, req.NamespacedName, &obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	checked, err := r.rules.Template(ctx, &obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := obj.DeepCopy()
	obj.Status.ObservedGeneration = obj.Generation
	condition.Of(&obj.Status.Conditions, obj.Generation).Assembled(checked)
	if equality.Semantic.DeepEqual(before.Status, obj.Status) {
		return ctrl.Result{}, nil
	}
	err = r.client.Status().Patch(ctx, &obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	condition.Announce(r.events, &obj, before.Status.Conditions, obj.Status.Conditions, "TemplateNotReady")
	return ctrl.Result{}, nil
}

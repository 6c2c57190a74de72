package compile

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/rules/baseline"
)

// condition reconciles the rules that set the condition of a NodeBaseline on Nodes.
func (r *Rules) condition(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, r.refresh(ctx, baseline.RuleName(req.Name))
}

// baseline returns the rules that set the condition of a NodeBaseline; nil if it does not exist or has no condition. It is called with the
// lock held.
func (r *Rules) baseline(ctx context.Context, name string) (*assembly.Object, error) {
	var obj assayv1alpha1.NodeBaseline
	key, rule := client.ObjectKey{Name: name}, baseline.RuleName(name)
	err := r.cached.Get(ctx, key, &obj, client.UnsafeDisableDeepCopy)
	r.note(rule, false)
	if apierrors.IsNotFound(err) {
		if err = r.live.Get(ctx, key, &obj); err == nil {
			r.note(rule, obj.DeletionTimestamp == nil)
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err == nil && !r.trusts(definition.Baselines) {
		return assembly.Distrust(&obj, r.Object(rule), r.definitions.Of(definition.Baselines)), nil
	}
	if err != nil {
		return r.gone(ctx, rule)
	}
	rules := baseline.RuleOf(&obj)
	if obj.DeletionTimestamp != nil || rules == nil {
		return nil, nil
	}
	if _, report := baseline.Compile(&obj.Spec, field.NewPath("spec"), r.registry.Options()); !report.OK() {
		return &assembly.Object{
			UID: obj.UID, Generation: obj.Generation, Created: obj.CreationTimestamp.Time,
			Refused: &assembly.Error{Reason: assayv1alpha1.ReasonInvalid, Message: "the baseline is invalid: see the condition Accepted"},
		}, nil
	}
	return r.assemble(ctx, r.requests, rules)
}

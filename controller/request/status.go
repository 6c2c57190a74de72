package request

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/condition"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/requirements"
)

// Request writes the status of a NodeFeatureRequest, if it has changed.
func (r *Reconciler) Request(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj assayv1alpha1.NodeFeatureRequest
	if err := r.client.Get(ctx, req.NamespacedName, &obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ask, report := requirements.Compile(&obj.Spec, field.NewPath("spec"), obj.Name, r.rules)
	before := obj.DeepCopy()
	return r.write(ctx, &obj, before, &obj.Status, ask, report)
}

// Policy writes the status of a NodeFeatureSchedulingPolicy, if it has changed.
func (r *Reconciler) Policy(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj assayv1alpha1.NodeFeatureSchedulingPolicy
	if err := r.client.Get(ctx, req.NamespacedName, &obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	policy, report := requirements.CompilePolicy(&obj, r.rules)
	var ask *requirements.Ask
	if policy != nil {
		ask = policy.Ask
	}
	before := obj.DeepCopy()
	return r.write(ctx, &obj, before, &obj.Status, ask, report)
}

func (r *Reconciler) write(ctx context.Context, obj, before client.Object, status *assayv1alpha1.RequestStatus, ask *requirements.Ask,
	report *rules.Report) (ctrl.Result, error) {
	if !r.view.Synced() {
		return ctrl.Result{RequeueAfter: retryUnsynced}, nil
	}
	old := *status.DeepCopy()
	r.report(status, obj.GetGeneration(), ask, report)
	if equality.Semantic.DeepEqual(old, *status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(r.client.Status().Patch(ctx, obj, client.MergeFrom(before)))
}

// report fills in a status.
func (r *Reconciler) report(s *assayv1alpha1.RequestStatus, generation int64, ask *requirements.Ask, report *rules.Report) {
	s.ObservedGeneration = generation
	c := condition.Of(&s.Conditions, generation)
	c.Compiled(report.Errors, condition.Warnings(report.Warnings, false))
	if ask == nil {
		s.MatchingNodes, s.SampleNodes = nil, nil
		c.Set(assayv1alpha1.ConditionSatisfiable, metav1.ConditionUnknown, "Invalid", "the requirements are invalid: see the condition Accepted")
		return
	}
	answer := r.view.Ask(ask, maxSample)
	s.MatchingNodes, s.SampleNodes = ptr.To(int32(answer.Matching)), answer.Sample //nolint:gosec // a count of nodes
	switch {
	case answer.Matching > 0:
		c.Set(assayv1alpha1.ConditionSatisfiable, metav1.ConditionTrue, "NodesMatch", "")
	case answer.Nearest == "":
		c.Set(assayv1alpha1.ConditionSatisfiable, metav1.ConditionFalse, "NoNode", "there are no nodes")
	default:
		c.Set(assayv1alpha1.ConditionSatisfiable, metav1.ConditionFalse, "NoNode",
			fmt.Sprintf("no node has it; the nearest, %s, lacks %s", answer.Nearest, answer.Lacks))
	}
}

func (r *Reconciler) allRequests(ctx context.Context, _ client.Object) []reconcile.Request {
	var list assayv1alpha1.NodeFeatureRequestList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // only before the cache has started, when every object is due anyway
	}
	out := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		out[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return out
}

func (r *Reconciler) allPolicies(ctx context.Context, _ client.Object) []reconcile.Request {
	var list assayv1alpha1.NodeFeatureSchedulingPolicyList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // see allRequests
	}
	out := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		out[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return out
}

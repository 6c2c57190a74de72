package request

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/condition"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/rules/review"
)

// Request updates the status of a NodeFeatureRequest if it has changed.
func (r *Reconciler) Request(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj assayv1alpha1.NodeFeatureRequest
	if err := r.client.Get(ctx, req.NamespacedName, &obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := obj.DeepCopy()
	r.materialized(&obj)
	r.withheld(&obj.Status, obj.Generation, &obj.Spec.LossResponse, obj.Namespace)
	return r.write(ctx, &obj, before, &before.Status, &obj.Status, "RequestNotReady")
}

// Policy updates the status of a NodeFeatureSchedulingPolicy if it has changed.
func (r *Reconciler) Policy(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj assayv1alpha1.NodeFeatureSchedulingPolicy
	if err := r.client.Get(ctx, req.NamespacedName, &obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := obj.DeepCopy()
	r.withheld(&obj.Status, obj.Generation, &obj.Spec.LossResponse, "")
	return r.write(ctx, &obj, before, &before.Status, &obj.Status, "PolicyNotReady")
}

// write reviews an object and updates its status if that has changed. Reason is the reason of the Event if the object is not ready.
func (r *Reconciler) write(ctx context.Context, obj, before client.Object, old, status *assayv1alpha1.RequestStatus, reason string) (ctrl.Result, error) {
	if !r.view.Synced() {
		return ctrl.Result{RequeueAfter: retryUnsynced}, nil
	}
	r.report(status, obj.GetGeneration(), review.Review(obj, r.known))
	if equality.Semantic.DeepEqual(old, status) {
		return ctrl.Result{}, nil
	}
	now := status.DeepCopy() // the response to the patch overwrites it
	if err := r.client.Status().Patch(ctx, obj, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	condition.Announce(r.events, obj, old.Conditions, now.Conditions, reason)
	r.announce(obj, old.Conditions, now.Conditions)
	return ctrl.Result{}, nil
}

// announce emits an Event about a request that nodes have no label for, because of the others or of its name: pods that name it wait.
func (r *Reconciler) announce(obj client.Object, before, after []metav1.Condition) {
	old, now := meta.FindStatusCondition(before, assayv1alpha1.ConditionMaterialized), meta.FindStatusCondition(after, assayv1alpha1.ConditionMaterialized)
	if now == nil || now.Status != metav1.ConditionFalse || old != nil && old.Reason == now.Reason {
		return
	}
	switch now.Reason {
	case compile.ReasonTooManyRequests, compile.ReasonTooOften, compile.ReasonNameTooLong:
		r.events.Event(obj, corev1.EventTypeWarning, "NotMaterialized", now.Message)
	}
}

// materialized fills in the label of a request, and whether nodes have it.
func (r *Reconciler) materialized(obj *assayv1alpha1.NodeFeatureRequest) {
	c := condition.Of(&obj.Status.Conditions, obj.Generation)
	obj.Status.Label = ""
	if obj.Spec.Materialize == assayv1alpha1.MaterializeNever {
		c.Remove(assayv1alpha1.ConditionMaterialized)
		return
	}
	if r.rule == nil {
		c.SetIf(assayv1alpha1.ConditionMaterialized, false, requirements.ReasonDisabled, "the administrator has set materializedRequests to 0")
		return
	}
	if w := r.known.Withholding; w.All || w.Labels {
		c.SetIf(assayv1alpha1.ConditionMaterialized, false, requirements.ReasonDisabled, "the administrator has disabled labels of rules")
		return
	}
	switch rule := r.rule(requirements.RuleName(obj.Namespace, obj.Name)); {
	case rule == nil || rule.Generation != obj.Generation:
		c.Set(assayv1alpha1.ConditionMaterialized, metav1.ConditionUnknown, "Pending", "the requirements are not compiled yet")
	case rule.Lost != nil:
		c.Set(assayv1alpha1.ConditionMaterialized, metav1.ConditionUnknown, rule.Lost.Reason, rule.Lost.Message)
	case rule.Refused != nil:
		c.SetIf(assayv1alpha1.ConditionMaterialized, false, rule.Refused.Reason, rule.Refused.Message)
	case len(rule.Errors) > 0:
		c.SetIf(assayv1alpha1.ConditionMaterialized, false, "Invalid", rule.Errors.ToAggregate().Error())
	default:
		obj.Status.Label = requirements.LabelOf(obj.Namespace, obj.Name)
		c.SetIf(assayv1alpha1.ConditionMaterialized, true, "Labeled", "")
	}
}

// withheld reports why onLoss: Taint has no effect. The namespace is that of the pods, empty for those of several.
func (r *Reconciler) withheld(s *assayv1alpha1.RequestStatus, generation int64, loss *assayv1alpha1.LossResponse, namespace string) {
	c := condition.Of(&s.Conditions, generation)
	taints := loss.OnLoss == assayv1alpha1.LossTaint
	reason, why := r.known.Withholding.Loss()
	switch {
	case taints && why != "":
		c.SetIf(nfdv1alpha1.ConditionWithheld, true, reason, "onLoss: Taint has no effect: "+why)
	case taints && namespace != "" && !r.enabled(namespace):
		c.SetIf(nfdv1alpha1.ConditionWithheld, true, "NamespaceNotEnabled", fmt.Sprintf(
			"onLoss: Taint has no effect: namespace %s does not have the label %s=%s", namespace, assayv1alpha1.OnLossLabel, assayv1alpha1.OnLossLabelEnabled))
	default:
		c.Remove(nfdv1alpha1.ConditionWithheld)
	}
}

// report fills in a status.
func (r *Reconciler) report(s *assayv1alpha1.RequestStatus, generation int64, found review.Findings) {
	s.ObservedGeneration = generation
	c := condition.Of(&s.Conditions, generation)
	c.Reviewed(found.Errors, found.Warnings, "")
	c.Devices(r.devices(found.Requirements.Reads()), false)
	if found.Requirements == nil {
		s.MatchingNodes, s.SampleNodes = nil, nil
		c.Set(assayv1alpha1.ConditionSatisfiable, metav1.ConditionUnknown, "Invalid", "the requirements are invalid: see the condition Accepted")
		return
	}
	answer := r.view.Query(found.Requirements, maxSample)
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
		return nil // only before the cache has started; every object is enqueued then anyway
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

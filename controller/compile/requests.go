package compile

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/requirements"
)

// Reasons why a request is not materialized.
const (
	// ReasonTooManyRequests means that older requests take all the places that the administrator allows.
	ReasonTooManyRequests = "TooManyRequests"
	// ReasonNothingRequired means that spec.required is absent or invalid.
	ReasonNothingRequired = "NothingRequired"
	// ReasonNameTooLong means that NAMESPACE.NAME is too long for a label.
	ReasonNameTooLong = "NameTooLong"
	// ReasonTooOften means that too many requests of the namespace began to be materialized within an hour.
	ReasonTooOften = "TooOften"
	// ReasonReadsRules means that the requirements read outputs of rules, which are not known when a rule is evaluated.
	ReasonReadsRules = requirements.ReasonReadsRules
)

// Materializes reports whether requests are materialized.
func (r *Rules) Materializes() bool { return r.places.limits.Total > 0 }

// materialized reconciles a NodeFeatureRequest, and others that get or lose a place because of it.
func (r *Rules) materialized(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	release, err := r.take(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer release()
	err = r.refreshLocked(ctx, []string{requirements.RuleName(req.Namespace, req.Name)})
	return ctrl.Result{RequeueAfter: r.places.wait()}, err
}

// loadRequests assigns places to all requests in the cache, as one change, and returns the rules of those that have one. The caller
// holds the lock.
func (r *Rules) loadRequests(ctx context.Context) ([]string, error) {
	var list assayv1alpha1.NodeFeatureRequestList
	if err := r.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodeFeatureRequests: %w", err)
	}
	for i := range list.Items {
		_ = r.candidate(&list.Items[i]) // why it cannot be is determined again when it is assembled
	}
	r.places.loaded = true
	r.places.decide()
	return r.places.drain(), nil
}

// request returns the rule that materializes a request; nil if the request does not exist or is not to be materialized. It is
// called with the lock held.
func (r *Rules) request(ctx context.Context, key client.ObjectKey) (*assembly.Object, error) {
	if !r.places.loaded {
		if _, err := r.loadRequests(ctx); err != nil {
			return nil, err
		}
	}
	var obj assayv1alpha1.NodeFeatureRequest
	name := requirements.RuleName(key.Namespace, key.Name)
	err := r.cached.Get(ctx, key, &obj)
	r.note(name, false)
	if missing := err; apierrors.IsNotFound(err) {
		switch err = r.live.Get(ctx, key, &obj); {
		case err == nil:
			r.note(name, obj.DeletionTimestamp == nil)
		case apierrors.IsForbidden(err):
			err = missing // the extender writes nothing and trusts its cache
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err == nil && !r.trusts(definition.Requests) {
		return assembly.Distrust(&obj, r.Object(name), r.definitions.Of(definition.Requests)), nil
	}
	if err != nil {
		if kept, err := r.gone(ctx, name); kept != nil || err != nil {
			return kept, err
		}
	}
	var refused *assembly.Error
	gone := apierrors.IsNotFound(err) || obj.Spec.Materialize == assayv1alpha1.MaterializeNever || obj.DeletionTimestamp != nil
	if gone {
		r.places.drop(name)
	} else {
		refused = r.candidate(&obj)
	}
	r.places.decide()
	delete(r.places.changed, name) // it is processed now
	if gone {
		return nil, nil
	}
	if refused == nil {
		refused = r.places.refusal(name)
	}
	if refused != nil {
		return &assembly.Object{UID: obj.UID, Generation: obj.Generation, Created: obj.CreationTimestamp.Time, Refused: refused}, nil //nolint:nilerr // the object carries it
	}
	return r.assemble(ctx, r.requests, requirements.RuleOf(&obj))
}

// candidate adds a request to those that can be materialized, or returns why it cannot.
func (r *Rules) candidate(o *assayv1alpha1.NodeFeatureRequest) *assembly.Error {
	name := requirements.RuleName(o.Namespace, o.Name)
	if o.Spec.Materialize == assayv1alpha1.MaterializeNever || o.DeletionTimestamp != nil {
		r.places.drop(name)
		return nil
	}
	if refused := r.unfit(o); refused != nil {
		r.places.drop(name)
		return refused
	}
	c := candidate{
		rule: name, of: identity{o.UID, requirements.KeyOf(o.Spec.Required)},
		meta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, CreationTimestamp: o.CreationTimestamp},
	}
	if m := meta.FindStatusCondition(o.Status.Conditions, assayv1alpha1.ConditionMaterialized); m != nil && m.Status == metav1.ConditionTrue && m.ObservedGeneration == o.Generation {
		c.labeled = m.LastTransitionTime.Time
	}
	r.places.put(c)
	return nil
}

// unfit returns why a request cannot be materialized whatever the others are, or nil.
func (r *Rules) unfit(o *assayv1alpha1.NodeFeatureRequest) *assembly.Error {
	need := o.Spec.Required
	if need == nil || len(need.MatchFeatures)+len(need.MatchAny)+len(need.Conditions) == 0 {
		return &assembly.Error{Reason: ReasonNothingRequired, Message: "spec.required is empty, and every node would get the label"}
	}
	required, report := rules.CompileRequirement(field.NewPath("spec", "required"), need.MatchFeatures, need.MatchAny, need.Conditions, r.registry.Options())
	switch {
	case !report.OK():
		return &assembly.Error{Reason: ReasonNothingRequired, Message: "the requirements are invalid: see the condition Accepted"}
	case required.ReadsMatched():
		return &assembly.Error{Reason: ReasonReadsRules, Message: "the requirements read " + nfdv1alpha1.RuleMatchedFeature + ", which holds outputs of rules; use features only"}
	case requirements.LabelOf(o.Namespace, o.Name) == requirements.ImpossibleLabel:
		return &assembly.Error{Reason: ReasonNameTooLong, Message: requirements.NameTooLong(o.Namespace, o.Name)}
	}
	return nil
}

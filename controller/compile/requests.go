package compile

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/requirements"
)

// RequestLimits limits the number of NodeFeatureRequests that are materialized, because one request can cause a write of every
// Node. The oldest requests come first.
type RequestLimits struct {
	// Total is the limit of the cluster; 0: no request is materialized.
	Total int
	// PerNamespace is the limit of each namespace; 0: Total.
	PerNamespace int
}

// Reasons why a request is not materialized.
const (
	// ReasonTooManyRequests means that older requests take all the places that the administrator allows.
	ReasonTooManyRequests = "TooManyRequests"
	// ReasonNothingRequired means that spec.required is absent or invalid.
	ReasonNothingRequired = "NothingRequired"
	// ReasonReadsRules means that the requirements read outputs of rules, which are not known when a rule is evaluated.
	ReasonReadsRules = "ReadsRules"
)

// Materializes reports whether requests are materialized.
func (r *Rules) Materializes() bool { return r.limits.Total > 0 }

// materialized reconciles a NodeFeatureRequest, and others that come within the limits or exceed them because of it.
func (r *Rules) materialized(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	names := []string{requirements.RuleName(req.Namespace, req.Name)}
	within, err := r.withinLimits(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.objects.Range(func(name, o any) bool {
		if _, _, ok := requirements.RequestOf(name.(string)); ok && name != names[0] && exceeds(o.(*assembly.Object)) == within[name.(string)] {
			names = append(names, name.(string))
		}
		return true
	})
	slices.Sort(names)
	return ctrl.Result{}, r.refresh(ctx, names...)
}

func exceeds(o *assembly.Object) bool {
	return o.Refused != nil && o.Refused.Reason == ReasonTooManyRequests
}

// withinLimits returns the names of the rules of all requests that are materialized.
func (r *Rules) withinLimits(ctx context.Context) (map[string]bool, error) {
	var list assayv1alpha1.NodeFeatureRequestList
	if err := r.cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list NodeFeatureRequests: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b assayv1alpha1.NodeFeatureRequest) int { return assembly.OldestFirst(&a, &b) })
	out, counts := map[string]bool{}, map[string]int{}
	for i := range list.Items {
		o := &list.Items[i]
		if !o.Spec.Materialize || len(out) >= r.limits.Total || r.limits.PerNamespace > 0 && counts[o.Namespace] >= r.limits.PerNamespace {
			continue
		}
		counts[o.Namespace]++
		out[requirements.RuleName(o.Namespace, o.Name)] = true
	}
	return out, nil
}

// request returns the rule that materializes a request; nil if the request does not exist or is not to be materialized. It is
// called with the lock held.
func (r *Rules) request(ctx context.Context, key client.ObjectKey) (*assembly.Object, error) {
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
	if err != nil || !obj.Spec.Materialize || obj.DeletionTimestamp != nil {
		return nil, client.IgnoreNotFound(err)
	}
	within, err := r.withinLimits(ctx)
	if err != nil {
		return nil, err
	}
	rule := requirements.RuleOf(&obj)
	if problem := r.refuse(rule, within[name]); problem != nil {
		return &assembly.Object{UID: obj.UID, Generation: obj.Generation, Created: obj.CreationTimestamp.Time, Refused: problem}, nil //nolint:nilerr // the reason is part of the object
	}
	return r.assemble(ctx, r.requests, rule)
}

// refuse returns why a request is not materialized, or nil.
func (r *Rules) refuse(o *nfdv1alpha1.NodeFeatureRule, within bool) *assembly.Error {
	rule := &o.Spec.Rules[0]
	required, report := rules.CompileRequirement(field.NewPath("spec", "required"), rule.MatchFeatures, rule.MatchAny, rule.Conditions, r.registry.Options())
	switch {
	case len(rule.MatchFeatures)+len(rule.MatchAny)+len(rule.Conditions) == 0:
		return &assembly.Error{Reason: ReasonNothingRequired, Message: "spec.required is empty, and every node would get the label"}
	case !report.OK():
		return &assembly.Error{Reason: ReasonNothingRequired, Message: "the requirements are invalid: see the condition Accepted"}
	case required.ReadsMatched():
		return &assembly.Error{Reason: ReasonReadsRules, Message: "the requirements read " + nfdv1alpha1.RuleMatchedFeature + ", which holds outputs of rules; use features only"}
	case !within:
		return &assembly.Error{Reason: ReasonTooManyRequests, Message: fmt.Sprintf(
			"older requests take all %d places of the cluster, or all of the namespace; ask your administrator to raise materializedRequests", r.limits.Total)}
	}
	return nil
}

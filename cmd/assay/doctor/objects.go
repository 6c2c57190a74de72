package doctor

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/rules/review"
)

// The conditions of rule objects that indicate problems, with the text to report.
var (
	badIfFalse = []struct{ condition, text string }{
		{nfdv1alpha1.ConditionAccepted, "is rejected"},
		{nfdv1alpha1.ConditionResolved, "refers to something that is missing"},
		{nfdv1alpha1.ConditionHealthy, "fails on some Nodes"},
		{assayv1alpha1.ConditionSatisfiable, "is not satisfiable"},
	}
	warnIfTrue = []struct{ condition, text, fix string }{
		{nfdv1alpha1.ConditionConflicted, "conflicts with another rule", "Give one of them a higher priority, or another key"},
		{nfdv1alpha1.ConditionRejecting, "keeps Nodes as they were with its action fail", "Correct what the action reports on these Nodes, or the rule"},
		{nfdv1alpha1.ConditionStalled, "waits for a correction", "Correct the object as its message says"},
		{nfdv1alpha1.ConditionWithheld, "has outputs that a setting withholds", "Change the setting of the controller, or take the outputs out of the rule"},
	}
)

// object reports problems in the conditions of an object. It returns true if there are none.
func (e *examination) object(check, what string, generation, observed int64, conditions []metav1.Condition) bool {
	if len(conditions) == 0 || observed != generation {
		e.report(check, Error, fmt.Sprintf("%s: the controller has not evaluated it", what), "")
		return false
	}
	for _, bad := range badIfFalse {
		if c := meta.FindStatusCondition(conditions, bad.condition); c != nil && c.Status == metav1.ConditionFalse {
			if c.Reason == nfdv1alpha1.ReasonForbidden {
				if !e.lacking["controller"] { // otherwise it is a consequence
					e.report(check, Error, fmt.Sprintf("%s is not written: %s", what, c.Message), "kubectl get validatingadmissionpolicies,validatingwebhookconfigurations")
				}
				return false
			}
			e.report(check, Error, fmt.Sprintf("%s %s: %s", what, bad.text, c.Message), "")
			return false
		}
	}
	fine := true
	for _, warn := range warnIfTrue {
		if c := meta.FindStatusCondition(conditions, warn.condition); c != nil && c.Status == metav1.ConditionTrue {
			e.report(check, Warning, fmt.Sprintf("%s %s: %s: %s", what, warn.text, c.Reason, c.Message), warn.fix)
			fine = false
		}
	}
	return fine
}

func (e *examination) rules(ctx context.Context) error {
	list, err := e.c.Rules(ctx)
	if err != nil {
		return err
	}
	fine, without := 0, 0
	for i := range list {
		r := &list[i]
		if e.object("rules", "NodeFeatureRule "+r.Name, r.Generation, r.Status.ObservedGeneration, r.Status.Conditions) {
			fine++
		} else if unreviewed(r) {
			without++
		}
	}
	e.ok("rules", "%d of %s are evaluated", fine, clip.Count(len(list), "NodeFeatureRule"))
	if without > 0 && len(e.part("webhook")) > 0 {
		e.report("rules", Warning, fmt.Sprintf("%s with errors that the webhook rejects: stored without its review, or before it was installed or updated",
			clip.Count(without, "NodeFeatureRule")), "Correct the rules. With webhook.failurePolicy=Fail the API server rejects a rule that the webhook does not review")
	}
	return nil
}

// unreviewed reports whether the controller has found errors in a rule object that a review of the webhook finds too. Errors in its bases are
// not among them: for the webhook they are warnings.
func unreviewed(r *nfdv1alpha1.NodeFeatureRule) bool {
	return meta.IsStatusConditionFalse(r.Status.Conditions, nfdv1alpha1.ConditionAccepted) && len(review.Review(r, review.Known{}).Errors) > 0
}

// claims reports rules that write an extended resource which a DeviceClass claims, as the webhook does when such a rule is applied: the class
// can be younger than the rule.
func (e *examination) claims(ctx context.Context) error {
	classes, err := e.c.ClaimedResources(ctx)
	if err != nil || len(classes) == 0 {
		return err
	}
	list, err := e.c.Rules(ctx)
	if err != nil {
		return err
	}
	names := keys.Policy{}
	for i := range list {
		for _, rule := range list[i].Spec.Rules {
			for _, resource := range facts.SortedKeys(rule.ExtendedResources) {
				if class := classes[names.Qualify(resource)]; class != "" {
					e.report("rules", Warning, fmt.Sprintf("NodeFeatureRule %s writes the extended resource %s, which DeviceClass %s claims: "+
						"on nodes that have it from the rule, pods that request it get no device of the class", list[i].Name, resource, class),
						"Use another name in the rule")
				}
			}
		}
	}
	return nil
}

// notReady reports the NodeFeatureGroups and NodeFeatureRuleTemplates with Ready=False.
func (e *examination) notReady(ctx context.Context) error {
	groups, err := e.c.Groups(ctx)
	for i := range groups {
		e.unready("NodeFeatureGroup "+groups[i].Namespace+"/"+groups[i].Name, groups[i].Status.Conditions)
	}
	templates, err2 := e.c.Templates(ctx)
	for i := range templates {
		e.unready("NodeFeatureRuleTemplate "+templates[i].Name, templates[i].Status.Conditions)
	}
	return errors.Join(err, err2)
}

func (e *examination) unready(what string, conditions []metav1.Condition) {
	if c := meta.FindStatusCondition(conditions, nfdv1alpha1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		e.report("rules", Error, fmt.Sprintf("%s is not ready: %s: %s", what, c.Reason, c.Message), "")
	}
}

func (e *examination) requests(ctx context.Context) error {
	list, err := e.c.Requests(ctx)
	for i := range list {
		e.demand("NodeFeatureRequest "+list[i].Namespace+"/"+list[i].Name, list[i].Generation, &list[i].Status)
	}
	return err
}

func (e *examination) policies(ctx context.Context) error {
	list, err := e.c.Policies(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	namespaces, err := e.c.Namespaces(ctx)
	if err != nil {
		return err
	}
	labeled := 0
	for i := range namespaces {
		if namespaces[i].Labels[assayv1alpha1.SchedulingLabel] == assayv1alpha1.SchedulingLabelEnabled {
			labeled++
		}
	}
	if labeled == 0 {
		label := assayv1alpha1.SchedulingLabel + "=" + assayv1alpha1.SchedulingLabelEnabled
		e.report("scheduling", Error, fmt.Sprintf("no namespace has the label %s: the NodeFeatureSchedulingPolicies apply to no pod", label),
			fmt.Sprintf("kubectl label namespace NAME %s", label))
	}
	for i := range list {
		e.demand("NodeFeatureSchedulingPolicy "+list[i].Name, list[i].Generation, &list[i].Status)
	}
	return nil
}

// demand reports problems in the status of a request or policy.
func (e *examination) demand(what string, generation int64, s *assayv1alpha1.RequestStatus) {
	const check = "scheduling"
	if len(s.Conditions) == 0 || s.ObservedGeneration != generation {
		e.report(check, Error, what+": the controller has not evaluated it",
			"Check that it runs with the feature gate FeatureScheduling (scheduling.enabled of the chart)")
		return
	}
	if c := meta.FindStatusCondition(s.Conditions, assayv1alpha1.ConditionMaterialized); c != nil && c.Status == metav1.ConditionFalse &&
		c.Reason != requirements.ReasonReadsRules && c.Reason != requirements.ReasonDisabled { // otherwise the extender serves its pods
		e.report(check, Warning, fmt.Sprintf("%s: no node gets its label: %s: %s", what, c.Reason, c.Message), "kubectl get nodefeaturerequests -A")
		return
	}
	if e.object(check, what, generation, s.ObservedGeneration, s.Conditions) {
		e.ok(check, "%s is satisfiable", what)
	}
}

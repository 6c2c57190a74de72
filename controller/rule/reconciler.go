package rule

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/condition"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/controller/rulestats"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
)

// reporter writes the status of NodeFeatureRules.
type reporter struct {
	client client.Client
	cache  cache.Informers
	events record.EventRecorder
	stats  *rulestats.Stats
	rules  *compile.Rules
	keeper keeper

	withholding rules.Withholding
	devices     func(features []string) string // see inputs.Nodes.DevicesProblem

	said sync.Map // by UID and condition: what was reported in an Event
}

// Reconcile updates the status of a NodeFeatureRule if it has changed.
func (s *reporter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj nfdv1alpha1.NodeFeatureRule
	if err := s.client.Get(ctx, req.NamespacedName, &obj); err != nil {
		switch {
		case !apierrors.IsNotFound(err):
			return ctrl.Result{}, err
		case s.rules.Object(req.Name) != nil:
			return ctrl.Result{}, nil // only the cache lacks it; its deletion would be confirmed, which enqueues it again
		}
		return ctrl.Result{}, s.keeper.keep(ctx, req.Name, nil)
	}
	known := s.rules.Object(obj.Name)
	if known == nil || known.Generation != obj.Generation || known.UID != obj.UID {
		return ctrl.Result{}, nil // it is about to be compiled, which enqueues it again
	}
	if err := s.keeper.keep(ctx, obj.Name, known.ToKeep()); err != nil {
		return ctrl.Result{}, err
	}
	if !s.rules.Definitions().Writable(definition.Rules) {
		return ctrl.Result{}, nil // the API server would drop what the definition lacks; all objects are compiled again when it is whole
	}
	if !s.stats.Complete(ctx, s.cache) {
		return ctrl.Result{RequeueAfter: statusDelay}, nil
	}
	want := status(&obj, known, s.stats.Summary(obj.Name), s.withholding.Of(known.Set), s.problem(known))
	if equality.Semantic.DeepEqual(obj.Status, want) {
		return ctrl.Result{}, nil
	}
	before := obj.DeepCopy()
	s.announce(before, want)
	obj.Status = want
	err := s.client.Status().Patch(ctx, &obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// problem returns why the devices that the rules of an object read cannot be read; empty: they can, or there are none.
func (s *reporter) problem(o *assembly.Object) string {
	if o.Set == nil {
		return ""
	}
	return s.devices(o.Set.Reads())
}

// status returns the desired status of an object. It is a pure function; transition times are kept.
func status(obj *nfdv1alpha1.NodeFeatureRule, known *assembly.Object, sum rulestats.Summary, withheld []rules.Withheld, devices string) nfdv1alpha1.NodeFeatureRuleStatus {
	s := *obj.Status.DeepCopy()
	s.ObservedGeneration = obj.Generation
	s.MatchedNodes = ptr.To(sum.Matched)
	s.EffectiveHash = known.Hash
	s.Origins = known.Origins[:min(len(known.Origins), maxOrigins)]
	c := condition.Of(&s.Conditions, obj.Generation)
	c.Assembled(known)
	c.Devices(devices, true)
	if sum.Failing == 0 {
		c.SetIf(nfdv1alpha1.ConditionHealthy, true, "Evaluated", "")
	} else {
		reason := "EvaluationFailed"
		if sum.Forbidden {
			reason = nfdv1alpha1.ReasonForbidden
		}
		c.SetIf(nfdv1alpha1.ConditionHealthy, false, reason,
			fmt.Sprintf("on %s; first on %s: %s", clip.Count(sum.Failing, "node"), sum.FirstNode, sum.Message))
	}
	switch {
	case sum.Rejected > 0:
		c.SetIf(nfdv1alpha1.ConditionRejecting, true, "NodesFailed", fmt.Sprintf(
			"kept unchanged: %s, whose labels may be out of date; first %s: %s", clip.Count(sum.Rejected, "node"), sum.RejectedNode, sum.Rejection))
	case c.Has(nfdv1alpha1.ConditionRejecting):
		c.SetIf(nfdv1alpha1.ConditionRejecting, false, "NoNodeFailed", "")
	}
	switch {
	case sum.Flapping > 0:
		c.SetIf(nfdv1alpha1.ConditionFlapping, true, "ChangesHeld", fmt.Sprintf(
			"on %s, keys that changed %d times within %s stay as they are for as long after the last change; assay explain NODE KEY shows the feature: %s",
			clip.Count(sum.Flapping, "node"), flap.Limit, flap.Window, strings.Join(sum.FlappingKeys, "; ")+clip.More("; ", sum.Flapping-len(sum.FlappingKeys))))
	case c.Has(nfdv1alpha1.ConditionFlapping):
		c.SetIf(nfdv1alpha1.ConditionFlapping, false, "NoChangeHeld", "")
	}
	if len(sum.Conflicts) == 0 {
		c.SetIf(nfdv1alpha1.ConditionConflicted, false, "NoConflict", "")
	} else {
		text := strings.Join(sum.Conflicts, "; ") + clip.More("; ", sum.MoreConflicts)
		c.SetIf(nfdv1alpha1.ConditionConflicted, true, "KeyWrittenTwice", text)
	}
	switch {
	case len(withheld) > 0:
		c.SetIf(nfdv1alpha1.ConditionWithheld, true, withheld[0].Reason, sentences(withheld))
	case sum.Waiting > 0:
		c.SetIf(nfdv1alpha1.ConditionWithheld, true, nfdv1alpha1.ReasonTooManyNodes, fmt.Sprintf(
			"healthBudget holds taints or conditions of %s, because too many nodes are hit at once; confirm them, or correct the rules: %s",
			clip.Count(sum.Waiting, "node"), strings.Join(sum.WaitingNodes, ", ")+clip.More(", ", sum.Waiting-len(sum.WaitingNodes))))
	default:
		c.Remove(nfdv1alpha1.ConditionWithheld)
	}
	return s
}

func sentences(withheld []rules.Withheld) string {
	parts := make([]string, len(withheld))
	for i, w := range withheld {
		parts[i] = w.String()
	}
	return strings.Join(parts, "; ")
}

// announce emits an Event when a condition becomes bad, for users who do not read the status.
func (s *reporter) announce(obj *nfdv1alpha1.NodeFeatureRule, want nfdv1alpha1.NodeFeatureRuleStatus) {
	for _, c := range []struct {
		kind   string
		bad    metav1.ConditionStatus
		reason string
	}{
		{nfdv1alpha1.ConditionAccepted, metav1.ConditionFalse, "RuleInvalid"},
		{nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "RuleUnresolved"},
		{nfdv1alpha1.ConditionHealthy, metav1.ConditionFalse, "RuleFailed"},
		{nfdv1alpha1.ConditionConflicted, metav1.ConditionTrue, "RuleConflicted"},
		{nfdv1alpha1.ConditionWithheld, metav1.ConditionTrue, "RuleWithheld"},
	} {
		now := meta.FindStatusCondition(want.Conditions, c.kind)
		if now == nil || now.Status != c.bad {
			continue
		}
		old := meta.FindStatusCondition(obj.Status.Conditions, c.kind)
		if (old == nil || old.Status != now.Status || old.Reason != now.Reason) && s.unsaid(obj, c.kind, now) {
			s.events.Event(obj, corev1.EventTypeWarning, c.reason, now.Message)
		}
	}
	if !slices.Equal(obj.Status.Origins, want.Origins) || obj.Generation == obj.Status.ObservedGeneration && obj.Status.EffectiveHash != want.EffectiveHash {
		if len(want.Origins) > 0 && obj.Status.EffectiveHash != "" {
			s.events.Event(obj, corev1.EventTypeNormal, "TemplateChanged", "the rules were assembled again because a template changed")
		}
	}
}

// unsaid reports whether this process has not yet emitted this Event. Without a status there is nothing to compare with.
func (s *reporter) unsaid(obj *nfdv1alpha1.NodeFeatureRule, kind string, now *metav1.Condition) bool {
	if obj.Status.ObservedGeneration > 0 {
		return true
	}
	text := now.Reason + ": " + now.Message
	last, _ := s.said.Swap(string(obj.UID)+" "+kind, text)
	return last != text
}

// maxOrigins is the maximum number of origins in a status. An object can have thousands, and etcd accepts 1.5 MiB; `assay explain`
// shows all of them.
const maxOrigins = 512

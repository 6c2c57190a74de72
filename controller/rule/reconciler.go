package rule

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// compiled is what is known about an object without any node.
type compiled struct {
	generation int64
	errors     field.ErrorList
	warnings   []rules.Warning
	sensitive  bool
	hash       string
}

// Compile puts the rules of an object into the registry, or takes them out.
func (r *Reconciler) Compile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj nfdv1alpha1.NodeFeatureRule
	if err := r.client.Get(ctx, req.NamespacedName, &obj); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		r.registry.Remove(req.Name)
		r.reports.put(req.Name, nil)
		return ctrl.Result{}, nil
	}
	r.compile(ctx, &obj)
	return ctrl.Result{}, nil
}

func (r *Reconciler) compile(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule) {
	if known := r.reports.get(obj.Name); known != nil && known.generation == obj.Generation {
		return
	}
	set, report := rules.Compile(obj, r.registry.Options())
	r.reports.put(obj.Name, &compiled{
		generation: obj.Generation,
		errors:     report.Errors,
		warnings:   report.Warnings,
		sensitive:  ptr.Deref(obj.Spec.Sensitive, false),
		hash:       set.Hash(),
	})
	r.registry.Put(set)
	if !report.OK() {
		logf.FromContext(ctx).Info("rules with mistakes are left out", "object", obj.Name, "mistakes", len(report.Errors))
	}
}

// Status writes what became of an object's rules, if that has changed.
func (r *Reconciler) Status(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj nfdv1alpha1.NodeFeatureRule
	if err := r.client.Get(ctx, req.NamespacedName, &obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	c := r.reports.get(obj.Name)
	if c == nil || c.generation != obj.Generation {
		r.compile(ctx, &obj)
		c = r.reports.get(obj.Name)
	}
	want := r.status(&obj, c)
	if equality.Semantic.DeepEqual(obj.Status, want) {
		return ctrl.Result{}, nil
	}
	before := obj.DeepCopy()
	r.announce(before, want)
	obj.Status = want
	err := r.client.Status().Patch(ctx, &obj, client.MergeFrom(before))
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

func (r *Reconciler) status(obj *nfdv1alpha1.NodeFeatureRule, c *compiled) nfdv1alpha1.NodeFeatureRuleStatus {
	s := *obj.Status.DeepCopy()
	sum := r.tally.Summary(obj.Name)
	s.ObservedGeneration = obj.Generation
	s.MatchedNodes = ptr.To(sum.Matched)
	s.EffectiveHash = c.hash
	set := func(kind string, ok bool, reason, message string) {
		status := metav1.ConditionFalse
		if ok {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: obj.Generation,
		})
	}
	if len(c.errors) == 0 {
		set(nfdv1alpha1.ConditionAccepted, true, "Compiled", warningsText(c.warnings))
	} else {
		set(nfdv1alpha1.ConditionAccepted, false, "Invalid", errorsText(c.errors, c.sensitive))
	}
	if sum.Failing == 0 {
		set(nfdv1alpha1.ConditionHealthy, true, "Evaluated", "")
	} else {
		set(nfdv1alpha1.ConditionHealthy, false, "EvaluationFailed",
			fmt.Sprintf("on %d nodes; first on %s: %s", sum.Failing, sum.FirstNode, sum.Message))
	}
	if len(sum.Conflicts) == 0 {
		set(nfdv1alpha1.ConditionConflicted, false, "NoConflict", "")
	} else {
		text := strings.Join(sum.Conflicts, "; ")
		if sum.MoreConflicts > 0 {
			text += fmt.Sprintf("; and %d more", sum.MoreConflicts)
		}
		set(nfdv1alpha1.ConditionConflicted, true, "KeyWrittenTwice", text)
	}
	return s
}

// announce writes an Event where a condition turns bad: a status is looked at by those who know that something is wrong.
func (r *Reconciler) announce(obj *nfdv1alpha1.NodeFeatureRule, want nfdv1alpha1.NodeFeatureRuleStatus) {
	for kind, reason := range map[string]string{
		nfdv1alpha1.ConditionAccepted: "RuleInvalid",
		nfdv1alpha1.ConditionHealthy:  "RuleFailed",
	} {
		now := meta.FindStatusCondition(want.Conditions, kind)
		if now == nil || now.Status != metav1.ConditionFalse {
			continue
		}
		old := meta.FindStatusCondition(obj.Status.Conditions, kind)
		if old == nil || old.Status != now.Status || old.Reason != now.Reason {
			r.events.Event(obj, corev1.EventTypeWarning, reason, now.Message)
		}
	}
}

// maxStatusErrors is how many mistakes a condition spells out. The command line and the webhook show all of them.
const maxStatusErrors = 10

func errorsText(errs field.ErrorList, sensitive bool) string {
	var b strings.Builder
	for i, err := range errs {
		if i == maxStatusErrors {
			fmt.Fprintf(&b, "; and %d more", len(errs)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		if sensitive {
			b.WriteString(err.Field)
			continue
		}
		b.WriteString(err.Error())
	}
	return b.String()
}

func warningsText(list []rules.Warning) string {
	if len(list) == 0 {
		return ""
	}
	text := "warning: " + list[0].String()
	if len(list) > 1 {
		text += fmt.Sprintf("; and %d more", len(list)-1)
	}
	return text
}

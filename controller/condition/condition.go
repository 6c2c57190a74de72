// Package condition sets the conditions in the status of objects.
package condition

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/warning"
)

// Reasons that several kinds use.
const (
	reasonReady    = "Ready"
	reasonCompiled = "Compiled"
	reasonInvalid  = "Invalid"
	reasonResolved = "Resolved"
	reasonWaiting  = "NotResolved"
)

const (
	// maxErrors is the maximum number of errors in a message. The command line and the webhook show all errors.
	maxErrors = 10
	// maxMessage is the maximum size of a condition message in bytes that the API server accepts.
	maxMessage = 32768
)

// List sets the conditions of one object for a generation. It keeps transition times. It is not safe for concurrent use.
type List struct {
	to         *[]metav1.Condition
	generation int64
}

// Of returns a List that modifies conditions.
func Of(to *[]metav1.Condition, generation int64) List { return List{to, generation} }

// Set sets a condition.
func (l List) Set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(l.to, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: cut(message), ObservedGeneration: l.generation,
	})
}

// SetIf sets a condition to True or False.
func (l List) SetIf(kind string, ok bool, reason, message string) {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	l.Set(kind, status, reason, message)
}

// Has reports whether there is a condition of this type, whatever its status.
func (l List) Has(kind string) bool { return meta.FindStatusCondition(*l.to, kind) != nil }

// Remove removes a condition.
func (l List) Remove(kind string) { meta.RemoveStatusCondition(l.to, kind) }

// Reviewed sets Accepted, Ready and Stalled of an object without references, from the findings of its review. The note is appended
// to the message if the object is accepted.
func (l List) Reviewed(errs field.ErrorList, warnings []warning.Warning, note string) {
	if len(errs) > 0 {
		l.SetIf(nfdv1alpha1.ConditionAccepted, false, reasonInvalid, Errors(errs, false))
	} else {
		text := Warnings(warnings, false)
		if text != "" && note != "" {
			note = "; " + note
		}
		l.SetIf(nfdv1alpha1.ConditionAccepted, true, reasonCompiled, text+note)
	}
	l.ready(len(errs) > 0)
}

// Announce emits a warning Event about an object that became not ready, or not ready for another reason, for users who do not read
// its status.
func Announce(events record.EventRecorder, object runtime.Object, before, after []metav1.Condition, reason string) {
	now := meta.FindStatusCondition(after, nfdv1alpha1.ConditionReady)
	old := meta.FindStatusCondition(before, nfdv1alpha1.ConditionReady)
	if now != nil && now.Status == metav1.ConditionFalse && (old == nil || old.Status != now.Status || old.Reason != now.Reason) {
		events.Event(object, corev1.EventTypeWarning, reason, now.Message)
	}
}

// reasonDevices is the reason of Resolved if an object reads devices of DRA drivers that are unknown.
const reasonDevices = "DevicesUnavailable"

// Devices sets Resolved and Ready of an object that reads devices of DRA drivers, and that is accepted, if they cannot be read because of
// a problem. It is called after Reviewed or Assembled, and with an empty problem otherwise. Own is set if the object has Resolved for
// other reasons too. The object is not stalled: the devices may be available later, and everything else that it says is evaluated.
func (l List) Devices(problem string, own bool) {
	now := meta.FindStatusCondition(*l.to, nfdv1alpha1.ConditionResolved)
	switch {
	case problem != "" && (!own || now == nil || now.Status == metav1.ConditionTrue):
		l.SetIf(nfdv1alpha1.ConditionResolved, false, reasonDevices, "the features dra.* are unknown: "+problem)
	case problem == "" && !own:
		l.Remove(nfdv1alpha1.ConditionResolved)
	default:
		return
	}
	l.ready(meta.FindStatusCondition(*l.to, nfdv1alpha1.ConditionStalled) != nil)
}

// Assembled sets Accepted, Resolved, Ready and Stalled of an object with rules.
func (l List) Assembled(o *assembly.Object) {
	switch {
	case o.Lost != nil:
		l.SetIf(nfdv1alpha1.ConditionAccepted, false, o.Lost.Reason, o.Lost.Message)
	case o.Unresolved != nil && o.Set == nil:
		l.Set(nfdv1alpha1.ConditionAccepted, metav1.ConditionUnknown, reasonWaiting, "the rules are evaluated once everything they refer to exists")
	case o.Refused != nil:
		l.SetIf(nfdv1alpha1.ConditionAccepted, false, o.Refused.Reason, o.Refused.Message)
	case len(o.Errors) > 0:
		l.SetIf(nfdv1alpha1.ConditionAccepted, false, reasonInvalid, Errors(o.Errors, o.Sensitive))
	default:
		l.SetIf(nfdv1alpha1.ConditionAccepted, true, reasonCompiled, Warnings(o.Warnings, o.Sensitive))
	}
	if o.Unresolved == nil {
		l.SetIf(nfdv1alpha1.ConditionResolved, true, reasonResolved, "")
	} else {
		l.SetIf(nfdv1alpha1.ConditionResolved, false, o.Unresolved.Reason, o.Unresolved.Message)
	}
	l.ready(o.Refused != nil || o.Lost != nil || len(o.Errors) > 0 || o.Unresolved != nil && !o.Unresolved.Waits())
}

// ready derives Ready from Accepted and Resolved, with the reason and message of the first one that is False, or else of the first
// one that is Unknown. An absent condition counts as True.
//
// While Ready is False and a user must act, Stalled is True; otherwise it is absent. An object that only waits for another one is
// not stalled, so that tools continue to wait for it.
func (l List) ready(mustAct bool) {
	status, reason, message := metav1.ConditionTrue, reasonReady, ""
	for _, worse := range []metav1.ConditionStatus{metav1.ConditionUnknown, metav1.ConditionFalse} { // the last match is used
		for _, kind := range []string{nfdv1alpha1.ConditionResolved, nfdv1alpha1.ConditionAccepted} {
			if c := meta.FindStatusCondition(*l.to, kind); c != nil && c.Status == worse {
				status, reason, message = c.Status, c.Reason, c.Message
			}
		}
	}
	l.Set(nfdv1alpha1.ConditionReady, status, reason, message)
	if status == metav1.ConditionFalse && mustAct {
		l.Set(nfdv1alpha1.ConditionStalled, metav1.ConditionTrue, reason, message)
	} else {
		l.Remove(nfdv1alpha1.ConditionStalled)
	}
}

// Errors returns the first errors on one line. For a sensitive object it returns only their positions.
func Errors(errs field.ErrorList, sensitive bool) string {
	var parts []string
	for _, err := range errs[:min(len(errs), maxErrors)] {
		if sensitive {
			parts = append(parts, rules.Place(err.Field))
		} else {
			parts = append(parts, err.Error())
		}
	}
	return strings.Join(parts, "; ") + clip.More("; ", len(errs)-len(parts))
}

// Warnings returns the first warning and the number of further ones. For a sensitive object it returns only its position.
func Warnings(list []warning.Warning, sensitive bool) string {
	if len(list) == 0 {
		return ""
	}
	text := "warning: " + list[0].String()
	if sensitive {
		text = "warning: " + rules.Place(list[0].Path)
	}
	return text + clip.More("; ", len(list)-1)
}

// cut truncates a message to the size that the API server accepts, at a character boundary.
func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return clip.Text(message, maxMessage-len("…"))
}

package action

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/rules/lang/expr"
)

// Effects receives the effects of actions. A method returns an error if the effect can never work; the rule then fails. Outputs
// that the policy forbids are rejected and reported by the implementation. Removing something that does not exist is not an error.
type Effects interface {
	// Outputs on the node.

	SetLabel(name, value string) error
	DeleteLabel(name string) error
	SetAnnotation(name, value string) error
	// AppendAnnotation adds to a comma-separated list. If unique is set, it does not add an element that the list contains.
	AppendAnnotation(name, value string, unique bool) error
	DeleteAnnotation(name string) error
	SetResource(name, quantity string) error
	DeleteResource(name string) error
	// SetTaints replaces the taints of the rule.
	SetTaints(list []corev1.Taint) error
	// AddTaint adds a taint. If unique is set, it does not add a taint with the key and effect of another taint of the rule.
	AddTaint(t corev1.Taint, unique bool) error

	// Variables.

	SetVar(name string, value expr.Value) error
	// ExtendVar adds to a list. If unique is set, it does not add elements that the list contains. A variable that does not exist
	// starts as an empty list; a variable that is not a list is an error.
	ExtendVar(name string, value expr.Value, unique bool) error
	UnsetVar(name string) error

	// Derived features.

	SetFeature(feature, element, value string) error
	// ExtendFeature adds to a comma-separated list.
	ExtendFeature(feature, element, value string, unique bool) error
	// UnsetFeature removes an element, or the whole feature if element is empty.
	UnsetFeature(feature, element string) error
	// The instance methods apply to the instances that have all the attributes of match.
	SetInstanceAttribute(feature string, match map[string]string, name, value string) error
	ExtendInstanceAttribute(feature string, match map[string]string, name, value string, unique bool) error
	DeleteInstanceAttribute(feature string, match map[string]string, name string) error

	// Messages.

	// Fail prevents all writes to the node.
	Fail(message string) error
	// Log accepts the levels debug, info, warning and error.
	Log(level, message string) error
	// Event accepts the types Normal and Warning.
	Event(reason, message, eventType string) error
}

// Append adds an element to a comma-separated list, as AppendAnnotation and ExtendFeature do.
func Append(list, element string, unique bool) string {
	if list == "" {
		return element
	}
	if unique && contains(list, element) {
		return list
	}
	return list + "," + element
}

// Extend adds an element to the list of a variable, as ExtendVar does. It reports false if the variable is not a list.
func Extend(list, element expr.Value, unique bool) (expr.Value, bool) {
	if list.Kind() == expr.Missing {
		return expr.OfList(expr.Values{element}), true
	}
	items := list.List()
	if items == nil {
		return list, false
	}
	extended := make(expr.Values, 0, items.Len()+1)
	text := element.String()
	for i := range items.Len() {
		item := items.At(i)
		if unique && item.Kind() == element.Kind() && item.String() == text {
			return list, true
		}
		extended = append(extended, item)
	}
	return expr.OfList(append(extended, element)), true
}

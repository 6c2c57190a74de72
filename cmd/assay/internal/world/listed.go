package world

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/manifest"
)

// ListedRule is a rule object and its source.
type ListedRule struct {
	nfdv1alpha1.NodeFeatureRule
	BuiltIn bool
}

// Listed returns the rules of a world in evaluation order.
func (w *World) Listed() []ListedRule {
	var out []ListedRule
	for _, r := range w.Rules {
		out = append(out, ListedRule{NodeFeatureRule: r})
	}
	for _, r := range w.BuiltIn {
		out = append(out, ListedRule{NodeFeatureRule: r, BuiltIn: true})
	}
	slices.SortStableFunc(out, EvaluationOrder)
	return out
}

// PhaseOrder is the order in which phases of rules run.
var PhaseOrder = []string{"early", "preprocess", "main"}

// PhaseOf returns the phase in which a rule is evaluated.
func PhaseOf(r *ListedRule) string {
	if p := string(ptr.Deref(r.Spec.Phase, "")); p != "" {
		return p
	}
	return string(nfdv1alpha1.PhaseMain)
}

// EvaluationOrder compares rules by the order in which they are evaluated.
func EvaluationOrder(a, b ListedRule) int {
	if d := slices.Index(PhaseOrder, PhaseOf(&a)) - slices.Index(PhaseOrder, PhaseOf(&b)); d != 0 {
		return d
	}
	if d := ptr.Deref(b.Spec.Priority, 0) - ptr.Deref(a.Spec.Priority, 0); d != 0 {
		return int(d)
	}
	return strings.Compare(a.Name, b.Name)
}

// Shown returns an object without sensitive parts: in sensitive rules, conditions and actions are null.
func Shown(r *ListedRule) (any, error) {
	r.ManagedFields = nil
	delete(r.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	if r.Kind == "" {
		r.APIVersion, r.Kind = nfdv1alpha1.GroupVersion.String(), manifest.KindRule
	}
	data, err := json.Marshal(&r.NodeFeatureRule)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	spec, _ := object["spec"].(map[string]any)
	list, _ := spec["rules"].([]any)
	for _, item := range list {
		rule, _ := item.(map[string]any)
		for key, value := range rule { // remove fields that NFD's types always write
			if value == nil || value == "" {
				delete(rule, key)
			}
		}
		if ptr.Deref(r.Spec.Sensitive, false) {
			rule["conditions"], rule["actions"] = nil, nil
		}
	}
	if r.BuiltIn {
		object["builtIn"] = true
	}
	if status, ok := object["status"].(map[string]any); ok && len(status) == 0 {
		delete(object, "status")
	}
	return object, nil
}

package main

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/written"
	"github.com/assay-project/assay/rules/keys"
)

// foreign is a key of a Node that no rule sets.
type foreign struct {
	given
	managers []string // the clients that set it according to managedFields
}

// foreign returns the keys of the Node with a name, with or without its namespace.
func (e *explanation) foreign(name string) []foreign {
	if e.node == nil {
		return nil
	}
	full := e.world.opt.Keys.Qualify(name)
	var out []foreign
	add := func(kind keys.Kind, key, value string, path ...string) {
		out = append(out, foreign{given{kind, key, value}, written.Managers(e.node.ManagedFields, path...)})
	}
	spellings := []string{name}
	if full != name {
		spellings = append(spellings, full)
	}
	for _, key := range spellings {
		if value, ok := e.node.Labels[key]; ok {
			add(keys.Label, key, value, "metadata", "labels", key)
		}
		if value, ok := e.node.Annotations[key]; ok {
			add(keys.Annotation, key, value, "metadata", "annotations", key)
		}
		if quantity, ok := e.node.Status.Capacity[corev1.ResourceName(key)]; ok {
			add(keys.Resource, key, quantity.String(), "status", "capacity", key)
		}
	}
	for _, t := range e.node.Spec.Taints {
		if id := keys.TaintName(t); t.Key == name || t.Key == full || id == name {
			add(keys.Taint, id, t.Value, "spec", "taints") // an atomic list
		}
	}
	if text, ok := written.Conditions(e.node)[name]; ok {
		add(keys.Condition, name, text, written.ConditionPath(name)...)
	}
	return out
}

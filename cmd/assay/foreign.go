package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
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
		if id := t.Key + ":" + string(t.Effect); t.Key == name || t.Key == full || id == name {
			add(keys.Taint, id, t.Value, "spec", "taints") // an atomic list
		}
	}
	if text, ok := written.Conditions(e.node)[name]; ok {
		add(keys.Condition, name, text, written.ConditionPath(name)...)
	}
	return out
}

// printForeign prints keys of the Node that no rule sets: those that another client has set, and those that the controller keeps.
func (e *explanation) printForeign(ctx context.Context, list []foreign) {
	for _, f := range list {
		if f.kind == keys.Condition && f.key == assayv1alpha1.FeaturesReadyCondition {
			fmt.Fprintf(e.w, "%s %s\n  written by Assay itself, not by a rule: it reports whether all rules are applied to the features of this boot\n",
				f.kind, e.s.bold(printable(line(f.key, f.value))))
			continue
		}
		if instance, ok := e.world.owner(e.node, f.kind, f.key); ok {
			if e.printLoss(ctx, f.given) {
				continue
			}
			e.printKept(ctx, f.given, instance)
			continue
		}
		by := ""
		if len(f.managers) > 0 {
			by = ": " + strings.Join(f.managers, ", ")
		}
		fmt.Fprintf(e.w, "%s %s\n  set by another client, not by Assay%s\n", f.kind, e.s.bold(printable(line(f.key, f.value))), printable(by))
	}
}

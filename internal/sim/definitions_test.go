package sim

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/sim/apiserver"
)

// Other programs replace the definition of NodeFeatureRules with that of NFD, write rules meanwhile, and delete it with all rules. No key of a
// Node may change because of that: checks read what users meant, instead of what the API server stores. A user who writes a rule while the
// definition lacks fields has not written what he meant; what the rule gave stays until he applies it again.

// meaning is what users meant all rules to be from a revision on, sorted by name.
type meaning struct {
	revision int64
	rules    []object
}

// noteRule notes what a user has written.
func (w *world) noteRule(c apiserver.Change) {
	if !w.redefines || c.By != "user" {
		return
	}
	if delete(w.unmeant, c.Key); w.replacedByNFD && c.Type != apiserver.Deleted {
		w.unmeant[c.Key] = true
		return
	}
	next := meaning{revision: c.Revision}
	if n := len(w.meanings); n > 0 {
		next.rules = slices.DeleteFunc(slices.Clone(w.meanings[n-1].rules), func(o object) bool { return nameOf(o) == c.Key })
	}
	if c.Type != apiserver.Deleted {
		next.rules = append(next.rules, c.New)
		slices.SortFunc(next.rules, func(a, b object) int { return cmp.Compare(nameOf(a), nameOf(b)) })
	}
	w.meanings = append(w.meanings, next)
}

func nameOf(o object) string {
	name, _ := below(o, "metadata")["name"].(string)
	return name
}

// meant returns the rules as users meant them at a revision, and after each later change by a user.
func (w *world) meant(from int64) (out [][]object) {
	if !w.redefines {
		return w.server.Versions("nodefeaturerules", from)
	}
	out = [][]object{nil}
	for _, m := range w.meanings {
		if m.revision <= from {
			out = out[:0]
		}
		out = append(out, m.rules)
	}
	return out
}

// meantAt returns the rules as users meant them at a revision.
func (w *world) meantAt(revision int64) []object { return w.meant(revision)[0] }

// whole is the specification of a definition that lacks no field.
func (w *world) whole() object {
	keeps := object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return specification(object{"x-kubernetes-preserve-unknown-fields": true, "properties": object{"spec": keeps, "status": keeps}})
}

// plain is the specification of NFD's definition of rules.
func (w *world) plain() object {
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema object }
			}
		}
	}
	if err := yaml.Unmarshal(charts.CRDs()["nfd.k8s-sigs.io_nodefeaturerules.yaml"], &crd); err != nil {
		w.violate("definition: %v", err)
	}
	properties := below(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, "properties")
	delete(properties, "status")
	spec := below(below(properties, "spec"), "properties")
	maps.DeleteFunc(spec, func(name string, _ any) bool { return name != "rules" })
	maps.DeleteFunc(below(below(below(spec, "rules"), "items"), "properties"), func(name string, _ any) bool {
		return slices.Contains([]string{"conditions", "nodeConditions", "actions", "loop", "expressions"}, name)
	})
	return specification(object{"properties": properties})
}

func specification(schema object) object {
	return object{"versions": []any{object{"name": "v1alpha1", "schema": object{"openAPIV3Schema": schema}}}}
}

const definitionPath = crdsPath + "/" + definition.Rules

// redefinitions returns what others may do to the definition of rules now.
func (w *world) redefinitions() []weighted {
	if w.replacedByNFD {
		return []weighted{{usual, w.restoreDefinition}, {usual, w.touchRule}}
	}
	return []weighted{{usual, w.replaceDefinition}, {seldom, w.deleteDefinition}, {seldom, w.applyRules}}
}

func (w *world) replaceDefinition() {
	w.tell("a hook replaces the definition of rules with NFD's")
	w.replacedByNFD = true
	w.do("hook", http.MethodPatch, definitionPath, object{"spec": w.plain()})
	w.cutRules()
}

func (w *world) restoreDefinition() {
	stored := w.accepted()
	for i := range 3 {
		if name := ruleName(i); w.unmeant[name] {
			if v := id(w.server.Get("nodefeaturerules", "", name)); stored[types.UID(v.uid)].Generation != v.generation {
				w.deleteRule(i) // nothing will show that it has lost fields
			}
		}
	}
	w.wait()
	w.tell("the definition of rules is whole again")
	w.replacedByNFD = false
	w.do("install", http.MethodPatch, definitionPath, object{"spec": w.whole()})
	w.cutRules()
}

// cutRules ends the watches of rules, as an API server does after a definition has changed, or leaves them open for a while.
func (w *world) cutRules() {
	if w.n(2) == 0 {
		return
	}
	for _, p := range w.programs {
		for _, watch := range p.client.Watches() {
			if resource, _ := watch.At(); resource == "nodefeaturerules" {
				w.tell("watch of %s ends", watch)
				watch.End(io.EOF)
			}
		}
	}
}

// accepted returns which rules a leader has stored as accepted.
func (w *world) accepted() map[types.UID]assembly.Accepted {
	return assembly.DecodeAccepted(fmt.Sprint(below(w.server.Get("configmaps", namespace, assembly.SharedKeptName), "data")[assembly.AcceptedKey]))
}

// touchRule annotates a rule, which makes the loss of its fields permanent. Nothing shows what was lost of a rule that no leader has stored as
// accepted, so such a rule is left alone.
func (w *world) touchRule() {
	stored := w.accepted()
	for i := range 3 {
		o := w.server.Get("nodefeaturerules", "", ruleName(i))
		if o == nil {
			continue
		}
		v := id(o)
		was, known := stored[types.UID(v.uid)]
		if !known || was.Generation != v.generation || was.Print == "" || w.n(2) == 0 {
			continue
		}
		w.tell("another client annotates %s", ruleName(i))
		w.do("other", http.MethodPatch, rulesPath+"/"+ruleName(i), object{"metadata": object{"annotations": object{"example.com/touched": fmt.Sprint(w.server.Revision())}}})
	}
}

// deleteDefinition deletes the definition with all rules. After a while it is created again, and users apply their rules again. What users have
// deleted just before is seen first: nothing would show that it was not deleted with the definition.
func (w *world) deleteDefinition() {
	w.drain(time.Minute)
	w.tell("the definition of rules is deleted")
	w.do("hook", http.MethodPatch, definitionPath, object{"metadata": object{"finalizers": []any{"customresourcecleanup"}}})
	w.do("hook", http.MethodDelete, definitionPath, nil)
	for _, o := range w.server.List("nodefeaturerules") {
		w.do("hook", http.MethodDelete, rulesPath+"/"+nameOf(o), nil)
	}
	w.do("hook", http.MethodPatch, definitionPath, object{"metadata": object{"finalizers": nil}})
	w.cutRules()
	w.drain(one(w.tape, 0, time.Second, 20*time.Second, 2*time.Minute, quiet))
	w.tell("the definition of rules is created again")
	w.do("install", http.MethodPost, crdsPath, object{"metadata": object{"name": definition.Rules}, "spec": w.whole()})
	w.applyRules()
}

// applyRules has users apply all rules again, each with another description.
func (w *world) applyRules() {
	for _, name := range slices.Sorted(maps.Keys(w.wishes)) {
		w.applyRule(name, w.wishes[name])
	}
}

// settleDefinitions makes the definition whole, and has users apply their rules again once all programs know that.
func (w *world) settleDefinitions() {
	if w.replacedByNFD {
		w.restoreDefinition()
	}
	w.drain(5 * time.Minute)
	w.applyRules()
}

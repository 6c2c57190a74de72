package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// Keys of Nodes are written as kind and key, for example "label feature.node.kubernetes.io/x".

// keysOf returns the labels, annotations, resources, taints and conditions of a Node, without FeaturesReady (see gate).
func (w *world) keysOf(o object) map[string]string {
	version := o["metadata"].(object)["resourceVersion"].(string)
	if w.keys[version] == nil {
		w.keys[version] = keysOf(o)
	}
	return w.keys[version]
}

func keysOf(o object) map[string]string {
	out := map[string]string{}
	add := func(kind keys.Kind, values any) {
		all, _ := values.(object)
		for k, v := range all {
			out[string(kind)+" "+k] = fmt.Sprint(v)
		}
	}
	meta, status, spec := o["metadata"].(object), below(o, "status"), below(o, "spec")
	add(keys.Label, meta["labels"])
	add(keys.Annotation, meta["annotations"])
	add(keys.Resource, status["capacity"]) // the model stores quantities in their normal form
	for k, v := range below(status, "allocatable") {
		if capacity := below(status, "capacity")[k]; capacity != v {
			out[string(keys.Resource)+" "+k] = fmt.Sprint(v, " of ", capacity)
		}
	}
	taints, _ := spec["taints"].([]any)
	for _, t := range taints {
		t := t.(object)
		value, _ := t["value"].(string)
		out[fmt.Sprint(keys.Taint, " ", t["key"], ":", t["effect"])] = value
	}
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		c := c.(object)
		if kind := c["type"].(string); kind != assayv1alpha1.FeaturesReadyCondition {
			reason, _ := c["reason"].(string)
			message, _ := c["message"].(string)
			out[string(keys.Condition)+" "+kind] = keys.FormatCondition(fmt.Sprint(c["status"]), reason, message)
		}
	}
	return out
}

// below returns an object in an object; nil if there is none.
func below(o object, field string) object {
	in, _ := o[field].(object)
	return in
}

// reference computes the outputs of the rules for Nodes from what the API server stores. It shares the compiler and the evaluation of rules
// with the programs, and neither their decoders nor what merges NodeFeatures.
type reference struct {
	w        *world
	compiled map[version]*rules.RuleSet
	programs map[string]*rules.Program // by the rules in them
	outcomes map[string]map[string]string
}

func newReference(w *world) *reference {
	return &reference{w, map[version]*rules.RuleSet{}, map[string]*rules.Program{}, map[string]map[string]string{}}
}

// version identifies the content of an object, apart from metadata and status.
type version struct {
	uid        string
	generation int64
}

func id(o object) version {
	m := o["metadata"].(object)
	return version{m["uid"].(string), m["generation"].(int64)}
}

func ids(list []object) string {
	var out []byte
	for _, o := range list {
		v := id(o)
		out = append(append(out, v.uid...), ' ')
		out = append(strconv.AppendInt(out, v.generation, 10), ',')
	}
	return string(out)
}

func (r *reference) program(list []object) *rules.Program {
	var sets []*rules.RuleSet
	all := ids(list)
	for _, o := range list {
		id := id(o)
		if r.compiled[id] == nil {
			var rule nfdv1alpha1.NodeFeatureRule
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, &rule); err != nil {
				panic(err)
			}
			r.compiled[id], _ = rules.Compile(&rule, rules.Options{})
		}
		sets = append(sets, r.compiled[id])
	}
	if r.programs[all] == nil {
		r.programs[all] = rules.Link(rules.Options{}, sets...)
	}
	return r.programs[all]
}

// want returns the outputs of the rules for a node with the given NodeFeatures.
func (r *reference) want(node string, ruleObjects, features []object) map[string]string {
	key := node + " " + ids(ruleObjects) + " " + ids(features)
	out := r.outcomes[key]
	if out == nil {
		out = r.evaluate(node, ruleObjects, features)
		r.outcomes[key] = out
	}
	return out
}

// pathIn returns namespace/name.
func pathIn(o object) string {
	m := below(o, "metadata")
	return fmt.Sprint(m["namespace"], "/", m["name"])
}

// ordered returns NodeFeatures of a node in the order in which they are merged.
func ordered(features []object) []object {
	rank := func(o object) (other int, name, where string) {
		m := below(o, "metadata")
		if m["namespace"] != namespace {
			other = 1
		}
		return other, m["name"].(string), m["namespace"].(string)
	}
	return slices.SortedFunc(slices.Values(features), func(a, b object) int {
		x, n, s := rank(a)
		y, m, t := rank(b)
		return cmp.Or(x-y, cmp.Compare(n, m), cmp.Compare(s, t))
	})
}

// outcome evaluates the rules on a node with the given NodeFeatures.
func (r *reference) outcome(node string, ruleObjects, features []object) *rules.Outcome {
	all := nfdv1alpha1.Features{
		Flags: map[string]nfdv1alpha1.FlagFeatureSet{}, Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{}, Instances: map[string]nfdv1alpha1.InstanceFeatureSet{},
	}
	in := rules.Input{Node: rules.Node{Name: node}, Labels: map[string]string{}}
	for _, f := range ordered(features) {
		content := typed(r.w.resolved(f))
		if m := below(f, "metadata"); m["namespace"] != namespace || m["name"] != node { // only a worker says what it has read
			delete(content.Flags, unread)
			delete(content.Attributes, "system.boot")
		}
		merge(&all, content)
		for key, value := range below(below(f, "spec"), "labels") {
			in.Labels[prefix+key] = value.(string)
		}
		in.Publishers = append(in.Publishers, rules.Publisher{Name: pathIn(f), Facts: facts.New(&content, nil)})
	}
	in.Facts = facts.New(&all, nil)
	return r.program(ruleObjects).Eval(in)
}

func (r *reference) evaluate(node string, ruleObjects, features []object) map[string]string {
	o, out := r.outcome(node, ruleObjects, features), map[string]string{}
	for k, v := range o.Labels() {
		out[string(keys.Label)+" "+k] = v
	}
	for k, v := range o.Annotations() {
		out[string(keys.Annotation)+" "+k] = v
	}
	for k, v := range o.ExtendedResources() {
		out[string(keys.Resource)+" "+k] = v
	}
	for _, t := range o.Taints() {
		out[string(keys.Taint)+" "+t.Key+":"+string(t.Effect)] = t.Value
	}
	for k, v := range o.NodeConditions() {
		out[string(keys.Condition)+" "+k] = v
	}
	return out
}

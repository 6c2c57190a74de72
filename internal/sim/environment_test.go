package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/rules/keys"
)

const (
	crdsPath     = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	nodesPath    = "/api/v1/nodes"
	rulesPath    = "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeaturerules"
	featuresPath = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/" + namespace + "/nodefeatures"
	leasePath    = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/" + leaseName
	prefix       = "feature.node.kubernetes.io/"
	conditions   = "vendor.io/" // begins the types of conditions that rules set
)

// define installs the definitions of all kinds, as far as controllers read them: the API server keeps all fields.
func (w *world) define() {
	names, err := definition.Names()
	if err != nil {
		w.violate("definitions: %v", err)
	}
	for _, name := range names {
		w.do("install", http.MethodPost, crdsPath, object{"metadata": object{"name": name}, "spec": w.whole()})
	}
}

func nodeName(i int) string { return fmt.Sprintf("n%d", i) }
func ruleName(i int) string { return fmt.Sprintf("rule-%d", i) }

func (w *world) addNode(name string) {
	w.boots[name]++
	taints := []any{}
	if w.n(2) == 1 {
		taints = append(taints, object{"key": startupTaint, "effect": "NoSchedule"})
	}
	w.do("kubelet", http.MethodPost, nodesPath, object{
		"metadata": object{"name": name, "labels": object{"kubernetes.io/hostname": name}}, "spec": object{"taints": taints},
		"status": object{
			"capacity": object{"cpu": "4"}, "nodeInfo": object{"bootID": w.bootOf(name)},
			"conditions": []any{object{"type": "Ready", "status": "True"}},
		},
	})
	facts := map[string]string{serial: w.drawSerial(name)}
	for i := range w.attributes {
		facts[fmt.Sprintf("a%d", i)] = fmt.Sprint(w.n(3))
	}
	if w.devices {
		w.publishDevices(name)
	}
	w.silent[name] = w.n(4) == 3 && !w.losing
	w.facts[name], w.hosts[name] = facts, newHost()
}

// publish writes the NodeFeature of a node like its worker.
func (w *world) publish(node string) {
	spec := object{"features": w.own(node)}
	if w.mute(node) {
		spec = object{"labels": object{"asked": w.facts[node][serial] + "-" + w.facts[node]["a0"]}}
	}
	if w.server.Get("nodefeatures", namespace, node) != nil {
		w.do("worker", http.MethodPatch, featuresPath+"/"+node, object{"spec": spec})
		return
	}
	owner := w.server.Get("nodes", "", node)
	if owner == nil {
		return
	}
	w.do("worker", http.MethodPost, featuresPath, object{
		"metadata": object{
			"name": node, "labels": object{"nfd.node.kubernetes.io/node-name": node},
			"ownerReferences": []any{object{"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner["metadata"].(object)["uid"]}},
		},
		"spec": spec,
	})
}

// change changes a fact of a node, and publishes it.
func (w *world) change(node string) {
	if w.facts[node] == nil {
		return
	}
	k, value := fmt.Sprintf("a%d", w.n(w.attributes)), fmt.Sprint(w.n(3))
	if w.n(4) == 3 {
		k, value = serial, w.drawSerial(node)
	}
	w.facts[node][k] = value
	w.tell("host %s: %s is %s", node, k, w.facts[node][k])
	w.examine(node)
}

// examine has the worker of a node publish its facts.
func (w *world) examine(node string) {
	if w.employs(node) {
		w.report(node)
	} else {
		w.publish(node)
	}
}

// editRule creates or replaces a rule.
func (w *world) editRule(i int) {
	forms := []int{0, 1, 2, 3, 4, 5, sharing, 7, 8, 9, 10, 11, 12, 13, 14, sharing}
	if w.redefines {
		forms = append(forms, conditional, conditional, conditional)
	}
	w.writeRule(i, one(w.tape, forms...), fmt.Sprint(w.n(2)))
}

// ofThird is the number of the rule that reads the facts of third parties.
const ofThird = 1

const (
	// sharing is the form of rules that give the same key.
	sharing = 6
	// conditional is the form of a rule whose condition NFD's definition lacks: without it, it matches each node with the attribute.
	conditional = 15
)

// writeRule creates or replaces a rule.
func (w *world) writeRule(i, form int, value string) {
	w.applyRule(ruleName(i), w.rule(i, form, value))
}

// applyRule creates or replaces a rule.
func (w *world) applyRule(name string, rule object) {
	w.versions[name]++
	w.wishes[name] = rule
	spec := object{"rules": []any{rule}}
	w.tell("user writes %s: %v", name, spec)
	if w.redefines {
		spec["description"] = fmt.Sprint("edition ", w.versions[name])
	}
	if w.server.Get("nodefeaturerules", "", name) == nil {
		w.do("user", http.MethodPost, rulesPath, object{"metadata": object{"name": name}, "spec": spec})
	} else {
		w.do("user", http.MethodPatch, rulesPath+"/"+name, object{"spec": spec})
	}
}

// rule returns a random rule.
func (w *world) rule(i, form int, value string) object {
	attribute := fmt.Sprintf("a%d", i%w.attributes)
	if i == ofThird {
		attribute = "v"
	}
	has := func(feature, name string, expression object) []any {
		return []any{object{"feature": feature, "matchExpressions": object{name: expression}}}
	}
	when := func(expression object) []any { return has("test.attr", attribute, expression) }
	exists := object{"op": "Exists"}
	in := object{"op": "In", "value": []any{"1", "2"}}
	key := fmt.Sprintf("r%d", i)
	out := object{"name": "rule", "matchFeatures": when(in)}
	switch form {
	case 0:
		out["labels"] = object{key: value}
	case 1:
		out["labels"], out["matchFeatures"] = object{key: "@test.attr." + attribute}, when(object{"op": "Exists"})
	case 2:
		out["labels"], out["annotations"] = object{key: value}, object{key: value}
	case 3:
		out["labels"], out["extendedResources"] = object{key: value}, object{key: "3"}
	case 4:
		out["labels"] = object{key: value}
		out["taints"] = []any{object{"key": prefix + key, "value": value, "effect": "PreferNoSchedule"}}
	case 5:
		out["labelsTemplate"] = "{{range .test.attr}}" + key + "-{{.Name}}={{.Value}}\n{{end}}"
	case sharing:
		out["labels"], out["matchFeatures"] = object{"shared": value}, when(object{"op": "In", "value": []any{value}})
	case 7: // invalid: it is skipped
		out["labels"], out["matchFeatures"] = object{key: value}, when(object{"op": "Inn", "value": []any{"1"}})
	case 8:
		out["labels"] = object{key: value}
		out["nodeConditions"] = []any{object{"type": conditions + key, "status": map[string]string{"0": "False", "1": "True"}[value], "reason": "Rule"}}
	case 9:
		out["matchFeatures"] = when(object{"op": "Exists"})
		out["nodeConditions"] = []any{object{"type": conditions + key, "status": "Unknown", "message": "It is {@test.attr." + attribute + "}"}}
	case 10:
		out["labels"] = object{key: value}
		out["taints"] = []any{object{"key": prefix + key, "value": value, "effect": "NoExecute"}}
	case 11:
		out["labels"], out["matchFeatures"] = object{key: "@id.host.serial"}, has("id.host", serial, exists)
	case 12:
		out["labelsTemplate"], out["matchFeatures"] = "{{range .test.card}}"+key+"-{{.slot}}={{.vendor}}\n{{end}}", has("test.card", "vendor", exists)
	case 13:
		out["labels"], out["annotations"] = object{key: "@vendor.id.serial"}, object{key: "{node} {@vendor.id.serial}"}
		out["matchFeatures"] = has("vendor.id", serial, exists)
	case 14:
		out["labelsTemplate"] = "{{range .test.flag}}" + key + "={{.Name}}\n{{end}}"
		out["matchFeatures"] = []any{object{"feature": "test.flag", "matchName": object{"op": "Exists"}}}
	case conditional:
		out["labels"], out["matchFeatures"] = object{key: value}, when(exists)
		out["taints"] = []any{object{"key": prefix + key, "value": value, "effect": "PreferNoSchedule"}}
		out["conditions"] = []any{object{"op": "eq", "args": object{"values": []any{"{@test.attr." + attribute + "}", value}}}}
	}
	return out
}

func (w *world) deleteRule(i int) {
	if w.server.Get("nodefeaturerules", "", ruleName(i)) != nil {
		w.tell("user deletes %s", ruleName(i))
		delete(w.wishes, ruleName(i))
		w.do("user", http.MethodDelete, rulesPath+"/"+ruleName(i), nil)
	}
}

func (w *world) deleteFeature(node string) {
	if w.server.Get("nodefeatures", namespace, node) != nil {
		w.tell("user deletes NodeFeature %s", node)
		w.do("user", http.MethodDelete, featuresPath+"/"+node, nil)
	}
}

// heartbeat changes fields that no one uses.
func (w *world) heartbeat(node string) {
	o := w.server.Get("nodes", "", node)
	if o == nil {
		return
	}
	conditions, _ := below(o, "status")["conditions"].([]any)
	conditions = slices.DeleteFunc(slices.Clone(conditions), func(c any) bool { return c.(object)["type"] == "Ready" })
	conditions = append(conditions, object{"type": "Ready", "status": "True", "message": fmt.Sprint(w.server.Revision())})
	w.do("kubelet", http.MethodPatch, nodesPath+"/"+node+"/status", object{"status": object{"conditions": conditions}})
}

// foreignTaint adds a taint that is not ours, or removes it.
func (w *world) foreignTaint(node string) {
	o := w.server.Get("nodes", "", node)
	if o == nil {
		return
	}
	spec, _ := o["spec"].(object)
	before, _ := spec["taints"].([]any)
	taints := slices.DeleteFunc(slices.Clone(before), func(t any) bool { return t.(object)["key"] == "example.com/other" })
	if len(taints) == len(before) {
		taints = append(taints, object{"key": "example.com/other", "effect": "PreferNoSchedule"})
	}
	w.tell("another client sets the taints of %s to %v", node, taints)
	w.do("other", http.MethodPatch, nodesPath+"/"+node, object{"spec": object{"taints": taints}})
}

// interfere changes a Node that a program is about to write.
func (w *world) interfere(node string) {
	switch w.n(4) {
	case 0:
		w.heartbeat(node)
	case 1:
		w.foreign(node)
	case 2:
		w.foreignTaint(node)
	case 3:
		w.foreignCondition(node)
	}
}

// foreign changes a label that is not the controller's, or one that is.
func (w *world) foreign(node string) {
	o := w.server.Get("nodes", "", node)
	if o == nil {
		return
	}
	ours := w.owned(o, keys.Label)
	label, value := "example.com/other", any(fmt.Sprint(w.n(3)))
	if len(ours) > 0 && w.n(2) == 1 {
		label = one(w.tape, ours...)
		if w.n(2) == 1 {
			value = nil
		}
	}
	w.tell("another client sets label %s of %s to %v", label, node, value)
	w.do("other", http.MethodPatch, nodesPath+"/"+node, object{"metadata": object{"labels": object{label: value}}})
}

// foreignCondition sets or removes a condition that is not the controller's, or one that a rule sets.
func (w *world) foreignCondition(node string) {
	o := w.server.Get("nodes", "", node)
	if o == nil {
		return
	}
	kind := "example.com/Other"
	if ours := w.owned(o, keys.Condition); len(ours) > 0 && w.n(2) == 1 {
		kind = one(w.tape, ours...)
	}
	list, _ := below(o, "status")["conditions"].([]any)
	list = slices.DeleteFunc(slices.Clone(list), func(c any) bool { return c.(object)["type"] == kind })
	if status := w.n(4); status < 3 {
		list = append(list, object{"type": kind, "status": []string{"True", "False", "Unknown"}[status], "reason": "Other"})
	}
	w.tell("another client changes condition %s of %s", kind, node)
	w.do("other", http.MethodPatch, nodesPath+"/"+node+"/status", object{"status": object{"conditions": list}})
}

// owned returns the keys of a kind that a Node has and its record lists, sorted.
func (w *world) owned(o object, kind keys.Kind) (out []string) {
	for k := range w.check.record(o) {
		key, is := strings.CutPrefix(k, string(kind)+" ")
		if _, present := w.keysOf(o)[k]; is && present {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) replaceNode(node string) {
	if w.server.Get("nodes", "", node) == nil {
		w.addNode(node)
		w.replaced[node] = true
		if w.employs(node) {
			w.hire(node)
		} else {
			w.publish(node)
		}
		return
	}
	w.dismiss(node)
	w.tell("node %s is deleted", node)
	w.do("user", http.MethodDelete, nodesPath+"/"+node, nil)
	w.withdrawDevices("garbage-collector", node)
	for _, pod := range w.server.List("pods") {
		if below(pod, "spec")["nodeName"] == node {
			w.do("garbage-collector", http.MethodDelete, pathOf(pod), nil)
		}
	}
}

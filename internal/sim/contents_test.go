package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// serial is the fact that differs between all nodes, in its length too. The other facts are equal on many nodes.
const serial = "serial"

// drawSerial returns a serial number that no other node has.
func (w *world) drawSerial(node string) string {
	return fmt.Sprintf("%s-%s%d", node, strings.Repeat("x", w.n(4)), w.n(100))
}

// mute reports whether a node is described by requested labels only: its NodeFeature has no features. All such nodes have the same facts.
func (w *world) mute(node string) bool { return w.silent[node] && !w.employs(node) }

// own returns the features that the worker of a node finds.
func (w *world) own(node string) object {
	elements := object{}
	for k, v := range w.facts[node] {
		if k != serial {
			elements[k] = v
		}
	}
	number := w.facts[node][serial]
	return object{
		"attributes": object{
			"test.attr": object{"elements": elements}, "id.host": object{"elements": object{serial: number}},
			"system.boot": object{"elements": object{"id": w.bootOf(node)}},
		},
		"flags":     object{"test.flag": object{"elements": object{"F" + number: object{}}}},
		"instances": object{"test.card": cards("card-"+number, "0", "1")},
	}
}

// cards returns instances of which one attribute has the same value on all.
func cards(vendor string, slots ...string) object {
	elements := []any{}
	for _, slot := range slots {
		elements = append(elements, object{"attributes": object{"slot": slot, "vendor": vendor}})
	}
	return object{"elements": elements}
}

// typed returns features as the API type.
func typed(features object) (out nfdv1alpha1.Features) {
	raw, err := json.Marshal(features)
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		panic(err)
	}
	return out
}

// unread is the feature by which a worker names the sources that it has not read.
const unread = nfdv1alpha1.UnreadFeature

// vendors is a namespace of third parties, whose NodeFeatures are merged last.
const vendors = "vendors"

// vendor creates, changes or deletes a NodeFeature that a third party publishes for a node: in the namespace of the workers, or in another
// one. They extend features of the worker, and override one another's. Some say what only the worker may say: that it has not read a source, and
// has examined another boot.
func (w *world) vendor(node string) {
	where, name := namespace, "vendor-"+node
	if w.n(3) == 2 {
		where, name = vendors, "a-"+node
	}
	path := strings.Replace(featuresPath, namespace, where, 1)
	value := fmt.Sprint(w.n(3))
	spec := object{"features": object{
		"attributes": object{"test.attr": object{"elements": object{"v": value}}, "vendor.id": object{"elements": object{serial: name + "-" + value}}},
		"instances":  object{"test.card": cards(name, "9")},
	}, "labels": nil}
	exists := w.server.Get("nodefeatures", where, name) != nil
	if features := below(spec, "features"); value == "2" {
		features["flags"] = object{unread: object{"elements": object{"test": object{}, "vendor": object{}}}}
		below(features, "attributes")["system.boot"] = object{"elements": object{"id": name}}
	} else if exists {
		features["flags"], below(features, "attributes")["system.boot"] = nil, nil // the version before may have them
	}
	if w.n(2) == 1 {
		spec["labels"] = object{"vendor": name + "-" + value}
	}
	switch {
	case exists && w.n(4) == 3:
		w.tell("a third party deletes NodeFeature %s", name)
		w.do("vendor", http.MethodDelete, path+"/"+name, nil)
	case exists:
		w.do("vendor", http.MethodPatch, path+"/"+name, object{"spec": spec})
	default:
		w.do("vendor", http.MethodPost, path, object{
			"metadata": object{"name": name, "labels": object{"nfd.node.kubernetes.io/node-name": node}}, "spec": spec,
		})
	}
}

// merge adds features: flags are united, attributes replaced one by one, instances appended.
func merge(into *nfdv1alpha1.Features, from nfdv1alpha1.Features) {
	for name, set := range from.Flags {
		all := map[string]nfdv1alpha1.Nil{}
		maps.Copy(all, into.Flags[name].Elements)
		maps.Copy(all, set.Elements)
		into.Flags[name] = nfdv1alpha1.FlagFeatureSet{Elements: all}
	}
	for name, set := range from.Attributes {
		all := map[string]string{}
		maps.Copy(all, into.Attributes[name].Elements)
		maps.Copy(all, set.Elements)
		into.Attributes[name] = nfdv1alpha1.AttributeFeatureSet{Elements: all}
	}
	for name, set := range from.Instances {
		var all []nfdv1alpha1.InstanceFeature
		all = append(append(all, into.Instances[name].Elements...), set.Elements...)
		into.Instances[name] = nfdv1alpha1.InstanceFeatureSet{Elements: all}
	}
}

// encoded returns the instances in spec.encodedInstances of a NodeFeature.
func encoded(feature object) object {
	text, _ := below(feature, "spec")["encodedInstances"].(string)
	if text == "" {
		return nil
	}
	var all map[string][]map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		panic(err)
	}
	out := object{}
	for name, list := range all {
		elements := []any{}
		for _, attributes := range list {
			elements = append(elements, object{"attributes": attributes})
		}
		out[name] = object{"elements": elements}
	}
	return out
}

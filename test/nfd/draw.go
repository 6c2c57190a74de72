//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// drawer draws contents. Its results depend on the seed and the order of calls alone.
type drawer struct{ *rand.Rand }

func (d drawer) one(from ...string) string { return from[d.IntN(len(from))] }

// some returns a random part of a list, in its order.
func (d drawer) some(from ...string) []string {
	var out []string
	for _, s := range from {
		if d.IntN(2) == 0 {
			out = append(out, s)
		}
	}
	return out
}

// The names of elements and their values. Values are few, so that expressions match on some nodes.
var (
	flagNames = []string{"AVX", "AVX2", "SSE42", "AMX", "BMI1", "sgx"}
	words     = []string{"red", "green", "blue", "Red", "true", "false", "a b", ""}
	numbers   = []string{"0", "1", "2", "3", "10", "25", "100", "-3", "007"}
	counts    = []string{"0", "1", "4", "2Gi"} // no quantity that the API server rejects: NFD then writes nothing to the node
	odd       = []string{"x", "", " 3", "1.5", "0x10", "99999999999999999999"}
	versions  = []string{"1.2.3", "v1.10", "1.2.3-rc1", "22.04", "6.1.0", "5.15.0"}
	kernels   = []string{"5.14.0-362.el9.x86_64", "6.8.0-45-generic", "4.18.0-553.el8_10.x86_64", "6.1"}
)

// attributes are the elements of fleet.attr with the values that they can have.
var attributes = map[string][]string{"word": words, "other": words, "number": numbers, "level": numbers, "version": versions, "Upper": words, "count": counts}

func (d drawer) attributes() map[string]string {
	out := map[string]string{}
	for _, name := range []string{"word", "other", "number", "level", "version", "Upper", "count"} {
		if d.IntN(5) > 0 {
			out[name] = d.one(attributes[name]...)
		}
	}
	return out
}

func flagSet(names []string) nfdv1alpha1.FlagFeatureSet {
	set := nfdv1alpha1.FlagFeatureSet{Elements: map[string]nfdv1alpha1.Nil{}}
	for _, n := range names {
		set.Elements[n] = nfdv1alpha1.Nil{}
	}
	return set
}

// instances returns up to four devices.
func (d drawer) instances() nfdv1alpha1.InstanceFeatureSet {
	set := nfdv1alpha1.InstanceFeatureSet{Elements: []nfdv1alpha1.InstanceFeature{}}
	for i := range d.IntN(5) {
		device := map[string]string{"slot": fmt.Sprint(i), "vendor": d.one("10de", "8086", "1002")}
		if d.IntN(4) > 0 {
			device["speed"] = d.one(numbers...)
		}
		if d.IntN(3) == 0 {
			device["firmware"] = d.one("1", "3", "1.2.3")
		}
		set.Elements = append(set.Elements, nfdv1alpha1.InstanceFeature{Attributes: device})
	}
	return set
}

// features are what the worker of a node, or a third party with another domain, publishes. Some features are absent, some are empty.
func (d drawer) features(domain string) nfdv1alpha1.Features {
	f := nfdv1alpha1.Features{
		Flags:      map[string]nfdv1alpha1.FlagFeatureSet{},
		Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{},
		Instances:  map[string]nfdv1alpha1.InstanceFeatureSet{},
	}
	if d.IntN(8) > 0 {
		f.Flags[domain+".flag"] = flagSet(d.some(flagNames...))
	}
	if d.IntN(8) > 0 {
		f.Attributes[domain+".attr"] = nfdv1alpha1.AttributeFeatureSet{Elements: d.attributes()}
	}
	if d.IntN(8) > 0 {
		f.Instances[domain+".device"] = d.instances()
	}
	if d.IntN(3) > 0 {
		f.Flags[domain+".multi"] = flagSet(d.some(append(flagNames, "word", "number")...))
	}
	if d.IntN(3) > 0 {
		f.Attributes[domain+".multi"] = nfdv1alpha1.AttributeFeatureSet{Elements: d.attributes()}
	}
	if d.IntN(3) == 0 {
		f.Instances[domain+".multi"] = d.instances()
	}
	f.Attributes[domain+".odd"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"number": d.one(odd...), "plain": d.one(numbers...)}}
	f.Attributes[domain+".kernel"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"full": d.one(kernels...)}}
	f.Attributes["memory.total"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"bytes": d.one("8323895296", "135168000000", "536870912000")}}
	if d.IntN(2) == 0 {
		f.Attributes[domain+".Case"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"word": d.one(words...)}}
	}
	return f
}

// namespaces are that of the masters and those of third parties.
const own, trusted, untrusted = "node-feature-discovery", "vendor-a", "vendor-b"

// object returns a NodeFeature.
func (d drawer) object(namespace, name, node string, features nfdv1alpha1.Features, labels map[string]string) *nfdv1alpha1.NodeFeature {
	return &nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node}},
		Spec:       nfdv1alpha1.NodeFeatureSpec{Features: features, Labels: labels},
	}
}

// requested are the labels that a NodeFeature may request, with values that may be references or invalid.
func (d drawer) requested(by string) map[string]string {
	out := map[string]string{}
	for _, name := range d.some("r00-bare-"+by, "example.com/r00-full-"+by, "feature.node.kubernetes.io/r00-spelled-"+by, "r00-shared",
		"feature.node.kubernetes.io/r00-shared", "example.com/r00-both", "denied.example.com/r00-"+by, "kubernetes.io/r00-"+by, "r00-inv alid", "") {
		out[name] = d.one("true", "red", "@fleet.attr.word", "@fleet.attr.number", "@fleet.nothing.here", "a b", "@rule.matched.r00", "-x-")
	}
	return out
}

// nodeObjects returns a Node and what describes it.
func (d drawer) nodeObjects(number int) (*corev1.Node, []*nfdv1alpha1.NodeFeature) {
	name := fmt.Sprintf("n%03d", number)
	// NFD cannot write to a Node without annotations; each real one has some.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"example.com/theirs": "1"}, Annotations: map[string]string{"example.com/theirs": "1"},
	}}
	var objects []*nfdv1alpha1.NodeFeature
	if d.IntN(20) > 0 {
		worker := d.object(own, name, name, d.features("fleet"), d.requested("own"))
		worker.Spec.Features.Attributes["system.name"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"nodename": name}}
		objects = append(objects, worker)
	}
	for _, namespace := range d.some(trusted, untrusted) {
		domain := d.one("fleet", "vendor") // as the worker's, or others
		objects = append(objects, d.object(namespace, name, name, d.features(domain), d.requested(strings.TrimPrefix(namespace, "vendor-"))))
	}
	if d.IntN(5) == 0 {
		objects = append(objects, d.object(own, "extra-"+name, name, d.features("fleet"), d.requested("extra")))
	}
	return node, objects
}

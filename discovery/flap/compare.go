package flap

import (
	"maps"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// compare visits the elements that differ. It skips features that appear or disappear as a whole: their source was enabled or
// disabled.
func compare(a, b *nfdv1alpha1.NodeFeatureSpec, visit func(element)) {
	compareMaps(a.Labels, b.Labels, func(name string) { visit(element{kind: label, name: name}) })
	for feature, now := range b.Features.Flags {
		if was, ok := a.Features.Flags[feature]; ok {
			compareMaps(was.Elements, now.Elements, func(name string) { visit(element{kind: flag, feature: feature, name: name}) })
		}
	}
	for feature, now := range b.Features.Attributes {
		if was, ok := a.Features.Attributes[feature]; ok {
			compareMaps(was.Elements, now.Elements, func(name string) { visit(element{kind: attribute, feature: feature, name: name}) })
		}
	}
	for feature, now := range b.Features.Instances {
		was, ok := a.Features.Instances[feature]
		if ok && !slices.EqualFunc(was.Elements, now.Elements, sameInstance) {
			compareInstances(feature, byIdentity(was.Elements), byIdentity(now.Elements), visit)
		}
	}
}

func sameInstance(a, b nfdv1alpha1.InstanceFeature) bool {
	return maps.Equal(a.Attributes, b.Attributes)
}

func compareMaps[V comparable](a, b map[string]V, visit func(name string)) {
	if maps.Equal(a, b) {
		return
	}
	for name, was := range a {
		if now, ok := b[name]; !ok || now != was {
			visit(name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			visit(name)
		}
	}
}

func compareInstances(feature string, a, b map[string][]nfdv1alpha1.InstanceFeature, visit func(element)) {
	for id, was := range a {
		now := b[id]
		if len(was) != len(now) {
			visit(element{kind: instance, feature: feature, name: id})
		} else if len(was) == 1 {
			compareMaps(was[0].Attributes, now[0].Attributes, func(name string) {
				visit(element{kind: instance, feature: feature, name: id, attribute: name})
			})
		}
	}
	for id := range b {
		if _, ok := a[id]; !ok {
			visit(element{kind: instance, feature: feature, name: id})
		}
	}
}

// byIdentity indexes instances by identity.
func byIdentity(list []nfdv1alpha1.InstanceFeature) map[string][]nfdv1alpha1.InstanceFeature {
	out := make(map[string][]nfdv1alpha1.InstanceFeature, len(list))
	for _, i := range list {
		id := identity(i.Attributes)
		out[id] = append(out[id], i)
	}
	return out
}

// identity identifies an instance: its name, with the port if it has one, or else all attributes. Several devices without a name
// can be equal.
func identity(attributes map[string]string) string {
	if name, ok := attributes["name"]; ok {
		if port, ok := attributes["port"]; ok {
			return name + "/" + port
		}
		return name
	}
	var id strings.Builder
	for _, k := range slices.Sorted(maps.Keys(attributes)) {
		id.WriteString(k + "=" + attributes[k] + " ")
	}
	return strings.TrimSuffix(id.String(), " ")
}

package discovery

import (
	"maps"
	"reflect"
	"slices"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// SameFeatures reports whether two sets of features are equal. It allocates nothing, and does not compare a map with itself: it
// runs after every discovery.
func SameFeatures(a, b *nfdv1alpha1.Features) bool {
	return maps.EqualFunc(a.Flags, b.Flags, func(a, b nfdv1alpha1.FlagFeatureSet) bool {
		return sameMap(a.Elements, b.Elements)
	}) &&
		maps.EqualFunc(a.Attributes, b.Attributes, func(a, b nfdv1alpha1.AttributeFeatureSet) bool {
			return sameMap(a.Elements, b.Elements)
		}) &&
		maps.EqualFunc(a.Instances, b.Instances, func(a, b nfdv1alpha1.InstanceFeatureSet) bool {
			return slices.EqualFunc(a.Elements, b.Elements, func(a, b nfdv1alpha1.InstanceFeature) bool {
				return sameMap(a.Attributes, b.Attributes)
			})
		})
}

func sameMap[V comparable](a, b map[string]V) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer() || maps.Equal(a, b)
}

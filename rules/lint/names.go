package lint

import "slices"

// FeatureNames returns the sorted names of the features that Assay's sources publish.
func FeatureNames() []string { return slices.Clone(featureNames) }

// ElementNames returns the sorted names of the known elements of a feature, or for instances of their attributes. A feature may
// have other elements.
func ElementNames(feature string) []string {
	return slices.Sorted(slices.Values(catalog[feature].elements))
}

package lint

import "slices"

// FeatureNames returns the names of the features that Assay's own sources publish, sorted.
func FeatureNames() []string { return slices.Clone(featureNames) }

// ElementNames returns the known names of the elements of a feature, sorted; for instances the names of their
// attributes. A feature may have other elements.
func ElementNames(feature string) []string {
	return slices.Sorted(slices.Values(catalog[feature].elements))
}

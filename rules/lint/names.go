package lint

import "slices"

// FeatureNames returns the names of the features that Assay's own sources publish, sorted.
func FeatureNames() []string { return slices.Clone(featureNames) }

// ElementNames returns the names of the elements that are known of a feature, sorted: of instances, the names of their
// attributes. A feature may have further elements.
func ElementNames(feature string) []string {
	return slices.Sorted(slices.Values(catalog[feature].elements))
}

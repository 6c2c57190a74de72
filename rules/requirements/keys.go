package requirements

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/suggest"
)

// podLabels and podAnnotations are the keys below assay.dev/ that have a meaning on pods.
var (
	podLabels      = []string{assayv1alpha1.FeatureRequestLabel}
	podAnnotations = []string{assayv1alpha1.RequiredFeaturesAnnotation, assayv1alpha1.PreferredFeaturesAnnotation, assayv1alpha1.RequirementHashAnnotation}
)

// maxKeyTypo is the number of letters by which a suggested key may differ, as in a missing plural or a transposition.
const maxKeyTypo = 4

// UnknownKey is a label or annotation of a pod below assay.dev/ that has no meaning there.
type UnknownKey struct {
	// Map is labels or annotations.
	Map, Key string
	// Message describes the problem and what to write instead.
	Message string
}

// UnknownKeys returns the labels and annotations of a pod below assay.dev/ that have no meaning there, sorted.
func UnknownKeys(labels, annotations map[string]string) (out []UnknownKey) {
	check := func(of string, have map[string]string, known, others []string, other string) {
		for _, key := range slices.Sorted(maps.Keys(have)) {
			if !strings.HasPrefix(key, assayv1alpha1.GroupName+"/") || slices.Contains(known, key) {
				continue
			}
			message := "has no meaning on pods; their requirements are in " + strings.Join(slices.Concat(podAnnotations[:2], podLabels), ", ")
			if slices.Contains(others, key) {
				message = fmt.Sprintf("has no effect here: it belongs into %s", other)
			} else if near := suggest.NearestFold(key, slices.Concat(known, others), maxKeyTypo); near != "" {
				message = fmt.Sprintf("has no meaning on pods; did you mean %s?", near)
				if slices.Contains(others, near) {
					message = fmt.Sprintf("has no meaning on pods; did you mean %s, in %s?", near, other)
				}
			}
			out = append(out, UnknownKey{of, key, message})
		}
	}
	check("labels", labels, podLabels, podAnnotations, "annotations")
	check("annotations", annotations, podAnnotations, podLabels, "labels")
	return out
}

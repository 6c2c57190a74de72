package shape

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
)

const (
	// maxBytes is the maximum size of the outputs and differences in a status. With the rest a NodeShape stays below 16 KiB: 1,000
	// shapes are as large as 30 NodeFeatures.
	maxBytes = 12 << 10
	// entryBytes is the size in JSON of an entry without its strings, at most: that of a difference.
	entryBytes = 72
	// maxNamed is the maximum number of differences in the message of the condition.
	maxNamed = 5
)

// report sets the outputs and differences in a status, as far as they fit. Taints and resources come first, because pods do not run
// without them, then labels by importance.
func (d *decision) report(s *assayv1alpha1.NodeShapeStatus, list map[output]*assayv1alpha1.ShapeDifference) {
	s.Labels, s.Taints, s.ExtendedResources, s.Differences, s.Omitted = nil, nil, nil, nil, 0
	left := maxBytes
	take := func(text ...string) bool {
		left -= entryBytes + len(strings.Join(text, ""))
		return left >= 0
	}
	for _, o := range slices.SortedFunc(maps.Keys(d.common), compareForReport) {
		value := d.common[o]
		switch {
		case !take(o.name, value):
			s.Omitted++
		case o.kind == keys.Label:
			if s.Labels == nil {
				s.Labels = map[string]string{}
			}
			s.Labels[o.name] = value
		case o.kind == keys.Resource:
			if amount, err := resource.ParseQuantity(value); err == nil {
				if s.ExtendedResources == nil {
					s.ExtendedResources = corev1.ResourceList{}
				}
				s.ExtendedResources[corev1.ResourceName(o.name)] = amount
			}
		default:
			key, effect, _ := strings.Cut(o.name, ":")
			s.Taints = append(s.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		}
	}
	// One that does not fit is forgotten, so that an output which the recent nodes agree on returns with the next pass. To take its place from
	// an output would cost a label that pods need; only a shape with 12 KiB of outputs has none left.
	for _, o := range slices.SortedFunc(maps.Keys(list), compareForReport) {
		if x := list[o]; take(x.Name, x.ContradictedBy) {
			s.Differences = append(s.Differences, *x)
		}
	}
}

// compareForReport sorts outputs by their importance, then by name.
func compareForReport(a, b output) int {
	return cmp.Or(keys.CompareImportance(a.kind, a.name, b.kind, b.name), compareOutputs(a, b))
}

// contradicted sets the condition. It stays True until the last contradiction is forgotten.
func contradicted(s *assayv1alpha1.NodeShapeStatus, now metav1.Time) {
	c := metav1.Condition{
		Type: assayv1alpha1.ConditionContradicted, Status: metav1.ConditionFalse, Reason: reasonNodesAgree, LastTransitionTime: now,
		Message: "No recent node differs from the nodes before it.",
	}
	var by []string
	for _, x := range s.Differences {
		if x.ContradictedBy != "" {
			by = append(by, fmt.Sprintf("%s %s (node %s)", x.Output, x.Name, x.ContradictedBy))
		}
	}
	if len(by) > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, ReasonNodeDiffers
		c.Message = fmt.Sprintf("A node differed from all nodes before it: %s. An output returns after %d further nodes agree, or when the NodeShape is deleted.",
			clip.Join(by, ", ", maxNamed), window)
	}
	meta.SetStatusCondition(&s.Conditions, c)
}

package compose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/version"
)

// fillSpec adds to dst the fields of a document of lower precedence, except for rules and basedOn. It does not modify src.
func fillSpec(dst, src *nfdv1alpha1.NodeFeatureRuleSpec, document string) error {
	fill(&dst.Description, src.Description)
	fill(&dst.Phase, src.Phase)
	fill(&dst.Priority, src.Priority)
	fill(&dst.Scope, src.Scope)
	fill(&dst.FeatureSources, src.FeatureSources)
	fillSelector(&dst.NodeSelector, src.NodeSelector)
	dst.RulesFrom = slices.Concat(dst.RulesFrom, src.RulesFrom)
	// If one document sets sensitive, the result is sensitive.
	if src.Sensitive != nil && (dst.Sensitive == nil || *src.Sensitive) {
		dst.Sensitive = src.Sensitive
	}
	return fillVersion(&dst.MinimumVersion, src.MinimumVersion, document)
}

// fillVersion keeps the higher version, since the result contains fields of all documents.
func fillVersion(dst **string, src *string, document string) error {
	if src == nil {
		return nil
	}
	if *dst == nil {
		*dst = src
		return nil
	}
	higher, err := higherVersion(**dst, *src, document)
	if err == nil && higher {
		*dst = src
	}
	return err
}

// higherVersion reports whether that is higher than this.
func higherVersion(this, that, document string) (bool, error) {
	a, err := version.Parse(this)
	if err != nil {
		return false, &ValueError{Path: "minimumVersion", Problem: fmt.Sprintf("invalid version %q", this), Document: document}
	}
	b, err := version.Parse(that)
	if err != nil {
		return false, &ValueError{Path: "minimumVersion", Problem: fmt.Sprintf("invalid version %q", that), Document: document}
	}
	return b.Compare(a) > 0, nil
}

// fillRule adds to dst the fields of a rule of lower precedence, except for its name. It does not modify src.
func fillRule(dst, src *nfdv1alpha1.Rule) {
	fillMap(&dst.Labels, src.Labels)
	fillMap(&dst.Annotations, src.Annotations)
	fillMap(&dst.Vars, src.Vars)
	fillMap(&dst.ExtendedResources, src.ExtendedResources)
	fillTaints(&dst.Taints, src.Taints)
	fillNodeConditions(&dst.NodeConditions, src.NodeConditions)
	if dst.LabelsTemplate == "" && dst.LabelsTemplateFrom == nil {
		dst.LabelsTemplate, dst.LabelsTemplateFrom = src.LabelsTemplate, src.LabelsTemplateFrom
	}
	if dst.VarsTemplate == "" && dst.VarsTemplateFrom == nil {
		dst.VarsTemplate, dst.VarsTemplateFrom = src.VarsTemplate, src.VarsTemplateFrom
	}
	if dst.Expressions == "" {
		dst.Expressions = src.Expressions
	}
	// Lists are inherited as a whole: additional terms would silently change which nodes a rule matches.
	fillList((*[]nfdv1alpha1.FeatureMatcherTerm)(&dst.MatchFeatures), src.MatchFeatures)
	fillList(&dst.MatchAny, src.MatchAny)
	fillList(&dst.Conditions, src.Conditions)
	fillList(&dst.Actions, src.Actions)
	if emptyLoop(dst.Loop) {
		dst.Loop = src.Loop
	}
}

// emptyLoop reports whether a loop is an empty list, which means that there is no loop.
func emptyLoop(loop *nfdv1alpha1.JSON) bool {
	return loop == nil || loop.IsZero() || string(loop.Raw) == "[]" || string(loop.Raw) == `""`
}

func fill[T any](dst **T, src *T) {
	if *dst == nil {
		*dst = src
	}
}

func fillList[T any](dst *[]T, src []T) {
	if len(*dst) == 0 {
		*dst = src
	}
}

func fillMap(dst *map[string]string, src map[string]string) {
	if len(src) == 0 {
		return
	}
	if len(*dst) == 0 {
		*dst = src
		return
	}
	var merged map[string]string
	for k, v := range src {
		if _, ok := (*dst)[k]; ok {
			continue
		}
		if merged == nil { // the map may belong to a document: do not modify it
			merged = make(map[string]string, len(*dst)+len(src))
			maps.Copy(merged, *dst)
		}
		merged[k] = v
	}
	if merged != nil {
		*dst = merged
	}
}

func fillSelector(dst **metav1.LabelSelector, src *metav1.LabelSelector) {
	if *dst == nil || src == nil {
		fill(dst, src)
		return
	}
	merged := **dst
	fillMap(&merged.MatchLabels, src.MatchLabels)
	merged.MatchExpressions = slices.Concat(merged.MatchExpressions, src.MatchExpressions)
	*dst = &merged
}

// fillTaints combines taints by key and effect, which identify a taint on a node.
func fillTaints(dst *[]corev1.Taint, src []corev1.Taint) {
	if len(src) == 0 {
		return
	}
	merged := slices.Clone(*dst)
	for i := range src {
		same := slices.IndexFunc(merged, func(t corev1.Taint) bool { return t.Key == src[i].Key && t.Effect == src[i].Effect })
		if same < 0 {
			merged = append(merged, src[i])
			continue
		}
		if merged[same].Value == "" {
			merged[same].Value = src[i].Value
		}
		fill(&merged[same].TimeAdded, src[i].TimeAdded)
	}
	*dst = merged
}

// fillNodeConditions combines conditions by type.
func fillNodeConditions(dst *[]nfdv1alpha1.NodeCondition, src []nfdv1alpha1.NodeCondition) {
	if len(src) == 0 {
		return
	}
	merged := slices.Clone(*dst)
	for i := range src {
		same := slices.IndexFunc(merged, func(c nfdv1alpha1.NodeCondition) bool { return c.Type == src[i].Type })
		if same < 0 {
			merged = append(merged, src[i])
			continue
		}
		c := &merged[same]
		c.Status, c.Reason, c.Message = cmp.Or(c.Status, src[i].Status), cmp.Or(c.Reason, src[i].Reason), cmp.Or(c.Message, src[i].Message)
	}
	*dst = merged
}

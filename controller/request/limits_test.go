//go:build linux

package request_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules"
	podreqs "github.com/assay-project/assay/rules/requirements"
)

// TestLimits tests requirements at each limit and one above it, in annotations and in an object: both must accept the same values,
// and reject the others with the path of the field.
func TestLimits(t *testing.T) {
	c := testkit.Cluster(t)
	api := testkit.Client(t, c.User)
	ns := testkit.Namespace(t, api)
	term := func(expressions nfdv1alpha1.MatchExpressionSet) nfdv1alpha1.FeatureMatcherTerm {
		return nfdv1alpha1.FeatureMatcherTerm{Feature: "cpu.model", MatchExpressions: &expressions}
	}
	one := term(nfdv1alpha1.MatchExpressionSet{"family": {Op: nfdv1alpha1.MatchExists}})
	values := func(list ...string) nfdv1alpha1.FeatureMatcher {
		return nfdv1alpha1.FeatureMatcher{term(nfdv1alpha1.MatchExpressionSet{"family": {Op: nfdv1alpha1.MatchIn, Value: list}})}
	}
	times := func(n int, add func(i int)) {
		for i := range n {
			add(i)
		}
	}
	required := func(r assayv1alpha1.Requirement) assayv1alpha1.PodRequirements {
		return assayv1alpha1.PodRequirements{Required: &r}
	}
	for name, test := range map[string]struct {
		limit int
		ask   func(n int) assayv1alpha1.PodRequirements
		// in is the path of the rejected field, relative to the annotation or the spec.
		in string
	}{
		"terms": {rules.MaxTerms, func(n int) assayv1alpha1.PodRequirements {
			var r assayv1alpha1.Requirement
			times(n, func(int) { r.MatchFeatures = append(r.MatchFeatures, one) })
			return required(r)
		}, "matchFeatures"},
		"alternatives": {rules.MaxTerms, func(n int) assayv1alpha1.PodRequirements {
			var r assayv1alpha1.Requirement
			times(n, func(int) {
				r.MatchAny = append(r.MatchAny, nfdv1alpha1.MatchAnyElem{MatchFeatures: nfdv1alpha1.FeatureMatcher{one}})
			})
			return required(r)
		}, "matchAny"},
		"conditions": {rules.MaxTerms, func(n int) assayv1alpha1.PodRequirements {
			var r assayv1alpha1.Requirement
			times(n, func(int) {
				var c nfdv1alpha1.Condition
				if err := yaml.Unmarshal([]byte(`{op: eq, args: {values: ["{node.name}", n1]}}`), &c); err != nil {
					t.Fatal(err)
				}
				r.Conditions = append(r.Conditions, c)
			})
			return required(r)
		}, "conditions"},
		"expressions": {64, func(n int) assayv1alpha1.PodRequirements {
			all := nfdv1alpha1.MatchExpressionSet{}
			times(n, func(i int) { all[fmt.Sprint("f", i)] = &nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchExists} })
			return required(assayv1alpha1.Requirement{MatchFeatures: nfdv1alpha1.FeatureMatcher{term(all)}})
		}, "matchFeatures[0].matchExpressions"},
		"values": {256, func(n int) assayv1alpha1.PodRequirements {
			var list []string
			times(n, func(i int) { list = append(list, fmt.Sprint(i)) })
			return required(assayv1alpha1.Requirement{MatchFeatures: values(list...)})
		}, "matchFeatures[0].matchExpressions"},
		"length of a value": {1024, func(n int) assayv1alpha1.PodRequirements {
			return required(assayv1alpha1.Requirement{MatchFeatures: values(strings.Repeat("x", n))})
		}, "matchFeatures[0].matchExpressions"},
		"length of a name": {1024, func(n int) assayv1alpha1.PodRequirements {
			long := one
			long.Feature = "a." + strings.Repeat("x", n-2)
			return required(assayv1alpha1.Requirement{MatchFeatures: nfdv1alpha1.FeatureMatcher{long}})
		}, "matchFeatures[0].feature"},
		"preferences": {podreqs.MaxPreferred, func(n int) assayv1alpha1.PodRequirements {
			var out assayv1alpha1.PodRequirements
			times(n, func(int) {
				out.Preferred = append(out.Preferred, assayv1alpha1.Preference{
					Weight: 1, Requirement: assayv1alpha1.Requirement{MatchFeatures: nfdv1alpha1.FeatureMatcher{one}},
				})
			})
			return out
		}, ""},
		"weight": {podreqs.MaxWeight, func(n int) assayv1alpha1.PodRequirements {
			return assayv1alpha1.PodRequirements{Preferred: []assayv1alpha1.Preference{{
				Weight: int32(n), Requirement: assayv1alpha1.Requirement{MatchFeatures: nfdv1alpha1.FeatureMatcher{one}}, //nolint:gosec // 101
			}}}
		}, "[0].weight"},
	} {
		t.Run(name, func(t *testing.T) {
			for n, fine := range map[int]bool{test.limit: true, test.limit + 1: false} {
				spec := test.ask(n)
				errs := annotated(t, spec)
				if fine != (len(errs) == 0) || !fine && !strings.Contains(errs[0].Field, test.in) {
					t.Errorf("%d in an annotation: %v", n, errs)
				}
				o := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "r"}}
				o.Spec.PodRequirements = spec
				err := api.Create(t.Context(), o, client.DryRunAll)
				if fine && err != nil || !fine && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.in)) {
					t.Errorf("%d in an object: %v", n, err)
				}
			}
		})
	}
}

// annotated compiles requirements given as annotations of a pod.
func annotated(t *testing.T, spec assayv1alpha1.PodRequirements) field.ErrorList {
	t.Helper()
	annotations := map[string]string{}
	for key, value := range map[string]any{
		assayv1alpha1.RequiredFeaturesAnnotation: spec.Required, assayv1alpha1.PreferredFeaturesAnnotation: spec.Preferred,
	} {
		text, err := yaml.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != "null\n" && string(text) != "[]\n" {
			annotations[key] = string(text)
		}
	}
	_, report := podreqs.Annotations(annotations, field.NewPath("metadata"), rules.Options{})
	return report.Errors
}

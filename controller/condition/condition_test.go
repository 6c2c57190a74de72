package condition_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/condition"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules"
)

func TestReadyIsAcceptedAndResolved(t *testing.T) {
	wrong := field.ErrorList{field.Required(field.NewPath("spec"), "is empty")}
	missing, cycle := &assembly.Error{Reason: "BaseMissing"}, &assembly.Error{Reason: "BaseCycle"}
	compiled := assembly.Rules{Set: &rules.RuleSet{}}
	for name, test := range map[string]struct {
		object assembly.Object
		want   string
	}{
		"Fine":                    {assembly.Object{Rules: compiled}, "True Ready"},
		"Rejected":                {assembly.Object{Rules: compiled, Errors: wrong}, "False Invalid, stalled"},
		"Refused":                 {assembly.Object{Refused: &assembly.Error{Reason: "VersionTooOld"}}, "False VersionTooOld, stalled"},
		"WaitsForATemplate":       {assembly.Object{Unresolved: missing}, "False BaseMissing"},
		"WaitsWithTheLastResult":  {assembly.Object{Rules: compiled, Unresolved: missing}, "False BaseMissing"},
		"CannotBeResolved":        {assembly.Object{Unresolved: cycle}, "False BaseCycle, stalled"},
		"CannotBeResolvedAnyMore": {assembly.Object{Rules: compiled, Unresolved: cycle}, "False BaseCycle, stalled"},
	} {
		t.Run(name, func(t *testing.T) {
			list := []metav1.Condition{
				{Type: nfdv1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "Before"},
				{Type: nfdv1alpha1.ConditionHealthy, Status: metav1.ConditionFalse, Reason: "EvaluationFailed"},
				{Type: nfdv1alpha1.ConditionConflicted, Status: metav1.ConditionTrue, Reason: "KeyWrittenTwice"},
			}
			condition.Of(&list, 7).Assembled(&test.object)
			c := meta.FindStatusCondition(list, nfdv1alpha1.ConditionReady)
			got := fmt.Sprintf("%s %s", c.Status, c.Reason)
			if s := meta.FindStatusCondition(list, nfdv1alpha1.ConditionStalled); s != nil {
				got += ", stalled"
				if s.ObservedGeneration != 7 || s.Status != metav1.ConditionTrue || s.Message != c.Message || s.Reason != c.Reason {
					t.Errorf("Stalled is %+v, Ready %+v", s, c)
				}
			}
			if got != test.want || c.ObservedGeneration != 7 {
				t.Errorf("got %s (generation %d), want %s (generation 7)", got, c.ObservedGeneration, test.want)
			}
		})
	}
}

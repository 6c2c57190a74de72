package assembly

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

func TestDropped(t *testing.T) {
	missing := []string{"spec.phase", "spec.rules[].conditions"}
	for name, test := range map[string]struct {
		applied string
		want    []string
	}{
		"NotAppliedByKubectl": {},
		"PlainRule":           {applied: `{"spec":{"rules":[{"name":"a","labels":{"b":"c"}}]}}`},
		"OneOfSeveralRules":   {applied: `{"spec":{"rules":[{"name":"a"},{"name":"b","conditions":[]}]}}`, want: missing[1:]},
		"Settings":            {applied: `{"spec":{"phase":"early","rules":[]}}`, want: missing[:1]},
		"Null":                {applied: `{"spec":{"phase":null}}`},
		"NoJSON":              {applied: `{`},
	} {
		t.Run(name, func(t *testing.T) {
			rule := &nfdv1alpha1.NodeFeatureRule{}
			if test.applied != "" {
				rule.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": test.applied}
			}
			if diff := cmp.Diff(test.want, dropped(rule, missing)); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
		})
	}
}

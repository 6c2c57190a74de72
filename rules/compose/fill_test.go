package compose

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// TestNodeConditionsOfOneTypeAreCombined fills what a condition lacks with that of a base of the same type, wherever it is in the list.
func TestNodeConditionsOfOneTypeAreCombined(t *testing.T) {
	condition := func(kind, status, reason, message string) nfdv1alpha1.NodeCondition {
		return nfdv1alpha1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	a, b, c := condition("v.io/A", "True", "", ""), condition("v.io/B", "", "Own", "own"), condition("v.io/C", "False", "C", "c")
	for name, tc := range map[string]struct{ own, base, want []nfdv1alpha1.NodeCondition }{
		"Nothing":     {nil, nil, nil},
		"OwnAlone":    {[]nfdv1alpha1.NodeCondition{a}, nil, []nfdv1alpha1.NodeCondition{a}},
		"BaseAlone":   {nil, []nfdv1alpha1.NodeCondition{a}, []nfdv1alpha1.NodeCondition{a}},
		"First":       {[]nfdv1alpha1.NodeCondition{a, c}, []nfdv1alpha1.NodeCondition{condition("v.io/A", "False", "Base", "base")}, []nfdv1alpha1.NodeCondition{condition("v.io/A", "True", "Base", "base"), c}},
		"Second":      {[]nfdv1alpha1.NodeCondition{a, b}, []nfdv1alpha1.NodeCondition{condition("v.io/B", "False", "Base", "base")}, []nfdv1alpha1.NodeCondition{a, condition("v.io/B", "False", "Own", "own")}},
		"AnotherType": {[]nfdv1alpha1.NodeCondition{a}, []nfdv1alpha1.NodeCondition{c}, []nfdv1alpha1.NodeCondition{a, c}},
	} {
		got := tc.own
		fillNodeConditions(&got, tc.base)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWhereARuleComesFrom names the template of rules that the main document does not touch.
func TestWhereARuleComesFrom(t *testing.T) {
	a := &Assembled{Main: "main", Rules: []Source{{From: []string{"base"}}, {From: []string{"main", "base"}}, {From: nil}, {From: []string{"main"}}}}
	if diff := cmp.Diff([]string{"base", "", "", ""}, a.RuleBases()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestATemplateBelowAllDocuments is the default template of a cluster.
func TestATemplateBelowAllDocuments(t *testing.T) {
	rule := func(name string) *nfdv1alpha1.NodeFeatureRuleSpec {
		return &nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{Name: name, Labels: map[string]string{name: "1"}}}}
	}
	get := func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
		switch name {
		case "default":
			return rule("base"), nil
		case "unreadable":
			return nil, errors.New("unreadable")
		}
		return nil, nil
	}
	main := Document{Name: "main", Spec: rule("own")}
	for template, want := range map[string]int{"": 1, "default": 2} {
		out, err := AssembleOver(main, template, get)
		if err != nil || len(out.Spec.Rules) != want {
			t.Errorf("over %q: %v, want %d rules", template, err, want)
		}
	}
	for _, template := range []string{"missing", "unreadable"} {
		if out, err := AssembleOver(main, template, get); err == nil {
			t.Errorf("over a %s template: %v", template, out)
		}
	}
}

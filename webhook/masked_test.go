package webhook_test

import (
	"context"
	"strings"
	"testing"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/webhook"
)

// TestComparingAMaskedValueDrawsAWarning covers every kind that matches features, with and without strict admission.
func TestComparingAMaskedValueDrawsAWarning(t *testing.T) {
	const term = "[{feature: local.label, matchExpressions: {bmc-password: {op: NotIn, value: [x]}}}]"
	for name, manifest := range map[string]string{
		"rule":    ruleYAML("{rules: [{name: r, labels: {a: x}, matchFeatures: " + term + "}]}"),
		"request": "apiVersion: assay.dev/v1alpha1\nkind: NodeFeatureRequest\nmetadata: {name: r}\nspec: {required: {matchFeatures: " + term + "}}\n",
		"group":   "apiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureGroup\nmetadata: {name: g}\nspec: {featureGroupRules: [{name: r, matchFeatures: " + term + "}]}\n",
	} {
		for _, strict := range []bool{false, true} {
			opt := rules.Options{Strict: strict}
			s := newServer(t, func(o *webhook.Options) { o.Known.Rules = opt })
			got := s.Review(context.Background(), request(t, []byte(manifest)))
			const want = "[bmc-password].op: NotIn never holds: the value is masked; use Exists or DoesNotExist"
			if !got.Allowed || !strings.Contains(strings.Join(got.Warnings, "\n"), want) {
				t.Errorf("%s, strict %v: %+v: want a warning %q", name, strict, got, want)
			}
		}
	}
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// apply creates an object from YAML.
func apply[T client.Object](t *testing.T, k client.Client, object T, text string) T {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	testkit.Create(t, k, object)
	return object
}

// Pods may require any variable that the controller computes, wherever the rule comes from.
func TestExtenderPutsRulesTogetherAsTheControllerDoes(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{})
	k := testkit.Client(t, c.User)
	own := testkit.Namespace(t, k)
	testkit.Node(t, k, "n1")
	apply(t, k, &nfdv1alpha1.NodeFeature{}, `{metadata: {namespace: `+own+`, name: n1, labels: {nfd.node.kubernetes.io/node-name: n1}},
	  spec: {features: {attributes: {test.attr: {elements: {a: "1"}}}, flags: {}, instances: {}}}}`)
	apply(t, k, &assayv1alpha1.NodeFeatureRuleTemplate{}, `{metadata: {name: below-all}, spec: {rules: [{name: default, vars: {from-default: yes-it-is}}]}}`)
	site := apply(t, k, &assayv1alpha1.NodeFeatureRuleTemplate{}, `{metadata: {name: site}, spec: {rules: [{name: site, vars: {from-base: "1"}}]}}`)
	apply(t, k, &corev1.Secret{}, `{metadata: {namespace: `+own+`, name: rules}, stringData: {r: "[{name: s, vars: {from-secret: \"1\"}}]"}}`)
	apply(t, k, &corev1.ConfigMap{}, `{metadata: {namespace: `+own+`, name: text}, data: {t: "from-config=1"}}`)
	apply(t, k, &nfdv1alpha1.NodeFeatureRule{}, `{metadata: {name: everything}, spec: {
	  basedOn: [{name: site}], rulesFrom: [{secretKeyRef: {name: rules, key: r}}],
	  rules: [{name: v, matchFeatures: [{feature: test.attr, matchExpressions: {a: {op: Exists}}}], varsTemplateFrom: {configMapKeyRef: {name: text, key: t}}}]}}`)
	lost := apply(t, k, &nfdv1alpha1.NodeFeatureRule{}, `{metadata: {name: lost}, spec: {basedOn: [{name: gone}]}}`)
	built := t.TempDir()
	if err := os.WriteFile(filepath.Join(built, "a.yaml"), []byte(`{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule,
	  metadata: {name: b}, spec: {rules: [{name: b, vars: {from-directory: "1"}}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	e := startExtenderIn(t, c, own, "", nil, "--default-template=below-all", "--built-in-rules="+built)
	has := func(name string) error {
		got, err := e.filter(fmt.Sprintf("matchFeatures: [{feature: rule.matched, matchExpressions: {%s: {op: Exists}}}]", name), "n1")
		if err != nil || got.Error != "" || len(*got.NodeNames) != 1 {
			return fmt.Errorf("no node has %s: %+v (%w)", name, got, err)
		}
		return nil
	}
	for _, name := range []string{"from-default", "from-base", "from-secret", "from-config", "from-directory"} {
		if err := has(name); err != nil {
			t.Error(err)
		}
	}
	if has("from-the-past") == nil {
		t.Error("got a kept state that was not stored")
	}
	// The controller has stored the assembled spec of a rule whose base was deleted.
	past := &assembly.Kept{UID: lost.UID, Spec: &nfdv1alpha1.NodeFeatureRuleSpec{
		Rules: []nfdv1alpha1.Rule{{Name: "p", Vars: map[string]string{"from-the-past": "1"}}},
	}}
	testkit.Create(t, k, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: assembly.SharedKeptName}, BinaryData: map[string][]byte{"lost": past.Pack()},
	})
	testkit.Eventually(t, "the past is remembered", func(context.Context) error { return has("from-the-past") })
	// Deleting the base now must have no effect.
	if err := k.Delete(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	apply(t, k, &nfdv1alpha1.NodeFeatureRule{}, `{metadata: {name: marker}, spec: {rules: [{name: m, vars: {marker: "1"}}]}}`)
	testkit.Eventually(t, "the marker comes", func(context.Context) error { return has("marker") })
	if err := has("from-base"); err != nil {
		t.Error(err)
	}
}

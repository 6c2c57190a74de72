//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
)

// TestOnlyTheWorkerSaysWhatItHasRead publishes for a node, as a third party, that sources were not read and that another boot was examined.
// The node is labeled as before, the NodeBaseline knows it, and assay explain does not blame the worker. The worker's own marker counts.
func TestOnlyTheWorkerSaysWhatItHasRead(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	assay := testkit.Program(t, "assay")
	node := testkit.Node(t, k, "n1")
	booted := node.DeepCopy()
	booted.Status.NodeInfo.BootID = "b1"
	if err := k.Status().Patch(t.Context(), booted, client.MergeFrom(node)); err != nil {
		t.Fatal(err)
	}
	publish := func(in, name string, flags, attributes map[string]string) *nfdv1alpha1.NodeFeature {
		f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n1"}}}
		f.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{}
		for feature, value := range attributes {
			f.Spec.Features.Attributes[feature] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"id": value}}
		}
		f.Spec.Features.Flags = map[string]nfdv1alpha1.FlagFeatureSet{}
		for feature, flag := range flags {
			f.Spec.Features.Flags[feature] = nfdv1alpha1.FlagFeatureSet{Elements: map[string]nfdv1alpha1.Nil{flag: {}}}
		}
		testkit.Create(t, k, f)
		return f
	}
	own := publish(namespace, "n1", nil, map[string]string{"system.boot": "b1", "test.own": "one"})
	match := func(e *nfdv1alpha1.MatchExpression) nfdv1alpha1.FeatureMatcher {
		return nfdv1alpha1.FeatureMatcher{{Feature: "test.own", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"id": e}}}
	}
	testkit.Create(t, k, &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: nfdv1alpha1.NodeFeatureRuleSpec{
		Rules: []nfdv1alpha1.Rule{{Name: "own", Labels: map[string]string{"vendor.io/own": "@test.own.id"}, MatchFeatures: match(&nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchExists})}},
	}})
	baseline := &assayv1alpha1.NodeBaseline{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	baseline.Spec.Require = []assayv1alpha1.BaselineRequirement{{Name: "own", Requirement: assayv1alpha1.Requirement{
		MatchFeatures: match(&nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchIn, Value: nfdv1alpha1.MatchValue{"two"}}),
	}}}
	testkit.Create(t, k, baseline)
	startController(t, c, namespace, "-enable-leader-election")
	labeled(t, k, "n1", "vendor.io/own", "one")

	markers, boot := map[string]string{"source.unread": "test"}, map[string]string{"system.boot": "b0"}
	publish(namespace, "vendor", markers, boot)
	publish(metav1.NamespaceDefault, "n1", markers, boot) // named as the worker's object
	patch := []byte(`{"spec":{"features":{"attributes":{"test.own":{"elements":{"id":"two"}}}}}}`)
	if err := k.Patch(t.Context(), own, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	labeled(t, k, "n1", "vendor.io/own", "two")
	out, err := exec.CommandContext(t.Context(), assay, "explain", "n1", "vendor.io/own", "--kubeconfig="+c.Kubeconfig, "--assay-namespace="+namespace).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "label vendor.io/own=two") || strings.Contains(string(out), "has not read") {
		t.Errorf("assay explain blames the worker: %v\n%s", err, out)
	}
	testkit.Eventually(t, "the NodeBaseline knows the node", func(ctx context.Context) error {
		if err := k.Get(ctx, client.ObjectKeyFromObject(baseline), baseline); err != nil {
			return err
		}
		if s := &baseline.Status; ptr.Deref(s.Conforming, 0) != 1 {
			return fmt.Errorf("%d nodes conform, %d deviate, %d are unknown", ptr.Deref(s.Conforming, 0), ptr.Deref(s.Deviating, 0), ptr.Deref(s.Unknown, 0))
		}
		return nil
	})
}

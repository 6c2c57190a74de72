//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
)

// heldKeys is what assay explain says about a key that a controller holds.
type heldKeys struct {
	Keys []struct {
		State string
		Hold  struct {
			Reason, Message string
			Until           time.Time
		}
	}
	Controller struct{ Alive bool }
}

// TestExplainNamesWhatARunningControllerHolds makes a key flap, contests one, and takes away features: assay explain names what holds each
// key, by the Events of the controller.
func TestExplainNamesWhatARunningControllerHolds(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	namespace := testkit.Namespace(t, k)
	assay := testkit.Program(t, "assay")
	const own, vendor = "test.own", "test.vendor"
	publish := func(in, name, node, feature, value string) *nfdv1alpha1.NodeFeature {
		f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: node}}}
		f.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{feature: {Elements: map[string]string{"value": value}}}
		testkit.Create(t, k, f)
		return f
	}
	ofWorker, ofVendor := map[string]*nfdv1alpha1.NodeFeature{}, map[string]*nfdv1alpha1.NodeFeature{}
	for _, node := range []string{"flaps", "contested", "orphan", "budget"} {
		testkit.Node(t, k, node)
		ofWorker[node] = publish(namespace, node, node, own, "one")
		ofVendor[node] = publish(metav1.NamespaceDefault, "vendor-"+node, node, vendor, "one")
	}
	testkit.Create(t, k, &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{
		{Name: "own", Labels: map[string]string{"vendor.io/own": "@test.own.value"}, MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: own}}},
		{Name: "vendor", Labels: map[string]string{"vendor.io/vendor": "@test.vendor.value"}, MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: vendor}}},
	}}})
	startController(t, c, namespace, "-enable-leader-election", "-options", "{removalBudget: {nodes: 0, share: 0, window: 10m, hold: 50m}}")
	for node := range ofWorker {
		labeled(t, k, node, "vendor.io/own", "one")
		labeled(t, k, node, "vendor.io/vendor", "one")
	}
	explain := func(node, key string) (*heldKeys, error) {
		out, err := exec.CommandContext(t.Context(), assay, "explain", node, key, "-o=json", "--kubeconfig="+c.Kubeconfig, "--assay-namespace="+namespace).Output()
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
		e := &heldKeys{}
		if err := json.Unmarshal(out, e); err != nil || len(e.Keys) != 1 || !e.Controller.Alive {
			return nil, fmt.Errorf("unexpected output: %w\n%s", err, out)
		}
		return e, nil
	}
	// held waits until a key is held, and does something before each look.
	held := func(t *testing.T, node, key, state, reason string, before func(context.Context) error) {
		t.Helper()
		testkit.Eventually(t, "assay explain says "+reason, func(ctx context.Context) error {
			if err := before(ctx); err != nil {
				return err
			}
			got, err := explain(node, key)
			if err != nil {
				return err
			}
			if k := got.Keys[0]; k.State != state || k.Hold.Reason != reason || k.Hold.Until.IsZero() || k.Hold.Message == "" {
				return fmt.Errorf("%+v", k)
			}
			return nil
		})
	}
	t.Run("KeyContested", func(t *testing.T) {
		held(t, "contested", "vendor.io/own", "Different", "KeyContested", func(ctx context.Context) error {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "contested"}}
			return k.Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"vendor.io/own":"theirs"}}}`)))
		})
	})
	t.Run("KeyFlapping", func(t *testing.T) {
		turn := 0
		held(t, "flaps", "vendor.io/own", "Different", "KeyFlapping", func(ctx context.Context) error {
			turn++
			f := ofWorker["flaps"]
			return k.Patch(ctx, f, client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
				`{"spec":{"features":{"attributes":{"test.own":{"elements":{"value":"v%d"}}}}}}`, turn)))
		})
	})
	nothing := func(context.Context) error { return nil }
	t.Run("RemovalHeldByTheBudget", func(t *testing.T) {
		if err := k.Delete(t.Context(), ofVendor["budget"]); err != nil {
			t.Fatal(err)
		}
		held(t, "budget", "vendor.io/vendor", "Kept", "RemovalHeld", nothing)
		labeled(t, k, "budget", "vendor.io/vendor", "one")
	})
	t.Run("RemovalHeldByTheGracePeriod", func(t *testing.T) {
		if err := k.Delete(t.Context(), ofWorker["orphan"]); err != nil {
			t.Fatal(err)
		}
		held(t, "orphan", "vendor.io/own", "Kept", "RemovalHeld", nothing)
		labeled(t, k, "orphan", "vendor.io/own", "one")
	})
}

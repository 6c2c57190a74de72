//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// overlay is an overlay of the kustomize base, and what it makes of namespace and names.
type overlay struct{ text, namespace, prefix, suffix string }

var overlays = map[string]overlay{
	"Base":       {namespace: "assay-system"},
	"Namespace":  {text: "namespace: node-features\n", namespace: "node-features"},
	"NamePrefix": {text: "namePrefix: prod-\n", namespace: "assay-system", prefix: "prod-"},
	"NameSuffix": {text: "nameSuffix: -eu\n", namespace: "assay-system", suffix: "-eu"},
	"Labels": {text: "labels:\n- {pairs: {app.kubernetes.io/instance: prod, team: platform}, includeSelectors: true, includeTemplates: true}\n",
		namespace: "assay-system"},
	"All": {
		text: "namespace: node-features\nnamePrefix: prod\nnameSuffix: \"2\"\nlabels:\n- {pairs: {team: platform}, includeSelectors: true}\n" +
			"images:\n- {name: ghcr.io/assay-project/assay-worker, newName: mirror.example.com/assay-worker, digest: \"sha256:" + strings.Repeat("0", 64) + "\"}\n",
		namespace: "node-features", prefix: "prod", suffix: "2",
	},
}

func (o overlay) name(base string) string { return o.prefix + base + o.suffix }

// TestPoliciesBindInOverlays applies overlays of the kustomize base, and sends one request that each policy rejects or changes, with tokens of
// the accounts that the overlay names.
func TestPoliciesBindInOverlays(t *testing.T) {
	c := testkit.Cluster(t)
	k := testkit.Client(t, c.User)
	for _, n := range []string{"overlay-a", "overlay-b"} {
		testkit.Node(t, k, n)
	}
	for name, o := range overlays {
		t.Run(name, func(t *testing.T) {
			objects := o.build(t, c)
			o.apply(t, c, objects)
			o.checkArguments(t, objects)
			node := &corev1.Node{}
			if err := k.Get(t.Context(), client.ObjectKey{Name: "overlay-a"}, node); err != nil {
				t.Fatal(err)
			}
			worker, controller := o.as(t, c, "assay-worker", node.Name), o.as(t, c, "assay-controller", node.Name)
			testkit.Eventually(t, "roles are active and the worker publishes for its node", func(ctx context.Context) error {
				if _, err := kubernetes.NewForConfigOrDie(controller).CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
					return err
				}
				return dryRun(ctx, worker, o.feature(node.Name, node))
			})
			set := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "assay.dev/v1alpha1", "kind": "NodeFeatureSet",
				"metadata": map[string]any{
					"name": "cpu-model-v1-" + strings.Repeat("0", 40), "namespace": o.namespace, "labels": map[string]any{"assay.dev/created-by-node": "overlay-b"},
				},
				"spec": map[string]any{"features": map[string]any{
					"flags": map[string]any{}, "instances": map[string]any{}, "attributes": map[string]any{"cpu.model": map[string]any{"elements": map[string]any{"family": "6"}}},
				}},
			}}
			for policy, try := range map[string]func(ctx context.Context) error{
				"assay-node-bound-publishing": func(ctx context.Context) error { return dryRun(ctx, worker, o.feature("overlay-b", node)) },
				"assay-node-bound-sets":       func(ctx context.Context) error { return dryRun(ctx, worker, set) },
				"assay-holds": func(ctx context.Context) error { // by an administrator: even they are not the controller
					e := hold.Event("", node, []hold.Hold{{Reason: hold.Flapping, Why: "forged", Keys: []string{"label a"}}}, time.Now())
					return k.Create(ctx, e, client.DryRunAll)
				},
				"assay-node-writes": func(ctx context.Context) error {
					body := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
					_, err := kubernetes.NewForConfigOrDie(controller).CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, tryOutPatch, "status")
					return err
				},
			} {
				testkit.Eventually(t, policy+" rejects the request", func(ctx context.Context) error {
					err := try(ctx)
					if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), fmt.Sprintf("ValidatingAdmissionPolicy '%s'", o.name(policy))) {
						return fmt.Errorf("got %s, want that the policy denies the request", fmt.Sprint(err))
					}
					return nil
				})
			}
			testkit.Eventually(t, "the label of a request is in the node selector", func(ctx context.Context) error {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Labels: map[string]string{"assay.dev/feature-request": "fast"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
				}
				if err := k.Create(ctx, pod, client.DryRunAll); err != nil {
					return err
				}
				if pod.Spec.NodeSelector["features.assay.dev/default.fast"] != "true" {
					return fmt.Errorf("its node selector is %v", pod.Spec.NodeSelector)
				}
				return nil
			})
		})
	}
}

// build returns the objects of the overlay, as kubectl builds them.
func (o overlay) build(t *testing.T, c *cluster.Cluster) (out []*unstructured.Unstructured) {
	t.Helper()
	dir := t.TempDir()
	relative := func(name string) string {
		absolute, err := filepath.Abs("../../hack/kustomize/" + name)
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Rel(dir, absolute)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := fmt.Sprintf("resources: [%q]\ncomponents: [%q]\n%s", relative("base"), relative("feature-request"), o.text)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := c.Kubectl(t.Context(), "kustomize", dir)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(built, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, object)
	}
	return out
}

// apply creates the objects except definitions, which the control plane has, and workloads, and deletes them at the end of the test.
func (o overlay) apply(t *testing.T, c *cluster.Cluster, objects []*unstructured.Unstructured) {
	t.Helper()
	wanted := stream(t, c, slices.DeleteFunc(slices.Clone(objects), func(object *unstructured.Unstructured) bool {
		return slices.Contains([]string{"CustomResourceDefinition", "Deployment", "DaemonSet"}, object.GetKind())
	}))
	testkit.Eventually(t, "the overlay is applied", func(ctx context.Context) error { // its namespace may still be terminating
		_, err := c.KubectlInput(ctx, wanted, "apply", "--server-side", "-f", "-")
		return err
	})
}

// stream returns objects for kubectl, and deletes them at the end of the test.
func stream(t *testing.T, c *cluster.Cluster, objects []*unstructured.Unstructured) string {
	t.Helper()
	var wanted strings.Builder
	for _, o := range objects {
		data, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		wanted.WriteString("---\n" + string(data) + "\n")
	}
	t.Cleanup(func() {
		if _, err := c.KubectlInput(context.Background(), wanted.String(), "delete", "--ignore-not-found", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	return wanted.String()
}

// checkArguments checks that the objects that the webhook's arguments name exist.
func (o overlay) checkArguments(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	exists, args := map[string]bool{}, []any{}
	for _, object := range objects {
		exists[object.GetKind()+"/"+object.GetName()] = true
		if object.GetKind() == "Deployment" && object.GetName() == o.name("assay-webhook") {
			containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
			args, _, _ = unstructured.NestedSlice(containers[0].(map[string]any), "args")
		}
	}
	seen := map[string]string{}
	for i, arg := range args {
		if flag, value, ok := strings.Cut(arg.(string), "="); ok {
			seen[flag] = value
		} else if i+1 < len(args) {
			seen[flag], _ = args[i+1].(string)
		}
	}
	for flag, kinds := range map[string][]string{
		"--cert-secret": {"Secret"}, "--service": {"Service"}, "--configuration": {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"},
		"--worker-service-account": {"ServiceAccount"}, "--controller-service-account": {"ServiceAccount"},
	} {
		for _, kind := range kinds {
			if !exists[kind+"/"+seen[flag]] {
				t.Errorf("%s %s: the overlay has no %s with this name", flag, seen[flag], kind)
			}
		}
	}
}

// as returns the configuration of a client with the token of a pod on a node.
func (o overlay) as(t *testing.T, c *cluster.Cluster, account, node string) *rest.Config {
	t.Helper()
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": account + "-pod", "namespace": o.namespace},
		"spec": map[string]any{
			"nodeName": node, "serviceAccountName": o.name(account), "terminationGracePeriodSeconds": int64(0),
			"containers": []any{map[string]any{"name": "c", "image": "none"}},
		},
	}}
	testkit.Create(t, testkit.Client(t, c.User), pod)
	token, err := c.Kubectl(t.Context(), "create", "token", o.name(account), "-n", o.namespace, "--bound-object-kind=Pod", "--bound-object-name="+pod.GetName())
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.RESTConfig())
	config.BearerToken = strings.TrimSpace(token)
	return config
}

// feature returns a worker's NodeFeature about a node, owned by the Node of the worker's token.
func (o overlay) feature(name string, owner *corev1.Node) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"features": map[string]any{"flags": map[string]any{}, "attributes": map[string]any{}, "instances": map[string]any{}}},
	}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "nfd.k8s-sigs.io", Version: "v1alpha1", Kind: "NodeFeature"})
	object.SetName(name)
	object.SetNamespace(o.namespace)
	object.SetLabels(map[string]string{"nfd.node.kubernetes.io/node-name": name})
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: owner.Name, UID: owner.UID}})
	return object
}

// dryRun creates an object without storing it.
func dryRun(ctx context.Context, as *rest.Config, object *unstructured.Unstructured) error {
	k, err := client.New(as, client.Options{})
	if err != nil {
		return err
	}
	return k.Create(ctx, object.DeepCopy(), client.DryRunAll)
}

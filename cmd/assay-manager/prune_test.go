//go:build linux

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/settings"
)

// written creates a Node with keys of the controller and of other clients.
func written(t *testing.T, c client.Client, name string) {
	t.Helper()
	node := testkit.Node(t, c, name)
	before := node.DeepCopy()
	node.Labels = map[string]string{"feature.node.kubernetes.io/ours": "1", "example.com/ours": "1", "feature.node.kubernetes.io/foreign": "1"}
	node.Annotations = map[string]string{
		nfdv1alpha1.FeatureLabelsAnnotation:     "example.com/ours,ours",
		nfdv1alpha1.ExtendedResourcesAnnotation: "example.com/slots",
		nfdv1alpha1.TaintsAnnotation:            "example.com/ours=:NoSchedule",
		"assay.dev/features-generation":         "7",
		"assay.dev/node-conditions":             "Ready,assay.dev/FeaturesReady,example.com/Ours", // Ready is not ours, whatever is recorded
		"example.com/foreign":                   "1",
	}
	node.Spec.Taints = []corev1.Taint{{Key: "example.com/ours", Effect: "NoSchedule"}, {Key: "example.com/foreign", Effect: "NoSchedule"}}
	if err := c.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	before = node.DeepCopy()
	node.Status.Capacity = corev1.ResourceList{"example.com/slots": resource.MustParse("2"), "example.com/other": resource.MustParse("1")}
	node.Status.Allocatable = node.Status.Capacity
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, "assay.dev/FeaturesReady", "example.com/Ours", "example.com/Other"} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	if err := c.Status().Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// runPrune runs the command with flags from a command line.
func runPrune(t *testing.T, out io.Writer, args ...string) {
	t.Helper()
	f, flags := &pruneFlags{}, pflag.NewFlagSet("prune", pflag.ContinueOnError)
	f.register(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := f.run(t.Context(), out); err != nil {
		t.Fatal(err)
	}
}

// TestPruneReadsTheRecordAsTheController checks names without a namespace, whose meaning depends on a flag.
func TestPruneReadsTheRecordAsTheController(t *testing.T) {
	cluster := testkit.Cluster(t)
	c := testkit.Client(t, cluster.User)
	namespace := testkit.Namespace(t, c)
	config := filepath.Join(t.TempDir(), "nfd-master.conf")
	if err := os.WriteFile(config, []byte("featureGates: {DisableAutoPrefix: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, flag := range map[string]string{"flag": "--disable-auto-prefix", "gate": "--feature-gates=DisableAutoPrefix=true", "file": "--config=" + config} {
		t.Run(name, func(t *testing.T) {
			node := testkit.Node(t, c, "bare-"+name)
			before := node.DeepCopy()
			node.Labels = map[string]string{"ours": "1", "feature.node.kubernetes.io/ours": "foreign"}
			node.Annotations = map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "ours"}
			if err := c.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
				t.Fatal(err)
			}
			runPrune(t, io.Discard, "--kubeconfig="+cluster.Kubeconfig, "--namespace="+namespace, flag)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"feature.node.kubernetes.io/ours": "foreign"}, node.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPruneLeavesWhatOthersWrote(t *testing.T) {
	cluster := testkit.Cluster(t)
	c := testkit.Client(t, cluster.User)
	namespace := testkit.Namespace(t, c)
	written(t, c, "pruned-1")
	written(t, c, "pruned-2")
	for _, name := range []string{"pruned-1", "third-party"} {
		testkit.Create(t, c, &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "pruned-1"},
		}})
	}
	leaseName := nfdv1alpha1.LeaseName("")
	for _, name := range []string{leaseName, "foreign"} {
		testkit.Create(t, c, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
	}

	var out bytes.Buffer
	for range 2 { // the second run has nothing to do
		runPrune(t, &out, "--kubeconfig="+cluster.Kubeconfig, "--namespace="+namespace, "--leases="+leaseName+",never-was")
	}
	want := "removed what was written on 2 nodes\nremoved 1 NodeFeatures\nremoved what was written on 0 nodes\nremoved 0 NodeFeatures\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	for _, name := range []string{"pruned-1", "pruned-2"} {
		checkPruned(t, c, name)
	}
	for object, wanted := range map[client.Object]bool{
		&nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Name: "third-party"}}: true,
		&nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Name: "pruned-1"}}:    false,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}:        true,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName}}:        false,
	} {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: object.GetName()}, object)
		if there := err == nil; there != wanted || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%T %s: there is %t, want %t (%v)", object, object.GetName(), there, wanted, err)
		}
	}
}

// TestPruneAfterAHandBackLeavesWhatNFDKnows: Node Feature Discovery goes on with the labels and their record, and never removes a condition.
func TestPruneAfterAHandBackLeavesWhatNFDKnows(t *testing.T) {
	cluster := testkit.Cluster(t)
	c := testkit.Client(t, cluster.User)
	namespace := testkit.Namespace(t, c)
	written(t, c, "back-1")
	testkit.Node(t, c, "back-2") // of Node Feature Discovery alone
	testkit.Create(t, c, &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Name: "back-1", Namespace: namespace, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "back-1"},
	}})
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: nfdv1alpha1.LeaseName(""), Namespace: namespace}}
	testkit.Create(t, c, lease)
	var before, after corev1.Node
	if err := c.Get(t.Context(), client.ObjectKey{Name: "back-1"}, &before); err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer
	for range 2 { // the second run has nothing to do
		runPrune(t, &out, "--hand-back", "--kubeconfig="+cluster.Kubeconfig, "--namespace="+namespace)
	}
	if diff := cmp.Diff("removed what was written on 1 nodes\nremoved what was written on 0 nodes\n", out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "back-1"}, &after); err != nil {
		t.Fatal(err)
	}
	if c := after.Status.Conditions; len(c) != 2 || c[0].Type != corev1.NodeReady || c[1].Type != "example.com/Other" {
		t.Errorf("conditions are %v, want the kubelet's and the foreign one", c)
	}
	delete(before.Annotations, "assay.dev/features-generation")
	delete(before.Annotations, "assay.dev/node-conditions")
	if diff := cmp.Diff(before.Annotations, after.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	for name, diff := range map[string]string{
		"labels": cmp.Diff(before.Labels, after.Labels), "taints": cmp.Diff(before.Spec.Taints, after.Spec.Taints),
		"resources": cmp.Diff(before.Status.Capacity, after.Status.Capacity),
	} {
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, object := range []client.Object{&nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Name: "back-1"}}, lease} {
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: object.GetName()}, object); err != nil {
			t.Errorf("%T: %v", object, err)
		}
	}
}

// TestFlagOfNFDPrunesNodesAlone checks nfd-master's flag -prune, which NFD's chart uses when it is uninstalled.
func TestFlagOfNFDPrunesNodesAlone(t *testing.T) {
	cluster := testkit.Cluster(t)
	c := testkit.Client(t, cluster.User)
	namespace := testkit.Namespace(t, c)
	written(t, c, "flag-1")
	feature := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Name: "flag-1", Namespace: namespace, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "flag-1"},
	}}
	testkit.Create(t, c, feature)
	f, cmd := &controllerFlags{}, &cobra.Command{}
	f.register(cmd.Flags())
	if err := cmd.ParseFlags(settings.LongFlags([]string{"-prune", "-enable-taints", "-kubeconfig=" + cluster.Kubeconfig, "-namespace=" + namespace})); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := f.pruneNodes(t.Context(), &out); err != nil || !f.prune {
		t.Fatalf("prune is %t: %v", f.prune, err)
	}
	if got := out.String(); got != "removed what was written on 1 nodes\n" {
		t.Errorf("it says %q", got)
	}
	checkPruned(t, c, "flag-1")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(feature), feature); err != nil {
		t.Errorf("the NodeFeature: %v", err)
	}
}

func checkPruned(t *testing.T, c client.Client, name string) {
	t.Helper()
	var node corev1.Node
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"feature.node.kubernetes.io/foreign": "1"}, node.Labels); diff != "" {
		t.Errorf("%s: labels (-want +got):\n%s", name, diff)
	}
	delete(node.Annotations, "node.alpha.kubernetes.io/ttl") // Kubernetes adds it
	if diff := cmp.Diff(map[string]string{"example.com/foreign": "1"}, node.Annotations); diff != "" {
		t.Errorf("%s: annotations (-want +got):\n%s", name, diff)
	}
	if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "example.com/foreign" {
		t.Errorf("%s: taints are %v, want the foreign one", name, node.Spec.Taints)
	}
	if c := node.Status.Conditions; len(c) != 2 || c[0].Type != corev1.NodeReady || c[1].Type != "example.com/Other" {
		t.Errorf("%s: conditions are %v, want the kubelet's and the foreign one", name, c)
	}
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		if _, there := list["example.com/slots"]; there || len(list) != 1 {
			t.Errorf("%s: resources are %v, want the foreign one", name, list)
		}
	}
}

// withoutWorker are Nodes that run no worker by design, with their labels.
var withoutWorker = map[string]map[string]string{
	"windows-1": {"kubernetes.io/os": "windows"},
	"fargate-1": {"kubernetes.io/os": "linux", "eks.amazonaws.com/compute-type": "fargate"},
	"virtual-1": {"kubernetes.io/os": "linux", "type": "virtual-kubelet"},
}

func TestVerifyNamesWhatIsMissing(t *testing.T) {
	cluster := testkit.Cluster(t)
	c := testkit.Client(t, cluster.User)
	namespace := testkit.Namespace(t, c)
	written(t, c, "verified")
	node := testkit.Node(t, c, "bare")
	for _, name := range []string{"verified", node.Name} {
		var n corev1.Node
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &n); err != nil {
			t.Fatal(err)
		}
		before := n.DeepCopy()
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if err := c.Status().Patch(t.Context(), &n, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	// Nodes that run no worker by design lack nothing.
	for name, labels := range withoutWorker {
		n := testkit.Node(t, c, name)
		before := n.DeepCopy()
		n.Labels = labels
		if err := c.Patch(t.Context(), n, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		before = n.DeepCopy()
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if err := c.Status().Patch(t.Context(), n, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(name string) {
		testkit.Create(t, c, &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: name},
		}})
	}
	publish("verified")
	f := &verifyFlags{ruleFlags: ruleFlags{Flags: settings.Flags{File: settings.DefaultFile}}, kubeconfig: cluster.Kubeconfig, namespace: namespace, timeout: 2 * time.Second}
	check := func(want string) {
		t.Helper()
		if _, err := f.run(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	check("1 of 2 nodes are not ready for use: bare (no NodeFeature: check the worker on this node)")
	publish("bare")
	check("bare (a NodeFeature but no labels: check the controller)")
	f.Options = "restrictions: {disableLabels: true}"
	if n, err := f.run(context.Background()); err != nil || n != 2 {
		t.Errorf("where labels are switched off: %d nodes, %v", n, err)
	}
}

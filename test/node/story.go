//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/test/cluster"
)

const (
	// chart is the path of the chart in a clone.
	chart     = "charts/assay"
	namespace = "assay-system"
	release   = "assay"
	featureNS = "feature.node.kubernetes.io/"
	// startupTaint is the taint with which the kubelet registers the Node, and that the controller removes.
	startupTaint = "startup-taint.cluster-autoscaler.kubernetes.io/features"
	// helmTimeout is Helm's timeout: many times what any operation takes.
	helmTimeout = "180s"
)

// story is the state that the steps share.
type story struct {
	*machine
	*transcript
	before *corev1.Node      // without Assay
	labels map[string]string // labels without a rule
}

// step is an action of a user, with checks of its effects.
type step struct {
	name string
	do   func(context.Context, *story) error
}

// steps lists the steps in order.
var steps = []step{
	{"helm install --wait, and the first label", install},
	{"the start-up taint of the kubelet is gone once the features are known", opened},
	{"the Node has the features of this machine", labeled},
	{"a rule labels the Node", goodRule},
	{"the webhook refuses a broken rule, through its Service", brokenRule},
	{"a node cannot publish for others", onlyItself},
	{"helm test", helmTest},
	{"kubectl diff after the installation is empty", noDifference},
	{"a Job applies rules of the library, and deletes those that are no longer named", applyLibrary},
	{"labels outlive the worker's pod", replaceWorker},
	{"a rule labels the Node by the devices of a DRA driver", runDriver},
	{"their labels outlive a restart of the driver and of the kubelet, and a condition shows it", restartDriver},
	{"rules can be applied while the webhook's pods are deleted", withoutWebhook},
	{"files of features become labels; an hour of events leaves the worker's memory as it was", anHourOfEvents},
	{"a deleted certificate is created again", deleteCertificate},
	{"a worker that may not read parts of /sys publishes the rest", unreadable},
	{"the node's file system is full", fullDisk},
	{"the API server is killed and comes back", restartAPIServer},
	{"helm upgrade with other values, and no label flaps", upgrade},
	{"the second scheduler places pods by features", schedule},
	{"the second scheduler asks an extender behind a Service, over TLS", behindService},
	{"admission finds the scheduler of pods that ask, and requests are counted", ask},
	{"no part lacks a permission", permitted},
	{"memory at work", memory},
	{"helm rollback, and no label flaps", rollback},
	{"a part that lacks a permission says which", notPermitted},
	{"the node gets two NUMA nodes, and the kubelet static managers", numaNodes},
	{"the resources of NUMA nodes are published, in place of Node Feature Discovery's updater", publishTopology},
	{"the settings of the kubelet come from its endpoint, whose certificate is verified", useConfigz},
	{"a late device plug-in, and a pod that holds resources while the kubelet restarts", holdResources},
	{"a finished Job is in the fingerprint of one informer mode only", finishJob},
	{"no request to the API server while nothing changes", idle},
	{"a node cannot publish the resources of others", onlyItsTopology},
	{"helm uninstall leaves the Node as it was", uninstall},
	{"the commands of README.md push the images, and install them from the registry", installPushed},
	{"the node has its own NUMA nodes again", ownNodes},
	{"take-over from Node Feature Discovery and hand-back, and no label flaps", takeOverAndBack},
}

// values returns the chart's values for this machine: the images, and paths in the test's directory only.
func (s *story) values(more ...string) []string {
	args := []string{
		"--namespace=" + namespace, "--wait", "--timeout=" + helmTimeout,
		"--set=image.tag=" + version,
		"--set=worker.featuresDir=" + s.path("features.d"),
		// This is the only node, so that the controller runs on it before it is open.
		"--set=controller.startupTaint=" + startupTaint,
		"--set=controller.tolerations[0].key=" + startupTaint, "--set=controller.tolerations[0].operator=Exists",
		"--set=webhook.tolerations[0].key=" + startupTaint, "--set=webhook.tolerations[0].operator=Exists",
	}
	for _, v := range more {
		args = append(args, "--set="+v)
	}
	return args
}

func install(ctx context.Context, s *story) (err error) {
	if s.before, err = s.node(ctx); err != nil {
		return err
	}
	if !slices.ContainsFunc(s.before.Spec.Taints, isStartupTaint) {
		return fmt.Errorf("the kubelet has not registered with the taint: %v", s.before.Spec.Taints)
	}
	s.before.Spec.Taints = slices.DeleteFunc(s.before.Spec.Taints, isStartupTaint) // nothing adds it again
	if err := os.MkdirAll(s.path("features.d"), 0o755); err != nil {
		return err
	}
	began := time.Now()
	label := make(chan time.Duration, 1)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		if s.waitLabel(watching, featureNS+"kernel-version.full") == nil {
			label <- time.Since(began)
		}
	}()
	if _, err := s.show(ctx, append([]string{"helm", "install", release, chart, "--create-namespace"}, s.values()...)...); err != nil {
		return err
	}
	took := time.Since(began)
	if err := s.waitLabel(ctx, featureNS+"kernel-version.full"); err != nil {
		return err
	}
	s.figure("first label %.1f s after helm install began; helm install --wait took %.1f s", (<-label).Seconds(), took.Seconds())
	if err := s.allReady(ctx); err != nil {
		return err
	}
	_, err = s.show(ctx, "kubectl", "get", "all,nodefeatures,nodefeaturerules", "-A")
	return err
}

func isStartupTaint(t corev1.Taint) bool { return t.Key == startupTaint }

// opened waits until the Node has the condition FeaturesReady of this boot, and no start-up taint.
func opened(ctx context.Context, s *story) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	err = cluster.WaitFor(ctx, "the Node is open", func(ctx context.Context) error {
		node, err := s.node(ctx)
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == assayv1alpha1.FeaturesReadyCondition && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, strings.TrimSpace(string(boot)))
		})
		if !ready || slices.ContainsFunc(node.Spec.Taints, isStartupTaint) {
			return fmt.Errorf("ready: %t, taints: %v", ready, node.Spec.Taints)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = s.show(ctx, "kubectl", "get", "node", nodeName, "-o",
		`custom-columns=NAME:.metadata.name,TAINTS:.spec.taints[*].key,READY:.status.conditions[?(@.type=="assay.dev/FeaturesReady")].message`)
	return err
}

// allReady checks that every container of the release is running, ready, and was never restarted.
func (s *story) allReady(ctx context.Context) error {
	pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + release})
	if err != nil {
		return err
	}
	if len(pods.Items) == 0 {
		return errors.New("there are no pods")
	}
	for i := range pods.Items {
		for _, container := range pods.Items[i].Status.ContainerStatuses {
			if !container.Ready || container.RestartCount > 0 {
				return fmt.Errorf("container %s of pod %s is ready: %t, restarts: %d", container.Name, pods.Items[i].Name, container.Ready, container.RestartCount)
			}
		}
	}
	return nil
}

func (s *story) node(ctx context.Context) (*corev1.Node, error) {
	return s.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
}

// waitLabel waits until the Node has a label.
func (s *story) waitLabel(ctx context.Context, key string) error {
	return cluster.WaitFor(ctx, "label "+key, func(ctx context.Context) error {
		node, err := s.node(ctx)
		if err != nil {
			return err
		}
		if _, ok := node.Labels[key]; !ok {
			return errors.New("the Node does not have it")
		}
		return nil
	})
}

// labeled compares labels with data of this machine.
func labeled(ctx context.Context, s *story) error {
	node, err := s.node(ctx)
	if err != nil {
		return err
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	want := map[string]string{featureNS + "kernel-version.full": strings.TrimSpace(string(release))}
	for key, value := range osRelease() {
		want[featureNS+"system-os_release."+key] = value
	}
	for key, value := range want {
		if got := node.Labels[key]; got != value {
			return fmt.Errorf("label %s is %q, want %q", key, got, value)
		}
	}
	s.labels = map[string]string{}
	for key, value := range node.Labels {
		if strings.HasPrefix(key, featureNS) {
			s.labels[key] = value
		}
	}
	s.note("%d labels, among them those of this kernel and distribution", len(s.labels))
	return nil
}

// osRelease reads os-release(5) of this machine.
func osRelease() map[string]string {
	out := map[string]string{}
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "ID" || key == "VERSION_ID" {
			out[key] = strings.Trim(value, `"'`)
		}
	}
	return out
}

const rule = `
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: linux}
spec:
  rules:
  - name: linux
    labels: {runs-linux: "true"}
    matchFeatures:
    - feature: kernel.version
      matchExpressions: {major: {op: Gt, value: ["2"]}}
`

func goodRule(ctx context.Context, s *story) error {
	began := time.Now()
	if _, err := s.showInput(ctx, rule, "kubectl", "apply", "-f", "-"); err != nil {
		return err
	}
	if err := s.waitLabel(ctx, featureNS+"runs-linux"); err != nil {
		return err
	}
	s.figure("a rule's label %.1f s after kubectl apply began", time.Since(began).Seconds())
	_, err := s.show(ctx, "kubectl", "get", "nodefeaturerules")
	return err
}

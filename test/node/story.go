//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

const (
	namespace = "assay-system"
	release   = "assay"
	featureNS = "feature.node.kubernetes.io/"
)

// story is what the steps have in common.
type story struct {
	*machine
	chart  string
	before *corev1.Node      // without Assay
	labels map[string]string // that come without a rule
	notes  []string          // of the step that runs
}

func (s *story) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// step is what a user does, and what then must be so.
type step struct {
	name string
	do   func(context.Context, *story) error
}

// steps is the story, in its order.
var steps = []step{
	{"helm install --wait", install},
	{"the Node has the features of this machine", labelled},
	{"a rule labels the Node", goodRule},
	{"the webhook refuses a broken rule", brokenRule},
	{"a node cannot publish for others", onlyItself},
	{"helm test", helmTest},
	{"labels outlive the worker's pod", replaceWorker},
	{"rules can be applied without the webhook", withoutWebhook},
	{"files of features become labels", featureFile},
	{"a deleted certificate is made anew", deleteCertificate},
	{"the API server is killed and comes back", restartAPIServer},
	{"helm upgrade, and no label flaps", upgrade},
	{"the second scheduler places pods by features", schedule},
	{"admission finds the scheduler of pods that ask, and requests are counted", ask},
	{"no part lacks a permission", permitted},
	{"helm rollback, and no label flaps", rollback},
	{"memory at work", memory},
	{"helm uninstall leaves the Node as it was", uninstall},
	{"take-over from Node Feature Discovery and hand-back, and no label flaps", takeOver},
}

func asSkipped(err error, skip *skipped) bool { return errors.As(err, skip) }

// values are the chart's settings for this machine: where the images are, and nothing outside of the test's directory.
func (s *story) values(more ...string) []string {
	args := []string{
		"--namespace=" + namespace, "--wait", "--timeout=90s",
		"--set=image.tag=" + version,
		"--set=worker.featuresDir=" + s.path("features.d"),
	}
	for _, v := range more {
		args = append(args, "--set="+v)
	}
	return args
}

func install(ctx context.Context, s *story) error {
	root, err := kube.Root()
	if err != nil {
		return err
	}
	s.chart = filepath.Join(root, "charts", "assay")
	if s.before, err = s.node(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(s.path("features.d"), 0o755); err != nil {
		return err
	}
	began := time.Now()
	installed := make(chan error, 1)
	go func() {
		_, err := s.helm(ctx, append([]string{"install", release, s.chart, "--create-namespace"}, s.values()...)...)
		installed <- err
	}()
	if err := s.waitLabel(ctx, featureNS+"kernel-version.full"); err != nil {
		return errors.Join(err, <-installed)
	}
	s.note("first label after %.1f s", time.Since(began).Seconds())
	return <-installed
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

// labelled compares labels with what this machine says of itself.
func labelled(ctx context.Context, s *story) error {
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
	if _, err := s.KubectlInput(ctx, rule, "apply", "-f", "-"); err != nil {
		return err
	}
	if err := s.waitLabel(ctx, featureNS+"runs-linux"); err != nil {
		return err
	}
	s.note("%.2f s from apply to label", time.Since(began).Seconds())
	return nil
}

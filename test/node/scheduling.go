//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/internal/doctest"
	"github.com/assay-project/assay/test/cluster"
)

// pod requires a feature by an annotation.
func pod(name, scheduler, feature, element string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
  annotations:
    assay.dev/required-features: |
      matchFeatures:
      - feature: %s
        matchExpressions: {%s: {op: Exists}}
spec:
  schedulerName: %s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: pause, image: %q, imagePullPolicy: Never}
`, name, feature, element, scheduler, pauseImage)
}

// schedule requires a feature that this node has, and one that no node has.
func schedule(ctx context.Context, s *story) error {
	began := time.Now()
	if _, err := s.showInput(ctx, pod("wants-kernel", "assay", "kernel.version", "major"), "kubectl", "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := s.show(ctx, "kubectl", "wait", "pod/wants-kernel", "-n", "default", "--for=condition=Ready", "--timeout="+helmTimeout); err != nil {
		return err
	}
	s.figure("a pod that asks for a feature ran %.1f s after it was applied", time.Since(began).Seconds())
	if _, err := s.KubectlInput(ctx, pod("wants-more", "assay", "cpu.cpuid", "NOSUCHFLAG"), "apply", "-f", "-"); err != nil {
		return err
	}
	err := cluster.WaitFor(ctx, "the event of the pod that no node can take", func(ctx context.Context) error {
		events, err := s.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=wants-more,reason=FailedScheduling"})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, "cpu.cpuid") {
				s.note("%s", event.Message)
				return nil
			}
		}
		return errors.New("no event names the feature")
	})
	if err != nil {
		return err
	}
	_, err = s.Kubectl(ctx, "delete", "pod", "-n", "default", "wants-kernel", "wants-more", "--wait")
	return err
}

const request = `
apiVersion: assay.dev/v1alpha1
kind: NodeFeatureRequest
metadata: {name: kernel, namespace: default}
spec:
  required:
    matchFeatures: [{feature: kernel.version, matchExpressions: {major: {op: Exists}}}]
`

// ask lets admission set the scheduler of a pod, and the controller count nodes.
func ask(ctx context.Context, s *story) error {
	if _, err := s.show(ctx, "kubectl", "label", "namespace", "default", "assay.dev/scheduler=assay"); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "get", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "assay-scheduling"); err != nil {
		return err
	}
	if _, err := s.showInput(ctx, request+"---"+pod("asks", "", "kernel.version", "major"), "kubectl", "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := s.show(ctx, "kubectl", "wait", "pod/asks", "-n", "default", "--for=condition=Ready", "--timeout="+helmTimeout); err != nil {
		return err
	}
	asks, err := s.client.CoreV1().Pods("default").Get(ctx, "asks", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if asks.Spec.SchedulerName != "assay" || asks.Annotations["assay.dev/requirement-hash"] == "" {
		return fmt.Errorf("the pod has the scheduler %s and the annotations %v", asks.Spec.SchedulerName, asks.Annotations)
	}
	if _, err := s.show(ctx, "kubectl", "wait", "nodefeaturerequest/kernel", "-n", "default", "--for=jsonpath={.status.matchingNodes}=1", "--timeout="+helmTimeout); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "wait", "node/"+nodeName, `--for=jsonpath={.metadata.annotations.feature\.node\.kubernetes\.io/built-in}=true`, "--timeout="+helmTimeout); err != nil {
		return fmt.Errorf("the built-in rule: %w", err)
	}
	if _, err := s.Kubectl(ctx, "label", "namespace", "default", "assay.dev/scheduler-"); err != nil {
		return err
	}
	_, err = s.Kubectl(ctx, "delete", "-n", "default", "pod/asks", "nodefeaturerequest/kernel", "--wait")
	return err
}

// extenderSecrets contain the certificates of the extender and its clients.
var extenderSecrets = []string{"assay-extender-cert", "assay-extender-client"}

// behindService makes the second scheduler use an extender behind a Service, with certificates created as documented.
func behindService(ctx context.Context, s *story) error {
	if path, _ := exec.LookPath("openssl"); path == "" {
		s.note("SKIPPED: the documented commands need openssl, which is not installed")
		return nil
	}
	page, err := doctest.Read(filepath.Join(s.root, "docs/scheduling.md"))
	if err != nil {
		return err
	}
	dir := s.path("certificates")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, block := range page.Blocks {
		if block.Kind == "certificates" {
			if _, err := output(ctx, dir, "sh", "-e", "-c", block.Text); err != nil {
				return err
			}
		}
	}
	for i, files := range []string{"server", "client"} {
		file := filepath.Join(dir, files)
		_, err := s.show(ctx, "kubectl", "create", "secret", "generic", extenderSecrets[i], "--namespace="+namespace,
			"--from-file=tls.crt="+file+".crt", "--from-file=tls.key="+file+".key", "--from-file=ca.crt="+filepath.Join(dir, "ca.crt"))
		if err != nil {
			return err
		}
	}
	return s.watched(ctx, func() error {
		_, err := s.show(ctx, "helm", "upgrade", release, chart, "--hide-notes", "--namespace="+namespace, "--wait", "--timeout="+helmTimeout, "--reuse-values",
			"--set=extender.enabled=true", "--set=extender.certificateSecret="+extenderSecrets[0], "--set=extender.clientSecret="+extenderSecrets[1],
			"--set=scheduler.useService=true")
		if err != nil {
			return err
		}
		if _, err := s.show(ctx, "kubectl", "get", "pods,services", "-n", namespace); err != nil {
			return err
		}
		return schedule(ctx, s)
	})
}

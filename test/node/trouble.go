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

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

// ruleNamed returns the valid rule with another name, and a label of that name.
func ruleNamed(name string) string {
	return strings.NewReplacer("name: linux", "name: "+name, "runs-linux", name).Replace(rule)
}

// restartAPIServer kills the API server. Running programs continue, and rules work afterwards.
func restartAPIServer(ctx context.Context, s *story) error {
	return s.watched(ctx, func() error {
		if err := s.Restart(ctx, kube.APIServer); err != nil {
			return err
		}
		s.note("killed kube-apiserver, and started it again")
		began := time.Now()
		err := cluster.WaitFor(ctx, "the API server", func(ctx context.Context) error {
			_, err := s.KubectlInput(ctx, ruleNamed("again"), "apply", "-f", "-")
			return err
		})
		if err != nil {
			return err
		}
		if err := s.waitLabel(ctx, featureNS+"again"); err != nil {
			return err
		}
		s.note("a rule could be applied again and its label was there after %.1f s", time.Since(began).Seconds())
		return s.allReadyAgain(ctx)
	})
}

// allReadyAgain waits until all pods of the release are ready, regardless of restarts.
func (s *story) allReadyAgain(ctx context.Context) error {
	for _, workload := range []string{"daemonset/" + release + "-worker", "deployment/" + release + "-controller", "deployment/" + release + "-webhook"} {
		if _, err := s.Kubectl(ctx, "rollout", "status", "-n", namespace, workload, "--timeout="+helmTimeout); err != nil {
			return err
		}
	}
	return cluster.WaitFor(ctx, "pods of the release", func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + release})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded // for example evicted ones
			if !ended && !isReady(p) {
				return fmt.Errorf("%s is not ready", p.Name)
			}
		}
		return nil
	})
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// deleteCertificate empties the Secret with the webhook's certificate. Its replicas agree on a new one, and the API server gets
// responses meanwhile.
func deleteCertificate(ctx context.Context, s *story) error {
	const secret = release + "-webhook-cert"
	certificate := []string{"get", "secret", "-n", namespace, secret, `-o=jsonpath={.data.tls\.crt}`}
	before, err := s.Kubectl(ctx, certificate...)
	if err != nil {
		return err
	}
	if _, err := s.show(ctx, "kubectl", "patch", "secret", "-n", namespace, secret, "--type=merge", `--patch={"data":null}`); err != nil {
		return err
	}
	// A new replica has no certificate in memory.
	if _, err := s.show(ctx, "kubectl", "rollout", "restart", "-n", namespace, "deployment/"+release+"-webhook"); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "rollout", "status", "-n", namespace, "deployment/"+release+"-webhook", "--timeout="+helmTimeout); err != nil {
		return err
	}
	after, err := s.Kubectl(ctx, certificate...)
	if err != nil {
		return err
	}
	if after == before || after == "" {
		return errors.New("there is no new certificate")
	}
	s.note("there is a new certificate")
	return s.refuses(ctx)
}

// refuses waits until an invalid rule is rejected.
func (s *story) refuses(ctx context.Context) error {
	err := cluster.WaitFor(ctx, "the refusal of a broken rule", func(ctx context.Context) error {
		_, err := s.KubectlInput(ctx, broken, "apply", "--dry-run=server", "-f", "-")
		if err == nil {
			return errors.New("it was accepted")
		}
		if !strings.Contains(err.Error(), "regular expression") {
			return err
		}
		return nil
	})
	if err == nil {
		s.note("an invalid rule is rejected")
	}
	return err
}

// hidden are directories and a file of /sys that sources read.
var hidden = []string{"/sys/bus/pci/devices", "/sys/class/net", "/sys/kernel/mm/transparent_hugepage/enabled"}

// unreadable makes parts of /sys unreadable except for root, as a security module does, and restarts the worker. The mounts of the
// test are invisible outside of its mount namespace.
func unreadable(ctx context.Context, s *story) error {
	closed := s.path("closed")
	if err := os.WriteFile(closed, nil, 0); err != nil {
		return err
	}
	var paths []string
	for _, path := range hidden {
		info, err := os.Stat(path)
		if err != nil {
			continue // not on this machine
		}
		if info.IsDir() {
			err = unix.Mount("closed", path, "tmpfs", 0, "mode=0000")
		} else {
			err = unix.Mount(closed, path, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
		defer func() { _ = unix.Unmount(path, unix.MNT_DETACH) }()
		paths = append(paths, path)
	}
	s.note("only root can read %s", strings.Join(paths, ", "))
	return s.watched(ctx, func() error {
		if err := s.newWorker(ctx); err != nil {
			return err
		}
		log, err := s.show(ctx, "kubectl", "logs", "-n", namespace, "daemonset/"+release+"-worker")
		if err != nil {
			return err
		}
		for _, path := range paths {
			if !strings.Contains(log, path+": permission denied") {
				return fmt.Errorf("the worker does not say that it may not read %s", path)
			}
		}
		for _, path := range paths {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				return err
			}
		}
		return s.newWorker(ctx)
	})
}

// newWorker deletes the worker's pod, and waits until the next one is ready.
func (s *story) newWorker(ctx context.Context) error {
	if _, err := s.show(ctx, "kubectl", "delete", "pod", "-n", namespace, "-l", "app.kubernetes.io/component=worker"); err != nil {
		return err
	}
	_, err := s.show(ctx, "kubectl", "rollout", "status", "-n", namespace, "daemonset/"+release+"-worker", "--timeout="+helmTimeout)
	return err
}

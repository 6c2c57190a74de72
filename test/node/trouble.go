//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sys/unix"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

// ruleNamed is the good rule under another name, with a label of that name.
func ruleNamed(name string) string {
	return strings.NewReplacer("name: linux", "name: "+name, "runs-linux", name).Replace(rule)
}

// restartAPIServer kills the API server under everything. What runs goes on, and rules work afterwards.
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

// allReadyAgain waits until all pods of the release are ready, however often they were started.
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
			ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded // as evicted ones have
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

// deleteCertificate deletes the Secret with the webhook's certificate. Its replicas agree on a new one, and the API server
// goes on being answered.
func deleteCertificate(ctx context.Context, s *story) error {
	const secret = release + "-webhook-cert"
	uid := []string{"get", "secret", "-n", namespace, secret, "-o", "jsonpath={.metadata.uid}"}
	before, err := s.Kubectl(ctx, uid...)
	if err != nil {
		return err
	}
	if _, err := s.show(ctx, "kubectl", "delete", "secret", "-n", namespace, secret); err != nil {
		return err
	}
	// A replica that starts anew has no certificate in memory.
	if _, err := s.show(ctx, "kubectl", "rollout", "restart", "-n", namespace, "deployment/"+release+"-webhook"); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "rollout", "status", "-n", namespace, "deployment/"+release+"-webhook", "--timeout="+helmTimeout); err != nil {
		return err
	}
	after, err := s.Kubectl(ctx, uid...)
	if err != nil {
		return err
	}
	if after == before {
		return errors.New("the Secret is still the one that was deleted")
	}
	s.note("there is a new certificate")
	return s.refuses(ctx)
}

// refuses waits until a broken rule is refused.
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
		s.note("a broken rule is refused")
	}
	return err
}

// hidden are directories and a file of /sys that sources read.
var hidden = []string{"/sys/bus/pci/devices", "/sys/class/net", "/sys/kernel/mm/transparent_hugepage/enabled"}

// unreadable makes parts of /sys unreadable for all but root, as a security module does, and starts the worker anew. What the
// test mounts there nobody sees outside of its mount namespace.
func unreadable(ctx context.Context, s *story) error {
	closed := filepath.Join(s.path("closed"))
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
	s.note("nobody but root may read %s", strings.Join(paths, ", "))
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

// burst is how many rules come and go while the controller is killed.
const burst = 20

// burstNS begins the labels of those rules.
const burstNS = featureNS + "burst-"

// killController kills the controller as soon as the first of many labels is there, and again as soon as the first has gone.
// The next one finishes the work, and nothing else changes meanwhile.
func killController(ctx context.Context, s *story) error {
	var rules strings.Builder
	for i := range burst {
		rules.WriteString(ruleNamed(fmt.Sprintf("burst-%d", i)) + "---\n")
	}
	count := func(ctx context.Context) (n int, err error) {
		node, err := s.node(ctx)
		if err != nil {
			return 0, err
		}
		for key := range node.Labels {
			if strings.HasPrefix(key, burstNS) {
				n++
			}
		}
		return n, nil
	}
	return s.watchedBut(ctx, burstNS, func() error {
		for _, do := range []struct {
			verb string
			want int
		}{{"apply", burst}, {"delete", 0}} {
			before, err := count(ctx)
			if err != nil {
				return err
			}
			controller, err := process("assay-manager controller")
			if err != nil {
				return err
			}
			done := make(chan error, 1)
			go func() {
				_, err := s.KubectlInput(ctx, rules.String(), do.verb, "-f", "-")
				done <- err
			}()
			at := 0
			err = cluster.WaitFor(ctx, "the first change of a label", func(ctx context.Context) error {
				if at, err = count(ctx); err == nil && at == before {
					return errors.New("there is none")
				}
				return err
			})
			if err != nil {
				return err
			}
			if err := unix.Kill(controller, unix.SIGKILL); err != nil {
				return err
			}
			killed := time.Now()
			s.note("kubectl %s of %d rules; killed the controller when %d of their labels were there", do.verb, burst, at)
			if err := <-done; err != nil {
				return err
			}
			err = cluster.WaitFor(ctx, "the labels", func(ctx context.Context) error {
				if n, err := count(ctx); err != nil || n != do.want {
					return fmt.Errorf("there are %d of %d (%w)", n, do.want, err)
				}
				return nil
			})
			if err != nil {
				return err
			}
			s.note("%d were there %.1f s later", do.want, time.Since(killed).Seconds())
		}
		return s.allReadyAgain(ctx)
	})
}

// fullDisk fills the file system that pods and their logs are on. Whoever runs has nothing to write there: labels change, and
// rules are reviewed. Then the kubelet evicts pods, as it does by default, and the labels stay until they are back.
func fullDisk(ctx context.Context, s *story) error {
	filler := s.path(diskDir + "/filler")
	if err := fill(filler); err != nil {
		return err
	}
	defer func() { _ = os.Remove(filler) }()
	s.note("no byte is left where the node keeps pods and their logs; the kubelet does not look")
	return s.watched(ctx, func() error {
		if err := s.featureFile("full-disk", "full-disk"); err != nil {
			return err
		}
		if err := s.waitLabel(ctx, featureNS+"full-disk"); err != nil {
			return fmt.Errorf("from a file: %w", err)
		}
		s.note("a file of features became a label")
		if _, err := s.showInput(ctx, ruleNamed("full"), "kubectl", "apply", "-f", "-"); err != nil {
			return err
		}
		if err := s.waitLabel(ctx, featureNS+"full"); err != nil {
			return err
		}
		if err := s.refuses(ctx); err != nil {
			return err
		}
		if _, err := s.configureKubelet(map[string]string{"nodefs.available": "10%"}); err != nil {
			return err
		}
		if err := s.Restart(ctx, kube.Kubelet); err != nil {
			return err
		}
		s.note("the kubelet looks now, after a restart")
		if err := s.evicted(ctx); err != nil {
			return err
		}
		if err := os.Remove(filler); err != nil {
			return err
		}
		s.note("there is room again")
		if _, err := s.Kubectl(ctx, "wait", "node/"+nodeName, "--for=condition=DiskPressure=False", "--timeout="+helmTimeout); err != nil {
			return err
		}
		if err := s.allReadyAgain(ctx); err != nil {
			return err
		}
		if _, err := s.show(ctx, "kubectl", "get", "pods", "-n", namespace); err != nil {
			return err
		}
		_, err := s.Kubectl(ctx, "delete", "pod", "-n", namespace, "--field-selector=status.phase!=Running")
		return err
	})
}

// evicted waits until the kubelet has evicted a pod for want of disk.
func (s *story) evicted(ctx context.Context) error {
	if _, err := s.Kubectl(ctx, "wait", "node/"+nodeName, "--for=condition=DiskPressure=True", "--timeout="+helmTimeout); err != nil {
		return err
	}
	return cluster.WaitFor(ctx, "a pod that is evicted", func(ctx context.Context) error {
		events, err := s.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Evicted"})
		if err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return errors.New("there is none")
		}
		first := events.Items[0]
		s.note("%s: %s", first.InvolvedObject.Name, first.Message)
		return nil
	})
}

// fill writes a file until there is no room for another byte.
func fill(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for _, block := range []int{1 << 20, 1} {
		for err = nil; err == nil; {
			_, err = file.Write(bytes.Repeat([]byte{1}, block))
		}
		if !errors.Is(err, unix.ENOSPC) {
			return err
		}
	}
	return nil
}

// notPermitted takes a permission from a part. Its log says which, and with the permission it goes on.
func notPermitted(ctx context.Context, s *story) error {
	for _, part := range []struct {
		name, role, less string
		do               func() error
		label, resource  string
	}{
		{
			name: "daemonset/" + release + "-worker", role: "role/" + release + "-worker",
			less:  `[{"apiGroups":["nfd.k8s-sigs.io"],"resources":["nodefeatures"],"verbs":["get","list","watch"]}]`,
			do:    func() error { return s.featureFile("not-permitted", "without-permission") },
			label: featureNS + "without-permission", resource: "nodefeatures",
		},
		{
			name: "deployment/" + release + "-controller", role: "clusterrole/" + release + "-controller",
			less: `[{"apiGroups":["nfd.k8s-sigs.io","assay.dev"],"resources":["*"],"verbs":["*"]},{"apiGroups":[""],"resources":["nodes"],"verbs":["get","list","watch"]}]`,
			do: func() error {
				_, err := s.KubectlInput(ctx, ruleNamed("not-permitted"), "apply", "-f", "-")
				return err
			},
			label: featureNS + "not-permitted", resource: "nodes/status",
		},
	} {
		rules, err := s.Kubectl(ctx, "get", part.role, "-n", namespace, "-o", "jsonpath={.rules}")
		if err != nil {
			return err
		}
		set := func(rules string) error {
			_, err := s.show(ctx, "kubectl", "patch", part.role, "-n", namespace, "--type=merge", "-p", `{"rules":`+rules+`}`)
			return err
		}
		if err := set(part.less); err != nil {
			return err
		}
		if err := part.do(); err != nil {
			return err
		}
		err = cluster.WaitFor(ctx, "what "+part.name+" says", func(ctx context.Context) error {
			log, err := s.Kubectl(ctx, "logs", "-n", namespace, part.name, "--tail=50")
			if err != nil {
				return err
			}
			for line := range strings.Lines(log) {
				if _, what, found := strings.Cut(line, "cannot patch resource "); found && strings.Contains(what, part.resource) {
					s.note("%s: %s", part.name, strings.TrimSpace(line))
					return nil
				}
			}
			return fmt.Errorf("it does not say that it cannot patch %s", part.resource)
		})
		if err != nil {
			return err
		}
		if err := set(rules); err != nil {
			return err
		}
		if err := s.waitLabel(ctx, part.label); err != nil {
			return err
		}
		s.note("the label is there now")
	}
	return nil
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/test/cluster"
)

// permitted searches the logs of all pods for denied requests. It waits until pods that the upgrade replaced are deleted: they used
// an API server that had just started and did not have their roles yet.
func permitted(ctx context.Context, s *story) error {
	err := cluster.WaitFor(ctx, "the end of the replaced pods", func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.DeletionTimestamp != nil {
				return fmt.Errorf("%s is still there", p.Name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, component := range []string{"worker", "controller", "webhook", "scheduler", "extender"} {
		out, err := s.Kubectl(ctx, "logs", "-n", namespace, "-l", "app.kubernetes.io/component="+component, "--prefix", "--tail=-1", "--all-containers")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if component == "controller" && strings.Contains(line, "status unknown for quota") {
				continue // Kubernetes has not counted the sets of the new installation yet
			}
			if strings.Contains(line, "forbidden") || strings.Contains(line, "cannot list") {
				return errors.New(strings.TrimSpace(line))
			}
		}
	}
	return nil
}

// notPermitted removes a permission from a component. Its log names the permission, and it recovers when the permission is granted
// again.
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
			return fmt.Errorf("the error does not say that patching %s is forbidden", part.resource)
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

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/test/cluster"
)

const broken = `
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: broken}
spec:
  rules:
  - name: broken
    labels: {broken: "true"}
    matchFeatures:
    - feature: kernel.version
      matchExpressions: {major: {op: InRegexp, value: ["("]}}
`

// brokenRule applies an invalid rule that the CRD schema accepts.
func brokenRule(ctx context.Context, s *story) error {
	began := time.Now()
	err := cluster.WaitFor(ctx, "the webhook's configuration", func(ctx context.Context) error {
		_, err := s.Kubectl(ctx, "get", "validatingwebhookconfiguration", "assay")
		return err
	})
	if err != nil {
		return err
	}
	if waited := time.Since(began); waited > time.Second {
		s.note("its configuration came %.1f s later", waited.Seconds())
	}
	out, err := s.showInput(ctx, broken, "kubectl", "apply", "-f", "-")
	if err == nil {
		return errors.New("it was accepted")
	}
	for _, want := range []string{"spec.rules[0].matchFeatures[0].matchExpressions[major].value[0]", "regular expression"} {
		if !strings.Contains(out, want) {
			return fmt.Errorf("the refusal does not contain %q: %w", want, err)
		}
	}
	return nil
}

// onlyItself writes as the worker, with a token that is not bound to a node.
func onlyItself(ctx context.Context, s *story) error {
	token, err := s.Kubectl(ctx, "create", "token", "-n", namespace, release+"-worker")
	if err != nil {
		return err
	}
	server := s.RESTConfig().Host
	as := []string{"--server=" + server, "--certificate-authority=" + s.path("cluster/pki/ca.crt"), "--token=" + strings.TrimSpace(token), "--kubeconfig=/dev/null"}
	object := "apiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeature\nmetadata: {name: node-2, namespace: " + namespace +
		", labels: {nfd.node.kubernetes.io/node-name: node-2}}\nspec: {labels: {stolen: \"true\"}}\n"
	if _, err := s.KubectlInput(ctx, object, append(as, "create", "-f", "-")...); err == nil {
		return errors.New("a NodeFeature of another node was accepted")
	} else if !strings.Contains(err.Error(), "token names none") {
		return fmt.Errorf("refused, but not by the policy: %w", err)
	} else {
		_, reason, _ := strings.Cut(err.Error(), "exit status 1: ")
		s.note("with a worker's token: %s", strings.TrimSpace(reason))
	}
	for _, forbidden := range []string{"nodes", "secrets", "pods", "nodefeaturerules.nfd.k8s-sigs.io"} {
		if _, err := s.Kubectl(ctx, append(as, "get", forbidden, "-n", namespace)...); err == nil {
			return fmt.Errorf("the worker may read %s", forbidden)
		}
	}
	s.note("nor may it read Nodes, Secrets, pods or rules")
	return nil
}

func helmTest(ctx context.Context, s *story) error {
	out, err := s.show(ctx, "helm", "test", release, "--namespace="+namespace, "--timeout="+helmTimeout)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "Succeeded") {
		return errors.New(out)
	}
	return nil
}

// noDifference compares the objects of the release with the cluster, as GitOps tools do: neither the API server nor a part of Assay may have
// changed a field that the chart sets.
func noDifference(ctx context.Context, s *story) error {
	manifest, err := s.command(ctx, "", "helm", "get", "manifest", release, "--namespace="+namespace)
	if err != nil {
		return err
	}
	objects := strings.Count(manifest, "\nkind: ")
	if objects == 0 {
		return fmt.Errorf("helm get manifest %s shows no objects", release)
	}
	fmt.Printf("  $ helm get manifest %s | kubectl diff -f -\n", release)
	if _, err := s.command(ctx, manifest, "kubectl", "diff", "--namespace="+namespace, "-f", "-"); err != nil {
		return err // kubectl diff fails if there are differences
	}
	s.note("%d objects have all fields that the chart sets", objects)
	return nil
}

func replaceWorker(ctx context.Context, s *story) error {
	return s.watched(ctx, func() error { return s.newWorker(ctx) })
}

func withoutWebhook(ctx context.Context, s *story) error {
	if _, err := s.show(ctx, "kubectl", "delete", "pod", "-n", namespace, "-l", "app.kubernetes.io/component=webhook", "--force", "--grace-period=0"); err != nil {
		return err
	}
	if _, err := s.showInput(ctx, ruleNamed("second"), "kubectl", "apply", "-f", "-"); err != nil {
		return err
	}
	if err := s.waitLabel(ctx, featureNS+"second"); err != nil {
		return err
	}
	if _, err := s.show(ctx, "kubectl", "rollout", "status", "-n", namespace, "deployment/"+release+"-webhook", "--timeout="+helmTimeout); err != nil {
		return err
	}
	return s.refuses(ctx)
}

func upgrade(ctx context.Context, s *story) error {
	return s.watched(ctx, func() error {
		_, err := s.show(ctx, append([]string{"helm", "upgrade", release, chart, "--hide-notes"}, s.values(
			"controller.replicaCount=2", "worker.config.core.logLevel=debug", "worker.labels.changed=yes", "controller.enableTaints=true",
			"scheduler.enabled=true", "scheduling.enabled=true", "scheduling.policies.podScheduler=true",
			"controller.failTaint=example.com/rejected=true:NoSchedule", "controller.builtInRules.site\\.yaml="+escapeCommas(builtIn),
		)...)...)
		return err
	})
}

// builtIn installs a rule of the administrator. It creates no label, since the rollback removes it and no label may be removed.
const builtIn = `apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: site}
spec: {rules: [{name: site, annotations: {built-in: "true"}}]}
`

// escapeCommas escapes commas for --set.
func escapeCommas(text string) string {
	return strings.NewReplacer(",", `\,`, "{", `\{`, "}", `\}`).Replace(text)
}

func rollback(ctx context.Context, s *story) error {
	return s.watched(ctx, func() error {
		if _, err := s.show(ctx, "helm", "rollback", release, "1", "--namespace="+namespace, "--wait", "--timeout="+helmTimeout); err != nil {
			return err
		}
		if _, err := s.show(ctx, "helm", "history", release, "--namespace="+namespace); err != nil {
			return err
		}
		// Helm did not create them, so it does not delete them.
		_, err := s.Kubectl(ctx, append([]string{"delete", "secret", "-n", namespace, "--ignore-not-found"}, extenderSecrets...)...)
		return err
	})
}

// uninstall uninstalls the release and compares the Node with its initial state.
func uninstall(ctx context.Context, s *story) error {
	if _, err := s.show(ctx, "helm", "uninstall", release, "--namespace="+namespace, "--wait", "--timeout="+helmTimeout); err != nil {
		return err
	}
	after, err := s.node(ctx)
	if err != nil {
		return err
	}
	var left []string
	for _, m := range []struct {
		what          string
		before, after map[string]string
	}{
		{"label", s.before.Labels, after.Labels},
		{"annotation", s.before.Annotations, after.Annotations},
		{"resource", resources(s.before), resources(after)},
	} {
		if !maps.Equal(m.before, m.after) {
			left = append(left, difference(m.what, m.before, m.after)...)
		}
	}
	if len(after.Spec.Taints) != len(s.before.Spec.Taints) {
		left = append(left, fmt.Sprintf("taints: %v", after.Spec.Taints))
	}
	if len(left) > 0 {
		return fmt.Errorf("the Node has changed: %s", strings.Join(left, ", "))
	}
	s.note("labels, annotations, extended resources and taints of the Node are those from before the installation")
	if err := s.gone(ctx, func(string) bool { return false }); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "get", "nodefeaturerule", "linux"); err != nil {
		return fmt.Errorf("the user's rule is gone: %w", err)
	}
	if err := s.noTopology(ctx); err != nil {
		return err
	}
	_, err = s.show(ctx, "kubectl", "get", "all,nodefeatures,nodefeaturerules", "-A")
	return err
}

// resources returns a Node's extended resources, since the kubelet changes its own ones, and those of the device plug-in.
func resources(node *corev1.Node) map[string]string {
	out := map[string]string{}
	for name, quantity := range node.Status.Capacity {
		if strings.Contains(string(name), "/") && name != nic {
			out[string(name)] = quantity.String()
		}
	}
	return out
}

func difference(what string, before, after map[string]string) []string {
	var out []string
	for key, value := range after {
		if before[key] != value {
			out = append(out, fmt.Sprintf("%s %s=%q", what, key, value))
		}
	}
	for key := range before {
		if _, there := after[key]; !there {
			out = append(out, fmt.Sprintf("%s %s is missing", what, key))
		}
	}
	slices.Sort(out)
	return out
}

// gone waits until only the CRDs and the given objects (KIND/NAMESPACE/NAME) are left of the release.
func (s *story) gone(ctx context.Context, stays func(object string) bool) error {
	return cluster.WaitFor(ctx, "the end of all that the release made", func(ctx context.Context) error {
		var left []string
		for _, kinds := range []string{
			"pods,deployments,daemonsets,jobs,services,serviceaccounts,configmaps,roles,rolebindings,networkpolicies,poddisruptionbudgets,secrets,leases,nodefeatures",
			"clusterroles,clusterrolebindings,priorityclasses,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings",
		} {
			out, err := s.Kubectl(ctx, "get", kinds, "-A", "-o", `jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
			if err != nil {
				return err
			}
			for line := range strings.Lines(out) {
				line = strings.TrimSpace(line)
				parts := strings.Split(line, "/")
				ours := strings.HasPrefix(parts[2], release) || parts[1] == namespace && parts[2] != "default" && parts[2] != "kube-root-ca.crt"
				if ours && !stays(line) {
					left = append(left, line)
				}
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("still there: %s", strings.Join(left, ", "))
		}
		return nil
	})
}

// explain prints diagnostics for a failure.
func (s *story) explain(ctx context.Context) {
	for _, args := range [][]string{
		{"get", "pods,deployments,daemonsets,jobs", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"logs", "-n", namespace, "-l", "app.kubernetes.io/instance=" + release, "--prefix", "--tail=30", "--all-containers"},
	} {
		out, err := s.Kubectl(ctx, args...)
		fmt.Printf("--- kubectl %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			fmt.Println(err)
		}
	}
}

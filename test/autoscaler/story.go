//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

const (
	// pods is the namespace of the pods, and replicas their number: one machine has room for them.
	pods     = "ml"
	replicas = 3
	// label is the label of the nodes that meet the request.
	label = "features.assay.dev/ml.amx"
	// without and with are the types of the machines that do not and do have AMX.
	without = "m5.xlarge"
	with    = "m7.xlarge"
)

// story is the state of the test.
type story struct {
	*cluster.Cluster
	api             client.Client
	bin             string            // directory of the programs
	source, version map[string]string // by module
	results         []string
}

// types returns the flags of cpu.cpuid of each type of machine.
func (s *story) types() map[string][]string {
	return map[string][]string{without: {"AVX512F"}, with: {"AVX512F", "AMXTILE", "AMXBF16"}}
}

// tell runs the scenarios.
func (s *story) tell(ctx context.Context) error {
	for _, scenario := range []func(context.Context) error{s.undeclared, s.fromZero, s.wrong} {
		if err := scenario(ctx); err != nil {
			return err
		}
	}
	return nil
}

// undeclared shows that Karpenter buys nothing for a label that it does not know.
func (s *story) undeclared(ctx context.Context) error {
	say("No node, and no pool that declares the feature: nothing is bought")
	for _, args := range [][]string{
		{"apply", "-f", s.file("pools.yaml"), "-f", s.file("request.yaml")},
		{"wait", "nodepools", "--all", "--for=condition=Ready", "--timeout=2m"},
		{"wait", "nodefeaturerequest/amx", "--namespace=" + pods, "--for=condition=Materialized", "--timeout=2m"},
		{"get", "nodefeaturerequest", "amx", "--namespace=" + pods},
	} {
		if err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	if err := s.admissionAddsTheLabel(ctx); err != nil {
		return err
	}
	if err := s.kubectl(ctx, "apply", "-f", s.file("deployment.yaml")); err != nil {
		return err
	}
	refusal := ""
	err := cluster.WaitFor(ctx, "Karpenter's reason", func(ctx context.Context) error {
		var events corev1.EventList
		if err := s.api.List(ctx, &events, client.InNamespace(pods)); err != nil {
			return err
		}
		for i := range events.Items {
			if e := &events.Items[i]; e.Source.Component == karpenter && e.Reason == "FailedScheduling" {
				refusal = e.Message
				return nil
			}
		}
		return fmt.Errorf("none of %d events is Karpenter's", len(events.Items))
	})
	if err != nil {
		return err
	}
	fmt.Printf("Event of Karpenter: %s\n", refusal)
	if !strings.Contains(refusal, label) {
		return fmt.Errorf("the event does not name the label %s", label)
	}
	bought, err := s.bought(ctx)
	if err != nil {
		return err
	}
	if len(bought) > 0 {
		return fmt.Errorf("nodes were bought: %v", bought)
	}
	s.result("no pool declares the label", 0, bought, "never")
	return s.kubectl(ctx, "get", "pods,nodeclaims,nodes", "--namespace="+pods)
}

// fromZero shows that the pool that declares the label is scaled up.
func (s *story) fromZero(ctx context.Context) error {
	if err := s.clear(ctx); err != nil {
		return err
	}
	say("The pool declares what its machines have: one node is bought, of the right type")
	if err := s.kubectl(ctx, "patch", "nodepool", "amx", "--type=merge", "--patch-file="+s.file("declare.yaml")); err != nil {
		return err
	}
	took, err := s.place(ctx)
	if err != nil {
		return err
	}
	bought, err := s.bought(ctx)
	if err != nil {
		return err
	}
	s.result("from zero nodes", replicas, bought, took)
	if !maps.Equal(bought, map[string]int{with: 1}) {
		return fmt.Errorf("bought %v instead of one %s", bought, with)
	}
	return s.showNodes(ctx)
}

// wrong shows what a label costs that does not come true.
func (s *story) wrong(ctx context.Context) error {
	if err := s.clear(ctx); err != nil {
		return err
	}
	say("Another pool declares what its machines do not have: one node too many is bought")
	for _, args := range [][]string{
		{"patch", "nodepool", "general", "--type=merge", "--patch-file=" + s.file("wrong.yaml")},
		{"apply", "-f", s.file("deployment.yaml")},
	} {
		if err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	if err := s.unmet(ctx); err != nil {
		return err
	}
	tooMany, err := s.buysNothing(ctx)
	if err != nil {
		return err
	}
	if err := s.showNodes(ctx); err != nil {
		return err
	}
	say("The pool is corrected and its node deleted: the pods get the right node")
	if err := s.kubectl(ctx, "patch", "nodepool", "general", "--type=merge", "--patch-file="+s.file("corrected.yaml")); err != nil {
		return err
	}
	began := time.Now()
	if err := s.kubectl(ctx, "delete", "nodeclaims", "--selector=karpenter.sh/nodepool=general", "--wait=false"); err != nil {
		return err
	}
	if err := s.placed(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	if err := s.settled(ctx, without); err != nil {
		return err
	}
	bought, err := s.bought(ctx)
	if err != nil {
		return err
	}
	bought[without] += tooMany
	s.result("from a wrong declaration", replicas, bought, fmt.Sprintf("%.1f s after the correction", took.Seconds()))
	if !maps.Equal(bought, map[string]int{without: 1, with: 1}) {
		return fmt.Errorf("bought %v instead of one %s and one %s", bought, without, with)
	}
	return s.showNodes(ctx)
}

// unmet waits until the only node is not ready because of the label of its pool, and shows how a user sees that.
func (s *story) unmet(ctx context.Context) error {
	err := cluster.WaitFor(ctx, "a node is not ready because of its label", func(ctx context.Context) error {
		var events corev1.EventList
		if err := s.api.List(ctx, &events); err != nil {
			return err
		}
		for i := range events.Items {
			if events.Items[i].Reason == assayv1alpha1.ReasonLabelsUnmet {
				return nil
			}
		}
		return fmt.Errorf("none of %d events says so", len(events.Items))
	})
	if err != nil {
		return err
	}
	return s.kubectl(ctx, "get", "events", "--field-selector=reason="+assayv1alpha1.ReasonLabelsUnmet,
		"--output=custom-columns=OBJECT:.involvedObject.kind,REASON:.reason,MESSAGE:.message")
}

// observation is how long the test watches that Karpenter buys nothing. It buys a node every three seconds if the label is removed
// from each one.
const observation = 20 * time.Second

// buysNothing checks that Karpenter waits for the only node, of the wrong type, and returns the number of nodes.
func (s *story) buysNothing(ctx context.Context) (int, error) {
	deadline := time.Now().Add(observation)
	for time.Now().Before(deadline) {
		bought, err := s.bought(ctx)
		if err != nil {
			return 0, err
		}
		bound, _, err := s.bound(ctx)
		if err != nil {
			return 0, err
		}
		if !maps.Equal(bought, map[string]int{without: 1}) || len(bound) > 0 {
			return 0, fmt.Errorf("bought %v instead of one %s; bound: %v", bought, without, bound)
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(observation / 20):
		}
	}
	return 1, nil
}

// settled waits until there is no node of a type.
func (s *story) settled(ctx context.Context, kind string) error {
	return cluster.WaitFor(ctx, "no node of the type "+kind, func(ctx context.Context) error {
		bought, err := s.bought(ctx)
		if err == nil && bought[kind] > 0 {
			err = fmt.Errorf("there are %d", bought[kind])
		}
		return err
	})
}

// admissionAddsTheLabel waits until the webhook knows the request: a pod that was created earlier would not get the node affinity.
func (s *story) admissionAddsTheLabel(ctx context.Context) error {
	return cluster.WaitFor(ctx, "admission adds the label", func(ctx context.Context) error {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: pods, Name: "probe", Labels: map[string]string{"assay.dev/feature-request": "amx"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		if err := s.api.Create(ctx, p, client.DryRunAll); err != nil {
			return err
		}
		if p.Spec.Affinity == nil || !strings.Contains(p.Spec.Affinity.String(), label) {
			return errors.New("the pod does not have the affinity")
		}
		return nil
	})
}

// place creates the pods, waits until they are bound, and returns how long that took.
func (s *story) place(ctx context.Context) (string, error) {
	began := time.Now()
	if err := s.kubectl(ctx, "apply", "-f", s.file("deployment.yaml")); err != nil {
		return "", err
	}
	if err := s.placed(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%.1f s", time.Since(began).Seconds()), s.initialized(ctx)
}

// placed waits until the pods are bound, to machines with AMX.
func (s *story) placed(ctx context.Context) error {
	err := cluster.WaitFor(ctx, "all pods are bound", func(ctx context.Context) error {
		bound, why, err := s.bound(ctx)
		if err == nil && len(bound) < replicas {
			err = fmt.Errorf("%d of %d are; the others: %s", len(bound), replicas, why)
		}
		return err
	})
	if err != nil {
		return err
	}
	bound, _, err := s.bound(ctx)
	if err != nil {
		return err
	}
	for _, name := range bound {
		var node corev1.Node
		if err := s.api.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return err
		}
		if got := node.Labels[corev1.LabelInstanceTypeStable]; got != with {
			return fmt.Errorf("a pod that needs AMX is bound to node %s of the type %s", name, got)
		}
	}
	return nil
}

// bound returns the nodes of the pods that are bound, and why others are not.
func (s *story) bound(ctx context.Context) (nodes []string, why string, err error) {
	var list corev1.PodList
	if err := s.api.List(ctx, &list, client.InNamespace(pods)); err != nil {
		return nil, "", err
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.NodeName != "" {
			nodes = append(nodes, p.Spec.NodeName)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
				why = c.Message
			}
		}
	}
	return nodes, why, nil
}

// claims returns Karpenter's NodeClaims: one for each node that it has bought.
func (s *story) claims(ctx context.Context) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("karpenter.sh/v1")
	list.SetKind("NodeClaimList")
	err := s.api.List(ctx, list)
	return list.Items, err
}

// bought returns the number of nodes that Karpenter has bought, by type.
func (s *story) bought(ctx context.Context) (map[string]int, error) {
	claims, err := s.claims(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, c := range claims {
		out[c.GetLabels()[corev1.LabelInstanceTypeStable]]++
	}
	return out, nil
}

// initialized waits until Karpenter has finished all nodes that it has bought.
func (s *story) initialized(ctx context.Context) error {
	return cluster.WaitFor(ctx, "all nodes are initialized", func(ctx context.Context) error {
		claims, err := s.claims(ctx)
		for _, c := range claims {
			conditions, _, _ := unstructured.NestedSlice(c.Object, "status", "conditions")
			if !slices.ContainsFunc(conditions, func(c any) bool {
				m, _ := c.(map[string]any)
				return m["type"] == "Initialized" && m["status"] == "True"
			}) {
				err = errors.Join(err, fmt.Errorf("%s is not", c.GetName()))
			}
		}
		return err
	})
}

// clear deletes the pods and all nodes.
func (s *story) clear(ctx context.Context) error {
	for _, args := range [][]string{
		{"delete", "deployment", "--all", "--namespace=" + pods},
		{"delete", "nodeclaims", "--all"}, // Karpenter deletes their nodes
	} {
		if _, err := s.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return cluster.WaitFor(ctx, "no pods and no nodes", func(ctx context.Context) error {
		var (
			p corev1.PodList
			n corev1.NodeList
		)
		if err := errors.Join(s.api.List(ctx, &p, client.InNamespace(pods)), s.api.List(ctx, &n)); err != nil {
			return err
		}
		if left := meta.LenList(&p) + meta.LenList(&n); left > 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
}

// showNodes prints what was bought.
func (s *story) showNodes(ctx context.Context) error {
	return errors.Join(
		s.kubectl(ctx, "get", "nodeclaims"),
		s.kubectl(ctx, "get", "nodes", "--label-columns=node.kubernetes.io/instance-type,"+label),
		s.kubectl(ctx, "get", "pods", "--namespace="+pods, "--output=wide"),
	)
}

// result records a row of the summary. Times are printed and never compared.
func (s *story) result(scenario string, bound int, bought map[string]int, took string) {
	var nodes []string
	for _, kind := range slices.Sorted(maps.Keys(bought)) {
		nodes = append(nodes, fmt.Sprintf("%d %s", bought[kind], kind))
	}
	s.results = append(s.results, fmt.Sprintf("%-28s %-12s %-26s %s", scenario, fmt.Sprintf("%d of %d", bound, replicas),
		strings.Join(append(nodes, "none")[:max(1, len(nodes))], ", "), took))
}

func (s *story) summary() {
	fmt.Printf("\n%-28s %-12s %-26s %s\n%s\n", "SCENARIO", "PODS BOUND", "NODES BOUGHT", "FROM POD TO BOUND", strings.Join(s.results, "\n"))
}

// kubectl runs kubectl, and prints the command and its output with warnings.
func (s *story) kubectl(ctx context.Context, args ...string) error {
	fmt.Println("$ kubectl", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, s.Program(kube.Kubectl), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	return cmd.Run()
}

// file returns the path of a file of this package.
func (s *story) file(name string) string { return filepath.Join("test", "autoscaler", name) }

// say prints the title of a scenario.
func say(title string) { fmt.Printf("\n== %s\n", title) }

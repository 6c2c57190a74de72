//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

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
		{"delete", "pods", "--all", "--namespace=" + pods},
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

// observation is how long the test watches that Karpenter buys nothing more. It buys a node every three seconds if the label is removed
// from each one.
const observation = 20 * time.Second

// observe checks that Karpenter does not buy more than these nodes, and that no pod is bound.
func (s *story) observe(ctx context.Context, want map[string]int) error {
	for deadline := time.Now().Add(observation); time.Now().Before(deadline); {
		bought, err := s.bought(ctx)
		if err != nil {
			return err
		}
		bound, _, err := s.bound(ctx)
		if err != nil {
			return err
		}
		if !maps.Equal(bought, want) || len(bound) > 0 {
			return fmt.Errorf("bought %v instead of %v; bound: %v", bought, want, bound)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(observation / 20):
		}
	}
	return nil
}

// event waits for an Event.
func (s *story) event(ctx context.Context, what string, is func(*corev1.Event) bool) error {
	return cluster.WaitFor(ctx, what, func(ctx context.Context) error {
		var events corev1.EventList
		if err := s.api.List(ctx, &events); err != nil {
			return err
		}
		for i := range events.Items {
			if is(&events.Items[i]) {
				return nil
			}
		}
		return fmt.Errorf("none of %d Events is about it", len(events.Items))
	})
}

// settled waits until no Node has an instance type.
func (s *story) settled(ctx context.Context, kind string) error {
	return cluster.WaitFor(ctx, "no node of the type "+kind, func(ctx context.Context) error {
		bought, err := s.bought(ctx)
		if err == nil && bought[kind] > 0 {
			err = fmt.Errorf("there are %d", bought[kind])
		}
		return err
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

// showShapes prints NodeShapes once none has nodes.
func (s *story) showShapes(ctx context.Context) error {
	err := cluster.WaitFor(ctx, "shapes without nodes", func(ctx context.Context) error {
		var list assayv1alpha1.NodeShapeList
		if err := s.api.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if n := ptr.Deref(list.Items[i].Status.Nodes, 0); n > 0 {
				return fmt.Errorf("%s has %d", list.Items[i].Name, n)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.kubectl(ctx, "get", "nodeshapes", "--output=custom-columns=NAME:.metadata.name,NODES:.status.nodes,LABELS:.status.labels")
}

// kubectl runs kubectl, and prints the command and its output with warnings.
func (s *story) kubectl(ctx context.Context, args ...string) error {
	return stage.Show(stage.Command(ctx, s.Cluster, args...))
}

// run runs several commands of kubectl.
func (s *story) run(ctx context.Context, commands [][]string) error {
	for _, args := range commands {
		if err := s.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// warns runs kubectl until it prints a warning of the webhook, which reads NodeShapes from a cache.
func (s *story) warns(ctx context.Context, want string, args ...string) error {
	line := "kubectl " + strings.Join(args, " ")
	return cluster.WaitFor(ctx, "a warning", func(ctx context.Context) error {
		out, err := stage.Command(ctx, s.Cluster, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
		if !strings.Contains(string(out), want) {
			return fmt.Errorf("%s prints %q without %q", line, out, want)
		}
		fmt.Printf("$ %s\n%s", line, out)
		return nil
	})
}

// file returns the path of a file of this package.
func (s *story) file(name string) string { return filepath.Join("test", "autoscaler", name) }

// say prints the title of a scenario.
func say(title string) { fmt.Printf("\n== %s\n", title) }

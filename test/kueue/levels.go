//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// The nodes of rack r1 have room for 20 pods, and without one of them for 16; those of rack r2 have room for 12.
const (
	nodesOfR1, nodesOfR2 = 5, 3
	lost                 = "rack-r1-3" // the node that loses the label of its block
)

// levels places a job of 16 pods in one rack by the levels of a NodeBaseline. Then a node loses a label: the export refuses, and Kueue
// places no pods of the next job there.
func (s *story) levels(ctx context.Context) error {
	for rack, count := range map[string]int{"r1": nodesOfR1, "r2": nodesOfR2} {
		for i := range count {
			if err := s.rackNode(ctx, rack, fmt.Sprintf("rack-%s-%d", rack, i)); err != nil {
				return err
			}
		}
	}
	if _, err := s.Kubectl(ctx, "apply", "-f", s.file("fabric.yaml")); err != nil {
		return err
	}
	if err := stage.Show(stage.Command(ctx, s.Cluster, "wait", "nodebaseline/fabric", "--for=condition=Conforming", "--timeout=2m")); err != nil {
		return err
	}
	var topology string
	err := cluster.WaitFor(ctx, "the NodeShape of the nodes of the racks", func(ctx context.Context) error {
		out, problem, err := s.export(ctx)
		if err == nil && !strings.Contains(out, "instance-type: m9") {
			err = fmt.Errorf("no ResourceFlavor for them: %s", problem)
		}
		topology = out
		return err
	})
	if err != nil {
		return err
	}
	fmt.Printf("\n$ assay export --for kueue --baseline fabric\n%s\n", topology)
	if _, err := s.KubectlInput(ctx, topology, "apply", "-f", "-"); err != nil {
		return err
	}
	flavor, err := s.Kubectl(ctx, "get", "nodeshapes",
		`--output=jsonpath={.items[?(@.status.key.node\.kubernetes\.io/instance-type=="m9")].metadata.name}`)
	if err != nil {
		return err
	}
	if err := s.applyWith(ctx, "fabricqueue.yaml", "FLAVOR", flavor); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "wait", "clusterqueue/fabric", "--for=condition=Active", "--timeout=2m"); err != nil {
		return err
	}
	before, err := s.place(ctx, "first")
	if err != nil {
		return err
	}
	fmt.Printf("The 16 pods of the job are on %s.\n", strings.Join(before, ", "))
	for _, args := range [][]string{{"job", "first", "--wait=false"}, {"pods", "--selector=job-name=first", "--grace-period=0", "--force"}} {
		if _, err := s.Kubectl(ctx, append([]string{"delete", "--namespace=ml"}, args...)...); err != nil {
			return err
		}
	}

	if err := stage.Show(stage.Command(ctx, s.Cluster, "label", "node", lost, "example.com/block-")); err != nil {
		return err
	}
	out, problem, err := s.export(ctx)
	if err == nil || out != "" || !strings.Contains(problem, lost+" (example.com/block)") {
		return fmt.Errorf("the export did not refuse: %w, %q, %q", err, out, problem)
	}
	fmt.Printf("\n$ assay export --for kueue --baseline fabric\n%s", problem)
	if err := stage.Show(stage.Command(ctx, s.Cluster, "wait", "nodebaseline/fabric", "--for=condition=Conforming=False", "--timeout=2m")); err != nil {
		return err
	}
	if err := stage.Show(stage.Command(ctx, s.Cluster, "get", "nodebaseline", "fabric", `--output=jsonpath={.status.deviations[*].message}{"\n"}`)); err != nil {
		return err
	}
	after, err := s.place(ctx, "second")
	if err != nil {
		return err
	}
	fmt.Printf("The 16 pods of the job are on %s.\n", strings.Join(after, ", "))
	if slices.Contains(after, lost) || len(after) != nodesOfR1-1 {
		return fmt.Errorf("the second job is on %v, want all nodes of rack r1 except for %s", after, lost)
	}
	return nil
}

// rackNode creates a node of a rack, with a NodeFeature.
func (s *story) rackNode(ctx context.Context, rack, name string) error {
	object := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": %[1]q, "labels": {
	"node.kubernetes.io/instance-type": "m9", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": %[1]q,
	"example.com/block": "b1", "example.com/rack": %[2]q}}}
---
{"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "metadata": {"name": %[1]q, "namespace": "assay-system",
	"labels": {"nfd.node.kubernetes.io/node-name": %[1]q}},
	"spec": {"features": {"attributes": {"system.boot": {"elements": {"id": "boot"}}}}}}`, name, rack)
	if _, err := s.KubectlInput(ctx, object, "apply", "-f", "-"); err != nil {
		return err
	}
	_, err := s.Kubectl(ctx, "patch", "node", name, "--subresource=status", "--type=strategic", "--patch="+ready)
	return err
}

// place creates a job of 16 pods, and returns the nodes of its pods once all of them have one.
func (s *story) place(ctx context.Context, name string) (nodes []string, err error) {
	if err := s.applyWith(ctx, "rackjob.yaml", "NAME", name); err != nil {
		return nil, err
	}
	err = cluster.WaitFor(ctx, "the pods of the job "+name+" are bound", func(ctx context.Context) error {
		out, err := s.Kubectl(ctx, "get", "pods", "--namespace=ml", "--selector=job-name="+name, "--output=jsonpath={.items[*].spec.nodeName}")
		if nodes = strings.Fields(out); err == nil && len(nodes) != 16 {
			err = fmt.Errorf("%d of 16 pods are bound", len(nodes))
		}
		return err
	})
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	for _, node := range nodes {
		if !strings.HasPrefix(node, "rack-r1-") && err == nil {
			err = fmt.Errorf("the job %s is on %v, which are not in one rack", name, nodes)
		}
	}
	return nodes, err
}

// export runs assay export with the levels, and returns its output and its errors.
func (s *story) export(ctx context.Context) (out, problem string, err error) {
	var errors bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "assay"), "export", "--for=kueue", "--baseline=fabric", "--kubeconfig="+s.Kubeconfig)
	cmd.Stderr = &errors
	text, err := cmd.Output()
	return string(text), errors.String(), err
}

// applyWith applies a file in which a word is replaced.
func (s *story) applyWith(ctx context.Context, file, word, with string) error {
	text, err := os.ReadFile(s.file(file))
	if err != nil {
		return err
	}
	_, err = s.KubectlInput(ctx, strings.ReplaceAll(string(text), word, with), "apply", "-f", "-")
	return err
}

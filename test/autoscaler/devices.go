//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/test/cluster"
)

// draDriver is Karpenter's program that publishes devices of nodes of kwok.
const draDriver = "dra-kwok-driver"

// devices shows that rules read the devices that Karpenter's own publisher announces: neither Assay nor a library of Kubernetes writes these
// ResourceSlices.
func (s *story) devices(ctx context.Context) error {
	say("Karpenter's DRA driver publishes devices: a rule of the library labels the node")
	if _, err := s.Kubectl(ctx, "apply", "-f", filepath.Join(s.source[karpenterModule], "dra-kwok-driver", "pkg", "apis", "crds")); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "wait", "crd/draconfigs.test.karpenter.sh", "--for=condition=Established", "--timeout=2m"); err != nil {
		return err
	}
	if err := s.kubectl(ctx, "apply", "-f", s.file("devices.yaml"), "-f", "library/nvidia-dra.yaml", "-f", "library/dra-complete.yaml"); err != nil {
		return err
	}
	if err := s.Run(ctx, cluster.Program{Name: draDriver, Path: filepath.Join(s.bin, draDriver), Env: []string{"KUBECONFIG=" + s.Kubeconfig}}); err != nil {
		return err
	}
	const complete = "feature.node.kubernetes.io/dra-complete.gpu.nvidia.com"
	if err := s.nodesHave(ctx, map[string]string{"nvidia.com/gpu.count": "3", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", complete: "true"}); err != nil {
		return err
	}
	if err := s.run(ctx, [][]string{
		{"get", "resourceslices"},
		{"get", "nodes", "--label-columns=node.kubernetes.io/instance-type,nvidia.com/gpu.count,nvidia.com/gpu.product"},
	}); err != nil {
		return err
	}
	say("Its configuration is deleted, and with it the ResourceSlices: the labels stay, and one says that they may be old")
	if err := s.kubectl(ctx, "delete", "draconfigs", "--all"); err != nil {
		return err
	}
	return s.nodesHave(ctx, map[string]string{"nvidia.com/gpu.count": "3", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", complete: "false"})
}

// nodesHave waits until the nodes of the type with devices have labels, and those of the other type have none of them.
func (s *story) nodesHave(ctx context.Context, labels map[string]string) error {
	return cluster.WaitFor(ctx, "labels of devices", func(ctx context.Context) error {
		var nodes corev1.NodeList
		if err := s.api.List(ctx, &nodes, client.HasLabels{corev1.LabelInstanceTypeStable}); err != nil {
			return err
		}
		found := 0
		for i := range nodes.Items {
			n := &nodes.Items[i]
			devices := n.Labels[corev1.LabelInstanceTypeStable] == with
			for name, value := range labels {
				if !devices {
					value = ""
				}
				if got := n.Labels[name]; got != value {
					return fmt.Errorf("label %s of node %s is %q, want %q", name, n.Name, got, value)
				}
			}
			if devices {
				found++
			}
		}
		if found == 0 {
			return fmt.Errorf("none of %d nodes is of the type %s", len(nodes.Items), with)
		}
		return nil
	})
}

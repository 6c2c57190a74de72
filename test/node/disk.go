//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

// fullDisk fills the file system for pods and their logs. Running programs write nothing there: labels still change, and rules are
// reviewed. Then the kubelet evicts pods, as it does by default, and the labels stay until the pods are back.
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
		if _, err := s.configureKubelet(map[string]any{"evictionHard": map[string]string{"memory.available": strconv.Itoa(evictMemory>>20) + "Mi", "nodefs.available": "10%"}}); err != nil {
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

// evicted waits until the kubelet has evicted a pod because of disk pressure.
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

// fill writes a file until the disk is full.
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

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

// The directories of NUMA nodes in sysfs.
const (
	nodesOfSystem = "/sys/devices/system/node"
	nodesOfBus    = "/sys/bus/node/devices"
)

const (
	// nodeMemory is the memory of each NUMA node of the test.
	nodeMemory = 4 << 30
	// evictMemory is the kubelet's eviction threshold, which its memory manager reserves.
	evictMemory = 50 << 20
)

// managed reports whether containers can have CPUs of their own here: with one CPU, none is left that is not reserved.
func managed() bool { return runtime.NumCPU() > 1 }

// kubeletManagers are the settings with which a pod gets its CPUs, memory and devices from one NUMA node. The kubelet reserves CPU 0.
func kubeletManagers() map[string]any {
	return map[string]any{
		// The kubelet requests a certificate of the cluster's authority for its endpoint.
		"serverTLSBootstrap": true,
		"cpuManagerPolicy":   "static", "memoryManagerPolicy": "Static", "topologyManagerPolicy": "single-numa-node",
		"reservedMemory": []map[string]any{{"numaNode": 0, "limits": map[string]string{"memory": strconv.Itoa(evictMemory>>20) + "Mi"}}},
	}
}

// numaNodes gives the node two NUMA nodes, and the kubelet the managers that assign them. The kernel does not know the second one: a
// container that gets its memory there does not start, but the kubelet lists what it holds.
func numaNodes(ctx context.Context, s *story) error {
	if !managed() {
		s.note("not with one CPU")
		return nil
	}
	if err := s.mountNodes(); err != nil {
		return fmt.Errorf("two NUMA nodes: %w", err)
	}
	if err := s.newKubelet(ctx, kubeletManagers()); err != nil {
		return err
	}
	s.note("%s shows two NUMA nodes: half of the CPUs and %d GiB each; the kubelet's managers are static, with single-numa-node", nodesOfSystem, nodeMemory>>30)
	return s.approveKubelet(ctx)
}

// approveKubelet approves the kubelet's request for the certificate of its endpoint, as an administrator does, and waits until the API server
// reaches it: the kubelet serves no request before.
func (s *story) approveKubelet(ctx context.Context) error {
	return cluster.WaitFor(ctx, "the certificate of the kubelet's endpoint", func(ctx context.Context) error {
		requests, err := s.Kubectl(ctx, "get", "certificatesigningrequests", "--field-selector=spec.signerName=kubernetes.io/kubelet-serving", "-o", "name")
		if err != nil {
			return err
		}
		if names := strings.Fields(requests); len(names) > 0 {
			if _, err := s.Kubectl(ctx, append([]string{"certificate", "approve"}, names...)...); err != nil {
				return err
			}
		}
		_, err = s.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+nodeName+"/proxy/healthz")
		return err
	})
}

// ownNodes is the reverse of numaNodes.
func ownNodes(ctx context.Context, s *story) error {
	if !managed() {
		return nil
	}
	for _, dir := range []string{nodesOfSystem, nodesOfBus} {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return s.newKubelet(ctx, nil)
}

// newKubelet restarts the kubelet with other settings. Its managers do not start with the state of other policies.
func (s *story) newKubelet(ctx context.Context, settings map[string]any) error {
	if _, err := s.configureKubelet(settings); err != nil {
		return err
	}
	if err := s.Kill(kube.Kubelet); err != nil {
		return err
	}
	for _, state := range []string{"cpu_manager_state", "memory_manager_state"} {
		if err := os.Remove(s.path(filepath.Join(diskDir, "kubelet", state))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return s.restartKubelet(ctx)
}

// restartKubelet restarts the kubelet, and waits until it has answered for pods again.
func (s *story) restartKubelet(ctx context.Context) error {
	if err := s.Restart(ctx, kube.Kubelet); err != nil {
		return err
	}
	return cluster.WaitFor(ctx, "the kubelet's socket", func(context.Context) error {
		_, err := os.Stat(s.path(diskDir + "/kubelet/pod-resources/kubelet.sock"))
		return err
	})
}

// halves returns the numbers of CPUs of the two NUMA nodes.
func halves() (first, second int, err error) {
	all, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology")
	if err != nil || len(all) < 2 {
		return 0, 0, fmt.Errorf("%d CPUs are online: %w", len(all), err)
	}
	return len(all) / 2, len(all) - len(all)/2, nil
}

// mountNodes mounts two NUMA nodes over those of the machine.
func (s *story) mountNodes() error {
	first, second, err := halves()
	if err != nil {
		return err
	}
	for _, dir := range []string{nodesOfSystem, nodesOfBus} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue // a kernel without NUMA has no bus of nodes
		}
		if err := unix.Mount("nodes", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return err
		}
	}
	files := map[string]string{}
	for _, name := range []string{"online", "possible", "has_cpu", "has_memory", "has_normal_memory"} {
		files[name] = "0-1"
	}
	from := 0
	for node, count := range []int{first, second} {
		dir := "node" + strconv.Itoa(node)
		files[dir+"/cpulist"] = fmt.Sprintf("%d-%d", from, from+count-1)
		files[dir+"/distance"] = []string{"10 21", "21 10"}[node]
		files[dir+"/meminfo"] = fmt.Sprintf("Node %d MemTotal:  %d kB\nNode %d MemFree:  %d kB", node, nodeMemory>>10, node, nodeMemory>>10)
		if err := os.MkdirAll(filepath.Join(nodesOfSystem, dir, "hugepages"), 0o755); err != nil {
			return err
		}
		for cpu := from; cpu < from+count; cpu++ {
			name := "cpu" + strconv.Itoa(cpu)
			if err := os.Symlink("/sys/devices/system/cpu/"+name, filepath.Join(nodesOfSystem, dir, name)); err != nil {
				return err
			}
		}
		if err := os.Symlink(filepath.Join(nodesOfSystem, dir), filepath.Join(nodesOfBus, dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		from += count
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(nodesOfSystem, name), []byte(text+"\n"), 0o644); err != nil { //nolint:gosec // as in sysfs
			return err
		}
	}
	return nil
}

// lineOf returns the first line that contains a part.
func lineOf(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

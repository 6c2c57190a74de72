//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/test/cluster"
)

// exclusivePod holds a CPU exclusively, with the kubelet's static policy.
const exclusivePod = `
apiVersion: v1
kind: Pod
metadata: {name: exclusive, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: ` + pauseImage + `
    imagePullPolicy: Never
    resources: {requests: {cpu: "1", memory: 16Mi}, limits: {cpu: "1", memory: 16Mi}}
`

// topology publishes the NodeResourceTopology of the node, from the socket of the real kubelet, while a pod gets a CPU and ends.
func topology(ctx context.Context, s *story) error {
	args := append([]string{"helm", "upgrade", release, chart, "--hide-notes"}, s.values(
		"topology.enabled=true", "topology.kubelet.configPath="+s.path("kubelet.yaml"), "topology.kubelet.podResourcesDir="+s.path(diskDir+"/kubelet/pod-resources"),
	)...)
	if _, err := s.show(ctx, args...); err != nil {
		return err
	}
	online, err := os.ReadFile("/sys/devices/system/node/node0/cpulist")
	if err != nil {
		online, err = os.ReadFile("/sys/devices/system/cpu/online") // a kernel without NUMA
	}
	if err != nil {
		return err
	}
	free, err := s.availableCPUs(ctx, func(int64) bool { return true })
	if err != nil {
		return err
	}
	var t v1alpha2.NodeResourceTopology
	if err := s.topologyObject(ctx, &t); err != nil {
		return err
	}
	node, err := s.node(ctx)
	if err != nil {
		return err
	}
	if owners := t.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Node" || owners[0].UID != node.UID {
		return fmt.Errorf("owners %v, want the Node", owners)
	}
	attributes := map[string]string{}
	for _, a := range t.Attributes {
		attributes[a.Name] = a.Value
	}
	want := map[string]string{"topologyManagerPolicy": "none", "topologyManagerScope": "container", "nodeTopologyPodsFingerprintMethod": "all"}
	for name, value := range want {
		if attributes[name] != value {
			return fmt.Errorf("attribute %s is %q, want %q; all: %v", name, attributes[name], value, maps.All(attributes))
		}
	}
	cpus := t.Zones[0].Resources[0]
	s.note("CPUs of node 0: %s; published: capacity %s, allocatable %s, available %s", strings.TrimSpace(string(online)), cpus.Capacity.String(),
		cpus.Allocatable.String(), cpus.Available.String())
	if _, err := s.show(ctx, "kubectl", "get", "noderesourcetopologies"); err != nil {
		return err
	}
	if free > 0 { // the kubelet has CPUs that are not reserved
		if err := s.exclusiveCPU(ctx, free); err != nil {
			return err
		}
	}
	return s.onlyItsTopology(ctx)
}

// exclusiveCPU runs a pod that holds a CPU, and deletes it.
func (s *story) exclusiveCPU(ctx context.Context, free int64) error {
	began := time.Now()
	if _, err := s.showInput(ctx, exclusivePod, "kubectl", "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := s.availableCPUs(ctx, func(n int64) bool { return n == free-1 }); err != nil {
		return err
	}
	s.figure("a pod's exclusive CPU is taken from its zone %.1f s after kubectl apply began", time.Since(began).Seconds())
	if _, err := s.show(ctx, "kubectl", "delete", "pod", "exclusive", "-n", "default", "--wait=false"); err != nil {
		return err
	}
	_, err := s.availableCPUs(ctx, func(n int64) bool { return n == free })
	return err
}

// topologyObject reads the NodeResourceTopology of the node.
func (s *story) topologyObject(ctx context.Context, into *v1alpha2.NodeResourceTopology) error {
	out, err := s.Kubectl(ctx, "get", "noderesourcetopologies", nodeName, "-o", "json")
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// availableCPUs waits until a number of available CPUs in all zones together is published, and returns it.
func (s *story) availableCPUs(ctx context.Context, wanted func(int64) bool) (available int64, err error) {
	return available, cluster.WaitFor(ctx, "available CPUs in the NodeResourceTopology", func(ctx context.Context) error {
		var t v1alpha2.NodeResourceTopology
		if err := s.topologyObject(ctx, &t); err != nil {
			return err
		}
		available = 0
		for _, z := range t.Zones {
			for _, r := range z.Resources {
				if r.Name == "cpu" {
					available += r.Available.Value()
				}
			}
		}
		if len(t.Zones) == 0 || !wanted(available) {
			return errors.New(strconv.FormatInt(available, 10) + " CPUs are available")
		}
		return nil
	})
}

// onlyItsTopology writes with the token of the node's pod: that of another node, and its own without its owner.
func (s *story) onlyItsTopology(ctx context.Context) error {
	pod, err := s.Kubectl(ctx, "get", "pod", "-n", namespace, "-l", "app.kubernetes.io/component=topology", "-o", "jsonpath={.items[0].metadata.name}")
	if err != nil {
		return err
	}
	token, err := s.Kubectl(ctx, "create", "token", "-n", namespace, release+"-topology", "--bound-object-kind=Pod", "--bound-object-name="+pod)
	if err != nil {
		return err
	}
	as := []string{"--server=" + s.RESTConfig().Host, "--certificate-authority=" + s.path("cluster/pki/ca.crt"), "--token=" + strings.TrimSpace(token), "--kubeconfig=/dev/null"}
	object := `{"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "node-2"}, "zones": []}`
	_, foreign := s.KubectlInput(ctx, object, append(as, "create", "-f", "-")...)
	_, unowned := s.Kubectl(ctx, append(as, "patch", "noderesourcetopologies", nodeName, "--type=merge", "-p", `{"metadata":{"ownerReferences":null}}`)...)
	for _, tried := range []struct {
		err  error
		want string
	}{{foreign, "a node publishes only its own NodeResourceTopology"}, {unowned, "must be the only owner"}} {
		if tried.err == nil || !strings.Contains(tried.err.Error(), tried.want) {
			return fmt.Errorf("with the token of this node: %w; want %q", tried.err, tried.want)
		}
	}
	for _, forbidden := range []string{"nodes", "pods", "secrets"} {
		if _, err := s.Kubectl(ctx, append(as, "get", forbidden, "-n", namespace)...); err == nil {
			return fmt.Errorf("the publisher of topologies may read %s", forbidden)
		}
	}
	s.note("with the token of this node, another node's object is rejected, and so is its own without the Node as its owner")
	return nil
}

// noTopology checks that uninstalling has deleted what was published.
func (s *story) noTopology(ctx context.Context) error {
	out, err := s.Kubectl(ctx, "get", "noderesourcetopologies", "-o", "name")
	if err == nil && out != "" {
		err = fmt.Errorf("left behind: %s", out)
	}
	return err
}

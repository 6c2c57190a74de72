//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/test/cluster"
)

// exclusivePod holds a CPU, memory and two devices exclusively, which only the second NUMA node has.
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
    resources:
      limits: {cpu: "1", memory: 64Mi, ` + nic + `: "2"}
`

// exclusiveJob holds memory of the first NUMA node, and ends.
const exclusiveJob = `
apiVersion: batch/v1
kind: Job
metadata: {name: finished, namespace: default}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: ghcr.io/assay-project/assay-cli:` + version + `
        args: [version]
        imagePullPolicy: Never
        resources:
          limits: {cpu: 100m, memory: 32Mi}
`

// updaters are objects of Node Feature Discovery's topology updater: that of this node, and one of a node that is gone. Its Namespace owns
// them.
const updaters = `
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata:
  name: NAME
  ownerReferences: [{apiVersion: v1, kind: Namespace, name: default, uid: UID}]
topologyPolicies: [None]
attributes: [{name: topologyManagerPolicy, value: none}]
zones:
- {name: node-3, type: Node, resources: [{name: cpu, capacity: "64", allocatable: "64", available: "64"}]}
`

// nic is the resource of the test's device plug-in.
const nic = "example.com/nic"

// topologyUser is the name of the publisher of topologies. The API server's audit log has its requests, and no others.
const topologyUser = "system:serviceaccount:" + namespace + ":" + release + "-topology"

// auditPolicy makes the API server log these requests.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["` + topologyUser + `"]}
- {level: None}
`

// publishTopology takes the NodeResourceTopology of the node over from Node Feature Discovery's updater, whose definition stays.
func publishTopology(ctx context.Context, s *story) error {
	if _, err := s.Kubectl(ctx, "create", "-f", s.root+"/"+chart+"/files/topology/topology.node.k8s.io_noderesourcetopologies.yaml"); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "noderesourcetopologies.topology.node.k8s.io"); err != nil {
		return err
	}
	uid, err := s.Kubectl(ctx, "get", "namespace", "default", "-o", "jsonpath={.metadata.uid}")
	if err != nil {
		return err
	}
	for _, name := range []string{nodeName, "node-9"} {
		if _, err := s.KubectlInput(ctx, strings.NewReplacer("NAME", name, "UID", uid).Replace(updaters), "create", "-f", "-"); err != nil {
			return err
		}
	}
	s.note("Node Feature Discovery's updater has published the objects %s and node-9", nodeName)
	args := append([]string{"helm", "upgrade", release, chart, "--hide-notes"}, s.values(
		"topology.enabled=true", "topology.kubelet.configPath="+s.path("kubelet.yaml"), "topology.kubelet.podResourcesDir="+s.path(diskDir+"/kubelet/pod-resources"),
	)...)
	if _, err := s.show(ctx, args...); err != nil {
		return err
	}
	if err := s.publishes(ctx, s.zones("", 0)...); err != nil {
		return err
	}
	t, err := s.topologyObject(ctx)
	if err != nil {
		return err
	}
	node, err := s.node(ctx)
	if err != nil {
		return err
	}
	if owners := t.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Node" || owners[0].UID != node.UID {
		return fmt.Errorf("owners %v, want the Node", owners)
	}
	want := map[string]string{"topologyManagerPolicy": "none", "topologyManagerScope": "container", "nodeTopologyPodsFingerprintMethod": "all"}
	if managed() {
		want["topologyManagerPolicy"], want["nodeTopologyPodsFingerprintMethod"] = "single-numa-node", "with-exclusive-resources"
		if costs := fmt.Sprint(t.Zones[0].Costs, t.Zones[1].Costs); costs != "[{node-0 10} {node-1 21}] [{node-0 21} {node-1 10}]" {
			return fmt.Errorf("costs %s", costs)
		}
	}
	for _, a := range t.Attributes {
		if value, ok := want[a.Name]; ok && value != a.Value {
			return fmt.Errorf("attribute %s is %q, want %q", a.Name, a.Value, value)
		}
		delete(want, a.Name)
	}
	if len(want) > 0 {
		return fmt.Errorf("missing attributes: %v", want)
	}
	s.note("its owner is the Node, and nothing of the updater is left in it")
	for _, args := range [][]string{{"kubectl", "get", "noderesourcetopologies"}, {"assay", "topology", nodeName}} {
		if _, err := s.show(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// useConfigz reads the kubelet's settings from its endpoint, and checks what the program may still do.
func useConfigz(ctx context.Context, s *story) error {
	if !managed() {
		s.note("not with one CPU")
		return nil
	}
	args := append([]string{"helm", "upgrade", release, chart, "--hide-notes"}, s.values(
		"topology.enabled=true", "topology.kubelet.configz.enabled=true", "topology.kubelet.podResourcesDir="+s.path(diskDir+"/kubelet/pod-resources"),
		"topology.kubelet.stateDir="+s.path(diskDir+"/kubelet"),
	)...)
	if _, err := s.show(ctx, args...); err != nil { // waits until the new pod is ready: it has read the endpoint
		return err
	}
	if err := s.publishes(ctx, s.zones("", 0)...); err != nil {
		return err
	}
	volumes, err := s.Kubectl(ctx, "get", "daemonset", release+"-topology", "-n", namespace, "-o", "jsonpath={.spec.template.spec.volumes[*].name}")
	if err != nil {
		return err
	}
	if strings.Contains(volumes, "kubelet-config") {
		return fmt.Errorf("volumes %s: the kubelet's file is mounted although it is not read", volumes)
	}
	for subresource, want := range map[string]string{"configz": "yes", "proxy": "no", "log": "no"} {
		answer, _ := s.Kubectl(ctx, "auth", "can-i", "get", "nodes", "--subresource="+subresource, "--as="+topologyUser) // exits with 1 for no
		if strings.TrimSpace(answer) != want {
			return fmt.Errorf("may get nodes/%s: %q, want %s", subresource, answer, want)
		}
	}
	var pid int
	err = cluster.WaitFor(ctx, "the end of the replaced pod", func(context.Context) (err error) {
		pid, err = process("assay-worker topology")
		return err
	})
	if err != nil {
		return err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	for _, want := range []string{"CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(string(status), want) {
			return fmt.Errorf("the program does not run with %q:\n%s", want, status)
		}
	}
	size, err := memoryOf(pid)
	if err != nil {
		return err
	}
	s.figure("assay-worker topology: %s MB now, %s MB at most", megabytes(size.now), megabytes(size.most))
	s.note("the program runs without any capability, new privileges or system calls that the runtime forbids, and may read nodes/configz alone of the kubelet")
	return nil
}

// zones returns the expected resources, as capacity, allocatable and available amount: with devices, and with what a pod holds of the
// second NUMA node.
func (s *story) zones(devices string, exclusive int64) []string {
	if !managed() {
		return nil
	}
	first, second, err := halves()
	if err != nil {
		return []string{err.Error()}
	}
	lines := []string{
		fmt.Sprintf("node-0 cpu %d %d %d", first, first-1, first-1), // one is reserved
		fmt.Sprintf("node-0 memory %d %d %d", nodeMemory, nodeMemory-evictMemory, nodeMemory-evictMemory),
		fmt.Sprintf("node-1 cpu %d %d %d", second, second, int64(second)-exclusive),
		fmt.Sprintf("node-1 memory %d %d %d", nodeMemory, nodeMemory, nodeMemory-exclusive*(64<<20)),
	}
	if devices != "" {
		lines = append(lines,
			fmt.Sprintf("node-0 %s 1 1 %d", devices, 1-exclusive), // the one that is near to both
			fmt.Sprintf("node-1 %s 2 2 %d", devices, 2-2*exclusive),
		)
	}
	slices.Sort(lines)
	return lines
}

// publishes waits until the zones have exactly these resources; none: until there are any.
func (s *story) publishes(ctx context.Context, want ...string) error {
	return cluster.WaitFor(ctx, "the NodeResourceTopology", func(ctx context.Context) error {
		t, err := s.topologyObject(ctx)
		if err != nil {
			return err
		}
		var got []string
		for _, z := range t.Zones {
			for _, r := range z.Resources {
				if !strings.HasPrefix(r.Name, "hugepages-") { // those of the machine
					got = append(got, fmt.Sprintf("%s %s %s %s %s", z.Name, r.Name, r.Capacity.AsDec(), r.Allocatable.AsDec(), r.Available.AsDec()))
				}
			}
		}
		if len(got) == 0 || len(want) > 0 && !slices.Equal(got, want) {
			return fmt.Errorf("it has\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
		return nil
	})
}

// holdResources starts a device plug-in after everything else, and a pod that holds resources while the kubelet restarts.
func holdResources(ctx context.Context, s *story) error {
	if !managed() {
		s.note("not with one CPU")
		return nil
	}
	err := s.Run(ctx, cluster.Program{Name: "deviceplugin", Path: s.path(binDir + "/deviceplugin"), Args: []string{"-resource=" + nic, "near=1", "both=0,1"}})
	if err != nil {
		return err
	}
	if err := s.publishes(ctx, s.zones(nic, 0)...); err != nil {
		return fmt.Errorf("with a device plug-in that started late: %w", err)
	}
	s.note("the devices of a plug-in that started after the publisher are in its zones")
	before, err := s.topologyEvents(ctx, "state")
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := s.showInput(ctx, exclusivePod, "kubectl", "apply", "-f", "-"); err != nil {
		return err
	}
	if err := s.publishes(ctx, s.zones(nic, 1)...); err != nil {
		return fmt.Errorf("with a pod: %w", err)
	}
	s.figure("a pod's exclusive CPU is taken from its zone %.1f s after kubectl apply began", time.Since(began).Seconds())
	err = cluster.WaitFor(ctx, "an event of the kubelet's state directory", func(ctx context.Context) error {
		now, err := s.topologyEvents(ctx, "state")
		if err == nil && now <= before {
			err = fmt.Errorf("%d events", now)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.note("the publisher was notified when the kubelet wrote the state of its CPU manager")
	if _, err := s.show(ctx, "assay", "topology"); err != nil {
		return err
	}
	if err := s.restartKubelet(ctx); err != nil {
		return err
	}
	if err := s.registered(ctx, 2); err != nil {
		return err
	}
	if err := s.publishes(ctx, s.zones(nic, 1)...); err != nil {
		return fmt.Errorf("after the kubelet has restarted: %w", err)
	}
	s.note("the kubelet has restarted, and the zones are the same")
	if _, err := s.show(ctx, "kubectl", "delete", "pod", "exclusive", "-n", "default", "--wait=false"); err != nil {
		return err
	}
	if err := s.publishes(ctx, s.zones(nic, 0)...); err != nil {
		return fmt.Errorf("without the pod: %w", err)
	}
	return nil
}

// topologyEvents returns how many events of a source the publisher of topologies has received.
func (s *story) topologyEvents(ctx context.Context, source string) (n int, err error) {
	err = cluster.WaitFor(ctx, "the metrics of the publisher", func(ctx context.Context) error {
		pod, err := s.Kubectl(ctx, "get", "pod", "-n", namespace, "-l", "app.kubernetes.io/component=topology", "-o", "jsonpath={.items[0].metadata.name}")
		if err != nil {
			return err
		}
		text, err := s.Kubectl(ctx, "get", "--raw", "/api/v1/namespaces/"+namespace+"/pods/"+pod+":8085/proxy/metrics")
		if err != nil {
			return err
		}
		line := lineOf(text, `assay_topology_events_total{source="`+source+`"}`)
		_, err = fmt.Sscanf(line, `assay_topology_events_total{source="`+source+`"} %d`, &n)
		if err != nil {
			return fmt.Errorf("metric %q: %w", line, err)
		}
		return nil
	})
	return n, err
}

// registered waits until the device plug-in has registered that often.
func (s *story) registered(ctx context.Context, times int) error {
	return cluster.WaitFor(ctx, "the device plug-in registers again", func(context.Context) error {
		log, err := os.ReadFile(s.LogDir() + "/deviceplugin.log")
		if err == nil && strings.Count(string(log), "registered") < times {
			err = fmt.Errorf("log: %s", log)
		}
		return err
	})
}

// finishJob runs a Job to its end. The kubelet does not list its pod any more, and a scheduler with informerMode Dedicated counts it.
func finishJob(ctx context.Context, s *story) error {
	if !managed() {
		s.note("not with one CPU")
		return nil
	}
	if _, err := s.showInput(ctx, exclusiveJob, "kubectl", "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "wait", "job/finished", "-n", "default", "--for=condition=Complete", "--timeout="+helmTimeout); err != nil {
		return err
	}
	if err := s.publishes(ctx, s.zones(nic, 0)...); err != nil {
		return err
	}
	err := cluster.WaitFor(ctx, "the fingerprint without the Job's pod", func(ctx context.Context) error {
		out, err := s.command(ctx, "", "assay", "topology", "fingerprint", nodeName)
		if err != nil {
			return err
		}
		for part, want := range map[string]string{"Dedicated": "differs", "Shared": "same", "default/finished-": "is Succeeded"} {
			if line := lineOf(out, part); !strings.Contains(line, want) {
				return fmt.Errorf("%s: %q, want %q in\n%s", part, line, want, out)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := s.show(ctx, "assay", "topology", "fingerprint", nodeName); err != nil {
		return err
	}
	_, err = s.show(ctx, "kubectl", "delete", "job", "finished", "-n", "default")
	return err
}

// idle counts the requests of the publisher while nothing changes. Its watch began when it started, and lasts half an hour at least.
func idle(ctx context.Context, s *story) error {
	const duration = time.Minute
	if err := s.publishes(ctx); err != nil {
		return err
	}
	before, err := os.ReadFile(s.path(auditLog))
	if err != nil {
		return err
	}
	if !strings.Contains(string(before), topologyUser) {
		return fmt.Errorf("the audit log has no request of %s", topologyUser)
	}
	select {
	case <-time.After(duration):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := os.ReadFile(s.path(auditLog))
	if err != nil {
		return err
	}
	if more := after[len(before):]; len(more) > 0 {
		return fmt.Errorf("requests within %s: %s", duration, more)
	}
	s.note("not one request to the API server within %s, after %d before", duration, strings.Count(string(before), "\n"))
	return nil
}

// auditLog is the file of the API server's audit log.
const auditLog = "audit.log"

// topologyObject reads the NodeResourceTopology of the node.
func (s *story) topologyObject(ctx context.Context) (*v1alpha2.NodeResourceTopology, error) {
	out, err := s.Kubectl(ctx, "get", "noderesourcetopologies", nodeName, "-o", "json")
	if err != nil {
		return nil, err
	}
	var t v1alpha2.NodeResourceTopology
	return &t, json.Unmarshal([]byte(out), &t)
}

// onlyItsTopology writes with the token of the node's pod: that of another node, and its own without its owner.
func onlyItsTopology(ctx context.Context, s *story) error {
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

// noTopology checks that uninstalling has deleted what was published, and nothing else.
func (s *story) noTopology(ctx context.Context) error {
	out, err := s.Kubectl(ctx, "get", "noderesourcetopologies", "-o", "name")
	if err != nil {
		return err
	}
	if strings.TrimSpace(out) != "noderesourcetopology.topology.node.k8s.io/node-9" {
		return fmt.Errorf("left are %q, want the updater's object of node-9", out)
	}
	s.note("the NodeResourceTopology of the node is gone; that of another publisher and the definition, which was there before, are left")
	return nil
}

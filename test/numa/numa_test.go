//go:build linux

package numa

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/podres"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/discovery/topology"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

// schedulerVar is the environment variable with the path of hack/numascheduler, which make test-numa-scheduler builds.
const schedulerVar = "ASSAY_NUMASCHEDULER"

const (
	nodeName      = "numa-1"
	schedulerName = "numa"
)

// config makes the plug-in cache what it has placed: it then uses new numbers of a node only if their fingerprint is that of the pods that
// it knows.
const config = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: KUBECONFIG}
profiles:
- schedulerName: ` + schedulerName + `
  plugins:
    multiPoint: {enabled: [{name: NodeResourceTopologyMatch}]}
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourceTopologyMatchArgs
      cacheResyncPeriodSeconds: 1
      cache: {foreignPodsDetect: None}
      scoringStrategy: {type: LeastAllocated}
`

// machine has two NUMA nodes with four CPUs each.
const machine = `
-- sys/devices/system/node/ --
online: 0-1
-- sys/devices/system/node/node0/ --
cpulist: 0-3
distance: 10 21
-- sys/devices/system/node/node0/meminfo --
Node 0 MemTotal: 8388608 kB
-- sys/devices/system/node/node1/ --
cpulist: 4-7
distance: 21 10
-- sys/devices/system/node/node1/meminfo --
Node 1 MemTotal: 8388608 kB
-- sys/devices/cpu/type --
4
`

// kubelet is the configuration of the node's kubelet.
const kubelet = "{cpuManagerPolicy: static, memoryManagerPolicy: Static, topologyManagerPolicy: single-numa-node, topologyManagerScope: container}"

// TestTheSchedulerPluginReadsTheZones: the plug-in places a pod that fits one NUMA node, leaves one pending that fits none although the
// node has enough in total, and takes new numbers over by their fingerprint.
func TestTheSchedulerPluginReadsTheZones(t *testing.T) {
	scheduler := os.Getenv(schedulerVar)
	if scheduler == "" {
		t.Skip("needs the scheduler plug-in ($" + schedulerVar + "): run `make test-numa-scheduler`")
	}
	c := testkit.Cluster(t)
	w := &world{Cluster: c, client: testkit.Client(t, c.User)}
	w.define(t)
	w.addNode(t)
	w.namespace = testkit.Namespace(t, w.client)
	w.connect(t)

	// A pod of another scheduler holds three CPUs of the first NUMA node and one of the second.
	w.createOn(t, nodeName, "other", 4)
	w.start(t, "other")
	w.publish(t, holds("other", 0, 1, 2, 4))
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(config, "KUBECONFIG", c.Kubeconfig)), 0o600); err != nil {
		t.Fatal(err)
	}
	err := c.Run(t.Context(), cluster.Program{
		Name: "numascheduler", Path: scheduler,
		// Pods that do not fit are tried again after a change of the node, and in any case after this time.
		Args: []string{"--config=" + file, "--secure-port=0", "--pod-max-in-unschedulable-pods-duration=5s", "--v=4"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Terminate(context.WithoutCancel(t.Context()), "numascheduler"); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(c.Log("numascheduler"))
		}
	})
	w.create(t, "four", 4)
	w.pending(t, "four", "cannot align container")
	w.create(t, "three", 3)
	w.bound(t, "three")
	w.start(t, "three")

	// The scheduler has taken the three CPUs from both NUMA nodes, since it does not know which one the kubelet chose.
	w.create(t, "one", 1)
	w.pending(t, "one", "cannot align container")
	w.publish(t, holds("other", 0, 1, 2, 4), holds("three", 5, 6, 7))
	w.bound(t, "one")
	w.start(t, "one")

	w.remove(t, "other")
	w.publish(t, holds("one", 3), holds("three", 5, 6, 7))
	w.pending(t, "four", "cannot align container")
	w.remove(t, "three")
	w.publish(t, holds("one", 3))
	w.bound(t, "four")
}

// world is a node and what it holds.
type world struct {
	*cluster.Cluster
	client    ctrlclient.Client
	namespace string
	publisher *publish.TopologyPublisher
	node      *corev1.Node
}

// define installs the definition.
func (w *world) define(t *testing.T) {
	t.Helper()
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(charts.TopologyCRD(), &definition.Object); err != nil {
		t.Fatal(err)
	}
	testkit.Create(t, w.client, definition)
	testkit.Eventually(t, "the kind is served", func(ctx context.Context) error {
		_, err := w.Kubectl(ctx, "get", "noderesourcetopologies")
		return err
	})
}

func (w *world) addNode(t *testing.T) {
	t.Helper()
	w.node = testkit.Node(t, w.client, nodeName)
	before := w.node.DeepCopy()
	w.node.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("8")
	w.node.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("16Gi")
	if err := w.client.Status().Patch(t.Context(), w.node, ctrlclient.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// connect returns the publisher of the node.
func (w *world) connect(t *testing.T) {
	t.Helper()
	config, err := publish.FromKubeconfig(w.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := publish.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	w.publisher = publish.NewTopology(client, publish.TopologyOptions{Identify: func(context.Context) (publish.Identity, error) {
		return publish.Identity{Node: nodeName, NodeUID: string(w.node.UID)}, nil
	}})
}

// holds is a pod that holds CPUs.
func holds(name string, cpus ...int64) podres.Pod {
	return podres.Pod{Name: name, Containers: []podres.Container{{Name: "main", CPUs: cpus}}}
}

// publish publishes the node's topology while pods hold CPUs.
func (w *world) publish(t *testing.T, pods ...podres.Pod) {
	t.Helper()
	if _, err := w.publisher.Publish(t.Context(), w.content(t, pods...)); err != nil {
		t.Fatal(err)
	}
}

// content returns a node's topology while pods hold CPUs.
func (w *world) content(t *testing.T, pods ...podres.Pod) topology.Content {
	t.Helper()
	h, err := host.FromArchive([]byte(machine))
	if err != nil {
		t.Fatal(err)
	}
	m, unread, err := topology.ReadMachine(h)
	if err != nil || len(unread) > 0 {
		t.Fatal(err, unread)
	}
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	if err := os.WriteFile(file, []byte(kubelet), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := topology.ReadKubelet(file, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		pods[i].Namespace = w.namespace
	}
	in := &topology.Input{
		Node: nodeName, Machine: m, Kubelet: k, Pods: pods,
		Allocatable: &podres.Allocatable{
			CPUs:   []int64{0, 1, 2, 3, 4, 5, 6, 7},
			Memory: []podres.Memory{{Type: "memory", Bytes: 8 << 30, Topology: podres.Topology{0}}, {Type: "memory", Bytes: 8 << 30, Topology: podres.Topology{1}}},
		},
	}
	return topology.Build(in).Content
}

// create creates a pod with guaranteed CPUs for the scheduler.
func (w *world) create(t *testing.T, name string, cpus int64) {
	t.Helper()
	w.createOn(t, "", name, cpus)
}

// createOn creates a pod that is bound to a node, if that is not empty.
func (w *world) createOn(t *testing.T, node, name string, cpus int64) {
	t.Helper()
	amounts := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("1Gi")}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: corev1.PodSpec{
			SchedulerName: schedulerName, NodeName: node,
			Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts}}},
		},
	}
	testkit.Eventually(t, "create a pod", func(ctx context.Context) error { // its ServiceAccount may not exist yet
		return w.client.Create(ctx, pod)
	})
}

func (w *world) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, w.client.Get(ctx, ctrlclient.ObjectKey{Namespace: w.namespace, Name: name}, pod)
}

// pending waits until the scheduler has said why a pod fits no node.
func (w *world) pending(t *testing.T, name, why string) {
	t.Helper()
	testkit.Eventually(t, "pod "+name+" is pending", func(ctx context.Context) error {
		pod, err := w.pod(ctx, name)
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != "" {
			t.Fatalf("pod %s is bound", name)
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, why) {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", pod.Status.Conditions)
	})
}

// bound waits until a pod has its node.
func (w *world) bound(t *testing.T, name string) {
	t.Helper()
	testkit.Eventually(t, "pod "+name+" is bound", func(ctx context.Context) error {
		pod, err := w.pod(ctx, name)
		if err == nil && pod.Spec.NodeName == "" {
			err = errors.New("it is not")
			for _, c := range pod.Status.Conditions {
				err = errors.New(c.Message)
			}
		}
		return err
	})
}

// start makes a pod run, as its kubelet does: the plug-in counts pods that run.
func (w *world) start(t *testing.T, name string) {
	t.Helper()
	pod, err := w.pod(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	if err := w.client.Status().Patch(t.Context(), pod, ctrlclient.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// remove deletes a pod at once: it has no kubelet.
func (w *world) remove(t *testing.T, name string) {
	t.Helper()
	pod, err := w.pod(t.Context(), name)
	if err == nil {
		err = w.client.Delete(t.Context(), pod, ctrlclient.GracePeriodSeconds(0))
	}
	if err != nil {
		t.Fatal(err)
	}
}

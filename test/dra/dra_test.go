//go:build linux

package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/library"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/test/cluster"
)

const (
	driverName = "gpu.nvidia.com"
	controller = "controller"

	countLabel    = "nvidia.com/gpu.count"
	completeLabel = "feature.node.kubernetes.io/dra-complete." + driverName
)

// world is a control plane with the controller, rules of the library, and drivers.
type world struct {
	*testing.T
	control *cluster.Cluster
	client  client.WithWatch
	driver  string // the program of hack/dra
	config  string // the settings of the controller
	dir     string

	mu     sync.Mutex
	counts map[string][]string // by node: the values that countLabel has had
}

func newWorld(t *testing.T) *world {
	c := testkit.Cluster(t)
	dir := t.TempDir()
	w := &world{
		T: t, control: c, client: testkit.Client(t, c.User), dir: dir, driver: filepath.Join(dir, "dra"), config: filepath.Join(dir, "settings.yaml"),
		counts: map[string][]string{},
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../../hack/dra", "-o", w.driver, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	rules, err := library.Get("nvidia-dra", "dra-complete")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		testkit.Create(t, w.client, rule.Object.DeepCopy())
	}
	w.settings("{}")
	health := testkit.FreeAddress(t)
	w.run(cluster.Program{
		Name: controller, Path: testkit.Program(t, "assay-manager"), Ready: cluster.Answers("http://" + health + "/readyz"),
		Args: []string{
			"controller", "--kubeconfig=" + c.Kubeconfig, "--namespace=" + testkit.Namespace(t, w.client), "--config=" + w.config,
			"--port=" + testkit.Port(health), "--metrics-port=0",
		},
	})
	return w
}

// run runs a program until the end of the test, which shows its log if it fails.
func (w *world) run(p cluster.Program) {
	w.Helper()
	if err := w.control.Run(w.Context(), p); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if w.Failed() {
			w.Log(w.control.Log(p.Name))
		}
		if err := w.control.Terminate(context.WithoutCancel(w.Context()), p.Name); err != nil {
			w.Error(err)
		}
	})
}

// settings changes the settings of the controller, which reads them again.
func (w *world) settings(text string) {
	w.Helper()
	w.write(w.config, text)
}

// write replaces a file: no reader sees a part of it.
func (w *world) write(file, text string) {
	w.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		w.Fatal(err)
	}
}

// node creates a Node, and follows its number of GPUs.
func (w *world) node(name string) {
	w.Helper()
	node := testkit.Node(w, w.client, name)
	api, err := kubernetes.NewForConfig(w.control.RESTConfig())
	if err != nil {
		w.Fatal(err)
	}
	look := func(object any) {
		n, ok := object.(*corev1.Node)
		if !ok || n.UID != node.UID {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		value := n.Labels[countLabel]
		if list := w.counts[name]; len(list) == 0 && value != "" || len(list) > 0 && list[len(list)-1] != value {
			w.counts[name] = append(list, value)
		}
	}
	informer := cache.NewSharedInformer(
		cache.NewListWatchFromClient(api.CoreV1().RESTClient(), "nodes", "", fields.OneTermEqualSelector("metadata.name", name)), &corev1.Node{}, 0)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, n any) { look(n) }}); err != nil {
		w.Fatal(err)
	}
	go informer.RunWithContext(w.Context())
}

// pools are the numbers of devices in the slices of pools, by name.
type pools map[string][]int

// drive runs the driver of a node, and returns a function that changes what it publishes.
func (w *world) drive(node string, p pools) (change func(pools)) {
	w.Helper()
	publish := w.publish("driver-"+node, "-node="+node)
	change = func(p pools) {
		w.Helper()
		content := content{}
		for name, list := range p {
			content[name] = [][]resourcev1.Device{}
			for i, count := range list {
				content[name] = append(content[name], gpus(fmt.Sprint("gpu-", i), count))
			}
		}
		publish(content)
	}
	change(p)
	return change
}

// content is the devices in the slices of pools, by name.
type content map[string][][]resourcev1.Device

// publish returns a function that changes what a driver publishes. Its first call starts the driver.
func (w *world) publish(name string, args ...string) func(content) {
	file, runs := filepath.Join(w.dir, name+".json"), false
	return func(c content) {
		w.Helper()
		text, err := json.Marshal(c)
		if err != nil {
			w.Fatal(err)
		}
		w.write(file, string(text))
		if !runs {
			w.run(cluster.Program{Name: name, Path: w.driver, Args: append(args, "-driver="+driverName, "-kubeconfig="+w.control.Kubeconfig, file)})
			runs = true
		}
	}
}

// on returns devices that name their node.
func on(node string, devices []resourcev1.Device) []resourcev1.Device {
	for i := range devices {
		devices[i].NodeName = new(node)
	}
	return devices
}

// gpus returns devices with attributes that NVIDIA's driver gives them.
func gpus(name string, count int) []resourcev1.Device {
	list := []resourcev1.Device{}
	for i := range count {
		list = append(list, resourcev1.Device{
			Name: fmt.Sprint(name, "-", i),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"type": {StringValue: new("gpu")}, "productName": {StringValue: new("NVIDIA H100 80GB HBM3")}, "architecture": {StringValue: new("Hopper")},
				"driverVersion": {VersionValue: new("580.126.20")}, "cudaDriverVersion": {VersionValue: new("13.0.0")},
				"cudaComputeCapability": {VersionValue: new("9.0.0")}, "uuid": {StringValue: new(fmt.Sprint("GPU-", name, "-", i))},
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("81559Mi")}},
		})
	}
	return list
}

// labels waits until a Node has labels; those with an empty value must be absent.
func (w *world) labels(node, when string, want map[string]string) {
	w.Helper()
	testkit.Eventually(w, node+", "+when, func(ctx context.Context) error {
		var n corev1.Node
		if err := w.client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
			return err
		}
		for key, value := range want {
			if got := n.Labels[key]; got != value {
				return fmt.Errorf("label %s=%q, want %q", key, got, value)
			}
		}
		return nil
	})
}

// slices waits until the driver of a node has published a number of slices.
func (w *world) slices(node string, want int) {
	w.Helper()
	testkit.Eventually(w, fmt.Sprintf("%d slices of %s", want, node), func(ctx context.Context) error {
		var list resourcev1.ResourceSliceList
		err := w.client.List(ctx, &list, client.MatchingFields{resourcev1.ResourceSliceSelectorNodeName: node})
		if err == nil && len(list.Items) != want {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
}

// had compares the numbers of GPUs that a Node has had.
func (w *world) had(node string, want ...string) {
	w.Helper()
	testkit.Eventually(w, "the numbers of GPUs of "+node, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := w.counts[node]; !slices.Equal(got, want) {
			return fmt.Errorf("they were %q, want %q", got, want)
		}
		return nil
	})
}

// TestDevicesOfKubernetesPublisher publishes with the library of Kubernetes. Its pools have several slices, and are incomplete while it
// writes them: no label ever shows a part of the devices.
func TestDevicesOfKubernetesPublisher(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"n1", "n2", "n3", "without"} {
		w.node(name)
	}

	n1 := w.drive("n1", pools{"n1": {2, 3, 3}})
	w.labels("n1", "a pool of three slices", map[string]string{
		countLabel: "8", completeLabel: "true",
		"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.family": "hopper", "nvidia.com/gpu.memory": "81559",
		"nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0",
		"nvidia.com/cuda.driver-version.full": "580.126.20", "nvidia.com/cuda.driver-version.major": "580", "nvidia.com/cuda.runtime-version.full": "13.0",
	})
	w.had("n1", "8")
	n1(pools{"n1": {2, 2, 3}})
	w.labels("n1", "a lost GPU", map[string]string{countLabel: "7", completeLabel: "true"})
	w.had("n1", "8", "7")

	n2 := w.drive("n2", pools{"n2": {4}})
	w.labels("n2", "one slice", map[string]string{countLabel: "4"})
	w.had("n2", "4")
	n2(pools{"n2": {3, 3, 2}})
	w.labels("n2", "the next generation, of three slices", map[string]string{countLabel: "8"})
	w.had("n2", "4", "8")
	n2(pools{"n2": {5}})
	w.labels("n2", "one slice again", map[string]string{countLabel: "5"})
	w.slices("n2", 1)
	w.had("n2", "4", "8", "5")

	n3 := w.drive("n3", pools{"a": {4}, "b": {2}})
	w.labels("n3", "two pools", map[string]string{countLabel: "6", completeLabel: "true"})
	n3(pools{"a": {4}})
	w.slices("n3", 1)
	w.labels("n3", "a pool is deleted, in the grace period", map[string]string{countLabel: "6", completeLabel: "false"})

	w.settings("{removalGracePeriod: 1s}")
	w.labels("n3", "a pool is deleted, after the grace period", map[string]string{countLabel: "4", completeLabel: "true"})
	n3(pools{})
	w.slices("n3", 0)
	w.labels("n3", "the last pool is deleted", map[string]string{countLabel: "", completeLabel: "", "nvidia.com/gpu.product": ""})
	w.labels("without", "at the end", map[string]string{countLabel: "", completeLabel: ""})
	w.labels("n1", "at the end", map[string]string{countLabel: "7", completeLabel: "true"})
}

// TestDevicesThatNameTheirNodes publishes a pool for several nodes with the library of Kubernetes, as drivers of devices in a network do, and
// taints a device with a DeviceTaintRule.
func TestDevicesThatNameTheirNodes(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"m1", "m2"} {
		w.node(name)
	}
	rule := &nfdv1alpha1.NodeFeatureRule{}
	rule.Name = "usable"
	if err := yaml.UnmarshalStrict([]byte(`
rules:
- name: usable
  labels: {example.com/usable: "{matched.dra.device.len()}"}
  matchFeatures: [{feature: dra.device, matchExpressions: {unschedulable: {op: DoesNotExist}}}]
`), &rule.Spec); err != nil {
		t.Fatal(err)
	}
	testkit.Create(t, w.client, rule)
	publish := w.publish("driver")
	publish(content{"fabric": {append(on("m1", gpus("a", 2)), on("m2", gpus("b", 1))...), on("m2", gpus("c", 3))}})
	w.labels("m1", "two devices of a slice", map[string]string{countLabel: "2", completeLabel: "true", "example.com/usable": "2"})
	w.labels("m2", "devices of two slices", map[string]string{countLabel: "4", completeLabel: "true", "example.com/usable": "4"})
	w.had("m2", "4")

	taint := &resourcev1.DeviceTaintRule{Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new(driverName), Pool: new("fabric"), Device: new("c-0")},
		Taint:          resourcev1.DeviceTaint{Key: "example.com/unhealthy", Effect: resourcev1.DeviceTaintEffectNoExecute},
	}}
	taint.Name = "unhealthy"
	testkit.Create(t, w.client, taint)
	w.labels("m2", "a DeviceTaintRule", map[string]string{countLabel: "4", "example.com/usable": "3"})

	publish(content{"fabric": {on("m2", append(gpus("b", 1), gpus("a", 2)...)), on("m2", gpus("c", 3))}})
	w.labels("m2", "the devices of the other node", map[string]string{countLabel: "6", completeLabel: "true", "example.com/usable": "5"})
	w.labels("m1", "the whole pool has none of its devices", map[string]string{countLabel: "", completeLabel: "", "example.com/usable": ""})
	w.had("m1", "2", "")
}

// TestAPoolOfManyDevices publishes as many devices as rules read, in slices of the size that the API allows, and then one more.
func TestAPoolOfManyDevices(t *testing.T) {
	const perSlice = 128
	w := newWorld(t)
	w.node("many")
	full := make([]int, facts.MaxDevices/perSlice)
	for i := range full {
		full[i] = perSlice
	}
	change := w.drive("many", pools{"many": full})
	w.labels("many", "as many devices as rules read", map[string]string{countLabel: strconv.Itoa(facts.MaxDevices), completeLabel: "true"})
	change(pools{"many": append(slices.Clone(full), 1)})
	w.labels("many", "one more, in the grace period", map[string]string{countLabel: strconv.Itoa(facts.MaxDevices), completeLabel: "false"})
	testkit.Eventually(t, "an Event", func(ctx context.Context) error {
		var events corev1.EventList
		err := w.client.List(ctx, &events)
		isOver := func(e corev1.Event) bool { return e.Reason == "DevicesOverLimit" && e.InvolvedObject.Name == "many" }
		if err == nil && !slices.ContainsFunc(events.Items, isOver) {
			err = errors.New("no Event DevicesOverLimit")
		}
		return err
	})
}

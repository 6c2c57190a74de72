//go:build linux

package numa

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
)

const (
	// fullNode is the number of pods of a full node, by the kubelet's default.
	fullNode = 110
	// maxMemory is the maximum memory of the publisher on a full node: three quarters of the limit of its container, 32 Mi.
	maxMemory = 24 << 20
)

// gb200 is the machine of the test: two CPU sockets, and a NUMA node for the memory of each part of a GPU. Node Feature Discovery's updater
// exceeded its limit there (NVIDIA/aicr#2324).
const (
	zones = 36
	cpus  = 144 // of the first two NUMA nodes
)

// modelKubelet answers on a socket as a kubelet with a full node does: each pod has a CPU, memory, huge pages and a device.
type modelKubelet struct {
	socket string
	server *http.Server
}

// bytesField and numberField encode fields with the library that generated code uses.
func bytesField(number protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), slices.Concat(parts...))
}

func numberField(number protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), n)
}

// near encodes that something is near to a NUMA node.
func near(zone int) []byte { return bytesField(3, bytesField(1, numberField(1, uint64(zone)))) }

// devices encodes the device of a pod.
func devices(pod int) []byte {
	return slices.Concat(bytesField(1, []byte(nic)), bytesField(2, fmt.Appendf(nil, "nic-%d", pod)), near(pod%zones))
}

// blocks encodes memory and huge pages of a zone.
func blocks(field protowire.Number, zone int, bytes uint64) (all []byte) {
	for _, kind := range []string{"memory", "hugepages-2Mi", "hugepages-1Gi"} {
		all = append(all, bytesField(field, bytesField(1, []byte(kind)), numberField(2, bytes), near(zone))...)
	}
	return all
}

// nic is the resource of the pods' devices.
const nic = "example.com/nic"

func (k *modelKubelet) answer(w http.ResponseWriter, r *http.Request) {
	var message []byte
	if strings.HasSuffix(r.URL.Path, "/GetAllocatableResources") {
		for cpu := range cpus {
			message = append(message, numberField(2, uint64(cpu))...)
		}
		for zone := range zones {
			message = append(message, blocks(3, zone, 480<<30)...)
		}
		for pod := range fullNode {
			message = append(message, bytesField(1, devices(pod))...)
		}
	} else {
		for pod := range fullNode {
			container := slices.Concat(bytesField(1, []byte("main")), bytesField(2, devices(pod)), numberField(3, uint64(pod)), blocks(4, pod%zones, 1<<30))
			message = append(message, bytesField(1, bytesField(1, fmt.Appendf(nil, "pod-%d", pod)), bytesField(2, []byte("default")), bytesField(3, container))...)
		}
	}
	w.Header().Set("Content-Type", "application/grpc")
	_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
}

// writeMachine writes the part of sysfs that describes the NUMA nodes.
func writeMachine(t *testing.T, root string) {
	t.Helper()
	const nodes = "sys/devices/system/node/"
	files := map[string]string{nodes + "online": fmt.Sprintf("0-%d", zones-1), "proc/version": "Linux"}
	for zone := range zones {
		dir := fmt.Sprintf("%snode%d/", nodes, zone)
		files[dir+"cpulist"] = ""
		if half := cpus / 2; zone < 2 {
			files[dir+"cpulist"] = fmt.Sprintf("%d-%d", zone*half, (zone+1)*half-1)
		}
		files[dir+"distance"] = strings.TrimSpace(strings.Repeat("80 ", zone) + "10" + strings.Repeat(" 80", zones-zone-1))
		files[dir+"meminfo"] = fmt.Sprintf("Node %d MemTotal: %d kB", zone, 480<<20)
		files[dir+"hugepages/hugepages-2048kB/nr_hugepages"] = "1024"
		files[dir+"hugepages/hugepages-1048576kB/nr_hugepages"] = "8"
	}
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// start creates the socket and answers.
func (k *modelKubelet) start(t *testing.T) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "unix", k.socket)
	if err != nil {
		t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	k.server = &http.Server{Handler: http.HandlerFunc(k.answer), Protocols: &protocols} //nolint:gosec // a test
	go func() { _ = k.server.Serve(l) }()
	t.Cleanup(k.stop)
}

// stop removes the socket.
func (k *modelKubelet) stop() { _ = k.server.Close() }

// TestThePublisherOfAFullNode runs the program with the real API server and a model of the kubelet: it repairs its object, keeps it while
// the kubelet is away, and uses little memory.
func TestThePublisherOfAFullNode(t *testing.T) {
	c := testkit.Cluster(t)
	w := &world{Cluster: c, client: testkit.Client(t, c.User)}
	w.define(t)
	w.addNode(t)
	dir := t.TempDir()
	program := testkit.Program(t, "assay-worker")
	file := filepath.Join(dir, "kubelet.yaml")
	if err := os.WriteFile(file, []byte(kubelet), 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	writeMachine(t, root)
	k := &modelKubelet{socket: filepath.Join(dir, "kubelet.sock")}
	k.start(t)
	address := testkit.FreeAddress(t)
	const name = "assay-worker-topology"
	err := c.Run(t.Context(), cluster.Program{
		Name: name, Path: program, Env: []string{"GOMEMLIMIT="},
		Args: []string{
			"topology", "-kubeconfig=" + c.Kubeconfig, "-node-name=" + nodeName, "-port=" + testkit.Port(address), "-host-root=" + root,
			"-log-level=debug", "-podresources-socket=" + k.socket, "-device-plugins=" + dir, "-kubelet-config-uri=file://" + file, "-config=",
		},
		Ready: func(ctx context.Context) error { _, err := testkit.Get(ctx, "http://"+address+"/readyz"); return err },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Log(name))
		}
		_ = c.Kill(name)
	})

	w.publishesNICs(t, "once it is ready")
	before := w.stored(t)
	if err := w.client.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	w.publishesNICs(t, "after a deletion")
	if err := w.client.Patch(t.Context(), w.stored(t), ctrlclient.RawPatch(types.MergePatchType, []byte(`{"zones": []}`))); err != nil {
		t.Fatal(err)
	}
	w.publishesNICs(t, "after another client has edited it")

	k.stop()
	w.up(t, address, "0")
	w.publishesNICs(t, "while the kubelet is away")
	k.start(t)
	w.up(t, address, "1")

	w.withoutDefinition(t, address, filepath.Join(c.LogDir(), name+".log"))

	pid, err := c.PID(name)
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The sandbox is for good: all of the above works in it.
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 {
		t.Log("the kernel has no Landlock: ", errno)
	} else if !strings.Contains(string(status), "NoNewPrivs:\t1\n") {
		t.Errorf("the program has not dropped its privileges:\n%s", status)
	}
	for line := range strings.Lines(string(status)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			t.Logf("VmHWM with %d pods: %.1f MB", fullNode, float64(kib)/1024)
			if kib<<10 > maxMemory {
				t.Errorf("the program used up to %d kB, more than %d MB", kib, maxMemory>>20)
			}
		}
	}
}

// withoutDefinition deletes the definition while the program runs: it tries again, is not ready, reports it with one line, and publishes
// when the definition is there again.
func (w *world) withoutDefinition(t *testing.T, address, logFile string) {
	t.Helper()
	log := func() string {
		text, err := os.ReadFile(logFile)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const line = "until its CustomResourceDefinition is installed"
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName(v1alpha2.NodeResourceTopologyResource.GroupResource().String())
	if err := w.client.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "attempts without the definition", func(ctx context.Context) error {
		text, err := testkit.Get(ctx, "http://"+address+"/metrics")
		if err != nil {
			return err
		}
		var failures int
		for l := range strings.Lines(text) {
			_, _ = fmt.Sscanf(l, "assay_topology_publish_failures_total %d", &failures)
		}
		if failures < 3 || !strings.Contains(log(), line) {
			return fmt.Errorf("%d failures", failures)
		}
		return nil
	})
	if text, err := testkit.Get(t.Context(), "http://"+address+"/readyz"); err == nil {
		t.Errorf("ready without the definition: %s", text)
	}
	w.define(t)
	w.publishesNICs(t, "when the definition is there again")
	if n := strings.Count(log(), line); n != 1 {
		t.Errorf("the log has %d lines about the definition, want 1", n)
	}
	testkit.Eventually(t, "ready again", func(ctx context.Context) error {
		_, err := testkit.Get(ctx, "http://"+address+"/readyz")
		return err
	})
}

// stored reads the object of the node.
func (w *world) stored(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object, err := w.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func (w *world) read(ctx context.Context) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha2.NodeResourceTopologyGVK)
	return object, w.client.Get(ctx, ctrlclient.ObjectKey{Name: nodeName}, object)
}

// publishesNICs waits until each zone has the devices near to it, none of which is available.
func (w *world) publishesNICs(t *testing.T, when string) {
	t.Helper()
	testkit.Eventually(t, "the published topology "+when, func(ctx context.Context) error {
		object, err := w.read(ctx)
		if err != nil {
			return err
		}
		list, _, err := unstructured.NestedSlice(object.Object, "zones")
		if err != nil || len(list) != zones {
			return errors.Join(err, fmt.Errorf("%d zones", len(list)))
		}
		near := 0
		for _, zone := range list {
			resources, _, _ := unstructured.NestedSlice(zone.(map[string]any), "resources")
			for _, r := range resources {
				r := r.(map[string]any)
				if r["name"] != nic {
					continue
				}
				n, err := strconv.Atoi(fmt.Sprint(r["allocatable"]))
				if err != nil || r["available"] != "0" {
					return fmt.Errorf("resource %v", r)
				}
				near += n
			}
		}
		if near != fullNode {
			return fmt.Errorf("%d devices in zones %v", near, list)
		}
		return nil
	})
}

// up waits until the metric says whether the kubelet answers.
func (w *world) up(t *testing.T, address, want string) {
	t.Helper()
	testkit.Eventually(t, "the metric of the kubelet", func(ctx context.Context) error {
		text, err := testkit.Get(ctx, "http://"+address+"/metrics")
		if err == nil && !strings.Contains(text, "assay_topology_kubelet_up "+want+"\n") {
			err = errors.New(text)
		}
		return err
	})
}

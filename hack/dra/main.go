// Command dra is a DRA driver for tests, which publishes the devices of one node with the libraries of Kubernetes that the drivers of
// vendors use.
//
//	dra -driver gpu.example.com -node NODE -kubeconfig FILE devices.json
//
// The file maps the names of pools to lists of slices, each of which is a list of devices as in a ResourceSlice. The driver publishes them,
// and again whenever the file changes. Without -node, it is the driver of devices of several nodes, each of which names its node. With -kubelet, it registers with the kubelet of the node, which then deletes the slices after the
// driver has stopped. It prepares no devices.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// lookAgain is the interval between reads of the file.
const lookAgain = 200 * time.Millisecond

func main() {
	d := driver{}
	flag.StringVar(&d.name, "driver", "", "`name` of the driver, such as gpu.example.com")
	flag.StringVar(&d.node, "node", "", "`name` of the node; empty: each device names its own")
	flag.StringVar(&d.kubelet, "kubelet", "", "root `directory` of the kubelet to register with; empty: none")
	kubeconfig := flag.String("kubeconfig", "", "`file` that says how to reach the API server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := errors.New("usage: dra -driver NAME -kubeconfig FILE [-node NODE [-kubelet DIRECTORY]] DEVICES")
	if flag.NArg() == 1 && d.name != "" && (d.node != "" || d.kubelet == "") {
		err = d.run(ctx, *kubeconfig, flag.Arg(0))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dra:", err)
		os.Exit(1)
	}
}

// driver publishes the devices of a node.
type driver struct {
	name, node, kubelet string
	client              kubernetes.Interface
	slices              *resourceslice.Controller // without a kubelet
	plugin              *kubeletplugin.Helper     // with one
}

func (d *driver) run(ctx context.Context, kubeconfig, file string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	if d.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if d.kubelet != "" {
		if err := d.register(ctx); err != nil {
			return err
		}
		defer d.plugin.Stop()
	}
	defer func() { d.slices.Stop() }()
	for last := []byte(nil); ; {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, last) {
			if err := d.publish(ctx, data); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			last = data
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
	}
}

// register serves the sockets by which the kubelet finds the driver.
func (d *driver) register(ctx context.Context) (err error) {
	own := filepath.Join(d.kubelet, "plugins", d.name)
	if err := os.MkdirAll(own, 0o750); err != nil {
		return err
	}
	d.plugin, err = kubeletplugin.Start(ctx, noClaims{},
		kubeletplugin.DriverName(d.name), kubeletplugin.NodeName(d.node), kubeletplugin.KubeClient(d.client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(d.kubelet, "plugins_registry")), kubeletplugin.PluginDataDirectoryPath(own),
	)
	return err
}

// publish publishes the devices in the content of the file.
func (d *driver) publish(ctx context.Context, data []byte) (err error) {
	var file map[string][][]resourcev1.Device
	if err := json.Unmarshal(data, &file); err != nil {
		return err
	}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}
	for name, list := range file {
		pool := resourceslice.Pool{}
		for _, devices := range list {
			slice := resourceslice.Slice{Devices: devices}
			if d.node == "" {
				slice.PerDeviceNodeSelection = new(true)
			}
			pool.Slices = append(pool.Slices, slice)
		}
		resources.Pools[name] = pool
	}
	switch {
	case d.plugin != nil:
		return d.plugin.PublishResources(ctx, resources)
	case d.slices != nil:
		d.slices.Update(&resources)
	default:
		options := resourceslice.Options{DriverName: d.name, KubeClient: d.client, Resources: &resources}
		if d.node != "" {
			options.Owner = &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: d.node}
		}
		d.slices, err = resourceslice.StartController(ctx, options)
	}
	return err
}

// noClaims prepares no devices: no pod of the tests claims any.
type noClaims struct{}

var errNoClaims = errors.New("this driver prepares no devices")

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (noClaims) PrepareResourceClaims(context.Context, []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	return nil, errNoClaims
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (noClaims) UnprepareResourceClaims(context.Context, []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	return nil, errNoClaims
}

// HandleError implements kubeletplugin.DRAPlugin.
func (noClaims) HandleError(_ context.Context, err error, what string) {
	fmt.Fprintln(os.Stderr, what+":", err)
}

// WatchHealthStatus implements kubeletplugin.DRAPlugin.
func (noClaims) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// Command deviceplugin is a device plug-in of the kubelet for test/node: it announces devices near to NUMA nodes, and has none.
//
//	deviceplugin -resource example.com/nic near=1 both=0,1
//
// It registers again after the kubelet has restarted, as device plug-ins do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// lookAgain is the interval between checks of the kubelet's socket.
const lookAgain = 200 * time.Millisecond

func main() {
	resource := flag.String("resource", "", "`name` of the devices, such as example.com/nic")
	flag.Parse()
	if err := run(*resource, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(1)
	}
}

func run(resource string, args []string) error {
	devices, err := parse(args)
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(resource, "/", "-") + ".sock"
	var seen os.FileInfo
	for ; ; time.Sleep(lookAgain) {
		info, err := os.Stat(v1beta1.KubeletSocket)
		if err != nil || seen != nil && os.SameFile(seen, info) {
			continue // the kubelet is away, or has not restarted
		}
		// The kubelet has removed all sockets when it started.
		server, err := serve(filepath.Join(v1beta1.DevicePluginPath, name), &plugin{devices: devices})
		if err != nil {
			return err
		}
		if err := register(resource, name); err != nil {
			server.Stop()
			fmt.Fprintln(os.Stderr, "register:", err)
			continue
		}
		seen = info
		fmt.Println("registered")
	}
}

// parse reads devices such as id=0,1.
func parse(args []string) ([]*v1beta1.Device, error) {
	var devices []*v1beta1.Device
	for _, arg := range args {
		id, nodes, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%q: write ID=NODE,NODE", arg)
		}
		d := &v1beta1.Device{ID: id, Health: v1beta1.Healthy, Topology: &v1beta1.TopologyInfo{}}
		for node := range strings.SplitSeq(nodes, ",") {
			n, err := strconv.ParseInt(node, 10, 64)
			if err != nil {
				return nil, err
			}
			d.Topology.Nodes = append(d.Topology.Nodes, &v1beta1.NUMANode{ID: n})
		}
		devices = append(devices, d)
	}
	return devices, nil
}

func serve(socket string, p *plugin) (*grpc.Server, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

func register(resource, endpoint string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+v1beta1.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = v1beta1.NewRegistrationClient(connection).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: resource, Options: &v1beta1.DevicePluginOptions{},
	})
	return err
}

type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	devices []*v1beta1.Device
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate gives nothing to a container: what counts is which devices the kubelet chose.
func (p *plugin) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	response := &v1beta1.AllocateResponse{}
	for range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &v1beta1.ContainerAllocateResponse{})
	}
	return response, nil
}

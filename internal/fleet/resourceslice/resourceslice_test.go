package resourceslice_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/assay-project/assay/internal/fleet/resourceslice"
	"github.com/assay-project/assay/rules/facts"
)

func TestElementsOfADevice(t *testing.T) {
	s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.nvidia.com", NodeName: new("n"), Pool: resourcev1.ResourcePool{Name: "n", Generation: 3, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{
			Name: "gpu-0",
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"productName":                    {StringValue: new("NVIDIA H100")},
				"gpu.nvidia.com/driverVersion":   {VersionValue: new("580.126.20")},
				"minor":                          {IntValue: new(int64(4))},
				"mig":                            {BoolValue: new(false)},
				"resource.kubernetes.io/pcieBus": {StringValue: new("0000:4b:00.0")},
				"profiles":                       {StringValues: []string{"1g", "2g"}},
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				"memory": {Value: resource.MustParse("80Gi")}, "other.com/engines": {Value: resource.MustParse("7")},
				"cores": {Value: resource.MustParse("500m")}, "whole": {Value: resource.MustParse("2000m")}, "small": {Value: resource.MustParse("1n")},
				"huge": {Value: resource.MustParse("8Ei")}, "hundred": {Value: resource.MustParse("100")},
			},
			AllowMultipleAllocations: new(true), BindsToNode: new(true),
			BindingConditions: []string{"example.com/attached", "example.com/ready"}, BindingFailureConditions: []string{"example.com/failed"},
			Taints: []resourcev1.DeviceTaint{
				{Key: "example.com/b", Effect: resourcev1.DeviceTaintEffectNoSchedule}, {Key: "example.com/a", Value: "x", Effect: resourcev1.DeviceTaintEffectNoExecute},
			},
		}, {Name: "gpu-1"}},
	}}
	slice := resourceslice.Read(s, facts.NewInterner())
	if len(slice.Parts) != 1 || slice.Parts[0].Node != "n" || slice.Driver != "gpu.nvidia.com" || slice.Pool != "n" || slice.Generation != 3 ||
		slice.Total != 1 || slice.Spread {
		t.Fatalf("slice %+v", slice)
	}
	want := []map[string]string{{
		"device.name": "gpu-0", "productName": "NVIDIA H100", "driverVersion": "580.126.20", "minor": "4", "mig": "false",
		"resource.kubernetes.io/pcieBus": "0000:4b:00.0", "profiles": "1g,2g", "capacity.memory": "85899345920", "capacity.other.com/engines": "7",
		"capacity.cores": "0.5", "capacity.whole": "2", "capacity.small": "0.000000001", "capacity.huge": "9223372036854775807", "capacity.hundred": "100",
		"binding.node": "true", "binding.conditions": "example.com/attached,example.com/ready", "binding.failure_conditions": "example.com/failed",
		"shared": "true", "unschedulable": "true", "taints": "example.com/a=x:NoExecute,example.com/b=:NoSchedule",
	}, {"device.name": "gpu-1"}}
	if diff := cmp.Diff(want, slice.Parts[0].Devices.Select(nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDevicesOfSeveralNodesAreNotFeatures(t *testing.T) {
	device := resourcev1.Device{Name: "d"}
	all, selected := device, device
	all.AllNodes, selected.NodeSelector = new(true), &corev1.NodeSelector{}
	for name, spec := range map[string]resourcev1.ResourceSliceSpec{
		"all nodes":  {AllNodes: new(true), Devices: []resourcev1.Device{device}},
		"per device": {PerDeviceNodeSelection: new(true), Devices: []resourcev1.Device{all, selected}},
		"empty":      {NodeName: new(""), Devices: []resourcev1.Device{device}},
	} {
		if s := resourceslice.Read(&resourcev1.ResourceSlice{Spec: spec}, nil); len(s.Parts) != 0 || !s.Spread {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestPoolOfSeveralNodes reads a pool of three slices, the devices of which name their nodes: a node has its own devices, and all of them only
// if all slices are known, also those that have none.
func TestPoolOfSeveralNodes(t *testing.T) {
	pool := func(name string, nodes ...string) resourcev1.ResourceSlice {
		s := resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
			Driver: "tpu.example.com", PerDeviceNodeSelection: new(true), Pool: resourcev1.ResourcePool{Name: "fabric", Generation: 2, ResourceSliceCount: 3},
		}}
		s.Name = name
		for i, node := range nodes {
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("%s-%d", name, i), NodeName: new(node)})
		}
		return s
	}
	list := []resourcev1.ResourceSlice{pool("s1", "a", "b", "a"), pool("s2", "b"), pool("counters")}
	any := func(string) bool { return true }
	names := func(f *facts.Facts) (out []string) {
		for _, d := range f.Feature(facts.DeviceFeature).Instances.Select(nil) {
			out = append(out, d["device.name"])
		}
		return out
	}
	of := resourceslice.Facts(append(list, list[1]), nil, any) // the command line lists them for one node after another
	for node, want := range map[string][]string{"a": {"s1-0", "s1-2"}, "b": {"s1-1", "s2-0"}} {
		if got := names(of[node]); !slices.Equal(got, want) || !of[node].DevicesComplete() {
			t.Errorf("node %s has %v (complete: %t), want %v", node, got, of[node].DevicesComplete(), want)
		}
	}
	of = resourceslice.Facts(list[:2], nil, any)
	if got := names(of["a"]); len(got) > 0 || of["a"].DevicesComplete() {
		t.Errorf("without one slice, node a has %v (complete: %t)", got, of["a"].DevicesComplete())
	}
}

package resourceslice_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
			AllowMultipleAllocations: new(true),
			Taints: []resourcev1.DeviceTaint{
				{Key: "example.com/b", Effect: resourcev1.DeviceTaintEffectNoSchedule}, {Key: "example.com/a", Value: "x", Effect: resourcev1.DeviceTaintEffectNoExecute},
			},
		}, {Name: "gpu-1"}},
	}}
	slice, node := resourceslice.Of(s, facts.NewInterner())
	if node != "n" || slice.Driver != "gpu.nvidia.com" || slice.Pool != "n" || slice.Generation != 3 || slice.Total != 1 {
		t.Errorf("slice %+v of node %q", slice, node)
	}
	want := []map[string]string{{
		"device.name": "gpu-0", "productName": "NVIDIA H100", "driverVersion": "580.126.20", "minor": "4", "mig": "false",
		"resource.kubernetes.io/pcieBus": "0000:4b:00.0", "profiles": "1g,2g", "capacity.memory": "85899345920", "capacity.other.com/engines": "7",
		"capacity.cores": "0.5", "capacity.whole": "2", "capacity.small": "0.000000001", "capacity.huge": "9223372036854775807", "capacity.hundred": "100",
		"shared": "true", "unschedulable": "true", "taints": "example.com/a=x:NoExecute,example.com/b=:NoSchedule",
	}, {"device.name": "gpu-1"}}
	if diff := cmp.Diff(want, slice.Devices.Select(nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSlicesOfSeveralNodesAreNotFeatures(t *testing.T) {
	for name, spec := range map[string]resourcev1.ResourceSliceSpec{
		"all nodes": {AllNodes: new(true)}, "per device": {PerDeviceNodeSelection: new(true)}, "empty": {NodeName: new("")},
	} {
		if _, node := resourceslice.Of(&resourcev1.ResourceSlice{Spec: spec}, nil); node != "" {
			t.Errorf("%s: a feature of node %q", name, node)
		}
	}
}

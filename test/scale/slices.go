//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/scale/fleet"
	"github.com/assay-project/assay/test/stage"
)

// Names of the phases with ResourceSlices.
const (
	phaseDevices     = "rule that reads devices"
	phaseDevicesIdle = "idle with devices"
	phaseSlice       = "one slice change"
)

const (
	// devices is the number of devices of a node: those of the largest servers.
	devices = 8
	// devicesLabel shows their number, and driverLabel the version of their driver.
	devicesLabel = nfdv1alpha1.FeatureLabelNamespace + "/scale-devices"
	driverLabel  = nfdv1alpha1.FeatureLabelNamespace + "/scale-driver"
	firstDriver  = "580.126.20"
)

// devicePhases are the phases with ResourceSlices: the phases before them have none that a rule reads.
func (s *scale) devicePhases() []phase {
	all, changes := s.options.nodes, min(s.changes, s.options.nodes)
	return []phase{
		{name: phaseDevices, per: all, do: func(ctx context.Context, _ *phaseResult) error {
			if err := s.client.Create(ctx, deviceRule()); err != nil {
				return err
			}
			return s.labeled(ctx, phaseDevices, s.nodes, driverLabel, firstDriver)
		}},
		{name: phaseDevicesIdle, do: func(ctx context.Context, _ *phaseResult) error { return stage.Sleep(ctx, s.idle) }},
		{name: phaseSlice, per: changes, do: func(ctx context.Context, r *phaseResult) error { return s.changeSlices(ctx, changes, r) }},
	}
}

// deviceRule returns a rule that labels nodes by their devices.
func deviceRule() *nfdv1alpha1.NodeFeatureRule {
	return &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: "scale-devices"},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
			Name: "scale-devices",
			LabelsTemplate: "{{ range .dra.device }}" + driverLabel + "={{ .driverVersion }}\n{{ end }}" +
				devicesLabel + "={{ len .dra.device }}",
			MatchFeatures: nfdv1alpha1.FeatureMatcher{{
				Feature: "dra.device", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"driver.name": {Op: nfdv1alpha1.MatchExists}},
			}},
		}}},
	}
}

// createSlice publishes the devices of a node: the attributes of NVIDIA's driver, some of which no two devices have in common.
func (s *scale) createSlice(ctx context.Context, n fleet.Node) error {
	return s.client.Create(ctx, &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: types.UID(n.UID)},
		}},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.nvidia.com", NodeName: &n.Name, Pool: resourcev1.ResourcePool{Name: n.Name, Generation: 1, ResourceSliceCount: 1},
			Devices: gpus(n.Number, firstDriver),
		},
	})
}

func gpus(node int, driver string) []resourcev1.Device {
	type attribute = resourcev1.DeviceAttribute
	text := func(s string) attribute { return attribute{StringValue: &s} }
	version := func(s string) attribute { return attribute{VersionValue: &s} }
	list := make([]resourcev1.Device, devices)
	for i := range list {
		list[i] = resourcev1.Device{
			Name: fmt.Sprint("gpu-", i),
			Attributes: map[resourcev1.QualifiedName]attribute{
				"type": text("gpu"), "productName": text("NVIDIA H100 80GB HBM3"), "brand": text("Nvidia"), "architecture": text("Hopper"),
				"cudaComputeCapability": version("9.0.0"), "cudaDriverVersion": version("13.0.0"), "driverVersion": version(driver),
				"minor": {IntValue: ptr.To(int64(i))}, "uuid": text(fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", node, i)),
				"resource.kubernetes.io/pciBusID": text(fmt.Sprintf("0000:%02x:00.0", 16*i+1)), "resource.kubernetes.io/pcieRoot": text(fmt.Sprintf("pci0000:%02x", 16*i)),
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("81559Mi")}},
		}
	}
	return list
}

// changeSlices gives the devices of some nodes another version of their driver, one node after another, and adds the time until the Node
// had the label.
func (s *scale) changeSlices(ctx context.Context, count int, r *phaseResult) error {
	var labeled []time.Duration
	for i := range count {
		n := s.changing(i, count)
		var slice resourcev1.ResourceSlice
		if err := s.client.Get(ctx, client.ObjectKey{Name: n.Name}, &slice); err != nil {
			return err
		}
		before, driver := slice.DeepCopy(), fmt.Sprintf("581.%d.0", i)
		slice.Spec.Devices, slice.Spec.Pool.Generation = gpus(n.Number, driver), slice.Spec.Pool.Generation+1
		start := time.Now()
		if err := s.client.Patch(ctx, &slice, client.MergeFrom(before)); err != nil {
			return err
		}
		seen, err := s.observer.wait(ctx, []fleet.Node{n}, driverLabel, driver, func(int) {})
		if err != nil {
			return err
		}
		labeled = append(labeled, seen.Sub(start))
	}
	r.Values["labeledP50ms"], r.Values["labeledP99ms"] = percentile(labeled, 0.5), percentile(labeled, 0.99)
	return nil
}

package gpu_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/gpu"
	"github.com/assay-project/assay/discovery/host"
)

func TestCardsAreThereOnceWithoutTheirConnectors(t *testing.T) {
	h, err := host.FromArchive([]byte(`
-- sys/class/drm/ --
card0 -> ../../devices/pci0000:00/0000:03:00.0/drm/card0
card0-DP-1 -> ../../devices/pci0000:00/0000:03:00.0/drm/card0/card0-DP-1
card1 -> ../../devices/platform/display/drm/card1
renderD128 -> ../../devices/pci0000:00/0000:03:00.0/drm/renderD128
version: drm 1.1.0 20060810
-- sys/devices/pci0000:00/0000:03:00.0/ --
vendor: 0x1002
device: 0x744C
numa_node: 1
mem_info_vram_total: 25753026560
driver -> ../../../bus/pci/drivers/amdgpu
drm/card0/device -> ../../../0000:03:00.0
drm/card0/card0-DP-1/status: disconnected
drm/renderD128/dev: 226:128
-- sys/bus/pci/drivers/amdgpu/ --
-- sys/devices/platform/display/ --
driver -> ../../../bus/platform/drivers/simple-framebuffer
drm/card1/device -> ../../../display
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := gpu.New().Discover(context.Background(), h)
	if err != nil || len(r.Problems) > 0 {
		t.Errorf("error %v, problems %v, want none", err, r.Problems)
	}
	var got []map[string]string
	for _, e := range r.Features.Instances[gpu.DRMFeature].Elements {
		got = append(got, e.Attributes)
	}
	want := []map[string]string{
		{"name": "card0", "driver": "amdgpu", "vendor": "1002", "device": "744c", "numa_node": "1", "vram_bytes": "25753026560", "render": "renderD128"},
		{"name": "card1", "driver": "simple-framebuffer"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cards (-want +got):\n%s", diff)
	}
}

func TestAcceleratorHasItsDriver(t *testing.T) {
	h, err := host.FromArchive([]byte(`
-- sys/class/accel/accel0 -> ../../devices/pci0000:00/0000:00:0b.0/accel/accel0 --
-- sys/devices/pci0000:00/0000:00:0b.0/ --
vendor: 0x8086
device: 0x7d1d
numa_node: -1
driver -> ../../../bus/pci/drivers/intel_vpu
accel/accel0/device -> ../../../0000:00:0b.0
-- sys/bus/pci/drivers/intel_vpu/ --
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := gpu.New().Discover(t.Context(), h)
	if err != nil || len(r.Problems) > 0 {
		t.Fatal(err, r.Problems)
	}
	list := r.Features.Instances[gpu.AccelFeature].Elements
	want := map[string]string{"name": "accel0", "driver": "intel_vpu", "vendor": "8086", "device": "7d1d"}
	if len(list) != 1 || cmp.Diff(want, list[0].Attributes) != "" {
		t.Errorf("accelerators = %v, want %v", list, want)
	}
}

// information is the file of one GPU in the form of nv-procfs.c.
func information(model, bios, more string) string {
	return "Model: \t\t " + model + "\nIRQ:   \t\t 16\nGPU UUID: \t GPU-3291dfa4-fcc4-0110-615b-c894a0d7c689\nVideo BIOS: \t " + bios +
		"\nBus Type: \t PCIe\nBus Location: \t 0000:70:00.0\nDevice Minor: \t 0\n" + more
}

func TestNVIDIADriverAndItsGPUs(t *testing.T) {
	const driver = "-- proc/driver/nvidia/version --\nNVRM version: NVIDIA UNIX x86_64 Kernel Module  550.135  Fri Jan 10 20:00:00 UTC 2025\n" +
		"GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)\n"
	const one, two = "-- proc/driver/nvidia/gpus/0000:70:00.0/information --\n", "-- proc/driver/nvidia/gpus/0000:71:00.0/information --\n"
	for name, tt := range map[string]struct {
		archive  string
		driver   map[string]string
		gpus     []map[string]string
		problems int
	}{
		"no driver": {"-- proc/version --\n", map[string]string{}, nil, 0},
		"proprietary module": {
			driver + one + information("NVIDIA L4", "95.04.65.00.13", "GPU Excluded:\t No\n"),
			map[string]string{"version": "550.135", "module": "proprietary"},
			[]map[string]string{{"model": "NVIDIA L4", "vbios": "95.04.65.00.13", "location": "0000:70:00.0", "excluded": "false"}}, 0,
		},
		"open module, without GPUs": {
			"-- proc/driver/nvidia/version --\nNVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  (buildbrain@host)\n",
			map[string]string{"version": "540.4.0", "module": "open"}, nil, 0,
		},
		"a GPU that no program has used, and an excluded one": {
			driver + one + information("NVIDIA L4", "??.??.??.??.??", "") + two + information("NVIDIA L4", "95.04", "GPU Firmware: \t 550.135\nGPU Excluded:\t Yes\n"),
			map[string]string{"version": "550.135", "module": "proprietary"},
			[]map[string]string{
				{"model": "NVIDIA L4", "location": "0000:70:00.0"},
				{"model": "NVIDIA L4", "location": "0000:71:00.0", "vbios": "95.04", "firmware": "550.135", "excluded": "true"},
			}, 0,
		},
		"a GPU that the driver does not reach": {
			driver + one + two + information("NVIDIA L4", "95.04", ""),
			map[string]string{"version": "550.135", "module": "proprietary"},
			[]map[string]string{
				{"model": "unknown", "location": "0000:70:00.0"}, {"model": "NVIDIA L4", "location": "0000:71:00.0", "vbios": "95.04"},
			}, 1,
		},
		"a version of another form": {"-- proc/driver/nvidia/version --\nNVRM version: something new\n", nil, nil, 1},
		"a file that is cut":        {"-- proc/driver/nvidia/version --\nNVRM version: NVIDIA UNIX x86_64 Kernel Mo\n", nil, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := host.FromArchive([]byte(tt.archive))
			if err != nil {
				t.Fatal(err)
			}
			r, err := gpu.New().Discover(t.Context(), h)
			if err != nil || len(r.Problems) != tt.problems {
				t.Errorf("error %v, problems %v, want %d", err, r.Problems, tt.problems)
			}
			attributes, known := r.Features.Attributes[gpu.NVIDIAFeature]
			if known != (tt.driver != nil) || cmp.Diff(tt.driver, attributes.Elements) != "" {
				t.Errorf("driver %v, want %v", attributes.Elements, tt.driver)
			}
			var gpus []map[string]string
			for _, e := range r.Features.Instances[gpu.NVIDIAFeature].Elements {
				gpus = append(gpus, e.Attributes)
			}
			if diff := cmp.Diff(tt.gpus, gpus); diff != "" {
				t.Errorf("GPUs (-want +got):\n%s", diff)
			}
		})
	}
}

// A GPU that has failed must not hide cards and accelerators.
func TestCardsAreKnownWithoutTheNVIDIAFiles(t *testing.T) {
	h, err := host.FromArchive([]byte("-- sys/class/drm/card0/dev --\n226:0\n-- proc/driver/nvidia/version (error EIO) --\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := gpu.New().Discover(t.Context(), h)
	if _, known := r.Features.Attributes[gpu.NVIDIAFeature]; err != nil || known || len(r.Problems) != 1 {
		t.Errorf("error %v, driver known %t, problems %v", err, known, r.Problems)
	}
	if len(r.Features.Instances[gpu.DRMFeature].Elements) != 1 {
		t.Errorf("cards %v, want one", r.Features.Instances[gpu.DRMFeature])
	}
}

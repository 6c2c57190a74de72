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

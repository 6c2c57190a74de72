package rdma_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/rdma"
)

func TestEachPortIsAnInstance(t *testing.T) {
	h, err := host.FromArchive([]byte(`
-- sys/class/infiniband/mlx4_0/ --
node_type: 1: CA
fw_ver: 2.42.5000
node_guid: e41d:2d03:0011:2233
device/numa_node: -1
ports/1/link_layer: InfiniBand
ports/1/state: 4: ACTIVE
ports/1/rate: 56 Gb/sec (4X FDR)
ports/2/link_layer: Ethernet
ports/2/state: 1: DOWN
-- sys/class/infiniband/mlx4_0/ports/2/rate (error EINVAL) --
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := rdma.New().Discover(context.Background(), h)
	if err != nil || len(r.Problems) > 0 {
		t.Errorf("error %v, problems %v, want none", err, r.Problems)
	}
	var got []map[string]string
	for _, e := range r.Features.Instances[rdma.DeviceFeature].Elements {
		got = append(got, e.Attributes)
	}
	want := []map[string]string{
		{"name": "mlx4_0", "port": "1", "node_type": "CA", "fw_ver": "2.42.5000", "link_layer": "InfiniBand", "state": "active", "speed": "56000"},
		{"name": "mlx4_0", "port": "2", "node_type": "CA", "fw_ver": "2.42.5000", "link_layer": "Ethernet", "state": "down"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

func TestSpeed(t *testing.T) {
	for rate, want := range map[string]string{
		"100 Gb/sec (4X EDR)": "100000", "2.5 Gb/sec (1X SDR)": "2500", "200 Gb/sec (4X HDR)": "200000",
		"": "", "fast": "", "10 Mb/sec": "", "NaN Gb/sec": "", "-1 Gb/sec": "", "1e99 Gb/sec": "",
	} {
		if got := rdma.Speed(rate); got != want {
			t.Errorf("Speed(%q) = %q, want %q", rate, got, want)
		}
	}
}

package memory_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/memory"
)

func TestLabels(t *testing.T) {
	for name, tt := range map[string]struct {
		archive string
		want    map[string]string
	}{
		"nothing":       {"", map[string]string{}},
		"one NUMA node": {"-- sys/bus/node/devices/node0/ --\n", map[string]string{}},
		"two NUMA nodes": {
			"-- sys/bus/node/devices/node0/ --\n-- sys/bus/node/devices/node1/ --\n",
			map[string]string{"memory-numa": "true"},
		},
		"swap":    {"-- proc/swaps --\nFilename Type Size\n/dev/sda2 partition 1\n", map[string]string{"memory-swap": "true"}},
		"no swap": {"-- proc/swaps --\nFilename Type Size\n", map[string]string{}},
		"persistent memory": {
			"-- sys/bus/nd/devices/region0/ --\ndevtype: nd_pmem\n",
			map[string]string{"memory-nv.present": "true"},
		},
		"device-dax": {
			"-- sys/bus/nd/devices/dax0.0/ --\ndevtype: nd_dax\nmode: dax\n",
			map[string]string{"memory-nv.present": "true", "memory-nv.dax": "true"},
		},
		"huge pages make none": {"-- sys/kernel/mm/hugepages/hugepages-2048kB/ --\nnr_hugepages: 5\n", map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := host.FromArchive([]byte(tt.archive))
			if err != nil {
				t.Fatal(err)
			}
			r, err := memory.New().Discover(context.Background(), h)
			if err != nil || len(r.Problems) > 0 {
				t.Errorf("error %v, problems %v, want none", err, r.Problems)
			}
			if diff := cmp.Diff(tt.want, r.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPageSizeName(t *testing.T) {
	for dir, want := range map[string]string{
		"hugepages-2048kB":     "hugepages-2Mi",
		"hugepages-1048576kB":  "hugepages-1Gi",
		"hugepages-64kB":       "hugepages-64Ki",
		"hugepages-16777216kB": "hugepages-16Gi",
		"hugepages-1536kB":     "hugepages-1536Ki",
	} {
		if got, err := memory.PageSizeName(dir); err != nil || got != want {
			t.Errorf("PageSizeName(%q) = %q, %v, want %q", dir, got, err, want)
		}
	}
	for _, dir := range []string{"", "hugepages-", "hugepages-kB", "hugepages-0kB", "hugepages--1kB", "pages-4kB", "hugepages-99999999999kB"} {
		if got, err := memory.PageSizeName(dir); err == nil {
			t.Errorf("PageSizeName(%q) = %q, want an error", dir, got)
		}
	}
}

package memory_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery"
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
			r := discover(t, tt.archive)
			if len(r.Problems) > 0 {
				t.Errorf("problems %v, want none", r.Problems)
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

func TestSizeComesWithoutTheRestOfMemInfo(t *testing.T) {
	r := discover(t, "-- proc/meminfo --\nMemTotal:       16107436 kB\nHugePages_Total:       5\nMemFree: many kB\n")
	want := map[string]string{"bytes": "16494014464", "mib": "15729"}
	if diff := cmp.Diff(want, r.Features.Attributes[memory.TotalFeature].Elements); diff != "" {
		t.Errorf("memory.total (-want +got):\n%s", diff)
	}
}

func TestNUMANodes(t *testing.T) {
	r := discover(t, `
-- sys/bus/node/devices/node0/ --
cpulist: 0-3
hugepages/hugepages-2048kB/nr_hugepages: 7
-- sys/bus/node/devices/node0/meminfo --
Node 0 MemTotal:        1048576 kB
-- sys/bus/node/devices/node1/ --
cpulist:
-- sys/bus/node/devices/node1/meminfo --
Node 1 MemTotal:        2097152 kB
-- sys/bus/node/devices/power/ --
`)
	var got []map[string]string
	for _, e := range r.Features.Instances[memory.NodeFeature].Elements {
		got = append(got, e.Attributes)
	}
	want := []map[string]string{
		{"id": "0", "bytes": "1073741824", "mib": "1024", "cpus": "0-3", "hugepages-2Mi": "7"},
		{"id": "1", "bytes": "2147483648", "mib": "2048", "cpus": ""}, // memory without CPUs, behind CXL
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("memory.node (-want +got):\n%s", diff)
	}
}

func TestTransparentHugePages(t *testing.T) {
	for name, tt := range map[string]struct {
		files string
		want  map[string]string // nil: the feature is absent
		bad   bool
	}{
		"always":          {"enabled: [always] madvise never\ndefrag: always defer [defer+madvise] madvise never\n", map[string]string{"mode": "always", "defrag": "defer+madvise", "enabled": "true"}, false},
		"never":           {"enabled: always madvise [never]\n", map[string]string{"mode": "never", "enabled": "false"}, false},
		"nothing chosen":  {"enabled: always madvise never\n", nil, true},
		"kernel has none": {"", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := discover(t, "-- sys/kernel/mm/transparent_hugepage/ --\n"+tt.files)
			if diff := cmp.Diff(tt.want, r.Features.Attributes[memory.TransparentHugePagesFeature].Elements); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := len(r.Problems) > 0; got != tt.bad {
				t.Errorf("problems %v, want some: %t", r.Problems, tt.bad)
			}
		})
	}
}

func discover(t *testing.T, archive string) discovery.Result {
	t.Helper()
	h, err := host.FromArchive([]byte("-- proc/meminfo --\nMemTotal: 1024 kB\n" + archive))
	if err != nil {
		t.Fatal(err)
	}
	r, err := memory.New().Discover(context.Background(), h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

package storage_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/storage"
)

func TestDiscover(t *testing.T) {
	for name, tt := range map[string]struct {
		archive      string
		blocks, nvme []map[string]string
		labels       map[string]string
	}{
		"nothing": {labels: map[string]string{}},
		"disk that turns": {
			archive: "-- sys/block/sda/queue/ --\nrotational: 1\nnr_zones: 0\nzoned: none\ndax: 0\n",
			blocks:  []map[string]string{{"name": "sda", "rotational": "1", "nr_zones": "0", "zoned": "none", "dax": "0"}},
			labels:  map[string]string{},
		},
		"one that does not beside one that does": {
			archive: "-- sys/block/ --\nsda/queue/rotational: 1\nvda/queue/rotational: 0\n",
			blocks:  []map[string]string{{"name": "sda", "rotational": "1"}, {"name": "vda", "rotational": "0"}},
			labels:  map[string]string{"storage-nonrotationaldisk": "true"},
		},
		"disk whose driver does not answer": {
			archive: "-- sys/block/sda/queue/rotational (error EINVAL) --\n",
			blocks:  []map[string]string{{"name": "sda"}},
			labels:  map[string]string{},
		},
		"controllers without what identifies them": {
			archive: "-- sys/class/nvme/nvme0/ --\nmodel: SAMSUNG MZ1LB960HAJQ-00007              \nserial: S435NA0M\nfirmware_rev: EDA7202Q\n" +
				"transport: pcie\nstate: live\nnuma_node: 1\naddress: 0000:01:00.0\n" +
				"-- sys/class/nvme/nvme1/ --\nmodel: Linux\ntransport: tcp\nstate: connecting\naddress: traddr=10.0.0.5,trsvcid=4420\nnuma_node: -1\n",
			nvme: []map[string]string{
				{"name": "nvme0", "model": "SAMSUNG MZ1LB960HAJQ-00007", "firmware_rev": "EDA7202Q", "transport": "pcie", "state": "live", "numa_node": "1"},
				{"name": "nvme1", "model": "Linux", "transport": "tcp", "state": "connecting"},
			},
			labels: map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := host.FromArchive([]byte(tt.archive))
			if err != nil {
				t.Fatal(err)
			}
			r, err := storage.New().Discover(context.Background(), h)
			if err != nil || len(r.Problems) > 0 {
				t.Errorf("error %v, problems %v, want none", err, r.Problems)
			}
			for feature, want := range map[string][]map[string]string{
				storage.BlockFeature: tt.blocks, storage.DeviceFeature: tt.blocks, storage.NVMeFeature: tt.nvme,
			} {
				if diff := cmp.Diff(want, attributes(r.Features.Instances[feature])); diff != "" {
					t.Errorf("%s (-want +got):\n%s", feature, diff)
				}
			}
			if diff := cmp.Diff(tt.labels, r.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func attributes(set nfdv1alpha1.InstanceFeatureSet) (out []map[string]string) {
	for _, e := range set.Elements {
		out = append(out, e.Attributes)
	}
	return out
}

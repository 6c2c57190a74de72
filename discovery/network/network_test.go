package network_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/network"
)

func TestSRIOVLabels(t *testing.T) {
	for name, tt := range map[string]struct {
		device string
		want   map[string]string
		bad    bool
	}{
		"no functions":                   {"vendor: 0x8086\n", map[string]string{}, false},
		"driver offers none":             {"sriov_totalvfs: 0\nsriov_numvfs: 0\n", map[string]string{}, false},
		"capable":                        {"sriov_totalvfs: 8\nsriov_numvfs: 0\n", map[string]string{"network-sriov.capable": "true"}, false},
		"configured":                     {"sriov_totalvfs: 8\nsriov_numvfs: 2\n", map[string]string{"network-sriov.capable": "true", "network-sriov.configured": "true"}, false},
		"number that is none":            {"sriov_totalvfs: many\n", map[string]string{}, true},
		"negative number of functions":   {"sriov_totalvfs: -1\n", map[string]string{}, false},
		"more functions than an int has": {"sriov_totalvfs: 99999999999999999999\n", map[string]string{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := host.FromArchive([]byte("-- sys/class/net/eth0 -> ../../devices/card/net/eth0 --\n" +
				"-- sys/devices/card/net/eth0/ --\noperstate: up\ndevice -> ../../../card\n-- sys/devices/card/ --\n" + tt.device))
			if err != nil {
				t.Fatal(err)
			}
			r, err := network.New().Discover(context.Background(), h)
			if err != nil || len(r.Problems) > 0 != tt.bad {
				t.Errorf("error %v, problems %v, want some: %t", err, r.Problems, tt.bad)
			}
			if diff := cmp.Diff(tt.want, r.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInterfaceWithoutDeviceIsVirtual(t *testing.T) {
	h, err := host.FromArchive([]byte("-- sys/class/net/ --\nbonding_masters: bond0\neth0/operstate: up\neth0/device/vendor: 0x1af4\nbond0/operstate: down\n" +
		"-- sys/class/net/bond0/speed (error EINVAL) --\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := network.New().Discover(context.Background(), h)
	if err != nil || len(r.Problems) > 0 {
		t.Errorf("error %v, problems %v, want none", err, r.Problems)
	}
	got := map[string]string{}
	for _, f := range []string{network.DeviceFeature, network.VirtualFeature} {
		for _, i := range r.Features.Instances[f].Elements {
			got[i.Attributes["name"]] = f
		}
	}
	want := map[string]string{"eth0": network.DeviceFeature, "bond0": network.VirtualFeature}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
}

package hosts_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/system"
	"github.com/assay-project/assay/discovery/usb"
	"github.com/assay-project/assay/test/hosts"
)

// record returns an archive of a host and the machine that it describes.
func record(t *testing.T, h host.Host) ([]byte, host.Host) {
	t.Helper()
	var archive []byte
	var err error
	synctest.Test(t, func(t *testing.T) {
		archive, err = host.Record(t.Context(), h, func(ctx context.Context, h host.Host) {
			discovery.Run(ctx, h, builtin.Sources(builtin.DefaultConfig()))
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := host.FromArchive(archive)
	if err != nil {
		t.Fatalf("the archive cannot be read: %v\n%s", err, archive)
	}
	return archive, again
}

func TestRecordedMachineIsDiscoveredAlike(t *testing.T) {
	for _, name := range hosts.Names {
		t.Run(name, func(t *testing.T) {
			h := open(t, name)
			archive, again := record(t, h)
			want := withoutIdentity(discover(t, h))
			got := withoutIdentity(discover(t, again))
			if diff := diffReports(want, got); diff != "" {
				t.Errorf("report of the archive (-machine +archive):\n%s", diff)
			}
			for _, p := range got.Problems {
				t.Errorf("problem: %v", p)
			}
			if secondTime, _ := record(t, again); string(secondTime) != string(archive) {
				t.Error("the record of the archive differs from the archive")
			}
		})
	}
}

func TestThisMachineCanBeRecorded(t *testing.T) {
	h := host.Real(host.Paths{})
	_, again := record(t, h)
	want := discover(t, h)
	got := discover(t, again)
	for _, feature := range []string{"kernel.version", "kernel.config", "cpu.model", "cpu.topology", "memory.total", "system.osrelease"} {
		if w, g := want.Features.Attributes[feature], got.Features.Attributes[feature]; len(w.Elements) != len(g.Elements) {
			t.Errorf("%s has %d elements, and %d in the archive", feature, len(w.Elements), len(g.Elements))
		}
	}
}

// withoutIdentity removes values that an archive must not contain.
func withoutIdentity(r *discovery.Report) *discovery.Report {
	delete(r.Features.Attributes, system.NameFeature)
	delete(r.Features.Attributes, nfdv1alpha1.BootFeature)
	for _, tag := range []string{"board_asset_tag", "chassis_asset_tag"} {
		delete(r.Features.Attributes[system.DMIFeature].Elements, tag)
	}
	for _, device := range r.Features.Instances[usb.DeviceFeature].Elements {
		delete(device.Attributes, "serial")
	}
	return r
}

func TestRecordKeepsNoIdentity(t *testing.T) {
	h := open(t, "arm-board")
	tree := h.FS.(*host.Tree)
	const eth = "sys/devices/platform/usbnet/net/enx5c857e3a11b2"
	tree.AddFile(eth+"/operstate", []byte("up\n"))
	tree.AddLink("sys/class/net/enx5c857e3a11b2", "../../devices/platform/usbnet/net/enx5c857e3a11b2")
	tree.AddFile("usr/lib/os-release", []byte("ID=x\nMAC=5c:85:7e:3a:11:b2\nOTHER=5C:85:7E:3A:11:B3\nNONE=00:00:00:00:00:00\n"))
	archive, again := record(t, h)
	for _, secret := range []string{"edge-pi-03", "10000000abcdef01", "5E2FF5DF", "5c857e3a11b2", "5c:85:7e", "5C:85:7E"} {
		if strings.Contains(string(archive), secret) {
			t.Errorf("the archive has %q", secret)
		}
	}
	report := discover(t, again)
	release := report.Features.Attributes[system.OSReleaseFeature].Elements
	name := "enx" + strings.ReplaceAll(release["MAC"], ":", "")
	found := false
	for _, e := range report.Features.Instances["network.virtual"].Elements {
		found = found || e.Attributes["name"] == name
	}
	if !found {
		t.Errorf("no interface is called %s, after the address in os-release", name)
	}
	if release["NONE"] != "00:00:00:00:00:00" || release["MAC"] == release["OTHER"] {
		t.Errorf("addresses = %v", release)
	}
}

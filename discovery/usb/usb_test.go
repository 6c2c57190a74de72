package usb_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/usb"
)

const archive = `
-- sys/bus/usb/devices/1-1/ --
bDeviceClass: 00
idVendor: 10C4
idProduct: ea60
serial: 0001
-- sys/bus/usb/devices/1-1:1.0/ --
bInterfaceClass: ff
-- sys/bus/usb/devices/1-1:1.1/ --
bInterfaceClass: 03
-- sys/bus/usb/devices/1-10/ --
bDeviceClass: ef
idVendor: 046d
idProduct: 082d
serial: evil/../serial, very
-- sys/bus/usb/devices/1-10:1.0/ --
bInterfaceClass: 0e
`

func TestDeviceWithoutClassIsAnInstancePerInterface(t *testing.T) {
	r := discover(t, usb.DefaultConfig())
	var got []map[string]string
	for _, d := range r.Features.Instances[usb.DeviceFeature].Elements {
		got = append(got, d.Attributes)
	}
	want := []map[string]string{
		{"class": "ff", "vendor": "10c4", "device": "ea60", "serial": "0001"},
		{"class": "03", "vendor": "10c4", "device": "ea60", "serial": "0001"},
		{"class": "ef", "vendor": "046d", "device": "082d", "serial": "evil/../serial, very"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	labels := map[string]string{"usb-ff_10c4_ea60.present": "true", "usb-ef_046d_082d.present": "true"}
	if diff := cmp.Diff(labels, r.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestSerialThatIsNoLabelCostsNoOther(t *testing.T) {
	h, err := host.FromArchive([]byte(archive + "-- proc/version --\n-- sys/devices/ --\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := discovery.Run(t.Context(), h, []discovery.Source{usb.New(usb.Config{DeviceConfig: discovery.DeviceConfig{
		DeviceClassWhitelist: []string{"ef", "ff"}, DeviceLabelFields: []string{"vendor", "serial"},
	}})})
	if diff := cmp.Diff(map[string]string{"usb-10c4_0001.present": "true"}, r.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].String(), "usb-046d_evil_.._serial, very.present") {
		t.Errorf("problems = %v, want one that names the label", r.Problems)
	}
}

func discover(t *testing.T, c usb.Config) discovery.Result {
	t.Helper()
	h, err := host.FromArchive([]byte(archive))
	if err != nil {
		t.Fatal(err)
	}
	r, err := usb.New(c).Discover(context.Background(), h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestUnauthorizedDeviceIsListed: it has no interfaces until an administrator authorizes it.
func TestUnauthorizedDeviceIsListed(t *testing.T) {
	h, err := host.FromArchive([]byte("-- sys/bus/usb/devices/1-3/ --\nbDeviceClass: 00\nidVendor: 1a86\nidProduct: 7523\nauthorized: 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := usb.New(usb.DefaultConfig()).Discover(t.Context(), h)
	if err != nil || len(r.Problems) > 0 {
		t.Fatal(err, r.Problems)
	}
	list := r.Features.Instances[usb.DeviceFeature].Elements
	if len(list) != 1 || list[0].Attributes["class"] != "00" || list[0].Attributes["vendor"] != "1a86" {
		t.Errorf("devices = %v, want the one of class 00", list)
	}
}

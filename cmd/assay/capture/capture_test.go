package capture

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/host"
)

// TestCaptureCleansPartsOfValuesAndNames: what identifies a machine is also inside of values, and in the names of flags, elements and labels.
func TestCaptureCleansPartsOfValuesAndNames(t *testing.T) {
	c := &cleaner{node: "gpu-17.rack3.example.com", as: "node-1", keep: map[string]bool{}}
	for in, want := range map[string]string{
		"root=nfs:10.1.2.3:/export ip=10.1.2.4":     "root=nfs:removed:/export ip=removed",
		"console on gpu-17, gpu-17":                 "console on node-1, node-1",
		"iqn.2020-01.com.example:gpu-17":            "iqn.2020-01.com.example:node-1",
		"gpu-17.rack3.example.com:443":              "node-1:443",
		"[2001:db8::1]:443 up":                      "removed up",
		"from 2001:db8::1":                          "from removed",
		"eth0 52:54:00:12:34:56 up":                 "eth0 removed up",
		"disk-123e4567-e89b-12d3-a456-426614174000": "disk-removed",
		"5.15.0-101-generic":                        "5.15.0-101-generic",
		"5.15.0.1-generic":                          "5.15.0.1-generic",
		"0000:3b:00.0":                              "0000:3b:00.0",
		"port 0002:c903:00ab:cdef":                  "port removed",
		"agpu-17 gpu-170":                           "agpu-17 gpu-170",
		"GenuineIntel":                              "GenuineIntel",
	} {
		if got := c.text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	features := c.features(&nfdv1alpha1.Features{
		Flags:      map[string]nfdv1alpha1.FlagFeatureSet{"local.feature": {Elements: map[string]nfdv1alpha1.Nil{"on.gpu-17": {}, "mac-52:54:00:12:34:56": {}, "kept": {}}}},
		Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"local.label": {Elements: map[string]string{"gpu-17.speed": "at gpu-17"}}},
	})
	labels := c.values(map[string]string{"example.com/gpu-17": "true"})
	data, err := json.Marshal([]any{features, labels})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(data); strings.Contains(text, "gpu-17") || strings.Contains(text, "52:54") || !strings.Contains(text, `"kept"`) || !strings.Contains(text, `"example.com/node-1":"true"`) {
		t.Errorf("the capture is %s", text)
	}
}

// identifiers are one of each kind of text that identifies a machine or gives access to it, with the part that no capture has.
var identifiers = map[string]string{
	"MAC of 5c:85:7e:3a:11:b2":                            "5c:85:7e",
	"enx5c857e3a11b2 up":                                  "5c857e3a11b2",
	"wlx5c857e3a11b3":                                     "5c857e3a11b3",
	"disk/by-id/wwn-0x5002538d40123456-part1":             "5002538d40123456",
	"nvme-eui.0025388b01234567":                           "0025388b01234567",
	"naa.600508b1001c0123456789abcdef0123":                "600508b1001c",
	"http://user:hunter2@proxy.example.com:3128/":         "hunter2",
	"https://ghp_abcdef@git.example.com/x":                "ghp_abcdef",
	"ds=nocloud rd.password=hunter3 console=ttyS0":        "hunter3",
	"api_token=abc123def":                                 "abc123def",
	"systemd.machine_id=0123456789abcdef0123456789abcdef": "0123456789abcdef",
}

// TestCapturesHaveNoIdentifier captures a host that has one of each, as facts and as an archive.
func TestCapturesHaveNoIdentifier(t *testing.T) {
	var release strings.Builder
	release.WriteString("ID=x\n")
	i := 0
	for text := range identifiers {
		i++
		fmt.Fprintf(&release, "A%d=\"%s\"\n", i, text)
	}
	h, err := host.FromArchive([]byte("-- host.json --\n{\"uname\": {\"release\": \"6.1\"}}\n-- etc/os-release --\n" + release.String()))
	if err != nil {
		t.Fatal(err)
	}
	var report *discovery.Report
	archive, err := host.Record(t.Context(), h, func(ctx context.Context, h host.Host) {
		report = discovery.Run(ctx, h, builtin.Sources(builtin.Config{}))
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &cleaner{node: "node-with-a-name", as: "node-1", keep: map[string]bool{}}
	clean, err := json.Marshal(c.features(&report.Features))
	if err != nil {
		t.Fatal(err)
	}
	for kind, text := range map[string]string{"facts": string(clean), "archive": string(archive)} {
		if !strings.Contains(text, "A1") || !strings.Contains(text, "proxy.example.com") {
			t.Fatalf("the %s lack these strings: %s", kind, text)
		}
		for whole, part := range identifiers {
			if strings.Contains(text, part) {
				t.Errorf("the %s have %q of %q", kind, part, whole)
			}
		}
	}
}

package main

import (
	"encoding/json"
	"strings"
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
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

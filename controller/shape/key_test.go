package shape

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/assay-project/assay/settings"
)

func TestShapesOfNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		labels m
		want   string // the readable part; empty: no shape
	}{
		"Karpenter": {
			m{"karpenter.sh/nodepool": "gpu", "node.kubernetes.io/instance-type": "p4d.24xlarge", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
			"gpu-p4d-24xlarge-amd64-linux",
		},
		"InstanceType": {m{"node.kubernetes.io/instance-type": "M5.Large"}, "m5-large"},
		"GroupOnly":    {m{"eks.amazonaws.com/nodegroup": "batch", "kubernetes.io/os": "linux"}, "batch-linux"},
		"BareMetal":    {m{"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": "n1"}, ""},
		"Long":         {m{"node.kubernetes.io/instance-type": strings.Repeat("x.", 31) + "x"}, strings.Repeat("x-", 29) + "x"},
		"EmptyValue":   {m{"node.kubernetes.io/instance-type": "", "kubernetes.io/os": "linux"}, "linux"},
		"NoReadable":   {m{"node.kubernetes.io/instance-type": ""}, "-"},
	} {
		got, key := keyOf(tc.labels, settings.DefaultNodeShapeLabels)
		if tc.want == "" {
			if got != "" || key != nil {
				t.Errorf("%s: the shape is %s %v, want none", name, got, key)
			}
			continue
		}
		readable := got[:max(0, len(got)-2*hashBytes-1)]
		if readable != strings.Trim(tc.want, "-") || len(validation.IsDNS1123Label(got)) > 0 && len(got) <= 63 || len(validation.IsDNS1123Subdomain(got)) > 0 {
			t.Errorf("%s: the name is %s, want %s and a hash", name, got, tc.want)
		}
		for n, value := range key {
			if tc.labels[n] != value {
				t.Errorf("%s: the key has %s=%s", name, n, value)
			}
		}
	}
}

// TestNamesOfShapesDiffer: values that look alike in a name are different shapes, and what does not belong to the key changes nothing.
func TestNamesOfShapesDiffer(t *testing.T) {
	name := func(labels m) string { name, _ := keyOf(labels, settings.DefaultNodeShapeLabels); return name }
	a := name(m{"node.kubernetes.io/instance-type": "a.b", "other": "1"})
	if a == name(m{"node.kubernetes.io/instance-type": "a-b"}) || a == name(m{"karpenter.sh/nodepool": "a.b"}) {
		t.Error("two keys have one name")
	}
	if a != name(m{"node.kubernetes.io/instance-type": "a.b"}) {
		t.Error("a label that is not in the key changes the name")
	}
}

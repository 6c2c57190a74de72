package cdi_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/cdi"
	"github.com/assay-project/assay/discovery/host"
)

func discover(t *testing.T, archive string) (kinds []string, known bool, problems []error) {
	t.Helper()
	h, err := host.FromArchive([]byte(archive))
	if err != nil {
		t.Fatal(err)
	}
	r, err := cdi.New().Discover(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	set, known := r.Features.Instances[cdi.KindFeature]
	for _, e := range set.Elements {
		if got := e.Attributes["vendor"] + "/" + e.Attributes["class"]; got != e.Attributes["kind"] && e.Attributes["kind"] != discovery.Unknown {
			t.Errorf("vendor and class are %s, the kind is %s", got, e.Attributes["kind"])
		}
		kinds = append(kinds, e.Attributes["kind"])
	}
	return kinds, known, r.Problems
}

func TestKindsOfAllSpecificationsAreThereOnce(t *testing.T) {
	kinds, _, problems := discover(t, `
-- etc/cdi/vendor.json --
{"cdiVersion": "0.6.0", "kind": "vendor.example.com/nic", "devices": [{"name": "0", "containerEdits": {"env": ["kind=x"]}}]}
-- etc/cdi/README.txt --
kind: not.a/specification
-- run/cdi/nvidia.yaml --
---
cdiVersion: 0.5.0
kind: "nvidia.com/gpu" # of the toolkit
devices:
- name: "0"
  kind: other.com/nested
-- run/cdi/k8s.gpu.nvidia.com-claim_1.json --
{"kind": "k8s.gpu.nvidia.com/claim"}
-- run/cdi/k8s.gpu.nvidia.com-claim_2.json --
{"kind": "k8s.gpu.nvidia.com/claim"}
`)
	want := []string{"k8s.gpu.nvidia.com/claim", "nvidia.com/gpu", "vendor.example.com/nic"}
	if diff := cmp.Diff(want, kinds); diff != "" || len(problems) > 0 {
		t.Errorf("kinds (-want +got), problems %v:\n%s", problems, diff)
	}
}

func TestKindsAreUnknownWhereRunIsNotMounted(t *testing.T) {
	if kinds, known, problems := discover(t, "-- etc/cdi/vendor.yaml --\nkind: vendor.com/nic\n"); known || len(problems) > 0 {
		t.Errorf("kinds %v, problems %v, want no feature: specifications are in /run", kinds, problems)
	}
	if kinds, known, _ := discover(t, "-- run/lock/ --\n"); !known || len(kinds) > 0 {
		t.Errorf("kinds %v, known %t, want an empty feature: the machine has no specification", kinds, known)
	}
}

func TestBrokenSpecificationIsUnknownAndReported(t *testing.T) {
	for name, content := range map[string]string{
		"NoKind": "cdiVersion: 0.5.0\ndevices: []\n", "HalfJSON": `{"kind": "vendor.com/nic", "devi`, "Empty": "",
		"NoClass": "kind: vendor.com\n", "Label": "kind: 'vendor.com/a b'\n", "List": "kind: [a]\n",
	} {
		t.Run(name, func(t *testing.T) {
			kinds, _, problems := discover(t, "-- run/cdi/a.yaml --\n"+content+"\n-- run/cdi/b.yaml --\nkind: vendor.com/nic\n")
			if diff := cmp.Diff([]string{discovery.Unknown, "vendor.com/nic"}, kinds); diff != "" {
				t.Errorf("kinds (-want +got):\n%s", diff)
			}
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), "/run/cdi/a.yaml") {
				t.Errorf("problems %v, want one with the name of the file", problems)
			}
		})
	}
}

func TestGlanceNoticesNewSpecification(t *testing.T) {
	glance := func(archive string) discovery.Result {
		h, err := host.FromArchive([]byte(archive))
		if err != nil {
			t.Fatal(err)
		}
		r, ok := cdi.New().Glance(t.Context(), h)
		if !ok {
			t.Fatal("a discovery at each poll")
		}
		return r
	}
	one := glance("-- run/cdi/a.yaml --\nkind: vendor.com/nic\n")
	two := glance("-- run/cdi/a.yaml --\nkind: vendor.com/nic\n-- run/cdi/b.yaml --\nkind: vendor.com/gpu\n")
	if discovery.SameFeatures(&one.Features, &two.Features) {
		t.Error("a glance does not notice a new file")
	}
}

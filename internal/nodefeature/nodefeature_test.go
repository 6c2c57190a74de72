package nodefeature

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// decode decodes a NodeFeature as informers do.
func decode(t testing.TB, spec string) *NodeFeature {
	t.Helper()
	f := &NodeFeature{}
	if err := json.Unmarshal([]byte(`{"metadata": {"name": "n1"}, "spec": `+spec+`}`), f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestEncodedInstancesAreFeatures(t *testing.T) {
	const encoded = `"encodedInstances": "{\"network.virtual\":[{\"name\":\"veth0\"}]}"`
	for name, spec := range map[string]string{
		"WithFeatures":    `{` + encoded + `, "featureSets": ["s"], "features": {"attributes": {"a": {"elements": {}}}}, "labels": {"l": "v"}}`,
		"WithoutFeatures": `{"labels": {"l": "v"}, "featureSets": ["s"], "unknown": [], ` + encoded + `}`,
	} {
		f := decode(t, spec)
		if f.Spec.Features.Err != nil || f.Spec.Labels["l"] != "v" || len(f.Spec.FeatureSets) != 1 {
			t.Errorf("%s: %+v", name, f.Spec)
		}
		if v, ok := f.Spec.Features.Feature("network.virtual").Instances.Get(0, "name"); v != "veth0" || !ok {
			t.Errorf("%s: the interface has the name %q", name, v)
		}
		if f.Spec.Features.Bytes < len("veth0") {
			t.Errorf("%s: %d bytes count for the budget", name, f.Spec.Features.Bytes)
		}
	}
	f := decode(t, `{"features": {}, "encodedInstances": "{"}`)
	if f.Spec.Features.Err == nil || !strings.Contains(f.Spec.Features.Err.Error(), "encodedInstances") {
		t.Errorf("error %v, want one about encodedInstances", f.Spec.Features.Err)
	}
	if f := decode(t, `{}`); f.Spec.Features.Facts != nil || f.Spec.Features.Err != nil {
		t.Errorf("an empty spec has the features %+v", f.Spec.Features)
	}
}

// BenchmarkDecode decodes a NodeFeature with 60 interfaces of pods, as objects and as one string.
func BenchmarkDecode(b *testing.B) {
	var elements, attributes []string
	for i := range 60 {
		text := fmt.Sprintf(`{"mtu":"1450","name":"veth%d","operstate":"up","speed":"10000"}`, i)
		elements, attributes = append(elements, `{"attributes":`+text+`}`), append(attributes, text)
	}
	instances := `{"network.virtual":{"elements":[` + strings.Join(elements, ",") + `]}}`
	encoded, err := json.Marshal(`{"network.virtual":[` + strings.Join(attributes, ",") + `]}`)
	if err != nil {
		b.Fatal(err)
	}
	for name, spec := range map[string]string{"Objects": `{"features":{"instances":` + instances + `}}`, "String": `{"encodedInstances":` + string(encoded) + `}`} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				decode(b, spec)
			}
		})
	}
}

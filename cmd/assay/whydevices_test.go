package main

import (
	"maps"
	"strings"
	"testing"
)

// TestWhyDevices: what a Deployment requires of devices and of resources that DeviceClasses claim, for two nodes of which b has a GPU.
func TestWhyDevices(t *testing.T) {
	const dra = "/apis/resource.k8s.io/v1/"
	api := map[string]any{
		"/api/v1/nodes":          list(fakeNode("a"), fakeNode("b")),
		nfdAPI + "nodefeatures":  list(fakeFeatures("a", "AVX"), fakeFeatures("b", "AVX")),
		dra + "devicetaintrules": list(),
		dra + "deviceclasses": list(
			object{"metadata": object{"name": "gpu"}, "spec": object{
				"extendedResourceName": "example.com/gpu", "selectors": []any{object{"cel": object{"expression": `device.driver == "gpu.example.com"`}}},
			}},
			object{"metadata": object{"name": "nic"}, "spec": object{"selectors": []any{object{"cel": object{"expression": `device.driver == "nic.example.com"`}}}}},
		),
		dra + "resourceslices": list(object{"metadata": object{"name": "b-gpu"}, "spec": object{
			"driver": "gpu.example.com", "nodeName": "b", "pool": object{"name": "b", "generation": 1, "resourceSliceCount": 1}, "devices": []any{object{"name": "g0"}},
		}}),
	}
	for _, class := range []string{"gpu", "nic", "tpu"} {
		api[dra+"namespaces/ml/resourceclaimtemplates/"+class] = object{"metadata": object{"name": class}, "spec": object{"spec": object{
			"devices": object{"requests": []any{object{"name": "r", "exactly": object{"deviceClassName": class}}}},
		}}}
	}
	claiming := func(names ...string) object {
		var claims []any
		for _, name := range names {
			claims = append(claims, object{"name": name, "resourceClaimTemplateName": name})
		}
		return object{"resourceClaims": claims}
	}
	extended := object{"containers": []any{object{"name": "c", "resources": object{"requests": object{"example.com/gpu": "1"}}}}}
	nodes := list(fakeNode("a"), fakeNode("b"))
	nodes["items"].([]any)[0].(object)["status"] = object{"allocatable": object{"cpu": "4"}}
	for name, test := range map[string]struct {
		spec object
		want string
		code int
	}{
		"a claim":                {claiming("gpu"), "  DeviceClass gpu of gpu.example.com  1 of 2  -\n1 of 2 nodes meet the requirements: b\n", 0},
		"no driver":              {claiming("gpu", "nic"), "  DeviceClass nic of nic.example.com  0 of 2  -\n0 of 2 nodes meet the requirements\n", 1},
		"no class":               {claiming("tpu"), "  DeviceClass tpu, which does not exist  0 of 2  -\n", 1},
		"a resource of a class":  {extended, "1 of 2 nodes meet the requirements: b\n", 0},
		"a class that is absent": {object{"resourceClaims": []any{object{"name": "x", "resourceClaimName": "none"}}}, "ResourceClaim ml/none, which does not exist", 1},
	} {
		t.Run(name, func(t *testing.T) {
			api := maps.Clone(api)
			api["/api/v1/nodes"] = nodes
			api["/apis/apps/v1/namespaces/ml/deployments/d"] = object{
				"metadata": object{"namespace": "ml", "name": "d"}, "spec": object{"template": object{"spec": test.spec}},
			}
			out, code := runCommand(t, fakeAPI(t, api), "why", "deploy/d", "-n", "ml")
			if !strings.Contains(out, test.want) || code != test.code {
				t.Errorf("exit code %d, want %d and %q in:\n%s", code, test.code, test.want, out)
			}
		})
	}
}

package main

import (
	"maps"
	"strings"
	"testing"

	"github.com/assay-project/assay/cmd/assay/internal/clustertest"
)

// TestWhyDevices: what a Deployment requires of devices and of resources that DeviceClasses claim, for two nodes of which b has a GPU.
func TestWhyDevices(t *testing.T) {
	const dra = "/apis/resource.k8s.io/v1/"
	api := map[string]any{
		"/api/v1/nodes":                  clustertest.List(clustertest.Node("a"), clustertest.Node("b")),
		clustertest.NFD + "nodefeatures": clustertest.List(clustertest.Features("a", "AVX"), clustertest.Features("b", "AVX")),
		dra + "devicetaintrules":         clustertest.List(),
		dra + "deviceclasses": clustertest.List(
			clustertest.Object{"metadata": clustertest.Object{"name": "gpu"}, "spec": clustertest.Object{
				"extendedResourceName": "example.com/gpu", "selectors": []any{clustertest.Object{"cel": clustertest.Object{"expression": `device.driver == "gpu.example.com"`}}},
			}},
			clustertest.Object{"metadata": clustertest.Object{"name": "nic"}, "spec": clustertest.Object{"selectors": []any{clustertest.Object{"cel": clustertest.Object{"expression": `device.driver == "nic.example.com"`}}}}},
		),
		dra + "resourceslices": clustertest.List(clustertest.Object{"metadata": clustertest.Object{"name": "b-gpu"}, "spec": clustertest.Object{
			"driver": "gpu.example.com", "nodeName": "b", "pool": clustertest.Object{"name": "b", "generation": 1, "resourceSliceCount": 1}, "devices": []any{clustertest.Object{"name": "g0"}},
		}}),
	}
	for _, class := range []string{"gpu", "nic", "tpu"} {
		api[dra+"namespaces/ml/resourceclaimtemplates/"+class] = clustertest.Object{"metadata": clustertest.Object{"name": class}, "spec": clustertest.Object{"spec": clustertest.Object{
			"devices": clustertest.Object{"requests": []any{clustertest.Object{"name": "r", "exactly": clustertest.Object{"deviceClassName": class}}}},
		}}}
	}
	claiming := func(names ...string) clustertest.Object {
		var claims []any
		for _, name := range names {
			claims = append(claims, clustertest.Object{"name": name, "resourceClaimTemplateName": name})
		}
		return clustertest.Object{"resourceClaims": claims}
	}
	extended := clustertest.Object{"containers": []any{clustertest.Object{"name": "c", "resources": clustertest.Object{"requests": clustertest.Object{"example.com/gpu": "1"}}}}}
	nodes := clustertest.List(clustertest.Node("a"), clustertest.Node("b"))
	nodes["items"].([]any)[0].(clustertest.Object)["status"] = clustertest.Object{"allocatable": clustertest.Object{"cpu": "4"}}
	for name, test := range map[string]struct {
		spec clustertest.Object
		want string
		code int
	}{
		"a claim":                {claiming("gpu"), "  DeviceClass gpu of gpu.example.com  1 of 2  -\n1 of 2 nodes meet the requirements: b\n", 0},
		"no driver":              {claiming("gpu", "nic"), "  DeviceClass nic of nic.example.com  0 of 2  -\n0 of 2 nodes meet the requirements\n", 1},
		"no class":               {claiming("tpu"), "  DeviceClass tpu, which does not exist  0 of 2  -\n", 1},
		"a resource of a class":  {extended, "1 of 2 nodes meet the requirements: b\n", 0},
		"a class that is absent": {clustertest.Object{"resourceClaims": []any{clustertest.Object{"name": "x", "resourceClaimName": "none"}}}, "ResourceClaim ml/none, which does not exist", 1},
	} {
		t.Run(name, func(t *testing.T) {
			api := maps.Clone(api)
			api["/api/v1/nodes"] = nodes
			api["/apis/apps/v1/namespaces/ml/deployments/d"] = clustertest.Object{
				"metadata": clustertest.Object{"namespace": "ml", "name": "d"}, "spec": clustertest.Object{"template": clustertest.Object{"spec": test.spec}},
			}
			out, code := runCommand(t, clustertest.Serve(t, api), "why", "deploy/d", "-n", "ml")
			if !strings.Contains(out, test.want) || code != test.code {
				t.Errorf("exit code %d, want %d and %q in:\n%s", code, test.code, test.want, out)
			}
		})
	}
}

package main

import (
	"strings"
	"testing"

	"github.com/assay-project/assay/cmd/assay/internal/clustertest"
)

func TestRequestSelector(t *testing.T) {
	condition := func(status, reason, message string) clustertest.Object {
		return clustertest.Object{"conditions": []any{clustertest.Object{
			"type": "Materialized", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
		}}}
	}
	required := clustertest.Object{"matchFeatures": []any{clustertest.Object{"feature": "cpu.cpuid"}}}
	long := strings.Repeat("x", 61)
	api := clustertest.Cluster()
	for name, parts := range map[string][2]clustertest.Object{
		"amx":   {{"required": required}, condition("True", "Labeled", "")},
		"late":  {{"required": required}, condition("False", "TooManyRequests", "older requests take all 50 places")},
		"new":   {{"required": required}, {}},
		"never": {{"required": required, "materialize": "Never"}, {}},
		long:    {{"required": required}, {}},
	} {
		api[clustertest.Assay+"namespaces/ml/nodefeaturerequests/"+name] = clustertest.Object{
			"metadata": clustertest.Object{"namespace": "ml", "name": name, "generation": 1}, "spec": parts[0], "status": parts[1],
		}
	}
	kubeconfig := clustertest.Serve(t, api)
	for name, test := range map[string]struct {
		args string
		want string
		code int
	}{
		"text":     {"amx -n ml", "nodeSelector:\n  features.assay.dev/ml.amx: \"true\"\n", 0},
		"yaml":     {"ml/amx -o yaml", "nodeSelector:\n  features.assay.dev/ml.amx: \"true\"\n", 0},
		"json":     {"ml/amx -o json", "{\n  \"nodeSelector\": {\n    \"features.assay.dev/ml.amx\": \"true\"\n  }\n}\n", 0},
		"patch":    {"ml/amx -o patch", `{"spec":{"template":{"spec":{"nodeSelector":{"features.assay.dev/ml.amx":"true"}}}}}` + "\n", 0},
		"no room":  {"ml/late", "note: nodes do not have the label yet: TooManyRequests: older requests take all 50 places\nnodeSelector:\n  features.assay.dev/ml.late: \"true\"\n", 0},
		"new":      {"ml/new", "note: nodes do not have the label yet: the controller has not evaluated the request\nnodeSelector:\n  features.assay.dev/ml.new: \"true\"\n", 0},
		"no label": {"ml/never", "", 1},
		"long":     {"ml/" + long, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := runCommand(t, kubeconfig, append([]string{"request", "selector"}, strings.Fields(test.args)...)...)
			if out != test.want || code != test.code {
				t.Errorf("got %d\n%s\nwant %d\n%s", code, out, test.code, test.want)
			}
		})
	}
}

package chart

import (
	"os"
	"testing"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestArgoCDKnowsTheHealthOfEachKind runs the shipped health checks for Argo CD in Argo CD's Lua interpreter.
func TestArgoCDKnowsTheHealthOfEachKind(t *testing.T) {
	data, err := os.ReadFile("../../examples/argocd/argocd-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cm corev1.ConfigMap
	if err := yaml.UnmarshalStrict(data, &cm); err != nil {
		t.Fatal(err)
	}
	kinds := 0
	for _, object := range definitions(t) {
		if !hasGeneration(object) {
			continue
		}
		kinds++
		spec := object["spec"].(map[string]any)
		kind := spec["names"].(map[string]any)["kind"].(string)
		check := cm.Data["resource.customizations.health."+spec["group"].(string)+"_"+kind]
		for name, test := range map[string]struct{ status, want string }{
			"New":       {``, "Progressing: Waiting for Assay's controller"},
			"Default":   {`{observedGeneration: -1}`, "Progressing: Waiting for Assay's controller"},
			"Ready":     {`{observedGeneration: 2, conditions: [{type: Accepted, status: "True"}, {type: Ready, status: "True", message: ""}]}`, "Healthy: "},
			"Changed":   {`{observedGeneration: 1, conditions: [{type: Ready, status: "True", message: ""}]}`, "Progressing: Waiting for Assay's controller"},
			"Unhealthy": {`{observedGeneration: 2, conditions: [{type: Healthy, status: "False", message: m}, {type: Ready, status: "True", message: ""}]}`, "Healthy: "},
			"Waits":     {`{observedGeneration: 2, conditions: [{type: Ready, status: "False", message: no base}]}`, "Progressing: no base"},
			"Stalled":   {`{observedGeneration: 2, conditions: [{type: Ready, status: "False", message: wrong}, {type: Stalled, status: "True", message: wrong}]}`, "Degraded: wrong"},
		} {
			if got := health(t, check, test.status); got != test.want {
				t.Errorf("%s %s: got %q, want %q", kind, name, got, test.want)
			}
		}
	}
	if kinds != len(cm.Data) || kinds != 6 {
		t.Errorf("%d kinds have a status, and there are %d checks", kinds, len(cm.Data))
	}
}

// hasGeneration reports whether the status of a kind says which generation it is about: then its users write the objects.
func hasGeneration(definition map[string]any) bool {
	versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
	_, found, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", "observedGeneration")
	return found
}

func toYAML(t *testing.T, object any) string {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// health runs a check on an object with generation 2 and a status.
func health(t *testing.T, check, status string) string {
	t.Helper()
	object := map[string]any{"metadata": map[string]any{"generation": 2.0}}
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(status), &parsed); err != nil {
		t.Fatal(err)
	}
	if parsed != nil {
		object["status"] = parsed
	}
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", luaValue(l, object))
	if err := l.DoString(check); err != nil {
		t.Fatal(err)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the check returns %v", l.Get(-1))
	}
	return result.RawGetString("status").String() + ": " + result.RawGetString("message").String()
}

// luaValue converts a JSON value as Argo CD does.
func luaValue(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, item := range v {
			table.RawSetString(key, luaValue(l, item))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(luaValue(l, item))
		}
		return table
	case float64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	}
	return lua.LNil
}

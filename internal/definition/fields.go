package definition

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
)

// missing returns the fields in parts (spec, status) of this version's CRD that the served CRD drops, such as
// spec.rules[].conditions, sorted. It does not list fields below a dropped field.
func missing(name string, served map[string]any, parts ...string) ([]string, error) {
	all, err := own()
	if err != nil {
		return nil, err
	}
	mine, ok := all[name]
	if !ok {
		return nil, fmt.Errorf("%s is not a definition of Assay", name)
	}
	theirs := schemaOf(served, mine.version)
	var out []string
	for _, part := range parts {
		if field, ok := mine.schema[part].(map[string]any); ok {
			sub, _ := theirs[part].(map[string]any)
			out = append(out, lacking(part, field, sub)...)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Names returns the sorted names of this version's CRDs.
func Names() ([]string, error) {
	all, err := own()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, err
}

// ours is one version of a CRD, and the properties of its objects.
type ours struct {
	version string
	schema  map[string]any
}

// own returns this version's CRDs by name.
var own = sync.OnceValues(func() (map[string]ours, error) {
	out := map[string]ours{}
	for file, data := range charts.CRDs() {
		var crd map[string]any
		if err := yaml.Unmarshal(data, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		name, _, _ := unstructured.NestedString(crd, "metadata", "name")
		versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
		for _, v := range versions {
			version, _ := v.(map[string]any)
			if version["storage"] == true {
				d := ours{}
				d.version, _ = version["name"].(string)
				d.schema = schemaOf(crd, d.version)
				out[name] = d
			}
		}
	}
	return out, nil
})

// schemaOf returns the properties of one version of a CRD, or nil if it does not have the version.
func schemaOf(crd map[string]any, version string) map[string]any {
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	for _, v := range versions {
		served, _ := v.(map[string]any)
		if served["name"] != version {
			continue
		}
		out, _, _ := unstructured.NestedMap(served, "schema", "openAPIV3Schema", "properties")
		return out
	}
	return nil
}

// lacking returns the sorted fields under path that exist in own and that served drops.
func lacking(path string, own, served map[string]any) (out []string) {
	if served["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	if items, ok := own["items"].(map[string]any); ok {
		theirs, _ := served["items"].(map[string]any)
		return lacking(path+"[]", items, theirs)
	}
	fields, _ := own["properties"].(map[string]any)
	theirs, _ := served["properties"].(map[string]any)
	for name, field := range fields {
		at := path + "." + name
		if sub, ok := theirs[name].(map[string]any); ok {
			mine, _ := field.(map[string]any)
			out = append(out, lacking(at, mine, sub)...)
			continue
		}
		out = append(out, at)
	}
	slices.Sort(out)
	return out
}

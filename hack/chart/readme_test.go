package chart

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
)

// TestEveryValueIsDocumented compares docs/values.md with the values.
func TestEveryValueIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/values.md")
	if err != nil {
		t.Fatal(err)
	}
	var named func(path string, schema map[string]any)
	count := 0
	named = func(path string, schema map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		for name, below := range properties {
			child := below.(map[string]any)
			full := strings.TrimPrefix(path+"."+name, ".")
			about, _ := child["description"].(string)
			if child["properties"] != nil && (full == "controller.config" || !strings.Contains(string(page), "| `"+full+"` |")) {
				named(full, child)
				continue
			}
			switch {
			case strings.HasPrefix(about, "Another name of"), strings.HasPrefix(about, "Accepted from Node Feature Discovery, without a meaning."),
				child["deprecated"] == true:
			case strings.Contains(string(page), "| `"+strings.Replace(full, "controller.config.", "controller.", 1)+"` |"):
				count++ // a setting that is a value of the chart is documented there alone
			case !strings.Contains(string(page), "| `"+full+"` |"):
				t.Errorf("docs/values.md does not name %s: run make chart", full)
			default:
				count++
			}
		}
	}
	named("", readValues(t, filepath.Join(chartDir, "values.schema.json")))
	if count < 200 {
		t.Errorf("it names %d values", count)
	}
}

// TestIconIsInTheRepository checks that the URL of the icon refers to a file in the repository.
func TestIconIsInTheRepository(t *testing.T) {
	metadata := load(t).Metadata
	path, ok := strings.CutPrefix(metadata.Icon, metadata.Home+"/raw/main/")
	if !ok {
		t.Fatalf("the icon is %q, not a file of %s", metadata.Icon, metadata.Home)
	}
	data, err := os.ReadFile(filepath.Join("../..", filepath.Clean(path)))
	if err != nil {
		t.Fatal(err)
	}
	var svg struct{ XMLName xml.Name }
	if err := xml.Unmarshal(data, &svg); err != nil || svg.XMLName.Local != "svg" {
		t.Errorf("the icon is not an SVG: %v, %v", svg, err)
	}
}

// TestMisspelledValuesAreRejected checks what docs/values.md says: the schema rejects a name that it does not know, in each object of values but those
// of Node Feature Discovery's chart, which differ between its versions.
func TestMisspelledValuesAreRejected(t *testing.T) {
	var walk func(path []string, schema map[string]any)
	checked := 0
	walk = func(path []string, schema map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		if properties == nil || len(path) > 0 && slices.Contains([]string{"master", "gc", "topologyUpdater"}, path[0]) {
			return
		}
		checked++
		values := map[string]any{"misspelled": 1}
		for _, name := range slices.Backward(path) {
			values = map[string]any{name: values}
		}
		if err := valuesError(t, values); err == nil || !strings.Contains(err.Error(), "misspelled") {
			t.Errorf("%s.misspelled: %v", strings.Join(path, "."), err)
		}
		for name, below := range properties {
			walk(append(slices.Clone(path), name), below.(map[string]any))
		}
	}
	walk(nil, readValues(t, filepath.Join(chartDir, "values.schema.json")))
	if checked < 40 {
		t.Errorf("only %d objects were checked", checked)
	}
}

// valuesError returns the error of the chart's schema for values.
func valuesError(t *testing.T, values map[string]any) error {
	t.Helper()
	_, err := chartutil.ToRenderValues(load(t), values, common.ReleaseOptions{Name: "assay", Namespace: "assay-system"}, common.DefaultCapabilities)
	return err
}

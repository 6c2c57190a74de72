package chart

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeNamesEveryValue compares the chart's README with the values.
func TestReadmeNamesEveryValue(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(chartDir, "README.md"))
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
			switch {
			case child["properties"] != nil:
				named(full, child)
			case strings.HasPrefix(about, "Another name of"), strings.HasPrefix(about, "Accepted from Node Feature Discovery, without a meaning."),
				child["deprecated"] == true:
			case !strings.Contains(string(readme), "| `"+full+"` |"):
				t.Errorf("the README of the chart does not name %s: run make chart", full)
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

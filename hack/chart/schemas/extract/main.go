// Command extract writes the files of package schemas from the modules of Kubernetes, which it has the go command download.
package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/assay-project/assay/hack/chart/schemas"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "extract:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("say into which directory")
	}
	found := map[string]bool{}
	for _, source := range schemas.Sources {
		extract, err := from(source)
		if err != nil {
			return fmt.Errorf("Kubernetes %s: %w", source.Version, err)
		}
		for kind := range extract.Kinds {
			found[kind] = true
		}
		if err := write(filepath.Join(os.Args[1], source.Version+".json.gz"), extract); err != nil {
			return err
		}
	}
	for _, kind := range schemas.Kinds {
		if !found[kind.String()] {
			return fmt.Errorf("no version has %s", kind)
		}
	}
	return nil
}

// from reads the definitions that the kinds need out of a module.
func from(source schemas.Source) (*schemas.Extract, error) {
	var document struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := openAPI(source, &document); err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, kind := range schemas.Kinds {
		wanted[kind.String()] = true
	}
	out := &schemas.Extract{Source: source, Kinds: map[string]string{}, Definitions: map[string]map[string]any{}}
	for name, definition := range document.Definitions {
		list, _ := definition["x-kubernetes-group-version-kind"].([]any)
		for _, entry := range list {
			entry, _ := entry.(map[string]any)
			group, _ := entry["group"].(string)
			version, _ := entry["version"].(string)
			kind, _ := entry["kind"].(string)
			if id := (schema.GroupVersionKind{Group: group, Version: version, Kind: kind}).String(); wanted[id] {
				out.Kinds[id] = name
				reach(document.Definitions, out.Definitions, name)
			}
		}
	}
	return out, nil
}

// openAPI reads the document in a module's archive. The go command has compared the archive with what is known of it in the
// checksum database; here it is compared with what it was when it was chosen.
func openAPI(source schemas.Source, into any) error {
	module := "k8s.io/kubernetes@" + source.Version
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	var downloaded struct{ Zip, Sum, Error string }
	if err := errors.Join(json.Unmarshal(out, &downloaded), err); err != nil {
		return fmt.Errorf("go mod download: %w %s", err, downloaded.Error)
	}
	if downloaded.Sum != source.Sum {
		return fmt.Errorf("the module's hash is %s, not %s", downloaded.Sum, source.Sum)
	}
	archive, err := zip.OpenReader(downloaded.Zip)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	f, err := archive.Open(module + "/api/openapi-spec/swagger.json")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return json.NewDecoder(f).Decode(into)
}

// reach copies a definition, and all that it refers to.
func reach(from, into map[string]map[string]any, name string) {
	if into[name] != nil {
		return
	}
	into[name] = strict(name, from[name])
	references(into[name], func(next string) { reach(from, into, next) })
}

func references(node any, see func(string)) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if text, ok := value.(string); ok && key == "$ref" {
				see(strings.TrimPrefix(text, "#/definitions/"))
			} else {
				references(value, see)
			}
		}
	case []any:
		for _, item := range node {
			references(item, see)
		}
	}
}

// strict turns a definition of OpenAPI 2 into a JSON schema that accepts no field but those it lists, without documentation.
func strict(name string, definition map[string]any) map[string]any {
	switch name[strings.LastIndexByte(name, '.')+1:] {
	case "IntOrString":
		return map[string]any{"type": []any{"integer", "string"}}
	case "Quantity":
		return map[string]any{"type": []any{"number", "string"}}
	}
	out := plain(definition)
	if _, ok := out["properties"]; ok {
		out["additionalProperties"] = false
	}
	return out
}

// plain is a schema without what does not matter to validation.
func plain(node map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range node {
		switch key {
		case "$ref", "type", "format", "required", "enum":
			out[key] = value
		case "items", "additionalProperties":
			if below, ok := value.(map[string]any); ok {
				value = plain(below)
			}
			out[key] = value
		case "properties":
			properties := map[string]any{}
			for name, below := range value.(map[string]any) {
				properties[name] = plain(below.(map[string]any))
			}
			out[key] = properties
		}
	}
	return out
}

// write writes a file that is the same each time: encoding/json sorts keys, and gzip is given no time.
func write(path string, extract *schemas.Extract) error {
	data, err := json.Marshal(extract)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	fmt.Printf("%s: %d kinds, %d definitions, %d kB (%d kB unpacked)\n",
		filepath.Base(path), len(extract.Kinds), len(extract.Definitions), packed.Len()/1000, len(data)/1000)
	return os.WriteFile(path, packed.Bytes(), 0o644)
}

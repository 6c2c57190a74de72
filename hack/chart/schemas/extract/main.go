// Command extract generates the files of package schemas from modules of Kubernetes and of operators, which it downloads with the
// go command.
package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

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
	dir := os.Args[1]
	found := map[string]bool{}
	for _, source := range schemas.Sources {
		extract, err := fromOpenAPI(source)
		if err != nil {
			return fmt.Errorf("Kubernetes %s: %w", source.Version, err)
		}
		for kind := range extract.Kinds {
			found[kind] = true
		}
		if err := write(dir, extract); err != nil {
			return err
		}
	}
	for _, kind := range schemas.Kinds {
		if !found[kind.String()] {
			return fmt.Errorf("no version has %s", kind)
		}
	}
	for _, operator := range schemas.Operators {
		extract, err := fromDefinitions(operator)
		if err != nil {
			return fmt.Errorf("%s: %w", operator.Module, err)
		}
		if err := write(dir, extract); err != nil {
			return err
		}
	}
	return nil
}

// fromOpenAPI extracts the schemas of the kinds from the OpenAPI document of a version of Kubernetes.
func fromOpenAPI(source schemas.Source) (*schemas.Extract, error) {
	var document struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	err := open(source, func(files fs.FS) error {
		data, err := fs.ReadFile(files, "api/openapi-spec/swagger.json")
		if err != nil {
			return err
		}
		return json.Unmarshal(data, &document)
	})
	if err != nil {
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

// fromDefinitions extracts the schemas from an operator's CustomResourceDefinitions.
func fromDefinitions(operator schemas.Operator) (*schemas.Extract, error) {
	out := &schemas.Extract{Source: operator.Source, Kinds: map[string]string{}, Definitions: map[string]map[string]any{}}
	return out, open(operator.Source, func(files fs.FS) error {
		for kind, path := range operator.Files {
			data, err := fs.ReadFile(files, path)
			if err != nil {
				return err
			}
			var definition struct {
				Spec struct {
					Versions []struct {
						Name   string
						Schema struct {
							Root map[string]any `json:"openAPIV3Schema"`
						}
					}
				}
			}
			if err := yaml.Unmarshal(data, &definition); err != nil {
				return err
			}
			for _, version := range definition.Spec.Versions {
				if version.Name == kind.Version {
					out.Kinds[kind.String()] = kind.Kind
					out.Definitions[kind.Kind] = strict(version.Schema.Root)
				}
			}
			if out.Kinds[kind.String()] == "" {
				return fmt.Errorf("%s has no version %s", path, kind.Version)
			}
		}
		return nil
	})
}

// open opens the archive of a module. The go command has verified it with the checksum database; open also compares it with its
// recorded hash.
func open(source schemas.Source, read func(fs.FS) error) error {
	module := source.Module + "@" + source.Version
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
	files, err := fs.Sub(archive, module)
	if err != nil {
		return err
	}
	return read(files)
}

// reach copies a definition, and everything that it refers to.
func reach(from, into map[string]map[string]any, name string) {
	if into[name] != nil {
		return
	}
	into[name] = named(name, from[name])
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

// named returns a definition of Kubernetes. Two are incomplete compared with what API servers accept.
func named(name string, definition map[string]any) map[string]any {
	switch name[strings.LastIndexByte(name, '.')+1:] {
	case "IntOrString":
		return intOrString()
	case "Quantity":
		return map[string]any{"type": []any{"number", "string"}}
	}
	return strict(definition)
}

func intOrString() map[string]any { return map[string]any{"type": []any{"integer", "string"}} }

// strict converts an OpenAPI schema to a JSON schema that rejects unlisted fields, without documentation.
func strict(node map[string]any) map[string]any {
	if node["x-kubernetes-int-or-string"] == true {
		return intOrString()
	}
	out := map[string]any{}
	for key, value := range node {
		switch key {
		case "$ref", "type", "format", "required", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems":
			out[key] = value
		case "items", "additionalProperties":
			if below, ok := value.(map[string]any); ok {
				value = strict(below)
			}
			out[key] = value
		case "properties":
			properties := map[string]any{}
			for name, below := range value.(map[string]any) {
				properties[name] = strict(below.(map[string]any))
			}
			out[key] = properties
		}
	}
	if out["properties"] != nil && node["x-kubernetes-preserve-unknown-fields"] != true {
		out["additionalProperties"] = false
	}
	return out
}

// write writes a reproducible file: encoding/json sorts keys, and gzip gets no time.
func write(dir string, extract *schemas.Extract) error {
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
		extract.Source.File(), len(extract.Kinds), len(extract.Definitions), packed.Len()/1000, len(data)/1000)
	return os.WriteFile(filepath.Join(dir, extract.Source.File()), packed.Bytes(), 0o644)
}

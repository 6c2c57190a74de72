package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// The part of SPDX 2.3 (spdx.github.io/spdx-spec/v2.3) for the modules in a program.
type (
	document struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name       string     `json:"name"`
		ID         string     `json:"SPDXID"`
		Version    string     `json:"versionInfo,omitempty"`
		Download   string     `json:"downloadLocation"`
		Analyzed   bool       `json:"filesAnalyzed"`
		Concluded  string     `json:"licenseConcluded"`
		Declared   string     `json:"licenseDeclared"`
		Copyright  string     `json:"copyrightText"`
		Checksums  []checksum `json:"checksums,omitempty"`
		References []external `json:"externalRefs,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	external struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

// noAssertion is SPDX's value for unknown.
const noAssertion = "NOASSERTION"

// writeSBOM writes the modules in programs according to the linker (debug/buildinfo). This is exact: it omits a module in go.mod
// that nothing imports. The first program is the component's own.
func writeSBOM(path string, c component, o options, programs ...string) error {
	var linked []debug.Module
	var info *debug.BuildInfo
	for _, program := range programs {
		var err error
		if info, err = buildinfo.ReadFile(program); err != nil {
			return err
		}
		if program != programs[0] {
			linked = append(linked, info.Main)
		}
		linked = append(linked, modules(info)...)
	}
	data, err := os.ReadFile(programs[0])
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	main := spdxPackage{
		Name: c.Name, ID: "SPDXRef-program", Version: o.version, Download: "https://github.com/assay-project/assay",
		Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: noAssertion,
		Checksums: []checksum{{"SHA256", hex.EncodeToString(sum[:])}},
	}
	doc := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: filepath.Base(path),
		// Must be unique for the document: two builds with the same content are the same document.
		Namespace: "https://github.com/assay-project/assay/sbom/" + c.Name + "/" + main.Checksums[0].Value,
		Creation:  creation{o.created.Format(time.RFC3339), []string{"Organization: Assay", "Tool: hack/images"}},
		Packages:  []spdxPackage{main, module("go", "stdlib", strings.TrimPrefix(info.GoVersion, "go"))},
		Relationships: []relationship{
			{"SPDXRef-DOCUMENT", "DESCRIBES", main.ID},
		},
	}
	for _, dep := range distinct(linked) {
		doc.Packages = append(doc.Packages, module("golang", dep.Path, dep.Version))
	}
	for _, p := range doc.Packages[1:] {
		doc.Relationships = append(doc.Relationships, relationship{main.ID, "CONTAINS", p.ID})
	}
	out, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(out, '\n'), 0o644)
}

// modules returns the linked modules after replacements.
func modules(info *debug.BuildInfo) []debug.Module {
	var list []debug.Module
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		list = append(list, *dep)
	}
	return list
}

// distinct returns each module once, sorted by path. Those without a version belong to this project.
func distinct(list []debug.Module) []debug.Module {
	list = slices.DeleteFunc(slices.Clone(list), func(m debug.Module) bool { return m.Version == "" || m.Version == "(devel)" })
	slices.SortFunc(list, func(a, b debug.Module) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Version, b.Version))
	})
	return slices.CompactFunc(list, func(a, b debug.Module) bool { return a.Path == b.Path && a.Version == b.Version })
}

// module describes a Go module. Vulnerability scanners use its package URL (github.com/package-url/purl-spec).
func module(kind, path, version string) spdxPackage {
	purl := "pkg:golang/" + path + "@" + version
	download := "https://" + path
	if kind == "go" {
		download = "https://go.dev/dl/"
	}
	return spdxPackage{
		Name: path, ID: "SPDXRef-" + spdxID(path), Version: version, Download: download,
		Concluded: noAssertion, Declared: noAssertion, Copyright: noAssertion,
		References: []external{{"PACKAGE-MANAGER", "purl", purl}},
	}
}

// spdxID returns a valid identifier, which only contains letters, digits, "." and "-".
func spdxID(path string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '-'
	}, path)
}

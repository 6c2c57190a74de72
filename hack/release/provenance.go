package main

import (
	"archive/tar"
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// The types of in-toto's Statement v1 (github.com/in-toto/attestation/spec/v1) with the predicate of SLSA Provenance v1
// (slsa.dev/spec/v1.0/provenance). Optional times, which would differ between two builds, are omitted.
type (
	statement struct {
		Type          string     `json:"_type"`
		Subject       []resource `json:"subject"`
		PredicateType string     `json:"predicateType"`
		Predicate     provenance `json:"predicate"`
	}
	resource struct {
		Name   string            `json:"name,omitempty"`
		URI    string            `json:"uri,omitempty"`
		Digest map[string]string `json:"digest,omitempty"`
	}
	provenance struct {
		Definition buildDefinition `json:"buildDefinition"`
		Run        runDetails      `json:"runDetails"`
	}
	buildDefinition struct {
		Type         string            `json:"buildType"`
		External     map[string]string `json:"externalParameters"`
		Internal     map[string]string `json:"internalParameters"`
		Dependencies []resource        `json:"resolvedDependencies"`
	}
	runDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	}
)

const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	payloadType   = "application/vnd.in-toto+json"

	// page describes the parameters; build type and builder must refer to such a page.
	page           = "https://github.com/assay-project/assay/blob/main/docs/release.md"
	buildType      = page + "#provenance"
	defaultBuilder = page + "#builder"
	source         = "git+https://github.com/assay-project/assay"
)

// provenance describes what the files in r.out were built from: the commit, the compiler, and all linked modules.
func (r *release) provenance() (statement, error) {
	s := statement{Type: statementType, PredicateType: predicateType}
	files, err := list(r.out)
	if err != nil {
		return s, err
	}
	for _, name := range files {
		digest, err := sum(filepath.Join(r.out, name))
		if err != nil {
			return s, err
		}
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": digest}})
	}
	for _, name := range files {
		if !strings.HasSuffix(name, ".oci.tar") {
			continue
		}
		// Clients that pull an image know its digest, not the archive.
		image, err := imageOf(filepath.Join(r.out, name))
		if err != nil {
			return s, fmt.Errorf("%s: %w", name, err)
		}
		s.Subject = append(s.Subject, image)
	}
	s.Predicate.Definition = buildDefinition{
		Type:     buildType,
		External: map[string]string{"source": source + "@" + r.version, "version": r.version, "platforms": r.platforms},
		Internal: map[string]string{"command": "make release", "goVersion": runtime.Version(), "ldflags": r.ldflags, "sourceDateEpoch": fmt.Sprint(r.date.Unix())},
		Dependencies: []resource{
			{URI: source + "@" + r.version, Digest: map[string]string{"gitCommit": r.commit}},
		},
	}
	s.Predicate.Run.Builder.ID = r.builder
	modules, err := r.modules(files)
	s.Predicate.Definition.Dependencies = append(s.Predicate.Definition.Dependencies, modules...)
	return s, err
}

// modules returns the modules in the SBOMs, with their checksums from go.sum.
func (r *release) modules(files []string) ([]resource, error) {
	sums, err := readGoSum(filepath.Join(r.root, "go.sum"))
	if err != nil {
		return nil, err
	}
	var all []resource
	seen := map[string]bool{}
	for _, name := range files {
		if !strings.HasSuffix(name, ".spdx.json") {
			continue
		}
		purls, err := readSBOM(filepath.Join(r.out, name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, purl := range purls {
			if seen[purl] {
				continue
			}
			seen[purl] = true
			module := resource{URI: purl}
			if hash, ok := sums[strings.TrimPrefix(purl, "pkg:golang/")]; ok {
				// in-toto's name for the checksum of a Go module, in hexadecimal (spec/v1/digest_set.md).
				module.Digest = map[string]string{"dirHash": hash}
			}
			all = append(all, module)
		}
	}
	return all, nil
}

// readSBOM returns the package URLs of an SPDX document.
func readSBOM(path string) (purls []string, err error) {
	var doc struct {
		Packages []struct {
			References []struct {
				Type    string `json:"referenceType"`
				Locator string `json:"referenceLocator"`
			} `json:"externalRefs"`
		} `json:"packages"`
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	for _, p := range doc.Packages {
		for _, ref := range p.References {
			if ref.Type == "purl" {
				purls = append(purls, ref.Locator)
			}
		}
	}
	return purls, nil
}

// readGoSum returns the checksums of modules by PATH@VERSION, in hexadecimal.
func readGoSum(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	sums := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || strings.HasSuffix(fields[1], "/go.mod") {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(fields[2], "h1:"))
		if err != nil {
			return nil, fmt.Errorf("%s: sum of %s: %w", path, fields[0], err)
		}
		sums[fields[0]+"@"+fields[1]] = hex.EncodeToString(raw)
	}
	return sums, lines.Err()
}

// imageOf returns the name and digest of the image in an OCI archive.
func imageOf(path string) (resource, error) {
	f, err := os.Open(path)
	if err != nil {
		return resource{}, err
	}
	defer func() { _ = f.Close() }()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return resource{}, errors.New("there is no index.json")
		}
		if err != nil {
			return resource{}, err
		}
		if header.Name != "index.json" {
			continue
		}
		var index struct {
			Manifests []struct {
				Digest      string            `json:"digest"`
				Annotations map[string]string `json:"annotations"`
			} `json:"manifests"`
		}
		if err := json.NewDecoder(r).Decode(&index); err != nil {
			return resource{}, err
		}
		if len(index.Manifests) != 1 {
			return resource{}, fmt.Errorf("there are %d images", len(index.Manifests))
		}
		name := index.Manifests[0].Annotations["org.opencontainers.image.ref.name"]
		digest, ok := strings.CutPrefix(index.Manifests[0].Digest, "sha256:")
		if name == "" || !ok {
			return resource{}, errors.New("the image has no name, or no sha256")
		}
		return resource{Name: name, Digest: map[string]string{"sha256": digest}}, nil
	}
}

package main

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// verified describes a verified release.
type verified struct {
	files          int
	source, commit string
}

// verify checks all files of a release with its checksums, the checksums with the key, and the provenance with both. It returns all
// errors.
func verify(dir string, key *ecdsa.PublicKey) (verified, error) {
	sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return verified{}, err
	}
	signature, err := os.ReadFile(filepath.Join(dir, signatureFile))
	if err != nil {
		return verified{}, err
	}
	if !signed(key, sums, string(signature)) {
		// Without a valid signature the checksums prove nothing.
		return verified{}, fmt.Errorf("%s is not signed by this key", sumsFile)
	}
	want, err := parseSums(sums)
	if err != nil {
		return verified{}, err
	}
	if err := compare(dir, want); err != nil {
		return verified{}, err
	}
	return verifyProvenance(dir, key, want)
}

// parseSums returns the sums by file.
func parseSums(text []byte) (map[string]string, error) {
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		digest, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || name != filepath.Base(name) {
			return nil, fmt.Errorf("%s: invalid line %q: use a sum and the name of a file", sumsFile, line)
		}
		sums[name] = digest
	}
	return sums, nil
}

// compare returns errors for files that differ from their checksums, are missing, or have no checksum.
func compare(dir string, want map[string]string) error {
	names, err := list(dir)
	if err != nil {
		return err
	}
	missing := map[string]bool{}
	for name := range want {
		missing[name] = true
	}
	var problems []error
	for _, name := range names {
		delete(missing, name)
		digest, err := sum(filepath.Join(dir, name))
		switch {
		case err != nil:
			problems = append(problems, err)
		case want[name] == "":
			problems = append(problems, fmt.Errorf("%s is not a file of this release", name))
		case want[name] != digest:
			problems = append(problems, fmt.Errorf("%s was changed: its SHA-256 is %s, and was %s", name, digest, want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		problems = append(problems, fmt.Errorf("%s is missing", name))
	}
	return errors.Join(problems...)
}

// verifyProvenance checks that the provenance in the envelope equals the one with a checksum, and that it describes these files.
func verifyProvenance(dir string, key *ecdsa.PublicKey, want map[string]string) (verified, error) {
	text, err := os.ReadFile(filepath.Join(dir, provenanceFile))
	if err != nil {
		return verified{}, err
	}
	line, err := os.ReadFile(filepath.Join(dir, envelopeFile))
	if err != nil {
		return verified{}, err
	}
	var e envelope
	if err := json.Unmarshal(line, &e); err != nil {
		return verified{}, fmt.Errorf("%s: %w", envelopeFile, err)
	}
	if e.PayloadType != payloadType || !bytes.Equal(e.Payload, text) || len(e.Signatures) != 1 || !signed(key, encoding(e.Payload), e.Signatures[0].Sig) {
		return verified{}, fmt.Errorf("%s is not %s, signed by this key", envelopeFile, provenanceFile)
	}
	var s statement
	if err := json.Unmarshal(text, &s); err != nil {
		return verified{}, fmt.Errorf("%s: %w", provenanceFile, err)
	}
	about := map[string]string{}
	for _, subject := range s.Subject {
		about[subject.Name] = subject.Digest["sha256"]
	}
	for name, digest := range want {
		if name != provenanceFile && about[name] != digest {
			return verified{}, fmt.Errorf("%s does not describe the present content of %s", provenanceFile, name)
		}
	}
	for _, from := range s.Predicate.Definition.Dependencies {
		if commit := from.Digest["gitCommit"]; commit != "" {
			return verified{len(want), from.URI, commit}, nil
		}
	}
	return verified{}, fmt.Errorf("%s names no commit", provenanceFile)
}

// Package bench holds the nodes and rules that all benchmarks use.
package bench

import (
	"compress/gzip"
	"embed"
	"encoding/json"
	"testing"
)

//go:embed *.json.gz
var files embed.FS

// Read decodes one of the files in this directory: node-0, node-1 and node-4 are NodeFeatures, rules-10, rules-100 and rules-500
// lists of NodeFeatureRules.
func Read(t testing.TB, name string, into any) {
	t.Helper()
	if err := Decode(name, into); err != nil {
		t.Fatal(err)
	}
}

// Decode is Read for programs without a testing.TB.
func Decode(name string, into any) error {
	file, err := files.Open(name + ".json.gz")
	if err != nil {
		return err
	}
	z, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	return json.NewDecoder(z).Decode(into)
}

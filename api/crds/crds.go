// Package crds contains the CustomResourceDefinitions of Assay's kinds, generated from the Go types. The chart, the tests and the
// command line all use this copy.
package crds

import (
	"embed"
	"io/fs"
	"sort"
)

//go:embed *.yaml
var files embed.FS

// All returns the YAML of all CRDs by file name.
func All() map[string][]byte {
	out := map[string][]byte{}
	for _, name := range Names() {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err) // reading an embedded file cannot fail
		}
		out[name] = data
	}
	return out
}

// Names returns the sorted file names of the CRDs.
func Names() []string {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		panic(err) // the pattern is constant
	}
	sort.Strings(names)
	return names
}

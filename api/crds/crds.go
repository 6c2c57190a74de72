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

// topology is the CustomResourceDefinition of NodeResourceTopology. It belongs to the scheduler plug-in that reads the objects, so it is
// only installed on request, and never over that of another owner.
//
//go:embed topology/topology.node.k8s.io_noderesourcetopologies.yaml
var topology []byte

// Topology returns the YAML of the CRD of NodeResourceTopology, which All does not contain.
func Topology() []byte { return topology }

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

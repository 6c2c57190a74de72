// Package charts contains the definitions that the chart installs, from the chart's own files: CustomResourceDefinitions, which
// `make generate` writes there, and admission policies. Programs and tests use the same files.
package charts

import (
	"embed"
	"io/fs"
	"path"
	"sort"
)

//go:embed assay/crds/*.yaml assay/files/policies/*.yaml assay/files/scheduling/*.yaml assay/files/topology/*.yaml
var files embed.FS

// CRDs returns the YAML of the CustomResourceDefinitions of all kinds of Assay, by file name.
func CRDs() map[string][]byte { return all("crds") }

// CRDNames returns the sorted file names of CRDs.
func CRDNames() []string { return names("crds") }

// TopologyCRD returns the YAML of the CustomResourceDefinition of NodeResourceTopology, which CRDs does not contain. It belongs to the
// scheduler plug-in that reads the objects, so it is only installed on request, and never over that of another owner.
func TopologyCRD() []byte {
	return read("files/topology/topology.node.k8s.io_noderesourcetopologies.yaml")
}

// all returns the files of a directory of the chart, by name.
func all(dir string) map[string][]byte {
	out := map[string][]byte{}
	for _, name := range names(dir) {
		out[name] = read(path.Join(dir, name))
	}
	return out
}

func read(name string) []byte {
	data, err := fs.ReadFile(files, "assay/"+name)
	if err != nil {
		panic(err) // reading an embedded file cannot fail
	}
	return data
}

func names(dir string) []string {
	found, err := fs.Glob(files, "assay/"+dir+"/*.yaml")
	if err != nil {
		panic(err) // the pattern is constant
	}
	for i, name := range found {
		found[i] = path.Base(name)
	}
	sort.Strings(found)
	return found
}

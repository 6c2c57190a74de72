// Package policies contains the ValidatingAdmissionPolicies of Assay. The chart, the tests and the command line all use this copy.
package policies

import (
	"embed"
	"io/fs"
	"sort"
	"strings"
)

// The default names in the policies.
const (
	// DefaultNamespace is the namespace in which Assay is installed.
	DefaultNamespace = "assay-system"
	// DefaultWorker is the ServiceAccount of the workers in that namespace.
	DefaultWorker = "assay-worker"
	// DefaultManager is the ServiceAccount of the manager in that namespace.
	DefaultManager = "assay-manager"
)

// Names are the names of an installation. Empty names mean the defaults.
type Names struct {
	Namespace, Worker, Manager string
	// StartupTaint is the key of the taint that the controller removes from new nodes; empty: none.
	StartupTaint string
}

//go:embed *.yaml
var files embed.FS

// All returns the YAML of all policies by file name, for an installation with these names.
func All(n Names) map[string][]byte {
	replace := strings.NewReplacer(
		user(DefaultNamespace, DefaultWorker), user(or(n.Namespace, DefaultNamespace), or(n.Worker, DefaultWorker)),
		user(DefaultNamespace, DefaultManager), user(or(n.Namespace, DefaultNamespace), or(n.Manager, DefaultManager)),
		`expression: "''"`, `expression: "'`+n.StartupTaint+`'"`,
		"'"+DefaultNamespace+"'", "'"+or(n.Namespace, DefaultNamespace)+"'",
	)
	out := map[string][]byte{}
	for _, name := range FileNames() {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err) // reading an embedded file cannot fail
		}
		out[name] = []byte(replace.Replace(string(data)))
	}
	return out
}

// FileNames returns the sorted file names.
func FileNames() []string {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		panic(err) // the pattern is constant
	}
	sort.Strings(names)
	return names
}

func user(namespace, serviceAccount string) string {
	return "system:serviceaccount:" + namespace + ":" + serviceAccount
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

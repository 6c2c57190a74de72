// Package custom labels a node by rules of the worker's own configuration, before anything is published.
package custom

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "custom"

const (
	// MaxFiles bounds the files of custom.d.
	MaxFiles = 256
	// MaxFileSize bounds a file of custom.d, in bytes: it is a ConfigMap's size.
	MaxFileSize = 1 << 20
)

// Document is a YAML list of rules.
type Document struct {
	// Origin says in messages where the rules are from.
	Origin string
	Data   []byte
}

// Engine compiles rules. The package that wires it in (internal/worker) uses the same engine that runs in the cluster,
// which packages under discovery do not import.
type Engine interface {
	// Compile returns what the rules of all documents do together, in their order. It is never nil: a rule with a mistake
	// is left out, and the mistake is among the errors.
	Compile(docs []Document) (Program, []error)
}

// Program is compiled rules.
type Program interface {
	// Labels evaluates the rules over the features of the named node. Rules that fail are among the errors; the labels of
	// the others are returned all the same.
	Labels(node string, features *nfdv1alpha1.Features) (map[string]string, []error)
}

// Config is where rules are.
type Config struct {
	// Rules are those of sources.custom in the worker's configuration.
	Rules Document
	// Directory holds files of rules, and directories of such files, such as ConfigMaps.
	Directory string
	// Files is where Directory is; nil is the host that is discovered.
	Files *host.Host
}

// Source evaluates rules over what the other sources found.
type Source struct {
	config Config
	engine Engine

	docs    []Document // that program was compiled from
	program Program
	errs    []error // of the compilation
}

// New returns the source.
func New(config Config, engine Engine) *Source { return &Source{config: config, engine: engine} }

// Name is "custom".
func (*Source) Name() string { return Name }

// LabelPriority is above what the hardware says, and below what an administrator wrote on the node.
func (*Source) LabelPriority() int { return discovery.CustomPriority }

var (
	_ discovery.Deriver     = (*Source)(nil)
	_ discovery.Prioritized = (*Source)(nil)
)

// Discover finds nothing: rules need features.
func (*Source) Discover(context.Context, host.Host) (discovery.Result, error) {
	return discovery.NewResult(), nil
}

// Derive evaluates the static rules, those of the configuration and those of the directory, in this order, as one
// program. It compiles them only when their text has changed.
func (s *Source) Derive(ctx context.Context, h host.Host, found *nfdv1alpha1.Features) (discovery.Result, error) {
	files := h
	if s.config.Files != nil {
		files = s.config.Files.WithContext(ctx)
	}
	docs := []Document{staticRules}
	if len(s.config.Rules.Data) > 0 {
		docs = append(docs, s.config.Rules)
	}
	more, problems := s.read(files)
	docs = append(docs, more...)
	if s.program == nil || !slices.EqualFunc(docs, s.docs, sameDocument) {
		s.program, s.errs = s.engine.Compile(docs)
		s.docs = docs
	}
	node := ""
	if h.System != nil {
		node = h.System.NodeName()
	}
	labels, failed := s.program.Labels(node, found)
	result := discovery.NewResult()
	result.Labels = labels
	result.Problems = slices.Concat(problems, s.errs, failed)
	return result, nil
}

// read returns the files of the directory and of its first level of directories, sorted by path.
func (s *Source) read(h host.Host) ([]Document, []error) {
	var problems []error
	var docs []Document
	var visit func(dir string, depth int)
	visit = func(dir string, depth int) {
		names, err := h.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
		for _, name := range names {
			if strings.HasPrefix(name, ".") || len(docs) == MaxFiles {
				continue
			}
			path := dir + "/" + name
			info, err := h.Stat(path)
			switch {
			case err != nil:
				problems = append(problems, err)
			case info.IsDir() && depth == 0:
				visit(path, depth+1)
			case info.Mode().IsRegular():
				data, err := h.ReadFile(path)
				if err == nil && len(data) > MaxFileSize {
					err = &fs.PathError{Op: "read", Path: "/" + path, Err: host.ErrTooLarge}
				}
				if err != nil {
					problems = append(problems, err)
					continue
				}
				docs = append(docs, Document{Origin: "/" + path, Data: data})
			}
		}
	}
	if s.config.Directory != "" {
		visit(s.config.Directory, 0)
	}
	return docs, problems
}

func sameDocument(a, b Document) bool { return a.Origin == b.Origin && slices.Equal(a.Data, b.Data) }

// staticRules are those that NFD has built in. Their labels carry no "custom-": consumers look for rdma.capable.
var staticRules = Document{Origin: "static rules", Data: []byte(`
- name: RDMA capable static rule
  labels:
    rdma.capable: "true"
  matchFeatures:
  - feature: pci.device
    matchExpressions:
      vendor: {op: In, value: ["15b3"]}
- name: RDMA available static rule
  labels:
    rdma.available: "true"
  matchFeatures:
  - feature: kernel.loadedmodule
    matchExpressions:
      ib_uverbs: {op: Exists}
      rdma_ucm: {op: Exists}
`)}

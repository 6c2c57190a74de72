// Package custom labels a node with rules in the worker's configuration.
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
	// MaxFiles is the maximum number of files in custom.d.
	MaxFiles = 256
	// MaxFileSize is the maximum size of a file in custom.d in bytes, which is that of a ConfigMap.
	MaxFileSize = 1 << 20
)

// Document is a YAML list of rules.
type Document struct {
	// Origin is the location of the rules for messages.
	Origin string
	Data   []byte
}

// Engine compiles rules. Packages under discovery do not import the rule engine; internal/worker passes in the one that runs in the
// cluster.
type Engine interface {
	// Compile compiles the rules of all documents to one program, in order. The program is never nil: invalid rules are omitted
	// from it and reported as errors.
	Compile(docs []Document) (Program, []error)
}

// Program holds compiled rules.
type Program interface {
	// Labels evaluates the rules with the features of the named node. It returns errors for rules that fail, and the labels of the
	// others.
	Labels(node string, features *nfdv1alpha1.Features) (map[string]string, []error)
}

// Config configures where rules are read from.
type Config struct {
	// Rules are the rules in sources.custom of the worker's configuration.
	Rules Document
	// Directory contains files with rules, and subdirectories with such files, such as mounted ConfigMaps.
	Directory string
	// Files is the file system of Directory; nil: that of the discovered host.
	Files *host.Host
}

// Source evaluates rules with the features of the other sources.
type Source struct {
	config Config
	engine Engine

	docs    []Document // from which program was compiled
	program Program
	errs    []error // of the compilation
}

// New returns the source.
func New(config Config, engine Engine) *Source { return &Source{config: config, engine: engine} }

// Name returns "custom".
func (*Source) Name() string { return Name }

// LabelPriority returns a priority higher than that of hardware sources, and lower than that of files that an administrator wrote
// on the node.
func (*Source) LabelPriority() int { return discovery.CustomPriority }

var (
	_ discovery.Deriver     = (*Source)(nil)
	_ discovery.Prioritized = (*Source)(nil)
)

// Discover returns no features: rules are evaluated in Derive.
func (*Source) Discover(context.Context, host.Host) (discovery.Result, error) {
	return discovery.NewResult(), nil
}

// Derive evaluates the static rules, the rules in the configuration and those in the directory, in this order, as one program. It
// compiles them only when they have changed.
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

// read returns the files in the directory and in its subdirectories (one level), sorted by path.
func (s *Source) read(h host.Host) ([]Document, []error) {
	var problems []error
	var docs []Document
	// failed reports a file or directory that cannot be read, and keeps what it contained last, as long as it exists.
	failed := func(path string, err error) {
		problems = append(problems, err)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, host.ErrTooLarge) {
			return
		}
		for _, d := range s.docs {
			if d.Origin == "/"+path || strings.HasPrefix(d.Origin, "/"+path+"/") {
				docs = append(docs, d)
			}
		}
	}
	var visit func(dir string, depth int)
	visit = func(dir string, depth int) {
		names, err := h.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed(dir, err)
			return
		}
		for _, name := range names {
			if strings.HasPrefix(name, ".") || len(docs) == MaxFiles {
				continue
			}
			path := dir + "/" + name
			info, err := h.Stat(path)
			switch {
			case err != nil:
				failed(path, err)
			case info.IsDir() && depth == 0:
				visit(path, depth+1)
			case info.Mode().IsRegular():
				data, err := h.ReadText(path)
				if err == nil && len(data) > MaxFileSize {
					err = &fs.PathError{Op: "read", Path: "/" + path, Err: host.ErrTooLarge}
				}
				if err != nil {
					failed(path, err)
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

// staticRules are the built-in rules of NFD. Their labels have no prefix "custom-": clients select rdma.capable.
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

// Package library contains NodeFeatureRules for common hardware.
//
// ID.yaml contains the NodeFeatureRule with the name ID, ID.test.yaml its tests for the assay command. For every rule there is a
// test in which it matches and a test in which it almost matches.
package library

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/suggest"
)

//go:embed *.yaml
var files embed.FS

// maxDistance is the number of edits at which an ID is not suggested anymore.
const maxDistance = 4

const (
	groupAnnotation   = "assay.dev/library-group"
	sourcesAnnotation = "assay.dev/library-sources"
)

// Entry is one object of the library.
type Entry struct {
	// ID is the file name without extension, and the name of the object.
	ID string `json:"id"`
	// Group is the kind of hardware, for example gpu or network.
	Group string `json:"group"`
	// Description is the description of the object, on one line.
	Description string `json:"description"`
	// Sources lists the sources of its IDs and names.
	Sources string `json:"sources"`
	// Labels are the keys that its rules write, sorted.
	Labels []string `json:"labels"`
	// Object is the NodeFeatureRule. It must not be modified.
	Object *nfdv1alpha1.NodeFeatureRule `json:"-"`
	// YAML is the content of the file.
	YAML string `json:"-"`
}

// Entries returns all objects of the library, sorted by group and ID. They are parsed on first use.
var Entries = sync.OnceValues(func() ([]*Entry, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var out []*Entry
	for _, name := range names {
		if strings.HasSuffix(name, ".test.yaml") {
			continue
		}
		e, err := read(name)
		if err != nil {
			return nil, fmt.Errorf("library/%s: %w", name, err)
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *Entry) int {
		return strings.Compare(a.Group+"\x00"+a.ID, b.Group+"\x00"+b.ID)
	})
	return out, nil
})

func read(name string) (*Entry, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	object := &nfdv1alpha1.NodeFeatureRule{}
	if err := yaml.UnmarshalStrict(data, object); err != nil {
		return nil, err
	}
	e := &Entry{
		ID: strings.TrimSuffix(name, ".yaml"), Group: object.Annotations[groupAnnotation], Sources: object.Annotations[sourcesAnnotation],
		Description: ptr.Deref(object.Spec.Description, ""), Object: object, YAML: string(data),
	}
	if object.Name != e.ID {
		return nil, fmt.Errorf("the object is named %q, want %q", object.Name, e.ID)
	}
	for i := range object.Spec.Rules {
		for key := range object.Spec.Rules[i].Labels {
			e.Labels = append(e.Labels, key)
		}
	}
	slices.Sort(e.Labels)
	e.Labels = slices.Compact(e.Labels)
	return e, nil
}

// Get returns the objects with the given IDs, in the same order. The error names an unknown ID and suggests a similar one.
func Get(ids ...string) ([]*Entry, error) {
	all, err := Entries()
	if err != nil {
		return nil, err
	}
	known := make(map[string]*Entry, len(all))
	names := make([]string, len(all))
	for i, e := range all {
		known[e.ID], names[i] = e, e.ID
	}
	out := make([]*Entry, len(ids))
	for i, id := range ids {
		if out[i] = known[id]; out[i] == nil {
			if near := suggest.Nearest(id, names, maxDistance); near != "" {
				return nil, fmt.Errorf("the library has no rule %q; did you mean %s?", id, near)
			}
			return nil, fmt.Errorf("the library has no rule %q; assay library list shows all", id)
		}
	}
	return out, nil
}

// Write writes the files of the library, or those with the given IDs, into an existing directory.
func Write(dir string, ids ...string) error {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return err
	}
	for _, name := range names {
		if id, _, _ := strings.Cut(name, "."); len(ids) > 0 && !slices.Contains(ids, id) {
			continue
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

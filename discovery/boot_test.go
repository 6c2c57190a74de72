package discovery

import (
	"context"
	"errors"
	"testing"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/host"
)

// bootIn returns the boot that features are of; empty: none.
func bootIn(f *nfdv1alpha1.Features) string {
	return f.Attributes[nfdv1alpha1.BootFeature].Elements[nfdv1alpha1.BootElement]
}

// booted returns a host of which only the boot is known.
func booted(id string) (host.Host, *host.Tree) {
	tree := host.NewTree()
	tree.AddFile("proc/version", nil)
	tree.AddDir("sys/devices")
	if id != "" {
		tree.AddFile(host.BootID, []byte(id+"\n"))
	}
	return host.Host{FS: tree}, tree
}

// TestTheBootDoesNotDependOnTheSources: without it, the controller cannot know that a node's features are of this boot.
func TestTheBootDoesNotDependOnTheSources(t *testing.T) {
	const id = "3f1f2b1c-6a0e-4f5e-9b1a-0c7f6f1d2e3a"
	h, _ := booted(id)
	sources := []Source{finds("system", "l", "1"), finds("pci", "m", "1")}
	only, _ := Choose([]string{"pci"}, sources)
	r := NewRunner(h, sources, Selection{Features: only})
	if got := r.Run(t.Context()).Features; bootIn(&got) != id {
		t.Errorf("the boot is %q, want %s", bootIn(&got), id)
	}

	// An earlier process has published the boot, and nothing else of the source system: that source is not read.
	failing := &fake{name: "system", find: func(context.Context) (Result, error) { return Result{}, errors.New("no") }}
	r = NewRunner(h, []Source{failing}, Everything)
	r.Run(t.Context())
	before := NewResult()
	before.Attributes(nfdv1alpha1.BootFeature, map[string]string{nfdv1alpha1.BootElement: id})
	r.Restore(&before.Features, nil)
	report := r.Run(t.Context(), "none")
	if got := unreadIn(report); len(got) != 1 || bootIn(&report.Features) != id {
		t.Errorf("the sources %q are not read, and the boot is %q", got, bootIn(&report.Features))
	}
}

// TestABootThatBecomesKnownIsPublished, with a problem as long as it cannot be read.
func TestABootThatBecomesKnownIsPublished(t *testing.T) {
	h, tree := booted("")
	r := NewRunner(h, []Source{finds("pci", "m", "1")}, Everything)
	if report := r.Run(t.Context()); bootIn(&report.Features) != "" || len(report.Problems) != 0 {
		t.Errorf("a host without it: boot %q, problems %v", bootIn(&report.Features), report.Problems)
	}
	tree.AddFile(host.BootID, []byte("<html>"))
	if report := r.Run(t.Context(), "none"); bootIn(&report.Features) != "" || len(report.Problems) != 1 {
		t.Errorf("malformed: boot %q, problems %v", bootIn(&report.Features), report.Problems)
	}
	tree.AddFile(host.BootID, []byte("b1\n"))
	if report := r.Run(t.Context(), "none"); bootIn(&report.Features) != "b1" || !report.Changed || len(report.Problems) != 0 {
		t.Errorf("boot %q, changed %t, problems %v", bootIn(&report.Features), report.Changed, report.Problems)
	}
	if report := r.Run(t.Context(), "none"); report.Changed {
		t.Error("a boot that is known changes the report")
	}
}

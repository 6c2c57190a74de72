package hosts_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/topology"
	"github.com/assay-project/assay/test/hosts"
)

// spellings are the forms in which kernels, editors and copies of machines write the same text.
var spellings = []struct {
	name string
	of   func(text []byte) []byte
}{
	// Linux 5.15 ends the lists of CPUs so (drivers/base/topology.c); device trees and DMI tables end strings so.
	{"a zero byte at the end", func(b []byte) []byte { return append(bytes.Clone(b), 0) }},
	{"zero bytes in place of the last newline", func(b []byte) []byte { return append(bytes.TrimSuffix(bytes.Clone(b), []byte("\n")), 0, 0, 0) }},
	{"no newline at the end", func(b []byte) []byte { return bytes.TrimSuffix(b, []byte("\n")) }},
	{"carriage returns", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) }},
	{"a byte order mark", func(b []byte) []byte { return append([]byte("\uFEFF"), b...) }},
	{"empty lines at the end", func(b []byte) []byte { return append(bytes.Clone(b), "\n\n"...) }},
}

// lists are files whose lines are a list. Without the last newline a part of it is missing, and what is not in the rest is unknown.
var lists = map[string]bool{
	"proc/modules": true, "proc/swaps": true, "lib/modules/RELEASE/modules.builtin": true,
	"boot/config-RELEASE": true, "usr/lib/modules/RELEASE/config": true,
}

// TestSpellingsOfAFileMeanTheSame: each source reads each of its files in each spelling, and finds the same.
func TestSpellingsOfAFileMeanTheSame(t *testing.T) {
	files, _ := matrixFiles(t)
	read := 0
	for _, f := range files {
		if f.dir || f.tested || len(f.data) == 0 || bytes.IndexByte(f.data, 0) >= 0 {
			continue // it has no text
		}
		read++
		want := runSource(t, machine(t, f.machine), f.source)
		for _, s := range spellings {
			h := machine(t, f.machine)
			h.FS.(*host.Tree).AddFile(f.real, s.of(f.data))
			got := runSource(t, h, f.source)
			changes := changesOf(want, got)
			if lists[f.pattern] && !bytes.HasSuffix(host.Text(s.of(f.data)), []byte("\n")) {
				if len(got.Problems) == 0 {
					t.Errorf("%s: /%s (%s) with %s, and nothing says so", f.source, f.pattern, f.machine, s.name)
				}
				continue
			}
			if len(changes) > 0 {
				t.Errorf("%s: /%s (%s) with %s: %s; problems %v", f.source, f.pattern, f.machine, s.name, strings.Join(changes, "; "), got.Problems)
			}
		}
	}
	if read < 100 {
		t.Errorf("%d files were read, want at least 100", read)
	}
}

// TestSpellingsMeanTheSameForTopology is the same for what a NodeResourceTopology is made of.
func TestSpellingsMeanTheSameForTopology(t *testing.T) {
	read := 0
	for _, name := range hosts.Names {
		want, _, err := topology.ReadMachine(open(t, name))
		if err != nil {
			continue // the archive has no list of CPUs
		}
		trace := &tracer{FS: open(t, name).FS, names: map[string]bool{}}
		if _, _, err := topology.ReadMachine(host.Host{FS: trace}); err != nil {
			t.Fatal(err)
		}
		for file := range trace.names {
			data, err := open(t, name).ReadFile(file)
			if err != nil || len(data) == 0 {
				continue
			}
			read++
			for _, s := range spellings {
				h := open(t, name)
				h.FS.(*host.Tree).AddFile(h.Resolve(file), s.of(data))
				got, unread, err := topology.ReadMachine(h)
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Errorf("%s: /%s with %s: error %v, unread %v (-want +got):\n%s", name, file, s.name, err, unread, diff)
				}
			}
		}
	}
	if read < 20 {
		t.Errorf("%d files were read, want at least 20", read)
	}
}

package hosts_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/local"
	"github.com/assay-project/assay/discovery/system"
	"github.com/assay-project/assay/test/hosts"
)

// The matrix: each source reads each of its files in each of these states, one file at a time.
var states = []struct {
	name string
	set  func(t *host.Tree, f file)
}{
	{"missing", func(t *host.Tree, f file) { t.Remove(f.real) }},
	{"empty", func(t *host.Tree, f file) { t.Remove(f.real); f.write(t, nil) }},
	{"unreadable", func(t *host.Tree, f file) { t.AddBroken(f.real, syscall.EACCES) }},
	{"malformed", func(t *host.Tree, f file) {
		t.Remove(f.real)
		t.AddFile(f.real, []byte("<!DOCTYPE html>\n"))
	}},
	{"truncated", func(t *host.Tree, f file) {
		if !f.dir {
			t.AddFile(f.real, f.data[:len(f.data)/2])
		}
	}},
}

// file is a file or a directory that a source reads.
type file struct {
	machine, source string
	pattern         string // its name without the numbers of devices
	real            string // its name without links
	dir             bool   // it is a directory
	data            []byte // of a file
	tested          bool   // the source only asks whether it exists
}

// write creates the file again with other content, or the directory without entries.
func (f file) write(t *host.Tree, data []byte) {
	if f.dir {
		t.AddDir(f.real)
	} else {
		t.AddFile(f.real, data)
	}
}

// sourceOf returns a new source of that name: the sources remember what they have read.
func sourceOf(name string) discovery.Source {
	for _, s := range allSources() {
		if s.Name() == name {
			return s
		}
	}
	panic(name)
}

const featuresDir = "etc/kubernetes/node-feature-discovery/features.d"

// allSources returns the sources that run by default.
func allSources() []discovery.Source {
	sources := slices.DeleteFunc(builtin.Sources(builtin.DefaultConfig()), func(s discovery.Source) bool { return !discovery.Everything.Features.Has(s) })
	return append(sources, local.New(local.Config{Directory: featuresDir}))
}

// machine opens a machine for the matrix.
func machine(t *testing.T, name string) host.Host {
	h := open(t, name)
	for file, text := range map[string]string{
		featuresDir + "/site":            "example.com/rack=7\nexample.com/row=3\n",
		"sys/firmware/memmap/0/type":     "System RAM\n",
		"proc/sys/kernel/random/boot_id": "3f1f2b1c-6a0e-4f5e-9b1a-0c7f6f1d2e3a\n",
		"sys/firmware/efi/efivars/BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c": "\a\x00\x00\x00\x01\x00",
		"sys/devices/vio/ibm,compression-v1/nx_gzip_caps/req_max_processed_len":   "4096\n",
	} {
		if dir, _, _ := strings.Cut(file, "/efivars/"); dir == file || exists(h, dir) {
			h.FS.(*host.Tree).AddFile(file, []byte(text))
		}
	}
	return h
}

func exists(h host.Host, name string) bool {
	ok, err := h.Exists(name)
	return ok && err == nil
}

func runSource(t *testing.T, h host.Host, source string) (report *discovery.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		report = discovery.Run(t.Context(), h, []discovery.Source{sourceOf(source)})
	})
	return report
}

// tracer records the names that are read from a tree.
type tracer struct {
	host.FS
	mu    sync.Mutex
	names map[string]bool // whether the content was read, not only whether it exists
}

func (t *tracer) note(name string, read bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names[name] = t.names[name] || read
}

func (t *tracer) Open(name string) (fs.File, error) {
	t.note(name, true)
	return t.FS.Open(name)
}

func (t *tracer) OpenBelow(dir, name string) (fs.File, error) {
	t.note(dir+"/"+name, true)
	return t.FS.OpenBelow(dir, name)
}

func (t *tracer) ReadDirNames(name string, max int) ([]string, error) {
	t.note(name, true)
	return t.FS.ReadDirNames(name, max)
}

func (t *tracer) Stat(name string) (fs.FileInfo, error) {
	t.note(name, false)
	return t.FS.Stat(name)
}

var (
	numbered = regexp.MustCompile(`[^/]*[0-9][^/]*|\b(lo|sda)\b`)
	device   = regexp.MustCompile(`devices/([^/]*\*|platform|virtual/net|virtual/block)/(.*/)?(queue/|iommu|infiniband/|ports/)`)
	plain    = regexp.MustCompile(`devices/([^/]*\*|platform|virtual/net|virtual/block)/.*\*/`)
)

// patternOf replaces the names of devices, so that the files of equal devices are one.
func patternOf(name, release string) string {
	name = strings.ReplaceAll(name, release, "RELEASE")
	name = numbered.ReplaceAllStringFunc(name, func(s string) string {
		if strings.Contains(s, "RELEASE") || strings.HasPrefix(s, "SecureBoot") {
			return s
		}
		return "*"
	})
	if device.MatchString(name) {
		return device.ReplaceAllString(name, "devices/…/$3")
	}
	return plain.ReplaceAllString(name, "devices/…/")
}

// filesOf returns the files that a source reads on a machine: those that are there, and the patterns of those that are not.
func filesOf(t *testing.T, name, source string) (found []file, missing []string) {
	h := machine(t, name)
	uts, err := h.System.Uname()
	if err != nil {
		t.Fatal(err)
	}
	trace := &tracer{FS: h.FS, names: map[string]bool{}}
	runSource(t, host.Host{FS: trace, System: h.System}, source)
	for _, read := range slices.Sorted(maps.Keys(trace.names)) {
		if read == host.BootID && source != system.Name {
			continue // each Runner reads it, independent of the source
		}
		f := file{machine: name, source: source, pattern: patternOf(read, uts.Release), tested: !trace.names[read]}
		if f.real, err = h.FS.Resolve(read); err != nil {
			missing = append(missing, f.pattern)
			continue
		}
		info, err := h.FS.Stat(f.real)
		if err != nil {
			missing = append(missing, f.pattern)
			continue
		}
		f.dir = info.IsDir()
		if !f.dir {
			f.data, err = h.ReadFile(f.real)
		}
		if err != nil { // broken on this machine
			continue
		}
		found = append(found, f)
	}
	return found, missing
}

// machines returns the names of the machines, that with the most devices first.
func machines() []string {
	return append([]string{"server"}, slices.DeleteFunc(slices.Clone(hosts.Names), func(n string) bool { return n == "server" })...)
}

// matrixFiles returns one file of each pattern of each source, and the patterns that no machine has.
func matrixFiles(t *testing.T) (files []file, missing []string) {
	for _, source := range allSources() {
		seen := map[string]bool{}
		not := map[string]bool{}
		for _, name := range machines() {
			found, without := filesOf(t, name, source.Name())
			for _, f := range found {
				key := f.pattern
				if slices.Contains([]string{"proc/cpuinfo", "proc/sysinfo"}, key) {
					key += name // architectures have formats of their own
				}
				if !seen[key] {
					seen[f.pattern], seen[key] = true, true
					files = append(files, f)
				}
			}
			for _, pattern := range without {
				not[pattern] = true
			}
		}
		for _, pattern := range slices.Sorted(maps.Keys(not)) {
			if !seen[pattern] {
				missing = append(missing, source.Name()+" /"+pattern)
			}
		}
	}
	slices.SortStableFunc(files, func(a, b file) int { return strings.Compare(a.source+" "+a.pattern, b.source+" "+b.pattern) })
	return files, missing
}

// TestWhatBrokenFilesDo writes what each source publishes if one of its files is missing, empty, unreadable, malformed or truncated to
// matrix.golden, and checks that no source takes what it cannot read for something that the machine does not have.
func TestWhatBrokenFilesDo(t *testing.T) {
	files, missing := matrixFiles(t)
	var out strings.Builder
	out.WriteString("What each source publishes if one of its files is broken, compared with the same machine as it is.\n" +
		"\"told\" means that the worker logs a problem, \"unread\" that the NodeFeature names the source as not read. Generated: go test ./test/hosts -update\n")
	before := ""
	for _, f := range files {
		if f.source != before {
			fmt.Fprintf(&out, "\n# %s\n", f.source)
			before = f.source
		}
		slash := ""
		if f.dir {
			slash = "/"
		}
		fmt.Fprintf(&out, "\n/%s%s (%s)\n", f.pattern, slash, f.machine)
		want := runSource(t, machine(t, f.machine), f.source)
		for i, state := range states {
			if i > 0 && f.tested || state.name == "truncated" && f.dir {
				break // it is not read, or cannot be cut in half
			}
			h := machine(t, f.machine)
			state.set(h.FS.(*host.Tree), f)
			got := runSource(t, h, f.source)
			changes := changesOf(want, got)
			told := len(got.Problems) > len(want.Problems)
			text := strings.Join(changes, "; ")
			if text == "" {
				text = "same"
			}
			_, unread := got.Features.Flags[nfdv1alpha1.UnreadFeature]
			switch {
			case told && unread:
				text += " (told, unread)"
			case told:
				text += " (told)"
			case unread:
				t.Errorf("%s %s: the source counts as not read, and no problem is logged", f.pattern, state.name)
			}
			fmt.Fprintf(&out, "  %-11s%s\n", state.name, text)
			if state.name != "missing" {
				checkUnknownIsNotNone(t, f, state.name, want, got, told)
			}
		}
	}
	out.WriteString("\n# Files that no machine of the tests has\n\n")
	for _, pattern := range missing {
		fmt.Fprintf(&out, "%s\n", pattern)
	}
	compareWithGolden(t, "matrix.golden", out.String())
}

// empties are files for which "nothing" is what the machine says, and not a failure to read it.
var empties = map[string]string{
	"proc/modules":                        "no module is loaded",
	"sys/bus/pci/devices":                 "no PCI devices",
	"sys/bus/usb/devices":                 "no USB devices",
	"sys/block":                           "no block devices",
	"sys/class/net":                       "no interfaces",
	"sys/class/nvme":                      "no controllers",
	"sys/class/drm":                       "no cards",
	"sys/class/accel":                     "no accelerators",
	"sys/module":                          "no modules",
	"proc/driver/nvidia/gpus":             "no GPUs",
	"run/cdi":                             "no specifications",
	"etc/cdi":                             "no specifications",
	"sys/class/infiniband":                "no RDMA devices",
	"sys/class/iommu":                     "no IOMMU",
	"sys/kernel/iommu_groups":             "no groups",
	"sys/class/tpm":                       "no TPM",
	"sys/bus/nd/devices":                  "no memory devices",
	"sys/kernel/mm/hugepages":             "no sizes of huge pages",
	featuresDir:                           "no files",
	"sys/firmware/efi/efivars":            "not mounted",
	"sys/fs/cgroup":                       "not mounted",
	"sys/devices/…/drm":                   "no render node",
	"sys/devices/…/hugepages":             "no sizes of huge pages",
	"sys/devices/system/cpu/cpufreq":      "no policies",
	"sys/devices/…/infiniband/*/ports":    "no ports",
	"sys/devices/system/node/*/cpulist":   "memory without CPUs",
	"sys/devices/system/node/*/hugepages": "no sizes of huge pages",
}

// checkUnknownIsNotNone fails if a source takes a file that it cannot read, or not understand, for an answer.
func checkUnknownIsNotNone(t *testing.T, f file, state string, want, got *discovery.Report, told bool) {
	t.Helper()
	oneValue := bytes.Count(f.data, []byte("\n")) <= 1
	if state == "truncated" && (told || oneValue) || state == "malformed" && f.pattern == "sys/devices/…/drm" || state == "empty" && empties[f.pattern] != "" {
		return
	}
	if f.source == local.Name {
		return // one file that cannot be read must not keep others from labeling the node
	}
	where := fmt.Sprintf("%s: %s %s", f.source, state, f.pattern)
	for name, set := range want.Features.Attributes {
		after, ok := got.Features.Attributes[name]
		if ok && len(set.Elements) > 0 && len(after.Elements) == 0 {
			t.Errorf("%s: %s is empty, want it to be absent", where, name)
		}
		for k, v := range set.Elements {
			if now, ok := after.Elements[k]; ok && now != v && state != "truncated" && !isText(f) {
				t.Errorf("%s: %s %s is %q, want %q or none", where, name, k, now, v)
			}
		}
	}
	for name, set := range want.Features.Flags {
		if after, ok := got.Features.Flags[name]; ok && len(after.Elements) < len(set.Elements) {
			t.Errorf("%s: %s has %d of %d flags, want it to be absent", where, name, len(after.Elements), len(set.Elements))
		}
	}
	for name, set := range want.Features.Instances {
		if after, ok := got.Features.Instances[name]; ok && len(after.Elements) < len(set.Elements) && !told {
			t.Errorf("%s: %s has %d of %d instances, and nothing says so", where, name, len(after.Elements), len(set.Elements))
		}
	}
	if changes := changesOf(want, got); len(changes) > 0 && !told && state != "truncated" && !isText(f) {
		t.Errorf("%s: %s, and nothing says so", where, strings.Join(changes, "; "))
	}
}

// isText reports whether any content of a file is valid: a string that the firmware, a device or an administrator chose.
func isText(f file) bool {
	return strings.HasPrefix(f.pattern, "sys/devices/virtual/dmi/id/") || slices.Contains([]string{
		"serial", "model", "firmware_rev", "transport", "cntrltype", "state", "operstate", "zoned", "type", "version", "devtype", "mode",
		"fw_ver", "board_id", "link_layer", "current_driver",
	}, path.Base(f.pattern))
}

func compareWithGolden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s is out of date (go test ./test/hosts -update writes it); now:\n%s", name, firstDifference(string(want), got))
	}
}

// firstDifference returns the first line that differs with its neighbors.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range g {
		if i >= len(w) || w[i] != g[i] {
			return fmt.Sprintf("line %d: %s", i+1, strings.Join(g[max(0, i-3):min(len(g), i+3)], "\n"))
		}
	}
	return "it is longer than before"
}

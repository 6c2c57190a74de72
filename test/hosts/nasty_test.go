package hosts_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/host"
)

// TestBrokenPartSilencesNoOther breaks one part of the server and expects a problem for it, and all other features.
func TestBrokenPartSilencesNoOther(t *testing.T) {
	const release = "5.14.0-362.18.1.el9_3.x86_64"
	const gpu = "sys/devices/pci0000:31/0000:31:00.0"
	tests := map[string]struct {
		reason   string
		breaks   func(t *host.Tree)
		problem  string   // substring of the only problem
		problems []string // substrings of all problems, sorted, if there are several
		lost     []string
		kept     []string
	}{
		"no sys": {
			reason:  "one warning, not one for each source",
			breaks:  func(t *host.Tree) { t.Remove("sys") },
			problem: "/sys of the host is not mounted: there is no /sys/devices",
			lost:    []string{"pci-0302_10de.present", "network-sriov.capable", "memory-numa"},
			kept:    []string{"kernel-version.major", "system-os_release.ID", "cpu-cpuid.AVX2", "kernel-config.NO_HZ"},
		},
		"empty host": {
			reason: "nothing to read at all",
			problems: []string{
				"/proc of the host is not mounted", "/sys of the host is not mounted",
				"source kernel: kernel configuration: not found in /proc/config.gz",
				"source system: operating system: found neither",
			},
			breaks: func(t *host.Tree) {
				for _, d := range []string{"sys", "proc", "etc", "usr", "boot", "lib"} {
					t.Remove(d)
				}
			},
			lost: []string{"system-os_release.ID"},
			kept: []string{"kernel-version.major", "cpu-model.vendor_id"},
		},
		"unreadable os-release": {
			breaks:  func(t *host.Tree) { t.AddBroken("usr/lib/os-release", syscall.EACCES) },
			problem: "source system: open /etc/os-release: permission denied",
			lost:    []string{"system-os_release.ID"},
			kept:    []string{"kernel-version.major"},
		},
		"link loop": {
			breaks: func(t *host.Tree) {
				t.Remove("etc/os-release")
				t.AddLink("etc/os-release", "os-release2")
				t.AddLink("etc/os-release2", "os-release")
			},
			problem: "source system: open /etc/os-release: too many levels of symbolic links",
			lost:    []string{"system-os_release.ID"},
			kept:    []string{"kernel-version.major"},
		},
		"directory is a link to itself": {
			breaks: func(t *host.Tree) {
				t.Remove("sys/bus/pci/devices")
				t.AddLink("sys/bus/pci/devices", "devices")
			},
			problem: "source pci: readdir /sys/bus/pci/devices: too many levels of symbolic links",
			lost:    []string{"pci-0302_10de.present"},
			kept:    []string{"network-sriov.capable"},
		},
		"enormous file": {
			reason:  "a gigabyte in place of a list",
			breaks:  func(t *host.Tree) { t.AddZeros("proc/modules", 1<<30) },
			problem: "source kernel: read /proc/modules: larger than the limit of 4194304 bytes",
			kept:    []string{"kernel-version.major", "kernel-config.NO_HZ"},
		},
		"bomb for a configuration": {
			reason: "64 MiB of zeros in 64 KiB, and no other place to look at",
			breaks: func(t *host.Tree) {
				t.AddFile("proc/config.gz", bomb())
				t.Remove("boot/config-" + release)
			},
			problem: "source kernel: kernel configuration: /proc/config.gz: decompressed: larger than the limit",
			lost:    []string{"kernel-config.NO_HZ"},
			kept:    []string{"kernel-version.major"},
		},
		"broken configuration beside a good one": {
			breaks: func(t *host.Tree) { t.AddFile("proc/config.gz", []byte("\x1f\x8bnot gzip")) },
			kept:   []string{"kernel-config.NO_HZ"},
		},
		"pipe in place of a file": {
			reason:  "opening it must not wait for a writer",
			breaks:  func(t *host.Tree) { t.AddPipe("proc/swaps") },
			problem: "source memory: open /proc/swaps: not a regular file but a pipe",
			kept:    []string{"memory-numa"},
		},
		"directory in place of a file": {
			breaks:  func(t *host.Tree) { t.AddDir("proc/swaps") },
			problem: "source memory: open /proc/swaps: not a regular file but a directory",
			kept:    []string{"memory-numa"},
		},
		"file in place of a directory": {
			breaks: func(t *host.Tree) {
				t.Remove("sys/class/net")
				t.AddFile("sys/class/net", []byte("eth0"))
			},
			problem: "source network: readdir /sys/class/net: not a directory",
			lost:    []string{"network-sriov.capable"},
			kept:    []string{"pci-0302_10de.present"},
		},
		"device that answers with an I/O error": {
			reason:  "the device stays visible without the attribute, and makes no label of a device that does not exist",
			breaks:  func(t *host.Tree) { t.AddBroken(gpu+"/vendor", syscall.EIO) },
			problem: "source pci: open /" + gpu + "/vendor: input/output error",
			lost:    []string{"pci-0302_unknown.present"},
			kept:    []string{"pci-0302_10de.present"},
		},
		"binary in place of text": {
			breaks: func(t *host.Tree) {
				junk := bytes.Repeat([]byte{0xff, 0x00, 0x1b, '='}, 4096)
				for _, f := range []string{"proc/modules", "usr/lib/os-release", "proc/cpuinfo", "proc/swaps"} {
					t.AddFile(f, junk)
				}
			},
			problems: []string{
				"source cpu: /proc/cpuinfo describes no processor", "source kernel: /proc/modules: ", "source memory: /proc/swaps: ",
				"source system: /etc/os-release sets no variable",
			},
			lost: []string{"system-os_release.ID"},
			kept: []string{"kernel-version.major"},
		},
		"link out of the tree": {
			reason: "the root is as far up as one can climb",
			breaks: func(t *host.Tree) {
				t.Remove("etc/os-release")
				t.AddLink("etc/os-release", "../../../../../../usr/lib/os-release")
			},
			kept: []string{"system-os_release.ID"},
		},
		"too many entries": {
			breaks: func(t *host.Tree) {
				for i := range host.MaxEntries {
					t.AddDir(fmt.Sprintf("sys/block/loop%d", i))
				}
			},
			problem: "source storage: readdir /sys/block: larger than the limit of 16384 entries",
			lost:    []string{"storage-nonrotationaldisk"},
			kept:    []string{"pci-0302_10de.present"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := open(t, "server")
			tt.breaks(h.FS.(*host.Tree))
			report := discover(t, h)
			if tt.problem != "" {
				tt.problems = []string{tt.problem}
			}
			if len(report.Problems) != len(tt.problems) {
				t.Errorf("problems = %v, want %q", report.Problems, tt.problems)
			} else {
				for i, want := range tt.problems {
					if got := report.Problems[i].String(); !strings.Contains(got, want) {
						t.Errorf("problem %q, want %q", got, want)
					}
				}
			}
			for _, l := range tt.lost {
				if v, ok := report.Labels[l]; ok {
					t.Errorf("label %s = %q, want none", l, v)
				}
			}
			for _, l := range tt.kept {
				if _, ok := report.Labels[l]; !ok {
					t.Errorf("label %s is missing", l)
				}
			}
		})
	}
}

// TestRootWithoutKernelHasNoFeaturesOfIt: a container without the mounts must not look like a machine without devices, swap or Secure
// Boot.
func TestRootWithoutKernelHasNoFeaturesOfIt(t *testing.T) {
	for name, tt := range map[string]struct {
		remove []string
		want   []string // all features
	}{
		"nothing but the processor, uname and the name of the node": {
			remove: []string{"sys", "proc", "etc", "usr", "boot", "lib", "run"},
			want:   []string{"cpu.cpuid", "cpu.model", "kernel.version", "system.name"},
		},
		"empty mount points": {
			remove: []string{"sys", "proc"},
			want: []string{
				"cdi.kind", "cpu.cpuid", "cpu.model", "kernel.config", "kernel.version", "system.name", "system.osrelease",
			},
		},
		"no /sys": {
			remove: []string{"sys"},
			want: []string{
				"cdi.kind", "cpu.cpuid", "cpu.model", "cpu.rdt", "kernel.config", "kernel.enabledmodule",
				"kernel.loadedmodule", "kernel.version", "memory.swap", "memory.total", "system.name", "system.osrelease",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, "server")
			for _, dir := range tt.remove {
				h.FS.(*host.Tree).Remove(dir)
			}
			h.FS.(*host.Tree).AddDir("sys")
			h.FS.(*host.Tree).AddDir("proc/sys")
			report := discover(t, h)
			if diff := cmp.Diff(tt.want, slices.Sorted(maps.Keys(names(report)))); diff != "" {
				t.Errorf("features (-want +got):\n%s", diff)
			}
			for label := range report.Labels {
				if !strings.HasPrefix(label, "cpu-") && !strings.HasPrefix(label, "kernel-") && !strings.HasPrefix(label, "system-") && label != "memory-swap" {
					t.Errorf("label %s", label)
				}
			}
		})
	}
}

func TestDeviceWithUnreadableAttributeStaysVisible(t *testing.T) {
	h := open(t, "server")
	tree := h.FS.(*host.Tree)
	tree.AddBroken("sys/devices/pci0000:31/0000:31:00.0/vendor", syscall.EIO)
	report := discover(t, h)
	n := 0
	for _, d := range report.Features.Instances["pci.device"].Elements {
		if d.Attributes["class"] == "0302" && d.Attributes["vendor"] == discovery.Unknown && d.Attributes["device"] == "20b2" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d GPUs of vendor unknown, want 1", n)
	}
}

func TestTenThousandDevicesAreFound(t *testing.T) {
	h := open(t, "server")
	tree := h.FS.(*host.Tree)
	for i := range 10000 {
		dir := fmt.Sprintf("sys/bus/pci/devices/%04x:00:00.0/", i+1)
		for file, value := range map[string]string{"class": "0x020000", "vendor": "0x8086", "device": "0x1889", "subsystem_vendor": "0x8086", "subsystem_device": "0x0000"} {
			tree.AddFile(dir+file, []byte(value+"\n"))
		}
	}
	// Call the source directly, since with the runner's deadline this test would depend on the machine's load.
	for _, source := range builtin.Sources(builtin.DefaultConfig()) {
		if source.Name() != "pci" {
			continue
		}
		result, err := source.Discover(context.Background(), h)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(result.Features.Instances["pci.device"].Elements); got < 10000 {
			t.Errorf("%d PCI devices, want at least 10000", got)
		}
		if len(result.Problems) > 0 {
			t.Errorf("problems = %v, want none", result.Problems)
		}
		return
	}
	t.Fatal("no source is called pci")
}

// TestRealTreeIsReadLikeTheArchive writes the server to disk, with the directories mounted as in a container, and reads it with the
// real implementation.
func TestRealTreeIsReadLikeTheArchive(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	h := open(t, "server")
	dir := t.TempDir()
	mounts := map[string]string{"sys": "host-sys", "etc": "host-etc", "usr": "host-usr", "boot": "host-boot", "proc": "host-proc", "run": "host-run"}
	for from, to := range mounts {
		copyTree(t, h, from, filepath.Join(dir, to))
	}
	// The path of a directory can be a link itself.
	if err := os.Symlink("host-usr/lib", filepath.Join(dir, "host-lib")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "host-sys"), filepath.Join(dir, "somewhere")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("somewhere", filepath.Join(dir, "host-sys")); err != nil {
		t.Fatal(err)
	}
	real := host.Real(host.Paths{
		Root: filepath.Join(dir, "empty"), Sys: filepath.Join(dir, "host-sys"), Etc: filepath.Join(dir, "host-etc"),
		Usr: filepath.Join(dir, "host-usr"), Boot: filepath.Join(dir, "host-boot"), Proc: filepath.Join(dir, "host-proc"),
		Lib: filepath.Join(dir, "host-lib"), Run: filepath.Join(dir, "host-run"),
	})
	real.System = h.System

	want := discover(t, h)
	got := discover(t, real)
	for _, p := range got.Problems {
		t.Errorf("problem: %v", p)
	}
	if diff := diffReports(want, got); diff != "" {
		t.Errorf("reports differ (-archive +disk):\n%s", diff)
	}
}

func TestRealTreeLetsNoLinkOut(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	root := filepath.Join(dir, "root")
	for _, d := range []string{"etc", "sys", "usr/lib"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(secret, "secret")
	write(filepath.Join(root, "usr/lib/os-release"), "ID=inside")
	link(secret, "etc/absolute")
	link("../../../../../../../../../.."+secret, "etc/climbing")
	link("../usr/lib/os-release", "etc/os-release")
	link("/usr/lib/os-release", "etc/rooted")
	if err := syscall.Mkfifo(filepath.Join(root, "etc/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}

	h := host.Real(host.Paths{Root: root})
	for _, name := range []string{"etc/absolute", "etc/climbing", "etc/pipe", "etc", "../secret", "/etc/os-release"} {
		if data, err := h.ReadFile(name); err == nil {
			t.Errorf("ReadFile(%q) = %q, want an error", name, data)
		}
	}
	for _, name := range []string{"etc/os-release", "etc/rooted"} {
		if data, err := h.ReadFile(name); err != nil || string(data) != "ID=inside" {
			t.Errorf("ReadFile(%q) = %q, %v, want ID=inside", name, data, err)
		}
	}
}

// copyTree writes a part of an archive to disk, with its links; it skips files that cannot be opened.
func copyTree(t *testing.T, h host.Host, name, to string) {
	t.Helper()
	if target, err := h.ReadLink(name); err == nil {
		if err := os.Symlink(target, to); err != nil {
			t.Fatal(err)
		}
		return
	}
	if names, err := h.ReadDir(name); err == nil {
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			copyTree(t, h, name+"/"+n, filepath.Join(to, n))
		}
		return
	}
	data, err := h.ReadFile(name)
	if err != nil {
		return
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func bomb() []byte {
	var buf bytes.Buffer
	z, _ := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
	chunk := make([]byte, 1<<20)
	for range 64 {
		_, _ = z.Write(chunk)
	}
	_ = z.Close()
	return buf.Bytes()
}

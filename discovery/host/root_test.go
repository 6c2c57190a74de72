package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/discovery/host"
)

// tree writes files below a temporary directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestRootIsThatMachineAlone: what this program learns of its own machine must not be shown as another's.
func TestRootIsThatMachineAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		uname host.Uname
		node  string
		arch  string
	}{
		"unpacked image":    {files: map[string]string{"etc/os-release": "ID=x"}},
		"image with a name": {files: map[string]string{"etc/hostname": "Web-7"}, node: "web-7"},
		"disk and /proc of an ARM machine": {
			files: map[string]string{
				"proc/version": "Linux", "proc/sys/kernel/osrelease": "6.6.1", "proc/sys/kernel/hostname": "board",
				"proc/sys/kernel/arch": "aarch64", "proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555",
			},
			uname: host.Uname{Release: "6.6.1", Nodename: "board", Machine: "aarch64"}, node: "board", arch: "arm64",
		},
		"an x86 machine, whose capabilities are not in files": {
			files: map[string]string{"proc/sys/kernel/osrelease": "6.6.1", "proc/sys/kernel/arch": "x86_64"},
			uname: host.Uname{Release: "6.6.1", Machine: "x86_64"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, this := host.Root(tree(t, tt.files), "")
			if this {
				t.Error("it is taken for this machine")
			}
			uname, err := h.System.Uname()
			if diff := cmp.Diff(tt.uname, uname); diff != "" || (err == nil) != (tt.uname.Release != "") {
				t.Errorf("error %v, uname (-want +got):\n%s", err, diff)
			}
			if got := h.System.NodeName(); got != tt.node {
				t.Errorf("node %q, want %q", got, tt.node)
			}
			if diff := cmp.Diff(host.CPUFacts{Arch: tt.arch}, h.System.CPU()); diff != "" {
				t.Errorf("processor (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRootOfThisMachineIsThisMachine: a debugging pod mounts the node's root.
func TestRootOfThisMachineIsThisMachine(t *testing.T) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip("needs /proc")
	}
	for name, root := range map[string]string{
		"root":    "/",
		"mounted": tree(t, map[string]string{"proc/sys/kernel/random/boot_id": string(id)}),
	} {
		h, this := host.Root(root, "n")
		if !this {
			t.Errorf("%s: not taken for this machine", name)
		}
		if diff := cmp.Diff(host.Real(host.Paths{}).System.CPU(), h.System.CPU()); diff != "" {
			t.Errorf("%s: processor (-this machine +root):\n%s", name, diff)
		}
	}
}

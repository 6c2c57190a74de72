package builtin_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/host"
)

// quietFiles is a machine with settings for which the kernel sends no events.
var quietFiles = map[string]string{
	"sys/devices/system/cpu/online":                             "0-1",
	"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0-1",
	"sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "0-1",
	"sys/devices/system/cpu/smt/active":                         "1",
	"sys/devices/system/cpu/intel_pstate/status":                "active",
	"sys/devices/system/cpu/intel_pstate/no_turbo":              "0",
	"sys/devices/system/cpu/cpufreq/policy0/scaling_governor":   "powersave",
	"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":     "0",
	"sys/kernel/mm/transparent_hugepage/enabled":                "always [madvise] never",
	"proc/meminfo":                           "MemTotal: 1024 kB\nMemFree: 5 kB\n",
	"proc/swaps":                             "Filename Type Size Used Priority\n",
	"sys/fs/selinux/enforce":                 "0",
	"etc/os-release":                         "ID=debian\nVERSION_ID=12\n",
	"sys/class/net/eth0/operstate":           "down",
	"sys/class/net/eth0/device/sriov_numvfs": "0",
}

func TestPollDetectsChangesWithoutEvents(t *testing.T) {
	for file, value := range map[string]string{
		"sys/devices/system/cpu/online":                           "0",
		"sys/devices/system/cpu/smt/active":                       "0",
		"sys/devices/system/cpu/intel_pstate/status":              "passive",
		"sys/devices/system/cpu/intel_pstate/no_turbo":            "1",
		"sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":   "512",
		"sys/kernel/mm/transparent_hugepage/enabled":              "[always] madvise never",
		"proc/meminfo":                 "MemTotal: 2048 kB\nMemFree: 5 kB\n",
		"proc/swaps":                   "Filename Type Size Used Priority\n/swapfile file 1 0 -2\n",
		"sys/fs/selinux/enforce":       "1",
		"etc/os-release":               "ID=debian\nVERSION_ID=13\n",
		"sys/class/net/eth0/operstate": "up",
		"sys/class/net/eth1/operstate": "up",
	} {
		t.Run(file, func(t *testing.T) {
			root := t.TempDir()
			for name, content := range quietFiles {
				write(t, root, name, content)
			}
			r := discovery.NewRunner(host.Real(host.Paths{Root: root, NodeName: "n"}), builtin.Sources(builtin.DefaultConfig()), discovery.Everything)
			r.Run(t.Context())
			for range 2 {
				if r.Poll(t.Context()).Changed {
					t.Fatal("something has changed before anything did")
				}
			}
			write(t, root, file, value)
			if !r.Poll(t.Context()).Changed {
				t.Errorf("/%s changed to %q and no poll detected it", file, value)
			}
			write(t, root, file, quietFiles[file])
			if !r.Poll(t.Context()).Changed {
				t.Errorf("/%s changed back and no poll detected it", file)
			}
		})
	}
}

func write(t *testing.T, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

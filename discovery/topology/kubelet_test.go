package topology

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// files writes a kubelet's configuration and its drop-ins.
func files(t *testing.T, config string, dropIns map[string]string) (file, dir string) {
	t.Helper()
	root := t.TempDir()
	file, dir = filepath.Join(root, "config.yaml"), filepath.Join(root, "conf.d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{file: config}
	for name, text := range dropIns {
		all[filepath.Join(dir, name)] = text
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range all {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file, dir
}

func TestReadKubelet(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nreservedSystemCPUs: 0-1\n"
	defaults := Kubelet{CPUManagerPolicy: "none", MemoryManagerPolicy: "None", TopologyManagerPolicy: "none", TopologyManagerScope: "container"}
	for name, tt := range map[string]struct {
		config  string
		dropIns map[string]string
		want    Kubelet
	}{
		"Defaults":      {config: head, want: defaults},
		"EmptyIsNotSet": {config: head + "topologyManagerPolicy: \"\"\n", want: defaults},
		"JSONIsYAML":    {config: `{"cpuManagerPolicy": "static"}`, want: Kubelet{"static", "None", "none", "container", nil}},
		"LaterFilesWin": {
			config: head + "topologyManagerPolicy: restricted\ncpuManagerPolicy: static\ntopologyManagerPolicyOptions: {max-allowable-numa-nodes: '16'}\n",
			dropIns: map[string]string{
				"20-b.conf":     "topologyManagerPolicy: single-numa-node\n",
				"10-a.conf":     "topologyManagerPolicy: best-effort\ntopologyManagerScope: pod\ntopologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true'}\n",
				"30-c.disabled": "topologyManagerPolicy: none\n",
			},
			want: Kubelet{"static", "None", "single-numa-node", "pod", map[string]string{"max-allowable-numa-nodes": "16", "prefer-closest-numa-nodes": "true"}},
		},
		"DropInsBelow": { // the kubelet reads directories in the directory
			config:  head,
			dropIns: map[string]string{"20/a.conf": "topologyManagerPolicy: restricted\n", "10.conf": "topologyManagerPolicy: best-effort\ncpuManagerPolicy: static\n"},
			want:    Kubelet{"static", "None", "restricted", "container", nil},
		},
		"DropInsRemove": { // null and an empty string
			config: head + "cpuManagerPolicy: static\ntopologyManagerPolicy: restricted\nmemoryManagerPolicy: Static\n" +
				"topologyManagerPolicyOptions: {max-allowable-numa-nodes: '16', prefer-closest-numa-nodes: 'true'}\n",
			dropIns: map[string]string{
				"a.conf": "cpuManagerPolicy: null\ntopologyManagerPolicy: ''\ntopologyManagerPolicyOptions: {max-allowable-numa-nodes: null}\n",
			},
			want: Kubelet{"none", "Static", "none", "container", map[string]string{"prefer-closest-numa-nodes": "true"}},
		},
		"DropInsRemoveAllOptions": {
			config:  head + "topologyManagerPolicyOptions: {max-allowable-numa-nodes: '16'}\n",
			dropIns: map[string]string{"a.conf": "topologyManagerPolicyOptions: null\n"},
			want:    Kubelet{"none", "None", "none", "container", map[string]string{}},
		},
		"MergedKeys": {config: "x: &x {cpuManagerPolicy: static}\n<<: *x\n", want: Kubelet{"static", "None", "none", "container", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			file, dir := files(t, tt.config, tt.dropIns)
			got, err := ReadKubelet(file, dir)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestSettingsThatAreUnknown(t *testing.T) {
	for name, tt := range map[string]struct{ config, want string }{
		"policy":        {"topologyManagerPolicy: sometimes\n", "the kubelet knows none, best-effort, restricted, single-numa-node"},
		"option":        {"topologyManagerPolicyOptions: {max-allowable-numa-nodes: many}\n", "a number is expected"},
		"not a mapping": {"- x\n", "config.yaml"},
		"not a string":  {"topologyManagerPolicy: {}\n", "config.yaml"},
		"empty":         {"", "config.yaml is empty"},
		"twice":         {"cpuManagerPolicy: none\ncpuManagerPolicy: static\n", `"cpuManagerPolicy" already defined at line 1`},
	} {
		file, _ := files(t, tt.config, nil)
		if _, err := ReadKubelet(file, ""); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
	if _, err := ReadKubelet(filepath.Join(t.TempDir(), "absent"), ""); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("error %v for a file that does not exist", err)
	}
}

func TestExcludesThatTheSchedulerNeeds(t *testing.T) {
	single, other := static(), static()
	other.TopologyManagerPolicy = "restricted"
	for name, tt := range map[string]struct {
		excludes Excludes
		kubelet  *Kubelet
		want     string
	}{
		"cpu":                {Excludes{"*": {"cpu"}}, single, `"cpu" excludes cpu`},
		"a pattern":          {Excludes{"n1": {"mem*"}}, single, `"mem*" excludes memory`},
		"another node":       {Excludes{"n2": {"cpu"}}, single, ""},
		"another policy":     {Excludes{"*": {"cpu", "memory"}}, other, ""},
		"another resource":   {Excludes{"*": {"hugepages-*", "vendor.com/*"}}, single, ""},
		"an invalid pattern": {Excludes{"*": {"[a"}}, other, "invalid pattern"},
	} {
		err := tt.excludes.Check("n1", tt.kubelet)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}

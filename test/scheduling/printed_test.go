//go:build linux

package scheduling

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/internal/testkit"
)

// printed tests that kube-scheduler reads the configurations that assay scheduler-config prints. Only the profile differs: pods
// must choose one of the schedulers in this test.
func (w *world) printed(t *testing.T) {
	assay := testkit.Program(t, "assay")
	ca := newAuthority(t)
	url, _ := w.serveTLS(t, ca)
	cert, key := ca.pair(t, "system:kube-scheduler")
	dir := t.TempDir()
	for name, data := range map[string][]byte{"ca.crt": ca.pem(), "client.crt": cert, "client.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.publish(t, "n620", "AVX", "Printed")
	ns := w.namespace(t, nil)
	for _, installation := range []string{"kubeadm", "k3s", "rke2", "talos"} {
		t.Run(installation, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), assay, "scheduler-config", "--for", installation, "--url", url, "--ignorable=false",
				"--ca-file", filepath.Join(dir, "ca.crt"), "--cert-file", filepath.Join(dir, "client.crt"),
				"--key-file", filepath.Join(dir, "client.key")).Output()
			if err != nil {
				t.Fatal(err)
			}
			scheduler := "printed-" + installation
			config := configuration(t, string(out)) + fmt.Sprintf("\nprofiles: [{schedulerName: %s, percentageOfNodesToScore: 100}]\n", scheduler)
			if err := w.RunScheduler(t.Context(), scheduler, []byte(config)); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := w.Terminate(t.Context(), scheduler); err != nil {
					t.Error(err)
				}
			}()
			p := newPod(ns, installation, scheduler, requires("Printed"))
			w.create(t, p)
			if node := w.placed(t, p); node != "n620" {
				t.Errorf("the pod runs on %s, want n620", node)
			}
		})
	}
}

// configuration returns the KubeSchedulerConfiguration in the output: after a line of dashes, or in a patch for Talos.
func configuration(t *testing.T, text string) string {
	t.Helper()
	if _, config, ok := strings.Cut(text, "\n---\n"); ok {
		return config
	}
	var patch struct {
		Cluster struct {
			Scheduler struct{ Config json.RawMessage }
		}
	}
	if err := yaml.Unmarshal([]byte(text), &patch); err != nil {
		t.Fatal(err)
	}
	config, err := yaml.JSONToYAML(patch.Cluster.Scheduler.Config)
	if err != nil {
		t.Fatal(err)
	}
	return string(config)
}

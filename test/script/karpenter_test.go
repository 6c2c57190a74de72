//go:build linux

package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster/kube"
)

// TestClusterStoriesWithKarpenter runs assay export against a cluster that has Karpenter's CustomResourceDefinitions.
func TestClusterStoriesWithKarpenter(t *testing.T) {
	karpenter := karpenterSource(t)
	c := testkit.Cluster(t)
	bin := filepath.Dir(testkit.Program(t, "assay"))
	t.Cleanup(func() {
		_, err := c.Kubectl(context.Background(), "delete", "--ignore-not-found", "-f", filepath.Join(karpenter, "pkg", "apis", "crds"))
		_, err2 := c.Kubectl(context.Background(), "delete", "nodeshapes", "--all")
		if err = errors.Join(err, err2); err != nil {
			t.Error(err)
		}
	})
	testscript.Run(t, testscript.Params{
		Dir: "karpenter", RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("KUBECONFIG", c.Kubeconfig)
			e.Setenv("KARPENTER", karpenter)
			tools := filepath.Join(e.WorkDir, ".bin")
			if err := os.Mkdir(tools, 0o700); err != nil {
				return err
			}
			if err := os.Symlink(c.Program(kube.Kubectl), filepath.Join(tools, "kubectl")); err != nil {
				return err
			}
			const list = string(os.PathListSeparator)
			e.Setenv("PATH", bin+list+tools+list+e.Getenv("PATH"))
			return nil
		},
	})
}

// karpenterSource returns the directory of the module of Karpenter, which contains its CustomResourceDefinitions. Nothing of it is
// compiled.
func karpenterSource(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "sigs.k8s.io/karpenter")
	cmd.Dir = filepath.Join("..", "..", "hack", "autoscaler")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	return module.Dir
}

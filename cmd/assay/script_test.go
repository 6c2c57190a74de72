package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write what comes out into the stories; read the diff")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"assay":         func() { os.Exit(run(os.Args)) },
		"kubectl-assay": func() { os.Exit(run(os.Args)) },
	})
}

// TestStories runs the user tasks that need no cluster.
func TestStories(t *testing.T) {
	hosts, err := filepath.Abs("../../test/hosts")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "../../test/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOSTS", hosts)
			e.Setenv("EXAMPLES", filepath.Join(hosts, "..", "..", "examples"))
			e.Setenv("CASES", filepath.Join(hosts, "..", "..", "rules", "testdata", "cases"))
			e.Setenv("KUBECONFIG", filepath.Join(e.WorkDir, "kubeconfig"))
			e.Setenv("HOME", e.WorkDir)
			// Bytes that a txtar archive cannot contain.
			return os.WriteFile(filepath.Join(e.WorkDir, "binary.yaml"), []byte("a: \x00\x01"), 0o600)
		},
	})
}

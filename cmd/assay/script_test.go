package main

import (
	"encoding/pem"
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/assay-project/assay/internal/imagecompat/registrytest"
)

var update = flag.Bool("update", false, "write what comes out into the stories; read the diff")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"assay":         func() { os.Exit(run(os.Args)) },
		"kubectl-assay": func() { os.Exit(run(os.Args)) },
	})
}

// startRegistry starts an image registry for a session: $REGISTRY has the images team/app:v1, an index, and team/tool:v1, a manifest.
// $OLDREGISTRY has the same content and no referrers API.
func startRegistry(e *testscript.Env) error {
	r := &registrytest.Registry{}
	r.PutIndex("team/app", "v1", "amd64", "arm64")
	r.PutImage("team/tool", "v1", "tool")
	s := httptest.NewTLSServer(r)
	e.Defer(s.Close)
	e.Setenv("REGISTRY", s.Listener.Addr().String())
	old := &registrytest.Registry{NoReferrers: true}
	old.PutIndex("team/app", "v1", "amd64", "arm64")
	plain := httptest.NewServer(old)
	e.Defer(plain.Close)
	e.Setenv("OLDREGISTRY", plain.Listener.Addr().String())
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return os.WriteFile(filepath.Join(e.WorkDir, "ca.pem"), ca, 0o600)
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
			if err := startRegistry(e); err != nil {
				return err
			}
			// Bytes that a txtar archive cannot contain.
			return os.WriteFile(filepath.Join(e.WorkDir, "binary.yaml"), []byte("a: \x00\x01"), 0o600)
		},
	})
}

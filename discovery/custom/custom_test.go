package custom

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// engine records what it is asked to compile.
type engine struct{ compiled [][]string }

func (e *engine) Compile(docs []Document) (Program, []error) {
	var origins []string
	for _, d := range docs {
		origins = append(origins, d.Origin)
	}
	e.compiled = append(e.compiled, origins)
	return e, []error{errors.New("rule x: bad")}
}

func (e *engine) Labels(node string, f *nfdv1alpha1.Features) (map[string]string, []error) {
	return map[string]string{"custom-" + node: f.Attributes["kernel.version"].Elements["full"]}, nil
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRulesAreCompiledInOrderAndOnlyWhenTheyChange(t *testing.T) {
	root := t.TempDir()
	write(t, root, "custom.d/b/rules.yaml", "[]")
	write(t, root, "custom.d/a", "[]")
	write(t, root, "custom.d/.hidden", "[]")
	write(t, root, "custom.d/b/too/deep", "[]")
	e := &engine{}
	s := New(Config{Rules: Document{Origin: "worker.conf", Data: []byte("[]")}, Directory: "custom.d"}, e)
	h := host.Real(host.Paths{Root: root, NodeName: "n1"})
	found := discovery.NewResult().Features
	found.Attributes["kernel.version"] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"full": "6.1"}}
	for range 2 {
		r, err := s.Derive(context.Background(), h, &found)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"custom-n1": "6.1"}, r.Labels); diff != "" {
			t.Error(diff)
		}
		if len(r.Problems) != 1 {
			t.Errorf("problems = %v", r.Problems)
		}
	}
	write(t, root, "custom.d/a", "[ ]")
	if _, err := s.Derive(context.Background(), h, &found); err != nil {
		t.Fatal(err)
	}
	want := []string{"static rules", "worker.conf", "/custom.d/a", "/custom.d/b/rules.yaml"}
	if diff := cmp.Diff([][]string{want, want}, e.compiled); diff != "" {
		t.Error(diff)
	}
}

// TestRulesThatCannotBeReadStay replaces a file and a directory, once read, by links to themselves.
func TestRulesThatCannotBeReadStay(t *testing.T) {
	root := t.TempDir()
	write(t, root, "custom.d/a", "[]")
	write(t, root, "custom.d/b/rules.yaml", "[]")
	write(t, root, "custom.d/c", "[]")
	e := &engine{}
	s := New(Config{Directory: "custom.d"}, e)
	h := host.Real(host.Paths{Root: root})
	found := discovery.NewResult().Features
	step := func(problems int) {
		t.Helper()
		r, err := s.Derive(t.Context(), h, &found)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Problems) != 1+problems { // one is that of the engine
			t.Errorf("problems = %v", r.Problems)
		}
	}
	step(0)
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(root, "custom.d", name)
		if err := errors.Join(os.RemoveAll(path), os.Symlink(name, path)); err != nil {
			t.Fatal(err)
		}
	}
	step(2)
	step(2)
	if len(e.compiled) != 1 {
		t.Errorf("compiled %v: the rules were lost", e.compiled[1:])
	}
	if err := os.RemoveAll(filepath.Join(root, "custom.d", "b")); err != nil {
		t.Fatal(err)
	}
	step(1)
	if diff := cmp.Diff([]string{"static rules", "/custom.d/a", "/custom.d/c"}, e.compiled[len(e.compiled)-1]); diff != "" {
		t.Errorf("without the directory (-want +got):\n%s", diff)
	}
}

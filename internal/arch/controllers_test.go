package arch

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The folder of a controller has add.go with what it watches, and reconciler.go with what it does.
func TestControllersHaveOneForm(t *testing.T) {
	files, err := filepath.Glob("../../controller/*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal("no controllers: ", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("\nfunc Add(mgr ")) {
			continue
		}
		if filepath.Base(file) != "add.go" {
			t.Errorf("%s registers a controller: move Add to add.go", file)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(file), "reconciler.go")); err != nil {
			t.Errorf("%s: reconciler.go is missing", filepath.Dir(file))
		}
	}
}

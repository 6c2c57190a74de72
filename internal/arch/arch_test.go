package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArrows(t *testing.T) {
	graph := load(t)
	for _, message := range graph.Violations(Arrows) {
		t.Error(message)
	}
}

// TestArrowsAreAboutSomething fails if a package was moved and its arrow no longer applies: at least the main patterns must match a
// package.
func TestArrowsAreAboutSomething(t *testing.T) {
	graph := load(t)
	for _, pillar := range []string{"./api/...", "./rules/...", "./discovery/...", "./discovery/publish", "./controller/...", "./cmd/assay-worker/..."} {
		found := false
		for path := range graph {
			found = found || match(path, pillar)
		}
		if !found {
			t.Errorf("no package is %s; the arrows about it guard nothing", pillar)
		}
	}
}

// load returns the imports of all packages that this module needs, as reported by the go command.
func load(t *testing.T) Graph {
	t.Helper()
	readTree(t)
	// -e: other tests report compile errors.
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-json=ImportPath,Imports", Module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	graph := Graph{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return graph
		}
		if err != nil {
			t.Fatal(err)
		}
		graph[p.ImportPath] = p.Imports
	}
}

// readTree reads the directories of the module. `go test` reuses an earlier result if no file that the test itself opened has
// changed; files that the go command opened do not count.
func readTree(t *testing.T) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestViolations(t *testing.T) {
	graph := Graph{
		Module + "/rules":             {Module + "/rules/lang/match", "strings"},
		Module + "/rules/lang/match":  {"k8s.io/apimachinery/helper"},
		"k8s.io/apimachinery/helper":  {"k8s.io/client-go/rest"},
		"k8s.io/client-go/rest":       {"k8s.io/client-go/util"},
		Module + "/discovery/pci":     {Module + "/rules"},
		Module + "/discovery/publish": {"k8s.io/client-go/rest"},
		Module + "/rulesaside":        {"k8s.io/client-go/rest"},
	}
	client := []string{"k8s.io/client-go/..."}
	for name, test := range map[string]struct {
		arrow Arrow
		want  []string // import paths
	}{
		"DeepFindsShortestWay": {
			Arrow{From: []string{"./rules/..."}, Forbidden: client, Deep: true},
			[]string{
				"./rules ./rules/lang/match k8s.io/apimachinery/helper k8s.io/client-go/rest",
				"./rules/lang/match k8s.io/apimachinery/helper k8s.io/client-go/rest",
			},
		},
		"ShallowSeesItsOwnImportsOnly": {
			Arrow{From: []string{"./rules/..."}, Forbidden: client}, nil,
		},
		"ExceptAndAllowedAreSpared": {
			Arrow{
				From: []string{"./discovery/..."}, Except: []string{"./discovery/publish"},
				Forbidden: []string{Module + "/...", "k8s.io/client-go/..."}, Allowed: []string{"./discovery/..."},
			},
			[]string{"./discovery/pci ./rules"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.arrow.Reason = "REASON"
			var got []string
			for _, message := range graph.Violations([]Arrow{test.arrow}) {
				way, found := strings.CutSuffix(message, "\n    must not be: REASON")
				if !found {
					t.Errorf("no reason in: %s", message)
				}
				way = strings.ReplaceAll(way, "\n    imports ", " ")
				got = append(got, strings.ReplaceAll(way, Module, "."))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

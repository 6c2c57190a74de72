package main

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
)

//go:embed testdata/misuse.txt
var misuse string

// TestMistakes: what users type who know kubectl, with the exit code and what the answer contains. Each line of the table is a command line
// in the directory of cluster.yaml, the exit code, and a part of the answer.
func TestMistakes(t *testing.T) {
	data, err := os.ReadFile("testdata/misuse.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cluster.yaml"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	for line := range strings.Lines(misuse) {
		columns := strings.Split(strings.TrimSpace(line), " | ")
		if len(columns) != 3 {
			t.Fatalf("the line has not three columns: %s", line)
		}
		t.Run(columns[0], func(t *testing.T) {
			var out strings.Builder
			cmd := newCommand("assay")
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SetIn(strings.NewReader(""))
			cmd.SetArgs(strings.Fields(columns[0]))
			err := cmd.ExecuteContext(t.Context())
			if err != nil && err != cli.ErrFound { //nolint:errorlint // it is never wrapped
				out.WriteString(err.Error())
			}
			if code := string(rune('0' + exitCode(err))); code != columns[1] || !strings.Contains(out.String(), columns[2]) {
				t.Errorf("exit code %s, want %s and %q in:\n%s", code, columns[1], columns[2], out.String())
			}
		})
	}
}

// TestAnUnknownColumnIsNotedOnce: each occurrence of an unknown column drew the same note.
func TestAnUnknownColumnIsNotedOnce(t *testing.T) {
	var out strings.Builder
	cmd := newCommand("assay")
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs([]string{"nodes", "--from", "testdata/misuse.yaml", "-c", "nope,nope"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || strings.Count(out.String(), "no node has nope") != 1 {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

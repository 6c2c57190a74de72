//go:build linux

package script_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

// examplesThatFind lists the examples that exit with 1, with the reason.
var examplesThatFind = map[string]string{
	"assay diff rules.yaml":                                  "the rule sets another label than that of the cluster",
	"assay diff rules/ --nodes 'n[1-20]'":                    "the rule is not in the cluster",
	"assay diff --remove old-rules":                          "the rule gives a label to all nodes",
	"assay doctor":                                           "nothing is installed in this cluster",
	"assay doctor --all":                                     "as above",
	"assay doctor -o json":                                   "as above",
	"assay migrate check":                                    "no controller has written labels",
	"assay doctor --context prod --assay-namespace features": "as above",
	"assay migrate check --assay-namespace node-feature-discovery --enable-taints=false": "as above",
}

const (
	needsRegistry     = "it needs a registry with an image; image.txtar runs it"
	needsMaterialized = "it needs a controller that has given the request a label; TestDocumentation of test/scheduling runs it"
	needsShapes       = "it needs NodeShapes and the files of a user; export.txtar runs it"
)

// examplesNotRun lists the beginnings of examples that the test does not run, with the reason.
var examplesNotRun = map[string]string{
	"assay compat validate-node":               needsRegistry,
	"assay image":                              needsRegistry,
	"assay request selector":                   needsMaterialized,
	"kubectl patch deployment train":           needsMaterialized,
	"assay explain gpu-1 feature.node":         "it needs a worker that publishes this label; explain.txtar runs it",
	"assay doctor --wait":                      "it waits for an installation; TestDoctorWaits runs it",
	"assay nodes -w":                           "it prints until it is interrupted; TestNodesAreWatched of cmd/assay runs it",
	"assay baseline levels":                    "it needs a NodeBaseline with levels; levels.txtar runs it",
	"assay topology":                           "it needs published topologies; TestTopology runs it",
	"assay ui":                                 "it serves pages until it is interrupted; ui.txtar and the tests of cmd/assay/ui run it",
	"helm template":                            "Helm and a chart of the user are not there; lint.txtar checks standard input",
	"assay export --for karpenter | kubectl":   "it needs the definitions of Karpenter; karpenter/export.txtar runs it",
	"assay export --for cluster-api --from":    needsShapes,
	"assay export --for cluster-autoscaler -o": needsShapes,
	"assay export --for kueue":                 needsShapes,
}

// TestExamplesOfTheReferenceRun runs each example of docs/cli.md with the files of reference/files.txtar, against a cluster with the
// objects of reference/cluster.yaml. Files of a directory that is named like the command are laid over the others.
func TestExamplesOfTheReferenceRun(t *testing.T) {
	examples := referenceExamples(t)
	c := testkit.PrivateCluster(t, cluster.Options{Core: true, FakeNodes: true, DisableAdmission: []string{"ServiceAccount"}})
	if _, err := c.Kubectl(t.Context(), "apply", "--server-side", "-f", "reference/cluster.yaml"); err != nil {
		t.Fatal(err)
	}
	client := testkit.Client(t, c.User)
	for i := range 20 {
		testkit.Node(t, client, fmt.Sprintf("n%d", i+1))
	}
	archive, err := txtar.ParseFile("reference/files.txtar")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := withContexts(t, c.Kubeconfig, "prod", "staging")
	bin := filepath.Dir(testkit.Program(t, "assay"))
	if err := os.Symlink(c.Program(kube.Kubectl), filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range examples {
		if reason := skipped(e.line, seen); reason != "" {
			t.Logf("%s: not run: %s", e.line, reason)
			continue
		}
		want := 0
		if examplesThatFind[e.line] != "" {
			want, seen[e.line] = 1, true
		}
		dir := t.TempDir()
		lay(t, dir, archive, e.command)
		out, code := runExample(t, dir, e.line, "KUBECONFIG="+kubeconfig, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		if code != want {
			t.Errorf("%s: exit code %d, want %d:\n%s", e.line, code, want, out)
		}
	}
	completes(t, bin, kubeconfig)
	for _, list := range []map[string]string{examplesThatFind, examplesNotRun} {
		for line := range list {
			if !seen[line] {
				t.Errorf("docs/cli.md has no example %q", line)
			}
		}
	}
}

// completes checks what docs/cli.md writes about kubectl: the plugin runs, and kubectl completes its arguments.
func completes(t *testing.T, bin, kubeconfig string) {
	t.Helper()
	if err := os.Symlink("assay", filepath.Join(bin, "kubectl-assay")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "kubectl_complete-assay"), []byte("#!/bin/sh\nassay __complete \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"kubectl assay explain gpu-1 example.com/gpu": "from gpu/a100",
		"kubectl __complete assay explain gpu":        "gpu-1\n",
	} {
		out, code := runExample(t, t.TempDir(), line, "KUBECONFIG="+kubeconfig, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, want %q in\n%s", line, code, want, out)
		}
	}
}

// example is an example of a command.
type example struct{ command, line string }

// referenceExamples returns the examples of docs/cli.md.
func referenceExamples(t *testing.T) (list []example) {
	t.Helper()
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		command, rest, _ := strings.Cut(section, "\n")
		_, rest, found := strings.Cut(rest, "\nExamples:\n\n```\n")
		if !found {
			continue
		}
		block, _, _ := strings.Cut(rest, "```")
		for line := range strings.Lines(block) {
			list = append(list, example{command, strings.TrimSpace(line)})
		}
	}
	if len(list) < 60 {
		t.Fatalf("docs/cli.md has only %d examples; does the test find them?", len(list))
	}
	return list
}

// skipped returns why an example is not run, and marks the reason as seen.
func skipped(line string, seen map[string]bool) string {
	for beginning, reason := range examplesNotRun {
		if strings.HasPrefix(line, beginning) {
			seen[beginning] = true
			return reason
		}
	}
	return ""
}

// lay writes the files for a command. Directories of an archive that begin with "assay " are for the command of that name.
func lay(t *testing.T, dir string, archive *txtar.Archive, command string) {
	t.Helper()
	for _, own := range []bool{false, true} {
		for _, f := range archive.Files {
			first, rest, _ := strings.Cut(f.Name, "/")
			name := f.Name
			if strings.HasPrefix(first, "assay ") != own || own && first != command {
				continue
			}
			if own {
				name = rest
			}
			path := filepath.Join(dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f.Data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// runExample runs a line in a shell and returns what it prints and its exit code. Each command of a pipe must succeed.
func runExample(t *testing.T, dir, line string, env ...string) (string, int) {
	t.Helper()
	parts := strings.Split(line, " | ")
	for i := range parts[:len(parts)-1] {
		parts[i] = "{ " + parts[i] + " || touch failed; }"
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Join(parts, " | ")+"\ncode=$?\ntest ! -e failed || exit 99\nexit $code")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// withContexts returns a copy of a kubeconfig with more names for its context.
func withContexts(t *testing.T, file string, names ...string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		config.Contexts[name] = config.Contexts[config.CurrentContext]
	}
	out := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, out); err != nil {
		t.Fatal(err)
	}
	return out
}

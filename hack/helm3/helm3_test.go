package helm3

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	chart = "../../charts/assay"
	// cases is the directory of test cases with a values.yaml each, which the tests with Helm 4 use too.
	cases = "../chart/testdata"
	// helm4 is the module that pins Helm 4.
	helm4 = "-modfile=../chart/go.mod"
)

// helm is the path of a program of one version.
type helm string

// both compiles the two versions if necessary.
func both(t *testing.T) (three, four helm) {
	t.Helper()
	find := func(args ...string) helm {
		out, err := exec.CommandContext(t.Context(), "go", append([]string{"tool", "-n"}, args...)...).Output()
		if err != nil {
			t.Fatalf("compile Helm: %v\n%s", err, stderr(err))
		}
		return helm(strings.TrimSpace(string(out)))
	}
	three, four = find("helm"), find(helm4, "helm")
	for program, want := range map[helm]string{three: "v3.", four: "v4."} {
		if got := program.ok(t, "version", "--template={{.Version}}"); !strings.HasPrefix(got, want) {
			t.Fatalf("version is %s, want %s", got, want)
		}
	}
	return three, four
}

func stderr(err error) string {
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return string(failed.Stderr)
	}
	return ""
}

// run runs Helm without user settings, and returns its output.
func (h helm) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), string(h), args...) //nolint:gosec // compiled by both
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG=/dev/null")
	out, err := cmd.Output()
	return string(out), err
}

func (h helm) ok(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.run(t, args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, stderr(err))
	}
	return out
}

// valuesFiles returns the values files of the cases.
func valuesFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(cases + "/*/values.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	return files
}

func TestRendersAsHelm4Does(t *testing.T) {
	three, four := both(t)
	for _, file := range valuesFiles(t) {
		for _, kubernetes := range []string{"v1.30.0", "v1.37.2"} { // the oldest one and the one that the tests run
			t.Run(filepath.Base(filepath.Dir(file))+"/"+kubernetes, func(t *testing.T) {
				args := []string{"template", "assay", chart, "--namespace=assay-system", "--values=" + file, "--kube-version=" + kubernetes}
				got := three.ok(t, args...)
				if !strings.Contains(got, "kind: DaemonSet") {
					t.Fatalf("there is no worker in what was rendered:\n%s", got)
				}
				if diff := cmp.Diff(documents(four.ok(t, args...)), documents(got)); diff != "" {
					t.Errorf("rendered (-Helm 4 +Helm 3):\n%s", diff)
				}
			})
		}
	}
}

// documents returns the rendered documents, sorted: the versions order unknown kinds differently, and leave different numbers of
// empty lines.
func documents(text string) []string {
	var out []string
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		lines := slices.DeleteFunc(strings.Split(document, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
		out = append(out, strings.Join(lines, "\n"))
	}
	slices.Sort(out)
	return out
}

// TestPrintsTheDefinitions reads what docs/upgrade.md pipes to kubectl: Helm 3 does not separate files.
func TestPrintsTheDefinitions(t *testing.T) {
	three, four := both(t)
	files, err := filepath.Glob(chart + "/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]helm{"Helm 3": three, "Helm 4": four} {
		got := 0
		for _, document := range documents(program.ok(t, "show", "crds", chart)) {
			if strings.HasPrefix(document, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n") {
				got++
			}
		}
		if got != len(files) || got == 0 {
			t.Errorf("%s prints %d definitions, want %d", name, got, len(files))
		}
	}
}

func TestLintsStrictlyWithHelm3(t *testing.T) {
	three, _ := both(t)
	for _, file := range valuesFiles(t) {
		three.ok(t, "lint", "--strict", chart, "--values="+file)
	}
}

func TestHelm3SaysWhereAValueIsWrong(t *testing.T) {
	three, _ := both(t)
	for name, test := range map[string]struct{ set, want string }{
		"Misspelled": {"worker.toleration=1", "/worker"},
		"WrongType":  {"controller.replicaCount=two", "/controller/replicaCount"},
		"NoSuch":     {"webhook.failurePolicy=Deny", "/webhook/failurePolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := three.run(t, "template", "assay", chart, "--set="+test.set)
			if err == nil || !strings.Contains(stderr(err), test.want) {
				t.Errorf("got %v, %s; want an error that says where: %s", err, stderr(err), test.want)
			}
		})
	}
}

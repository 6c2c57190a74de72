//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/assay-project/assay/internal/doctest"
	"github.com/assay-project/assay/internal/testkit"
)

// A newcomer runs the demo, and then the commands of the README with a rule of their own.
func TestTheDemoAndTheFirstRule(t *testing.T) {
	testkit.Cluster(t) // the programs of the control plane are there
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	demo := filepath.Join(t.TempDir(), "demo")
	for _, name := range []string{"assay-worker", "assay-manager"} {
		testkit.Program(t, name)
	}
	bin := filepath.Dir(testkit.Program(t, "assay"))
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("go", "build", "-o", demo, "./test/demo")
	cache := "XDG_CACHE_HOME=" + ownCache(t)
	t.Cleanup(func() {
		cmd := exec.Command(demo, "--down")
		cmd.Env = append(os.Environ(), cache)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("demo --down: %v\n%s", err, out)
		}
	})
	story := run("env", cache, demo, "--bin", bin, "--keep")
	for _, want := range []string{
		"== The worker discovers the hardware and publishes it",
		`The NodeFeatureRule "kernel" is invalid:`,
		"did you mean Gt?",
		"nodefeaturerule.nfd.k8s-sigs.io/kernel created",
		"label example.com/recent-kernel=true\n  from kernel/recent kernel (labels)",
	} {
		if !strings.Contains(story, want) {
			t.Errorf("the demo does not print %q:\n%s", want, story)
		}
	}

	commands, transcript := readme(t, root)
	exports := strings.Join(regexp.MustCompile(`(?m)^ +export (KUBECONFIG|PATH)=\S+`).FindAllString(story, -1), "\n")
	out := run("sh", "-c", exports+"\nexport PATH="+bin+":$PATH\ncd "+t.TempDir()+"\nexec 2>&1\n"+commands)
	for line := range strings.Lines(transcript) {
		if part, _, _ := strings.Cut(strings.TrimSpace(line), "…"); !strings.HasPrefix(part, "$ ") && !strings.Contains(out, part) {
			t.Errorf("the commands of the README do not print %q:\n%s", part, out)
		}
	}
}

// ownCache returns a cache directory that shares Kubernetes alone with that of the user.
func ownCache(t *testing.T) string {
	t.Helper()
	users, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "assay"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(users, "assay", "kube"), filepath.Join(dir, "assay", "kube")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// readme returns the commands for the first rule in the README, and what they print.
func readme(t *testing.T, root string) (commands, transcript string) {
	t.Helper()
	page, err := doctest.Read(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range page.Blocks {
		switch b.Kind {
		case "first-rule":
			commands = b.Text
		case "first-rule-output":
			transcript = b.Text
		}
	}
	if commands == "" || transcript == "" {
		t.Fatal("the README has no first rule")
	}
	return commands, transcript
}

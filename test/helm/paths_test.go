//go:build linux

package helm

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPaths installs, upgrades, rolls back and uninstalls the chart with both versions of Helm, alone, as a sub-chart, and after other
// installations. After each path all definitions are Assay's, rules have all their fields, and the objects are those that Helm names. Without
// ASSAY_WHOLE_TABLE it takes the paths that most users take.
func TestPaths(t *testing.T) {
	for _, version := range []string{"Helm 3", "Helm 4"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel() // each has a control plane, and most of the time Helm waits
			w := newWorld(t, version)
			for _, path := range []struct {
				name  string
				short bool
				run   func(*world, *testing.T)
			}{
				{"Fresh, upgrade, rollback, uninstall", true, (*world).life},
				{"A rule among the objects of the release", false, (*world).extraObject},
				{"A sub-chart of an operator", true, (*world).subChart},
				{"From definitions among the templates", false, (*world).fromTemplates},
				{"From definitions among the templates that would go", false, (*world).fromTemplatesWithoutKeep},
				{"Over definitions of kubectl apply", false, func(w *world, t *testing.T) { w.takeOver(t, "apply") }},
				{"Over definitions of another manager", false, func(w *world, t *testing.T) {
					w.takeOver(t, "apply", "--server-side", "--field-manager=operator")
				}},
				{"Over definitions of Helm", false, (*world).takeOverHelm},
			} {
				if !path.short && os.Getenv("ASSAY_WHOLE_TABLE") == "" {
					continue
				}
				t.Run(path.name, func(t *testing.T) {
					defer w.clean(t)
					path.run(w, t)
				})
			}
		})
	}
}

func (w *world) life(t *testing.T) {
	w.ok(t, "install", release, chart)
	w.whole(t)
	w.hasRule(t)
	w.ok(t, "upgrade", release, chart, "--set=controller.enableTaints=true")
	w.whole(t)
	w.ok(t, "rollback", release, "1")
	w.whole(t)
	w.keepsRule(t)
	w.ok(t, "uninstall", release)
	w.defined(t)
	w.keepsRule(t)
	if left := w.kubectl(t, "get", "deployments,daemonsets,serviceaccounts,configmaps", "--namespace="+namespace, "-l", "app.kubernetes.io/part-of=assay", "-o", "name"); left != "" {
		t.Errorf("left after the uninstallation:\n%s", left)
	}
}

func (w *world) extraObject(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	write(t, values, "extraObjects:\n- "+strings.ReplaceAll(strings.TrimSpace(rule), "\n", "\n  ")+"\n")
	w.ok(t, "install", release, chart, "--values="+values)
	w.whole(t)
	w.keepsRule(t)
}

// subChart installs an operator that has a rule and Assay as a sub-chart, and whose hook writes the definitions of Node Feature Discovery.
func (w *world) subChart(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "parent")
	copyChart(t, filepath.Join(parent, "charts", "assay"))
	write(t, filepath.Join(parent, "Chart.yaml"), "apiVersion: v2\nname: parent\nversion: 1.0.0\ndependencies: [{name: assay, version: '*', condition: assay.enabled}]\n")
	write(t, filepath.Join(parent, "values.yaml"), "assay: {enabled: true}\n")
	write(t, filepath.Join(parent, "templates", "rule.yaml"), rule)
	write(t, filepath.Join(parent, "templates", "hook.yaml"), `apiVersion: batch/v1
kind: Job
metadata:
  name: `+operatorJob+`
  annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-weight: "1", helm.sh/hook-delete-policy: before-hook-creation}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: operator, image: none}]}
`)
	w.ok(t, "install", "parent", parent)
	w.defined(t)
	w.keepsRule(t)
	w.ok(t, "upgrade", "parent", parent, "--set=assay.controller.enableTaints=true")
	w.defined(t)
	w.hasRule(t) // the operator's definition has no conditions: what it did to the rule is for the controller to find
	w.keepsRule(t)
}

func (w *world) fromTemplates(t *testing.T) {
	old := w.oldChart(t, "keep")
	w.ok(t, "install", release, old)
	w.hasRule(t)
	w.ok(t, "upgrade", release, chart)
	w.whole(t)
	w.keepsRule(t)
	_, err := w.run("rollback", release, "1")
	if w.version == "Helm 3" {
		// Helm 3 cannot roll back to objects that only the older release has; docs/upgrade.md says what to run instead.
		if err == nil || !strings.Contains(err.Error(), "resourceVersion: Invalid value") {
			t.Errorf("got %v, want an error about resourceVersion", err)
		}
		w.ok(t, "upgrade", release, old, "--take-ownership")
	} else if err != nil {
		t.Error(err)
	}
	w.whole(t)
	w.keepsRule(t)
}

func (w *world) fromTemplatesWithoutKeep(t *testing.T) {
	w.ok(t, "install", release, w.oldChart(t, "delete"))
	w.hasRule(t)
	if _, err := w.run("upgrade", release, chart); err == nil || !strings.Contains(err.Error(), "kubectl annotate crd") {
		t.Fatalf("got %v, want an error with the command to run first", err)
	}
	w.keepsRule(t)
	w.kubectl(t, "annotate", "crd", "--selector=app.kubernetes.io/part-of=assay", "helm.sh/resource-policy=keep", "--overwrite")
	w.ok(t, "upgrade", release, chart)
	w.whole(t)
	w.keepsRule(t)
}

// takeOver installs the chart over definitions that a command of kubectl has written. Helm 4 applies those in crds/ without force.
func (w *world) takeOver(t *testing.T, command ...string) {
	if err := w.foreign(t.Context(), command...); err != nil {
		t.Fatal(err)
	}
	w.over(t, w.version == "Helm 4")
}

// over installs the chart over definitions that lack fields, with a rule.
func (w *world) over(t *testing.T, conflicts bool) {
	t.Helper()
	plain := strings.Split(rule, "    conditions")[0]
	if _, err := w.KubectlInput(t.Context(), plain, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if conflicts {
		if _, err := w.run("install", release, chart); err == nil || !strings.Contains(err.Error(), "conflict") {
			t.Errorf("got %v, want a conflict", err)
		}
		_, _ = w.run("uninstall", release, "--ignore-not-found")
	}
	w.ok(t, "install", release, chart, "--skip-crds")
	w.whole(t)
	if got := w.kubectl(t, "get", "nodefeaturerule", "kept", "-o", "jsonpath={.spec.rules[0].name}"); got != "x" {
		t.Errorf("the rule is gone: %q", got)
	}
	w.hasRule(t)
	w.keepsRule(t)
}

func (w *world) takeOverHelm(t *testing.T) {
	nfd := filepath.Join(t.TempDir(), "nfd")
	write(t, filepath.Join(nfd, "Chart.yaml"), "apiVersion: v2\nname: nfd\nversion: 1.0.0\n")
	write(t, filepath.Join(nfd, "crds", "nfd.yaml"), foreignDefinitions())
	w.ok(t, "install", "nfd", nfd)
	w.over(t, false)
	w.ok(t, "uninstall", "nfd")
	w.whole(t)
	w.keepsRule(t)
}

// oldChart returns a chart as Assay's was once, with the definitions among its templates.
func (w *world) oldChart(t *testing.T, policy string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "assay")
	copyChart(t, dir)
	if err := os.Rename(filepath.Join(dir, "crds"), filepath.Join(dir, "definitions")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "templates", "crds")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "templates", "definitions.yaml"),
		`{{ range $path, $_ := .Files.Glob "definitions/*.yaml" }}{{ $.Files.Get $path | replace "helm.sh/resource-policy: keep" "helm.sh/resource-policy: `+policy+`" }}
---
{{ end }}`)
	return dir
}

func copyChart(t *testing.T, to string) {
	t.Helper()
	err := filepath.WalkDir(chart, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // of this project
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(chart, path)
		if err == nil {
			write(t, filepath.Join(to, relative), string(data))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

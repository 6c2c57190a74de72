package browser

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// axe returns the script of axe-core, which package-lock.json pins. The test is skipped if npm is missing or cannot fetch it.
func axe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, data)
	}
	npm := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("npm ci: %v\n%s", err, out)
	}
	script, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// violation is a rule of axe that elements of a page violate.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// TestAxeFindsNothing: axe-core finds no violation of serious or moderate impact on any page, in light on a laptop and in dark on a phone.
func TestAxeFindsNothing(t *testing.T) {
	script := axe(t)
	b := open(t, small(t, 48))
	for scheme, width := range map[string]int64{"light": 1280, "dark": 390} {
		b.scheme(scheme)
		b.do(chromedp.EmulateViewport(width, height))
		for _, view := range append(views, "fleet?filter=x+and", "node?name=none", "no-such-page") {
			b.visit(view)
			eval[bool](b, script+`;window.found = "", axe.run({resultTypes: ["violations"]}).then((r) => { window.found = JSON.stringify(r.violations); }), true`)
			b.wait("window.found")
			var list []violation
			if err := json.Unmarshal([]byte(eval[string](b, "window.found")), &list); err != nil {
				t.Fatal(err)
			}
			for _, v := range list {
				if slices.Contains([]string{"moderate", "serious", "critical"}, v.Impact) {
					t.Errorf("%s, %s, %d pixels: %s (%s): %s, %d times, such as %s\n%s", view, scheme, width, v.ID, v.Impact, v.Help, len(v.Nodes), v.Nodes[0].HTML, v.Nodes[0].FailureSummary)
				}
			}
		}
	}
}

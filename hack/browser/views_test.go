package browser

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// small creates a small fleet with rules, of a cluster with problems.
func small(t *testing.T, count int) string {
	dir := t.TempDir()
	fleet(t, dir, count)
	library(t, dir, "nvidia-gpu", "amd-gpu", "avx512")
	write(t, dir, "rules/firmware.yaml", []byte(conflicting))
	broken(t, dir)
	return start(t, dir, "fleet", "rules")
}

// ordinary creates a fleet without problems.
func ordinary(t *testing.T) string {
	dir := t.TempDir()
	nodes(t, dir, 240, false)
	library(t, dir, "nvidia-gpu", "amd-gpu", "avx512")
	write(t, dir, "fleet/cluster.json", object{"apiVersion": "v1", "kind": "Event", "metadata": object{"name": "started", "namespace": "assay-system"},
		"involvedObject": object{"kind": "NodeFeatureRule", "name": "nvidia-gpu"}, "type": "Normal", "reason": "Accepted", "message": "The rules are used.",
		"lastTimestamp": time.Now().Add(-3 * time.Hour).UTC().Format(time.RFC3339), "source": object{"component": "assay-controller"}})
	return start(t, dir, "fleet", "rules")
}

// views are the paths of all views of the small fleet.
var views = []string{
	"overview", "overview?by=gpu.drm.driver&color=kernel.version.full", "overview?by=none", "fleet", "fleet?by=nodes&sort=ready", "fleet?by=features", "fleet?by=values", "fleet?filter=ready+and+node-99", "node?name=node-00008", "rules",
	"fleet?by=sets", "pods", "pod?namespace=ml&name=train-0", "objects?kind=nodebaselines", "object?kind=nodebaselines&name=firmware", "objects?kind=nodeshapes",
	"object?kind=nodefeaturerequests&namespace=ml&name=h100", "rule?name=nvidia-gpu", "rule?name=firmware", "compare?a=node-00000&b=node-00008", "playground",
}

func TestViewsLoadWithoutErrorsAndFromHereAlone(t *testing.T) {
	b := open(t, small(t, 48))
	for _, view := range views {
		b.visit(view)
		if heading := eval[string](b, `document.querySelector("h1")?.textContent ?? ""`); heading == "" {
			t.Errorf("%s has no heading", view)
		}
		for _, address := range eval[[]string](b, `performance.getEntriesByType("resource").map((e) => e.name)`) {
			if !strings.HasPrefix(address, b.base) {
				t.Errorf("%s loads %s", view, address)
			}
		}
	}
}

// cut returns the elements whose content does not fit, apart from those that scroll, and the controls that overlap.
const cut = `(() => {
	const bad = [];
	const name = (e) => e.tagName + "." + e.className + ": " + e.textContent.trim().slice(0, 60);
	for (const e of document.querySelectorAll("th, td, li, p, h1, h2, h3, dt, dd, summary, nav, header, form, label, button, bdi")) {
		const style = getComputedStyle(e);
		if (!e.checkVisibility() || e.closest(".hidden, .skip") || style.overflowX === "auto" || style.display === "inline") continue;
		if (e.scrollWidth > e.clientWidth + 1) bad.push("is cut: " + name(e));
	}
	const controls = [...document.querySelectorAll("a[href], button, input, summary, textarea")].filter((e) => e.checkVisibility() && !e.closest(".skip"));
	const boxes = controls.flatMap((e) => [...e.getClientRects()].map((r) => [e, r]));
	boxes.sort((a, b) => a[1].top - b[1].top);
	for (let i = 0; i < boxes.length; i++) {
		for (let k = i + 1; k < boxes.length && boxes[k][1].top < boxes[i][1].bottom - 1; k++) {
			const [a, r] = boxes[i], [b, s] = boxes[k];
			if (a !== b && !a.contains(b) && !b.contains(a) && r.left < s.right - 1 && s.left < r.right - 1) bad.push("overlap: " + name(a) + " and " + name(b));
		}
	}
	return bad.slice(0, 5);
})()`

// TestNothingIsCut: at the width of a laptop and of a phone, no page scrolls sideways, no cell is cut, and no controls overlap. Tables
// that are too wide scroll in their own boxes.
func TestNothingIsCut(t *testing.T) {
	b := open(t, small(t, 48))
	for _, width := range []int64{1280, 390} {
		b.do(chromedp.EmulateViewport(width, height))
		for _, view := range append(views, "fleet?filter=x+and", "fleet?filter=cpu.model.vendor_id+%3D+intel", "node?name=none") {
			b.visit(view)
			if over := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
				t.Errorf("%s is %d pixels wider than the window of %d pixels", view, over, width)
			}
			for _, bad := range eval[[]string](b, cut) {
				t.Errorf("%s, %d pixels: %s", view, width, bad)
			}
		}
	}
}

// TestEveryControlIsReachedWithTab: Tab goes through all links, buttons, fields and tables of a page, and shows where it is.
func TestEveryControlIsReachedWithTab(t *testing.T) {
	b := open(t, small(t, 48))
	const controls = `[...document.querySelectorAll("a[href]:not([tabindex='-1']), button, input:not([type=hidden]), summary, textarea, [tabindex='0']")].filter((e) => e.checkVisibility() && !e.disabled)`
	for _, view := range []string{"overview", "fleet?by=values", "fleet?by=nodes&filter=nvidia", "node?name=node-00008", "rules", "rule?name=firmware", "compare?a=node-00000&b=node-00008", "playground"} {
		b.visit(view)
		eval[bool](b, `(addEventListener("focusin", (e) => e.target.dataset.seen = getComputedStyle(e.target.closest(".editor") ?? e.target).outlineStyle), true)`)
		for range eval[int](b, controls+".length") {
			b.press(kb.Tab)
		}
		for _, missed := range eval[[]string](b, controls+`.filter((e) => !e.dataset.seen || e.dataset.seen === "none").map((e) => e.dataset.seen + " " + e.outerHTML.slice(0, 120))`) {
			t.Errorf("%s: not reached, or without a visible focus: %s", view, missed)
		}
	}
}

// TestRefreshLosesNothing: what the user typed, opened, focused and scrolled to stays when the page shows a new state.
func TestRefreshLosesNothing(t *testing.T) {
	dir := t.TempDir()
	fleet(t, dir, 48)
	library(t, dir, "nvidia-gpu", "avx512")
	b := open(t, start(t, dir, "fleet", "rules"))
	b.visit("node?name=node-00000")
	b.wait(`document.querySelector("#refresh input").checked`)
	b.write("[data-search]", "avx2")
	b.wait(`location.search.includes("avx2") && !document.querySelector("#tree").innerText.includes("kernel.version")`)
	b.on(".trace:nth-of-type(2)", "e.open = true")
	b.on(".trace:nth-of-type(2) summary", "e.focus()")
	eval[bool](b, `(window.same = true, scrollTo(0, 40), true)`)
	write(t, dir, "rules/firmware.yaml", []byte(conflicting))
	b.click("#refresh input") // off
	b.wait(`!document.querySelector("#refresh input").checked`)
	b.click("#refresh input") // on: it refreshes at once
	b.says("#rules", "firmware")
	for what, holds := range map[string]string{
		"the page":           "window.same && scrollY === 40",
		"the search":         `document.querySelector("[data-search]").value === "avx2" && !document.querySelector("#tree").innerText.includes("kernel.version")`,
		"the open rule":      `[...document.querySelectorAll(".trace[open]")].length === 1`,
		"the focus":          `document.activeElement.matches(".trace summary")`,
		"the age":            `document.querySelector("#status time").innerText.length > 0`,
		"the checkbox is on": `document.querySelector("#refresh input").checked`,
	} {
		if !eval[bool](b, holds) {
			t.Errorf("lost: %s", what)
		}
	}
	// What is in the editor of the playground stays, and is evaluated again.
	b.visit("playground?node=node-00000")
	b.write("#text", nearly)
	b.says("#result", "NO MATCH")
	b.click("#refresh input")
	b.wait(`!document.querySelector("#refresh input").checked`)
	b.click("#refresh input")
	b.wait(`document.querySelector("#result [aria-busy]") === null && document.querySelector("#text").value.includes("amx")`)
	b.says("#result", "NO MATCH")
	// What is typed on the first page stays, and its squares change.
	b.visit("overview")
	b.write("#by", "system.osrelease")
	eval[bool](b, `(window.squares = document.querySelector("#squares"), true)`)
	b.click("#refresh input")
	b.wait(`!document.querySelector("#refresh input").checked`)
	b.click("#refresh input")
	b.wait(`document.querySelector("#squares") !== window.squares && document.querySelector("#by").value === "system.osrelease"`)
	// The choice holds for all pages.
	b.click("#refresh input")
	b.wait(`!document.querySelector("#refresh input").checked`)
	b.visit("rules")
	b.wait(`document.querySelector("#refresh input") && !document.querySelector("#refresh").hidden && !document.querySelector("#refresh input").checked`)
}

func TestFromTheFleetToANodeAndToItsRule(t *testing.T) {
	b := open(t, small(t, 48))
	b.visit("")
	b.says("h1", "48 nodes")
	b.visit("fleet")
	b.write("#filter", "gpu.drm.driver = nvidia")
	b.wait(`/^\d+ of 48 nodes/.test(document.querySelector("h1").innerText)`)
	b.wait(`location.search.includes("nvidia")`)
	b.write("#filter", "gpu.drm.driver Equals nvidia")
	b.says("#results", "did you mean In?")
	b.write("#filter", "gpu.drm.driver = nvidia")
	b.wait(`!document.querySelector("#results").innerText.includes("did you mean")`)
	b.click("tbody a[href^='node?name=node']")
	b.says("#written", "feature.node.kubernetes.io/nvidia-gpu")
	b.write("[data-search]", "10de")
	b.says("#tree", "NVIDIA")
	b.wait(`!document.querySelector("#tree").innerText.includes("EPYC")`)
	b.click("a[href='rule?name=nvidia-gpu']")
	b.says("main", "Nearest nodes that do not match")
	b.write("#find", "node-00017")
	b.press(kb.Enter)
	b.says("h1", "node-00017")
	b.click("a[href^='compare']")
	b.write("#b", "node-00008")
	b.press(kb.Enter)
	b.says("#results", "cpu.model.name")
	b.visit("fleet?by=nodes")
	b.click("th a[href*='sort=-cpu.topology.cpu_count']")
	b.wait(`document.querySelector("th[aria-sort=descending]")?.innerText.includes("cpu_count") && document.querySelector("tbody").innerText.includes("224")`)
}

const nearly = `apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: amx}
spec:
  rules:
  - name: amx
    labels: {example.com/amx: "true"}
    matchFeatures:
    - feature: cpu.model
      matchExpressions: {vendor_id: {op: In, value: [ARM]}}
`

func TestARuleIsEditedUntilItMatches(t *testing.T) {
	b := open(t, small(t, 48))
	b.visit("playground?node=node-00000")
	b.says("#result", "MATCH")
	b.write("#text", nearly)
	b.says("#result", "NO MATCH")
	b.says("#result", "Nothing would be written")
	b.write("#text", strings.Replace(nearly, "op: In", "op: Inn", 1))
	b.says("#findings", "did you mean In?")
	b.wait(`document.querySelector("#gutter .error")?.textContent === "10"`)
	b.says("#result", "correct the errors first")
	b.write("#text", strings.Replace(nearly, "[ARM]", "[Intel, AMD]", 1))
	b.says("#findings", "No errors or warnings")
	b.wait(`!document.querySelector("#gutter .error")`)
	b.says("#result", "example.com/amx")
	b.wait(`document.querySelector("#result .word").innerText === "MATCH"`)
	b.write("#node", "no-such-node")
	b.says("#tree", "Node no-such-node not found")
}

func TestKeyboard(t *testing.T) {
	b := open(t, small(t, 48))
	b.visit("node?name=node-00000")
	focus := func(selector string) {
		t.Helper()
		b.wait(fmt.Sprintf("document.activeElement?.matches(%q)", selector))
	}
	b.press(kb.Tab)
	focus(".skip")
	b.press(kb.Enter)
	focus("main")
	b.press("/")
	focus("[data-search]")
	b.press("avx512f")
	b.says("#tree", "AVX512F")
	b.wait(`!document.querySelector("#tree").innerText.includes("kernel.version")`)
	b.press(kb.Escape)
	b.wait(`!document.activeElement.matches("[data-search]")`)
	// A rule can be opened and closed with the keys of a button.
	b.on(".trace summary", "e.focus()")
	b.press(kb.Enter)
	b.wait(`document.querySelector(".trace").open`)
	b.press(" ")
	b.wait(`!document.querySelector(".trace").open`)
	// The editor does not trap the focus: Tab leaves it. Ctrl+Enter evaluates.
	b.visit("playground?node=node-00000")
	b.on("#text", fmt.Sprintf("e.focus(); e.value = %q", nearly))
	b.press(kb.Enter, chromedp.KeyModifiers(kb.ModifierCtrl))
	b.says("#result", "NO MATCH")
	b.press(kb.Tab)
	b.wait(`!document.activeElement.matches("#text")`)
}

func TestControlsHaveNames(t *testing.T) {
	b := open(t, small(t, 48))
	for _, view := range views {
		b.visit(view)
		tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range tree.Nodes {
			if node.Ignored || node.Role == nil {
				continue
			}
			role := strings.Trim(string(node.Role.Value), `"`)
			if !slices.Contains([]string{"button", "link", "textbox", "searchbox", "combobox", "region", "navigation"}, role) {
				continue
			}
			if node.Name == nil || strings.Trim(string(node.Name.Value), `" `) == "" {
				t.Errorf("%s: a %s has no name", view, role)
			}
		}
	}
}

// contrast returns the strings on a page whose contrast is below that of WCAG 2 (AA, 4.5).
const contrast = `(() => {
	const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
	const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
	const back = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255]; };
	const low = new Set();
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue;
		const a = light(parse(getComputedStyle(e).color)), b = light(back(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) low.add(e.tagName + "." + e.className + ": " + ratio.toFixed(1));
	}
	return [...low];
})()`

func TestContrastInLightAndDark(t *testing.T) {
	b := open(t, small(t, 48))
	backgrounds := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for _, view := range append(views, "fleet?filter=x", "node?name=none") {
			b.visit(view)
			for _, low := range eval[[]string](b, contrast) {
				t.Errorf("%s, %s: low contrast: %s", view, scheme, low)
			}
		}
		backgrounds[eval[string](b, "getComputedStyle(document.documentElement).backgroundColor")] = true
	}
	if len(backgrounds) != 2 {
		t.Errorf("light and dark have the same background: %v", backgrounds)
	}
}

func TestPrintsWithoutControls(t *testing.T) {
	b := open(t, small(t, 48))
	b.visit("node?name=node-00000")
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"}); err != nil {
		t.Fatal(err)
	}
	if shown := eval[[]string](b, `[...document.querySelectorAll("nav, form, button")].filter((e) => e.checkVisibility()).map((e) => e.outerHTML.slice(0, 80))`); len(shown) > 0 {
		t.Errorf("printed: %v", shown)
	}
}

func TestReadableWithoutScripts(t *testing.T) {
	b := open(t, small(t, 48))
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.visit("fleet")
	b.do(chromedp.SetValue(chromedp.CSS("#filter"), "gpu.drm.driver = nvidia"), chromedp.Submit(chromedp.CSS("form.filter")))
	b.wait(`location.search.includes("nvidia") && document.readyState === "complete"`)
	b.says("h1", "of 48 nodes")
	b.visit("node?name=node-00000&q=avx2")
	b.says("#tree", "AVX2")
	b.visit("playground?node=node-00000")
	b.do(chromedp.SetValue(chromedp.CSS("#text"), nearly), chromedp.Submit(chromedp.CSS("#play")))
	b.says("#result", "NO MATCH")
}

func TestHostileValuesStayText(t *testing.T) {
	dir := t.TempDir()
	const script = `<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">`
	const reversed = "\u202egnp.exe \u05e9\u05dc\u05d5\u05dd"
	write(t, dir, "nodes.json", feature("n\"'><script>window.hacked=1</script>", object{
		"flags":      object{"cpu.cpuid": object{"elements": object{script: object{}}}},
		"attributes": object{"cpu.model": object{"elements": object{"name": script, "vendor_id": reversed, script: strings.Repeat("long ", 20_000), "unbroken": strings.Repeat("x", 50_000)}}},
		"instances":  object{"pci.device": object{"elements": []object{{"attributes": object{script: script, "class": reversed}}}}},
	}))
	b := open(t, start(t, dir, "nodes.json"))
	b.visit("")
	name := eval[string](b, `new URLSearchParams(location.search).get("name")`)
	for _, view := range []string{
		"node?name=" + url.QueryEscape(name), "node?name=" + url.QueryEscape(name) + "&q=" + url.QueryEscape(script), "fleet", "fleet?by=nodes", "fleet?by=features",
		"fleet?filter=" + url.QueryEscape(script), "playground?node=" + url.QueryEscape(name),
	} {
		b.visit(view)
		if eval[bool](b, `"hacked" in window || document.querySelector("main img, main script, [onerror]") !== null`) {
			t.Errorf("%s: a value became part of the page", view)
		}
		if over := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
			t.Errorf("%s is %d pixels wider than the window", view, over)
		}
		if loose := eval[[]string](b, `[...document.querySelectorAll("td, li")].filter((e) => e.textContent.includes("\u202e") && !e.querySelector("bdi")).map((e) => e.outerHTML.slice(0, 100))`); len(loose) > 0 {
			t.Errorf("%s: right-to-left text can reorder what is beside it: %v", view, loose)
		}
	}
	b.visit("playground?node=" + url.QueryEscape(name))
	b.write("#text", strings.Replace(nearly, "[ARM]", `["<img src=x onerror='window.hacked=1'>"]`, 1))
	b.says("#result", "NO MATCH")
	if eval[bool](b, `"hacked" in window`) {
		t.Error("the rule ran a script")
	}
}

// maxPage is the maximum size of a page in bytes.
const maxPage = 300_000

func TestAFleetOf15000Nodes(t *testing.T) {
	dir := t.TempDir()
	fleet(t, dir, 15_000)
	library(t, dir, "nvidia-gpu")
	b := open(t, start(t, dir, "fleet", "rules"))
	for _, view := range []string{"overview", "overview?color=kernel.version.full", "fleet", "fleet?by=nodes&page=150", "rules", "rule?name=nvidia-gpu", "node?name=node-00000", "playground"} {
		b.visit(view)
		size := eval[int](b, `performance.getEntriesByType("navigation")[0].decodedBodySize`)
		t.Logf("%-24s %6d bytes, answered after %4.0f ms, drawn after %4.0f ms", view, size,
			eval[float64](b, `(({responseStart, requestStart}) => responseStart - requestStart)(performance.getEntriesByType("navigation")[0])`),
			eval[float64](b, `performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd`))
		if size > maxPage || size == 0 {
			t.Errorf("%s: %d bytes, want at most %d", view, size, maxPage)
		}
	}
	b.visit("fleet?by=nodes")
	b.says("main", "Page 1 of 150, 15,000 rows")
	b.click("a[rel=next]")
	b.says("main", "Page 2 of 150")
}

package browser

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// site is the directory of the documentation that make site has built; only its tests run then.
var site = os.Getenv("ASSAY_SITE")

// serve serves the site as a static host does, and returns its address and its pages.
func serve(t *testing.T) (string, []string) {
	t.Helper()
	if site == "" {
		t.Skip("run make test-site")
	}
	var list []string
	err := filepath.WalkDir(site, func(file string, _ fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(site, file); path.Ext(name) == ".html" && name != "404.html" {
			list = append(list, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 40 {
		t.Fatalf("the site has only the pages %v", list)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(site)))
	t.Cleanup(server.Close)
	return server.URL + "/", list
}

// TestSearchFindsWhatReadersLookFor searches as a reader does: the page is among the first five results, and its link leads there.
func TestSearchFindsWhatReadersLookFor(t *testing.T) {
	base, _ := serve(t)
	b := open(t, base)
	for query, want := range map[string]string{
		"matchExpressions":           "rules.html",                        // a field of a rule
		"AssayRemovalsHeld":          "troubleshooting.html",              // an alert
		"FeatureSetsMissing":         "troubleshooting.html",              // the reason of an Event
		"error parsing regexp":       "rules.html",                        // a message
		"failed calling webhook":     "admission.html",                    // a message of the API server
		"assay explain":              "cli.html#assay-explain",            // a command
		"dra.device":                 "features.html#dradevice",           // a feature
		"controller.enableTaints":    "values.html",                       // a value of the chart
		"hand back":                  "migrating-from-nfd.html#hand-back", // a task
		"Bottlerocket":               "faq.html",                          // a distribution
		"nfd_master_node_updates_to": "observability.html",                // the beginning of a metric
	} {
		b.visit("")
		b.on(".DocSearch-Button", "setTimeout(() => e.click())")
		b.write(".search-input", query)
		const first = `[...document.querySelectorAll(".VPLocalSearchBox a.result")].slice(0, 5).map((e) => e.getAttribute("href"))`
		b.wait(first + `.length > 0`)
		found := func(href string) bool { return strings.HasPrefix(href, "/"+want) }
		results := eval[[]string](b, first)
		for deadline := time.Now().Add(patience / 4); !slices.ContainsFunc(results, found) && time.Now().Before(deadline); {
			results = eval[[]string](b, first) // what is typed is searched after a moment
		}
		at := slices.IndexFunc(results, found)
		if at < 0 {
			t.Errorf("%q finds %v, not %s", query, results, want)
			continue
		}
		b.on(fmt.Sprintf(".VPLocalSearchBox li:nth-child(%d) a.result", at+1), "setTimeout(() => e.click())")
		b.wait(fmt.Sprintf(`document.querySelector(".VPLocalSearchBox") === null && location.pathname + location.hash === %q`, results[at]))
		b.wait(`document.querySelector(".vp-doc h1") !== null`)
	}
}

var (
	hrefs   = regexp.MustCompile(`<a [^>]*href="([^"]+)"`)
	sources = regexp.MustCompile(`<(?:img|script)[^>]* src="([^"]+)"`)
	ids     = regexp.MustCompile(` id="([^"]+)"`)
)

// TestNoLinkOfTheSiteIsBroken follows all links and pictures of all pages, and those to the repository.
func TestNoLinkOfTheSiteIsBroken(t *testing.T) {
	_, pages := serve(t)
	anchors, text := map[string][]string{}, map[string]string{}
	for _, name := range pages {
		data, err := os.ReadFile(filepath.Join(site, name))
		if err != nil {
			t.Fatal(err)
		}
		text[name] = string(data)
		for _, match := range ids.FindAllStringSubmatch(text[name], -1) {
			anchors[name] = append(anchors[name], match[1])
		}
	}
	followed := 0
	for _, name := range pages {
		for _, match := range slices.Concat(hrefs.FindAllStringSubmatch(text[name], -1), sources.FindAllStringSubmatch(text[name], -1)) {
			followed++
			target, err := url.Parse(strings.ReplaceAll(match[1], "&amp;", "&"))
			switch {
			case err != nil:
				t.Errorf("%s: %s: %v", name, match[1], err)
			case target.Scheme == "data":
			case target.Host != "":
				if inside, ok := strings.CutPrefix(target.Path, "/assay-project/assay/blob/main/"); ok {
					if _, err := os.Stat(filepath.Join("../..", inside)); err != nil {
						t.Errorf("%s links to %s, which the repository does not have", name, inside)
					}
				}
			default:
				if problem := find(name, target, anchors); problem != "" {
					t.Errorf("%s links to %s: %s", name, match[1], problem)
				}
			}
		}
	}
	if followed < 2000 {
		t.Errorf("only %d links were found", followed)
	}
}

// find returns what is wrong with a link of a page to another one of the site.
func find(name string, target *url.URL, anchors map[string][]string) string {
	file := name
	switch {
	case strings.HasSuffix(target.Path, "/"):
		file = strings.TrimPrefix(target.Path, "/") + "index.html"
	case strings.HasPrefix(target.Path, "/"):
		file = strings.TrimPrefix(target.Path, "/")
	case target.Path != "":
		file = path.Join(path.Dir(name), target.Path)
	}
	if _, err := os.Stat(filepath.Join(site, file)); err != nil {
		return "page not found"
	}
	if target.Fragment != "" && !slices.Contains(anchors[file], target.Fragment) {
		return "the page has no such heading"
	}
	return ""
}

// TestPagesFitAPhone opens each page at the width of a phone and of a laptop: only tables and code scroll sideways, in their own boxes.
func TestPagesFitAPhone(t *testing.T) {
	base, pages := serve(t)
	b := open(t, base)
	for _, width := range []int64{390, 1280} {
		b.do(chromedp.EmulateViewport(width, height))
		for _, name := range pages {
			b.visit(name)
			b.wait(`document.querySelector(".vp-doc h1") !== null`)
			if over := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
				t.Errorf("%s is %d pixels wider than the window of %d pixels", name, over, width)
			}
		}
	}
}

// TestPicturesOfTheSite writes pictures to look at into the directory ASSAY_PICTURES.
func TestPicturesOfTheSite(t *testing.T) {
	base, _ := serve(t)
	dir := os.Getenv("ASSAY_PICTURES")
	if dir == "" {
		t.Skip("ASSAY_PICTURES is not set")
	}
	b := open(t, base)
	b.visit("")
	for _, name := range []string{"index", "concepts", "rules", "troubleshooting", "cli", "faq"} {
		for _, width := range []int64{390, 1280} {
			for _, theme := range []string{"light", "dark"} {
				b.do(chromedp.EmulateViewport(width, height))
				b.on("html", fmt.Sprintf(`localStorage.setItem("vitepress-theme-appearance", %q)`, theme))
				b.visit(name + ".html")
				b.wait(`document.querySelector(".vp-doc h1") !== null`)
				data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
				if err != nil {
					t.Fatal(err)
				}
				write(t, dir+"/", fmt.Sprintf("%s-%d-%s.png", name, width, theme), data)
			}
		}
	}
}

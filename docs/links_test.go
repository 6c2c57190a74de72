package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var link = regexp.MustCompile("\\[([^\\]\n]*)\\]\\(([^)\\s]+)\\)")

// TestLinks follows the links of all pages: files exist, headings exist, and a link to a test file is called like something
// in it, since the pages name tests as what shows that a claim is true.
func TestLinks(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md", "../*.md", "../internal/sim/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		for _, match := range link.FindAllStringSubmatch(prose(t, page), -1) {
			if problem := follow(t, page, match[1], match[2]); problem != "" {
				t.Errorf("%s: [%s](%s): %s", page, match[1], match[2], problem)
			}
		}
	}
}

// follow says what is wrong with a link.
func follow(t *testing.T, page, text, target string) string {
	if strings.Contains(target, "://") {
		return ""
	}
	path, anchor, _ := strings.Cut(target, "#")
	file := page
	if path != "" {
		file = filepath.Join(filepath.Dir(page), path)
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return "there is no such file"
	case strings.HasSuffix(file, "_test.go") && !strings.Contains(read(t, file), text):
		return "the file holds nothing of that name"
	case anchor != "" && (info.IsDir() || !slices.Contains(anchors(prose(t, file)), anchor)):
		return "the page has no such heading"
	}
	return ""
}

// prose is a page without its code blocks.
func prose(t *testing.T, file string) string {
	var kept []string
	code := false
	for line := range strings.SplitSeq(read(t, file), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// anchors are what GitHub makes of headings: lower case, without punctuation, blanks as dashes.
func anchors(text string) []string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		out = append(out, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title)))
	}
	return out
}

// pageName matches the name of a page, with a heading, in messages, comments and values.
var pageName = regexp.MustCompile(`\bdocs/((?:design/)?[a-z-]+\.md)(#[a-z0-9_-]+)?`)

// TestPagesThatProgramsNameExist follows the pages that code and the chart name.
func TestPagesThatProgramsNameExist(t *testing.T) {
	text, found := "", 0
	for _, dir := range []string{"../api", "../cmd", "../controller", "../discovery", "../extender", "../internal", "../rules", "../settings", "../webhook"} {
		text += sources(t, dir)
	}
	for _, pattern := range []string{"../charts/assay/*.*", "../charts/assay/templates/*/*", "../charts/assay/files/*/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text += read(t, file)
		}
	}
	for _, match := range pageName.FindAllStringSubmatch(text, -1) {
		found++
		if problem := follow(t, "index.md", "", match[1]+match[2]); problem != "" {
			t.Errorf("%s: %s", match[0], problem)
		}
	}
	if found < 10 {
		t.Errorf("only %d pages are named", found)
	}
}

// TestEveryPageIsOnTheSite: make site, which make test does not run, rejects a page without a place.
func TestEveryPageIsOnTheSite(t *testing.T) {
	config := read(t, "../site/.vitepress/config.mjs")
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.Contains(config, "'"+strings.TrimSuffix(file, ".md")+"'") {
			t.Errorf("%s is in no group of site/.vitepress/config.mjs", file)
		}
	}
}

package hosts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/assay-project/assay/discovery/cpu"
	"github.com/assay-project/assay/rules/dictionary"
	"github.com/assay-project/assay/test/hosts"
)

const featuresPage = "../../docs/features.md"

// documented is the documentation of one feature.
type documented struct {
	types    []string
	labels   []*regexp.Regexp
	elements []string
	open     bool // has elements that depend on the host
}

// anything is the placeholder in the reference for elements that depend on the host.
const anything = "…"

var (
	typeLine = regexp.MustCompile(`Type: ([a-z, ]+)\.`)
	labelRef = regexp.MustCompile("`((?:[a-z]+)-[^`]*)`")
	variable = regexp.MustCompile(`<[a-z]+>`)
)

// readPage parses docs/features.md: a third-level heading is a feature, the paragraph that begins with "Type:" says what
// there is, a row of its table is an element.
func readPage(t *testing.T) map[string]*documented {
	t.Helper()
	page, err := os.ReadFile(featuresPage)
	if err != nil {
		t.Fatal(err)
	}
	features := map[string]*documented{}
	for section := range strings.SplitSeq(string(page), "\n#") {
		name, body, _ := strings.Cut(section, "\n")
		name, ok := strings.CutPrefix(name, "## ")
		if !ok {
			continue
		}
		d := &documented{}
		features[name] = d
		for paragraph := range strings.SplitSeq(body, "\n\n") {
			if m := typeLine.FindStringSubmatch(paragraph); m != nil {
				d.types = strings.Split(m[1], ", ")
				_, labels, _ := strings.Cut(paragraph, "Labels:")
				for _, l := range labelRef.FindAllStringSubmatch(labels, -1) {
					pattern := strings.ReplaceAll(regexp.QuoteMeta(variable.ReplaceAllString(l[1], "\x00")), "\x00", ".+")
					d.labels = append(d.labels, regexp.MustCompile("^"+pattern+"$"))
				}
			}
		}
		for line := range strings.Lines(body) {
			if row, ok := strings.CutPrefix(line, "| `"); ok {
				element, _, _ := strings.Cut(row, "`")
				d.elements = append(d.elements, element)
			}
		}
		d.open = slices.Contains(d.elements, anything)
	}
	return features
}

// TestFeaturesAreDocumented compares the reference with what whole machines yield, both ways.
func TestFeaturesAreDocumented(t *testing.T) {
	pages := readPage(t)
	found := map[string]map[string]bool{} // feature -> elements
	check := func(kind, feature string, elements []string) {
		d := pages[feature]
		if d == nil || !slices.Contains(d.types, kind) {
			t.Errorf("%s (%s) is not in %s", feature, kind, featuresPage)
			return
		}
		if found[feature] == nil {
			found[feature] = map[string]bool{}
		}
		for _, e := range elements {
			found[feature][e] = true
			if !d.open && !slices.Contains(d.elements, e) {
				t.Errorf("element %s of %s is not in %s", e, feature, featuresPage)
			}
		}
	}
	for _, name := range hosts.Names {
		report := discover(t, open(t, name))
		for feature, set := range report.Features.Flags {
			check("flags", feature, keys(set.Elements))
		}
		for feature, set := range report.Features.Attributes {
			check("attributes", feature, keys(set.Elements))
		}
		for feature, set := range report.Features.Instances {
			check("instances", feature, nil)
			for _, e := range set.Elements {
				check("instances", feature, keys(e.Attributes))
			}
		}
		for label := range report.Labels {
			if !labelDocumented(pages, label) {
				t.Errorf("label %s of host %s is not in %s", label, name, featuresPage)
			}
		}
	}
	literals := stringsOf(t, "../../discovery", "../../rules/facts", "../../internal/fleet/resourceslice")
	for feature, d := range pages {
		known := dictionary.Find(feature)
		if known == nil {
			t.Errorf("%s documents %s, which no source has", featuresPage, feature)
		}
		for kind, is := range map[string]dictionary.Type{"flags": dictionary.Flags, "attributes": dictionary.Attributes, "instances": dictionary.Instances} {
			if slices.Contains(d.types, kind) != known.Is(is) {
				t.Errorf("%s and rules/dictionary differ in whether %s has %s", featuresPage, feature, kind)
			}
		}
		for _, e := range d.elements {
			// What no archive shows, because no machine has everything, must at least stand in the code of a source.
			if e != anything && !found[feature][e] && !literals[e] {
				t.Errorf("%s documents the element %s of %s, which no source has", featuresPage, e, feature)
			}
		}
	}
}

func labelDocumented(pages map[string]*documented, label string) bool {
	for _, d := range pages {
		if d.hasLabel(label) {
			return true
		}
	}
	return false
}

func (d *documented) hasLabel(label string) bool {
	return slices.ContainsFunc(d.labels, func(pattern *regexp.Regexp) bool { return pattern.MatchString(label) })
}

var literal = regexp.MustCompile(`"([^"\\\n]+)"`)

// stringsOf returns the strings in double quotes in the Go files below directories, except for tests.
func stringsOf(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
				found[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func keys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

// TestLintKnowsEveryCapability: a rule that names one must not get the advice to write another.
func TestLintKnowsEveryCapability(t *testing.T) {
	known := dictionary.Find("cpu.cpuid").ElementNames()
	for _, arch := range cpu.Architectures() {
		for _, name := range cpu.Capabilities(arch) {
			if !slices.Contains(known, name) {
				t.Errorf("%s of %s is not in rules/dictionary/cpuflags.go", name, arch)
			}
		}
	}
}

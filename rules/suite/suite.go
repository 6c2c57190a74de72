// Package suite runs users' tests of their own rules.
//
// There are two forms. A directory with rule.yaml and outcome.yaml is a test: facts.yaml contains the NodeFeatures of one node,
// outcome.yaml the complete expected outcome, options.yaml (optional) the settings of the controller, and errors.txt (optional)
// substrings of the expected errors in the rules, one per line. The cases of this project, rules/testdata/cases, have this form. A
// file *.test.yaml is a table of tests that refer to rules and features by path and list only the relevant expectations; see Table.
package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/manifest"
)

// Test is one test. It is immutable, and tests may run in parallel.
type Test struct {
	// Name identifies the test: the directory, or the file and the name in the table.
	Name string
	// File is the file with the expectation.
	File string

	rules    []string
	features []string
	facts    []byte // features in the test itself
	settings Settings
	expect   Expectation
	errors   []string // substrings of the expected errors in the rules
	whole    bool     // unexpected outputs fail the test
	broken   error    // the reason why the test cannot be run
	golden   string   // the file that an update writes; empty for a table
}

// Settings are the controller's settings in a test.
type Settings struct {
	Strict       bool   `json:"strict,omitempty"`
	DefaultScope string `json:"defaultScope,omitempty"`
	NodeScope    string `json:"nodeScope,omitempty"`
	Mask         string `json:"mask,omitempty"`
	IgnoreFail   bool   `json:"ignoreFail,omitempty"`
	// FeatureSources is a regular expression on namespace/name of NodeFeatures, for rules without featureSources.
	FeatureSources string            `json:"featureSources,omitempty"`
	Node           string            `json:"node,omitempty"`
	NodeLabels     map[string]string `json:"nodeLabels,omitempty"`
}

func (s *Settings) options() (rules.Options, error) {
	opt := rules.Options{
		Strict: s.Strict, DefaultScope: s.DefaultScope, DefaultNodeScope: s.NodeScope,
		IgnoreFail: s.IgnoreFail, Mask: rules.Masking{Mode: rules.MaskMode(s.Mask)},
	}
	opt.Keys.Strict = s.Strict
	if s.FeatureSources == "" {
		return opt, nil
	}
	var err error
	if opt.FeatureSources, err = regexp.Compile(s.FeatureSources); err != nil {
		err = fmt.Errorf("featureSources: %w", err)
	}
	return opt, err
}

// Table is the content of a file *.test.yaml. Paths are relative to the file.
type Table struct {
	// Rules are files or directories with NodeFeatureRules.
	Rules []string `json:"rules"`
	// Options apply to all tests.
	Options Settings `json:"options,omitempty"`
	Tests   []Entry  `json:"tests"`
}

// Entry is one test of a Table.
type Entry struct {
	Name string `json:"name"`
	// Rules replaces the rules of the table.
	Rules []string `json:"rules,omitempty"`
	// Features are files with NodeFeatures or features without an object. Several files are merged.
	Features []string `json:"features,omitempty"`
	// Facts are features without an object. They are merged with those of the files.
	Facts *nfdv1alpha1.Features `json:"facts,omitempty"`
	// Node is the name of the node. It defaults to the node of the NodeFeature.
	Node       string            `json:"node,omitempty"`
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// Expect is the expected outcome.
	Expect Expectation `json:"expect"`
	// Exactly forbids all other outputs.
	Exactly bool `json:"exactly,omitempty"`
	// Errors are substrings of the expected errors in the rules.
	Errors []string `json:"errors,omitempty"`
}

// maxTests is the maximum number of tests in one directory.
const maxTests = 100_000

// Find returns the tests below a directory, sorted by path. An invalid test is returned as a test that fails.
func Find(dir string) ([]*Test, error) {
	var out []*Test
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != dir && strings.HasPrefix(e.Name(), "."):
			return filepath.SkipDir
		case e.IsDir() && isCase(path):
			out = append(out, directory(path))
		case !e.IsDir() && (strings.HasSuffix(path, ".test.yaml") || strings.HasSuffix(path, ".test.yml")):
			out = append(out, table(path)...)
		}
		if len(out) > maxTests {
			return fmt.Errorf("more than %d tests", maxTests)
		}
		return nil
	})
	return out, err
}

func isCase(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "rule.yaml"))
	return err == nil
}

// directory returns the test in a directory.
func directory(dir string) *Test {
	t := &Test{
		Name: dir, File: filepath.Join(dir, "outcome.yaml"), golden: filepath.Join(dir, "outcome.yaml"),
		rules: []string{filepath.Join(dir, "rule.yaml")}, whole: true,
	}
	if facts := filepath.Join(dir, "facts.yaml"); exists(facts) {
		t.features = []string{facts}
	}
	t.broken = errors.Join(
		decodeFile(filepath.Join(dir, "options.yaml"), &t.settings),
		decodeFile(t.File, &t.expect),
	)
	data, err := os.ReadFile(filepath.Join(dir, "errors.txt"))
	if err == nil {
		t.errors = lines(string(data))
	}
	if report, err := os.ReadFile(filepath.Join(dir, "report.txt")); err == nil { // in the form of this project's cases
		for _, line := range lines(string(report)) {
			if text, ok := strings.CutPrefix(line, "error: "); ok {
				t.errors = append(t.errors, text)
			}
		}
	}
	if !exists(t.File) && err != nil {
		t.broken = fmt.Errorf("outcome.yaml and errors.txt are missing; assay test --update writes outcome.yaml")
	}
	return t
}

// table returns the tests of a file.
func table(path string) []*Test {
	var t Table
	if err := decodeFile(path, &t); err != nil {
		return []*Test{{Name: path, File: path, broken: err}}
	}
	dir := filepath.Dir(path)
	var out []*Test
	for i, e := range t.Tests {
		name := e.Name
		if name == "" {
			name = fmt.Sprintf("tests[%d]", i)
		}
		test := &Test{
			Name: path + ": " + name, File: path, expect: e.Expect, errors: e.Errors, whole: e.Exactly, settings: t.Options,
			rules: within(dir, t.Rules), features: within(dir, e.Features),
		}
		if len(e.Rules) > 0 {
			test.rules = within(dir, e.Rules)
		}
		if e.Facts != nil {
			test.facts, test.broken = json.Marshal(e.Facts)
		}
		if e.Node != "" {
			test.settings.Node = e.Node
		}
		if e.NodeLabels != nil {
			test.settings.NodeLabels = e.NodeLabels
		}
		if len(test.rules) == 0 {
			test.broken = errors.New("rules is required: write for example rules: [gpu.yaml]")
		}
		out = append(out, test)
	}
	if len(out) == 0 {
		return []*Test{{Name: path, File: path, broken: errors.New("no tests found: list them in tests")}}
	}
	return out
}

func within(dir string, paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		if out[i] = p; !filepath.IsAbs(p) {
			out[i] = filepath.Join(dir, p)
		}
	}
	return out
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func lines(text string) []string {
	out := strings.Split(text, "\n")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" || strings.HasPrefix(s, "#") })
}

// decodeFile decodes a YAML file into out and returns all errors with their positions. It does nothing if the file does not exist.
func decodeFile(path string, out any) error {
	data, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f := manifest.Parse(path, data)
	problems := f.Problems
	if len(f.Documents) > 1 {
		return fmt.Errorf("%s: expected one document", path)
	}
	for _, d := range f.Documents {
		problems = append(problems, d.Decode(out)...)
	}
	var errs []error
	for _, p := range problems {
		if p.Severity == manifest.Error {
			errs = append(errs, fmt.Errorf("%s:%w", path, p))
		}
	}
	return errors.Join(errs...)
}

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > manifest.MaxText {
		return nil, fmt.Errorf("%s: is larger than %d MiB", path, manifest.MaxText>>20)
	}
	return os.ReadFile(path)
}

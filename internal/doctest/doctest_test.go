package doctest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-project/assay/internal/doctest"
)

// fence starts and ends code blocks. It is a constant because raw strings cannot contain it.
const fence = "```"

func page(lines ...string) string {
	return strings.ReplaceAll(strings.Join(lines, "\n"), "~~~", fence) + "\n"
}

var rule = []string{"~~~yaml rule", "- name: a", "  labels: {example.com/a: \"{n1}\"}", "~~~"}

func TestRun(t *testing.T) {
	outcome := func(value string) []string {
		return []string{"~~~yaml facts node=r3", "{}", "~~~", "~~~yaml outcome", "labels:", "  example.com/a: \"" + value + "\"", "~~~"}
	}
	for name, test := range map[string]struct {
		page     []string
		examples int
		problem  string // substring of the only problem; empty for none
	}{
		"AcceptsWhatIsTrue":          {append(rule, outcome("3")...), 1, ""},
		"FindsAWrongOutcome":         {append(rule, outcome("4")...), 1, "but it is\nlabels:\n  example.com/a: \"3\""},
		"FindsRulesThatNobodyRuns":   {rule, 0, "never evaluated"},
		"FindsHiddenMistakes":        {append([]string{"~~~yaml rule", "- name: a", "  labels: {a: \"{x}\"}", "~~~"}, outcome("3")...), 1, "does not show what Compile says"},
		"FindsUncheckedYAML":         {[]string{"~~~yaml", "a: b", "~~~"}, 0, "a block of YAML is"},
		"FindsUnknownFields":         {[]string{"~~~yaml rule", "- name: a", "  label: {}", "~~~", "~~~text report", "~~~"}, 1, "unknown field"},
		"FindsAWrongExpression":      {[]string{"<!-- expressions node=r3 -->", "", "| text | result |", "|---|---|", "| `{n1+1}` | `5` |"}, 1, "gives `4`, not `5`"},
		"ForgetsFactsAtAHeading":     {append(append(append([]string{}, rule...), outcome("3")...), append([]string{"# Next"}, append(rule, "~~~yaml outcome", "notWritten:", "- 'label example.com/a: the node''s name has no number n1'", "~~~")...)...), 2, "example.com/a: \"1\""},
		"FindsAWrongReport":          {[]string{"~~~yaml rule", "- name: a", "~~~", "~~~text report", "error: no", "~~~"}, 1, "the page shows\nerror: no"},
		"FindsACommandThatCannotRun": {[]string{"~~~console", "$ rm -rf /", "~~~"}, 1, "rm cannot be run here"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "page.md")
			if err := os.WriteFile(file, []byte(page(test.page...)), 0o600); err != nil {
				t.Fatal(err)
			}
			p, err := doctest.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			runner := doctest.Runner{Dir: t.TempDir()}
			examples, problems := runner.Run(p)
			if examples != test.examples {
				t.Errorf("%d examples, want %d", examples, test.examples)
			}
			switch {
			case test.problem == "" && len(problems) == 0:
			case len(problems) != 1 || test.problem == "" || !strings.Contains(problems[0].Error(), test.problem):
				t.Errorf("problems %v, want %q", problems, test.problem)
			}
		})
	}
}

func TestReadRefusesAnOpenBlock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte(page("~~~yaml rule", "- name: a")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := doctest.Read(file); err == nil {
		t.Error("a block without an end was read")
	}
}

func TestUpdateWritesWhatCameOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	text := page(append(rule, "~~~yaml facts node=r3", "{}", "~~~", "~~~yaml outcome", "~~~", "the end")...)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := doctest.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	(&doctest.Runner{Dir: t.TempDir()}).Run(p)
	if err := p.Update(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(text, fence+"yaml outcome\n", fence+"yaml outcome\nlabels:\n  example.com/a: \"3\"\n", 1)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("the page (-want +got):\n%s", diff)
	}
}

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/assay-project/assay/internal/doctest"
)

// programs are what commands on the pages begin with.
var programs = []string{"assay", "cosign", "ctr", "for", "git", "helm", "kubectl", "make", "openssl", "sha256sum"}

// executed are the tests that run the console blocks of a page.
var executed = map[string]string{
	"admission.md":   "../cmd/assay-manager/webhook_test.go",
	"composition.md": "docs_test.go",
	"scheduling.md":  "../test/scheduling/installation_test.go",
}

// generated are pages without commands of their own.
var generated = []string{"cli.md", "reference.md", "values.md"}

var (
	runBy  = regexp.MustCompile(`^<!-- run by: ([^\s,]+)(, .+)? -->$`)
	notRun = regexp.MustCompile(`^<!-- not run: .{10,} -->$`)
)

// TestCommandsAreRunOrMarked finds the commands on the pages. Each block of them is executed, or a comment above it names the file in
// the repository that runs its commands, or says why nothing does.
func TestCommandsAreRunOrMarked(t *testing.T) {
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range append(files, "../README.md") {
		if slices.Contains(generated, file) {
			continue
		}
		page, err := doctest.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range page.Commands(programs) {
			found++
			if block.Lang == "console" && executed[file] != "" {
				if !strings.Contains(read(t, executed[file]), file) && executed[file] != "docs_test.go" {
					t.Errorf("%s: %s does not read this page", page.At(block), executed[file])
				}
				continue
			}
			if problem := marked(block); problem != "" {
				t.Errorf("%s: %s\n%s", page.At(block), problem, block.Text)
			}
		}
	}
	if found < 50 {
		t.Errorf("there are only %d blocks of commands; does the test find them?", found)
	}
}

// TestPagesSayHowToGetTheCommandLine: where a page uses assay for the first time, or before, it links to the page that says how to get it, and
// each link of a command leads to the section of this command.
func TestPagesSayHowToGetTheCommandLine(t *testing.T) {
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text := read(t, file)
		use := usesAssay.FindStringIndex(text)
		if use == nil || slices.Contains(generated, file) || file == "style.md" {
			continue
		}
		if at := strings.Index(text, "](cli.md"); at < 0 || at > use[1]+longestCommand {
			t.Errorf("%s uses %q without a link to cli.md at or before it", file, text[use[0]:use[1]])
		}
		for _, match := range commandLink.FindAllStringSubmatch(text, -1) {
			if command := strings.ReplaceAll(match[1], " ", "-") + "-"; !strings.HasPrefix(command, match[2]+"-") {
				t.Errorf("%s: the link of %q leads to %q", file, match[1], match[2])
			}
		}
	}
}

// longestCommand is the maximum number of characters between the beginning of a command and the link that it is the text of.
const longestCommand = 60

// commandLink matches a link whose text is a command of assay.
var commandLink = regexp.MustCompile("\\[`(assay [^`]+)`\\]\\(cli\\.md#?([^)]*)\\)")

// usesAssay matches a command line of assay in a sentence, an example or a transcript.
var usesAssay = regexp.MustCompile("(?m)(`|^ *|^\\$ )assay [a-z-]+")

// marked returns what is wrong with the comment above a block.
func marked(block *doctest.Block) string {
	if notRun.MatchString(block.Above) {
		return ""
	}
	m := runBy.FindStringSubmatch(block.Above)
	if m == nil {
		return "nothing runs these commands; write above them: <!-- run by: FILE --> or <!-- not run: REASON -->"
	}
	text, err := os.ReadFile(filepath.Join("..", filepath.Clean(m[1])))
	if err != nil {
		return err.Error()
	}
	if block.Kind != "" && strings.Contains(string(text), `"`+block.Kind+`"`) {
		return "" // it reads the block from the page
	}
	for line := range strings.Lines(block.Text) {
		words := strings.Fields(strings.TrimPrefix(line, "$ "))
		if len(words) < 2 || !slices.Contains(programs, words[0]) {
			continue
		}
		if !strings.Contains(string(text), words[0]) || !strings.Contains(string(text), words[1]) {
			return m[1] + " does not run " + words[0] + " " + words[1]
		}
		for _, name := range optionNames(words[2:]) {
			if words[0] != "kubectl" && name != "--namespace" && !strings.Contains(string(text), name) {
				return m[1] + " runs " + words[0] + " " + words[1] + " without " + name
			}
		}
	}
	return ""
}

// optionNames returns the names of the options of a command line, and of the chart's values that it sets. Options of kubectl only select
// what is shown, and tests pass the namespace in other ways.
func optionNames(words []string) (names []string) {
	for i, word := range words {
		name, value, together := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "#"):
			return names // a comment
		case name == "--set" && together:
			word = value
		case name == "--set":
			continue
		case i > 0 && words[i-1] == "--set":
		case strings.HasPrefix(word, "--"):
			names = append(names, name)
			continue
		default:
			continue
		}
		for setting := range strings.SplitSeq(strings.Trim(word, "'"), ",") {
			if key, _, ok := strings.Cut(setting, "="); ok {
				names = append(names, key)
			}
		}
	}
	return names
}

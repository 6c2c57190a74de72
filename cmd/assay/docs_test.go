package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func TestReferenceIsCurrent(t *testing.T) {
	const file = "../../docs/cli.md"
	var b bytes.Buffer
	writeMarkdown(&b, newCommand("assay"))
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("docs/cli.md (-file +program); go test ./cmd/assay -update writes it:\n%s", diff)
	}
}

// The flag parser must accept all examples.
func TestExamplesParse(t *testing.T) {
	eachVerb(newCommand("assay"), func(c *cobra.Command) {
		if c.Runnable() && !c.HasSubCommands() && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
	})
	var examples []string
	eachVerb(newCommand("assay"), func(c *cobra.Command) { examples = append(examples, strings.Split(c.Example, "\n")...) })
	for _, example := range examples {
		for _, command := range strings.Split(example, "|") {
			words := split(strings.TrimSpace(command))
			if len(words) == 0 || words[0] != "assay" {
				continue
			}
			c, rest, err := newCommand("assay").Find(words[1:])
			if err != nil {
				t.Errorf("%s: %v", example, err)
				continue
			}
			if err := c.ParseFlags(rest); err != nil {
				t.Errorf("%s: %v", example, err)
			} else if err := c.ValidateArgs(c.Flags().Args()); err != nil {
				t.Errorf("%s: %v", example, err)
			}
		}
	}
}

// split splits a command line into words as a shell does, up to a redirection.
func split(line string) []string {
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		for _, w := range strings.Fields(part) {
			if w == ">" || w == "<" {
				return words
			}
			words = append(words, w)
		}
	}
	return words
}

func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if err := writeMan(dir, newCommand("assay")); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "assay-rules-list.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".TH ASSAY-RULES-LIST 1", `\-\-phase`, ".SH EXAMPLES"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not hold %q:\n%s", want, page)
		}
	}
}

// Package doctest runs the examples in the documentation.
//
// The first word after the fence of a code block is its language. The second word is the type of the block, and further words are
// settings. The blocks of a section are, in this order:
//
//	```yaml rule                NodeFeatureRules, or a list of rules
//	```yaml facts node=n43      what the node is: spec.features of a NodeFeature; default: a node without features
//	```yaml node                labels and annotations of the Node
//	```text report              what Compile says about the rules; without it, Compile must have nothing to say
//	```yaml outcome             what is written on the node
//
// A new rule block after an outcome starts a new example with the same facts; a heading starts one without facts. A page may also
// contain files, and commands that use them:
//
//	```yaml file=pools/gpu.yaml
//	```console                  lines that begin with $ are commands, the others what they print
//	```yaml outcome file=…      assembles the file first and evaluates it
//
// Each row of a table below the HTML comment "expressions node=NAME as=label" contains a string and its result on that node. Other
// YAML blocks are errors, unless they are marked as "example", so that no block is left unchecked by accident.
package doctest

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Page is a page of the documentation.
type Page struct {
	File   string
	Blocks []*Block

	lines []string
}

// Block is a fenced code block.
type Block struct {
	Lang string
	// Kind is the second word after the fence, unless it is a setting.
	Kind     string
	Settings map[string]string
	// Section is the number of the section. Blocks of a section share facts.
	Section int
	Text    string
	// Above is the last line above the block that is not empty.
	Above string

	first, last int    // lines of Text: [first, last)
	got         string // expected Text
	differs     bool
}

// Read reads a page from a file.
func Read(file string) (*Page, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := &Page{File: file, lines: strings.Split(string(data), "\n")}
	return p, p.parse()
}

// parse splits the page into blocks.
func (p *Page) parse() error {
	section := 0
	var open *Block
	for i, line := range p.lines {
		fence, fenced := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case !fenced && open == nil && strings.HasPrefix(line, "#"):
			section++
		case !fenced:
		case open == nil:
			open = newBlock(fence)
			open.Section, open.first, open.Above = section, i+1, p.above(i)
		default:
			open.last = i
			open.Text = strings.Join(p.lines[open.first:i], "\n")
			p.Blocks = append(p.Blocks, open)
			open = nil
		}
	}
	if open != nil {
		return fmt.Errorf("%s:%d: the code block is not closed", p.File, open.first)
	}
	return nil
}

func newBlock(fence string) *Block {
	b := &Block{Settings: map[string]string{}}
	words := strings.Fields(fence)
	if len(words) == 0 {
		return b
	}
	b.Lang = words[0]
	for _, word := range words[1:] {
		if key, value, ok := strings.Cut(word, "="); ok {
			b.Settings[key] = value
		} else {
			b.Kind = word
		}
	}
	return b
}

// above returns the last line before a line that is not empty.
func (p *Page) above(line int) string {
	for _, text := range slices.Backward(p.lines[:line]) {
		if text != "" {
			return text
		}
	}
	return ""
}

// Commands returns the blocks with commands: all shell and console blocks, and other blocks, fenced or indented, with a line that
// begins with one of the programs.
func (p *Page) Commands(programs []string) []*Block {
	var out []*Block
	for _, b := range append(slices.Clone(p.Blocks), p.indented()...) {
		shell := b.Lang == "console" || b.Lang == "sh" || b.Lang == "bash"
		commands := slices.ContainsFunc(strings.Split(b.Text, "\n"), func(line string) bool {
			words := strings.Fields(strings.TrimPrefix(line, "$ "))
			return len(words) > 1 && slices.Contains(programs, words[0])
		})
		if shell || b.Lang == "" && commands {
			out = append(out, b)
		}
	}
	return out
}

// indented returns the indented code blocks.
func (p *Page) indented() []*Block {
	var out []*Block
	fenced, list := false, false
	for i := 0; i < len(p.lines); i++ {
		line := p.lines[i]
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case fenced || line == "":
		case !strings.HasPrefix(line, "    "):
			list = strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "1. ") || list && strings.HasPrefix(line, " ")
		case !list && (i == 0 || p.lines[i-1] == "" || strings.HasSuffix(p.lines[i-1], "-->")):
			b := newBlock("")
			b.first, b.Above = i, p.above(i)
			var text []string
			for ; i < len(p.lines) && strings.HasPrefix(p.lines[i], "    "); i++ {
				text = append(text, p.lines[i][4:])
			}
			b.last, b.Text = i, strings.Join(text, "\n")
			out = append(out, b)
		}
	}
	return out
}

// At returns the position of a block for messages.
func (p *Page) At(b *Block) string { return fmt.Sprintf("%s:%d", p.File, b.first) }

// expect compares the text of a block with the expected text.
func (b *Block) expect(got string) {
	b.got = strings.TrimRight(got, "\n")
	b.differs = b.got != strings.TrimRight(b.Text, "\n")
}

// Update writes the expected text of all blocks to the page.
func (p *Page) Update() error {
	lines := slices.Clone(p.lines)
	for _, b := range slices.Backward(p.Blocks) {
		if b.differs {
			lines = slices.Replace(lines, b.first, b.last, strings.Split(b.got, "\n")...)
		}
	}
	return os.WriteFile(p.File, []byte(strings.Join(lines, "\n")), 0o644)
}

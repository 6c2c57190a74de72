package doctest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Runner runs the examples on pages.
type Runner struct {
	// Command runs a command line in a directory. It may be nil if pages have no commands.
	Command func(dir string, args []string, out io.Writer) error
	// Kubectl runs kubectl in a directory. It may be nil if pages do not use it.
	Kubectl func(dir string, args []string, out io.Writer) error
	// Dir is an empty directory for the files of a page.
	Dir string

	page     *Page
	current  *scenario
	section  int
	examples int
}

// Run runs all examples on a page. It returns the number of examples and all problems.
func (r *Runner) Run(p *Page) (examples int, problems []error) {
	r.page, r.current, r.section, r.examples = p, newScenario(), -1, 0
	for _, b := range p.Blocks {
		if b.Section != r.section {
			problems = append(problems, r.close(nil)...)
			r.current, r.section = newScenario(), b.Section
		}
		if err := r.block(b); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", p.At(b), err))
		}
		if b.differs {
			problems = append(problems, fmt.Errorf("%s: the page shows\n%s\nbut it is\n%s", p.At(b), b.Text, b.got))
		}
	}
	problems = append(problems, r.close(nil)...)
	return r.examples + r.tables(), append(problems, r.tableProblems()...)
}

// block runs one block.
func (r *Runner) block(b *Block) error {
	s := r.current
	if file := b.Settings["file"]; file != "" && b.Kind != "outcome" {
		return r.write(file, b.Text)
	}
	switch b.Kind {
	case "rule":
		return errors.Join(append(r.close(s), s.addRules(b.Text))...)
	case "facts":
		return s.setFacts(b.Text, b.Settings["node"])
	case "node":
		return s.setNode(b.Text)
	case "settings":
		s.strict = strings.Contains(b.Text, "--nfd-strict")
		return nil
	case "report":
		r.examples++
		s.reported = true
		b.expect(s.report())
		return nil
	case "outcome":
		r.examples++
		return r.outcome(s, b)
	}
	switch {
	case b.Lang == "console":
		r.examples++
		return r.console(b)
	case b.Lang == "yaml" && !known(b.Kind):
		return errors.New("a block of YAML is a rule, facts, a node, an outcome or a file")
	}
	return nil
}

// close checks that an example has an outcome or errors before the next one begins.
func (r *Runner) close(next *scenario) []error {
	s := r.current
	if len(s.objects) > 0 && !s.done && !s.reported && s != next {
		return []error{fmt.Errorf("%s: the rules of section %d are never evaluated", r.page.File, r.section)}
	}
	return nil
}

func (r *Runner) outcome(s *scenario, b *Block) error {
	if file := b.Settings["file"]; file != "" {
		var out bytes.Buffer
		if err := r.Command(r.Dir, []string{"template", "copy", "--embed-all", file}, &out); err != nil {
			return err
		}
		s.objects, s.done, s.reported = nil, false, false
		if err := s.addRules(out.String()); err != nil {
			return err
		}
	}
	if node := b.Settings["node"]; node != "" {
		s.node.Name = node
	}
	s.done = true
	if report := s.report(); report != "" && !s.reported {
		return fmt.Errorf("the page does not show what Compile says:\n%s", report)
	}
	text, err := show(s.eval(), b.Text)
	b.expect(text)
	return err
}

func (r *Runner) write(file, text string) error {
	if !filepath.IsLocal(file) {
		return fmt.Errorf("the file %s is not below the page", file)
	}
	path := filepath.Join(r.Dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text+"\n"), 0o644)
}

// console runs the commands of a block and inserts their output after each.
func (r *Runner) console(b *Block) error {
	var got strings.Builder
	for line := range strings.Lines(b.Text) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		fmt.Fprintf(&got, "$ %s\n", strings.TrimSpace(command))
		var out bytes.Buffer
		if err := r.command(strings.Fields(command), &out); err != nil {
			fmt.Fprintf(&out, "error: %s\n", err)
		}
		got.WriteString(strings.ReplaceAll(out.String(), r.Dir+"/", ""))
	}
	b.expect(got.String())
	return nil
}

// command runs one command: assay, or cat to show a file.
func (r *Runner) command(words []string, out io.Writer) error {
	dest := ""
	if i := slices.Index(words, ">"); i > 0 && i+1 < len(words) {
		words, dest = words[:i], words[i+1]
	}
	var buffer bytes.Buffer
	switch {
	case words[0] == "assay" && r.Command != nil:
		if err := r.Command(r.Dir, words[1:], &buffer); err != nil {
			_, _ = out.Write(buffer.Bytes())
			return err
		}
	case words[0] == "kubectl" && r.Kubectl != nil:
		if err := r.Kubectl(r.Dir, words[1:], &buffer); err != nil {
			_, _ = out.Write(buffer.Bytes())
			return err
		}
	default:
		return fmt.Errorf("%s cannot be run here", words[0])
	}
	if dest != "" {
		return r.write(dest, strings.TrimSuffix(buffer.String(), "\n"))
	}
	_, err := out.Write(buffer.Bytes())
	return err
}

// row is one row of an expression table.
type row struct {
	line         int
	text, result string
	node, kind   string
}

// rows returns the rows of the expression tables on a page.
func (p *Page) rows() []row {
	var rows []row
	node, kind, in := "", "", false
	for i, line := range p.lines {
		if settings, ok := strings.CutPrefix(line, "<!-- expressions"); ok {
			in = true
			for word := range strings.FieldsSeq(strings.TrimSuffix(settings, "-->")) {
				key, value, _ := strings.Cut(word, "=")
				switch key {
				case "node":
					node = value
				case "as":
					kind = value
				}
			}
			continue
		}
		cells := strings.Split(line, " | ")
		if !in || !strings.HasPrefix(line, "| `") || len(cells) < 2 {
			in = in && (line == "" || strings.HasPrefix(line, "|"))
			continue
		}
		rows = append(rows, row{
			line: i + 1, node: node, kind: kind,
			text:   strings.Trim(strings.TrimPrefix(cells[0], "| "), "` "),
			result: strings.TrimSpace(strings.TrimSuffix(cells[1], "|")),
		})
	}
	return rows
}

func (r *Runner) tables() int { return len(r.page.rows()) }

// tableFacts are the facts of nodes in expression tables.
const tableFacts = `
attributes:
  kernel.version: {elements: {major: "6", minor: "8"}}
  system.dmiid: {elements: {product_name: "PowerEdge R740 (rev. 2)"}}
instances:
  pci.device: {elements: [{attributes: {vendor: "8086", class: "0200"}}]}
`

// tableProblems evaluates the expression tables.
func (r *Runner) tableProblems() []error {
	var problems []error
	for _, row := range r.page.rows() {
		s := newScenario()
		if err := s.setFacts(tableFacts, row.node); err != nil {
			return append(problems, err)
		}
		if got := expression(strings.ReplaceAll(row.text, `\|`, "|"), row.kind, s); got != row.result {
			problems = append(problems, fmt.Errorf("%s:%d: %s gives %s, not %s", r.page.File, row.line, row.text, got, row.result))
		}
	}
	return problems
}

package manifest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// Locate returns the position of a field by its path, such as spec.rules[0].labels[x]. If the field does not exist, it returns the
// position of its closest ancestor.
func (d *Document) Locate(path string) Position {
	chain := d.follow(path)
	last := chain[len(chain)-1]
	if last == d.Root {
		return Position{Line: last.Line}
	}
	return yamltree.At(last)
}

// Suspect reports whether Decode has reported a problem in a field, in one that contains it, or in a direct child, or that a field at
// another place belongs into it: other problems of the field are then probably consequences.
func (d *Document) Suspect(path string) bool {
	for _, field := range d.moved {
		if field == path || strings.HasPrefix(field, path+".") || strings.HasPrefix(field, path+"[") {
			return true
		}
	}
	if slices.Contains(d.partial, path) {
		return true
	}
	chain := d.follow(path)
	for _, n := range chain {
		if d.bad[n] {
			return true
		}
	}
	if len(chain) == 1 {
		return false
	}
	value := chain[len(chain)-1]
	if before := chain[len(chain)-2]; !slices.Contains(before.Content, value) {
		value = before // follow adds the key of a map or list behind it
	}
	return slices.ContainsFunc(value.Content, func(n *yaml.Node) bool { return d.bad[n] })
}

// Problem creates a Problem from a compiler's message about a field. If the message contains a position in a string, this becomes
// the position of the Problem.
func (d *Document) Problem(severity Severity, code, path, message string) Problem {
	chain := d.follow(path)
	last := chain[len(chain)-1]
	p := Problem{
		Position: d.Locate(path), Severity: severity, Code: code,
		Path: d.prefix + path, Object: d.Title(), Message: message,
	}
	if last.Kind == yaml.ScalarNode {
		d.within(&p, last)
	}
	return p
}

// follow returns the nodes on the path from the root to a field, as far as they exist. For a map or a list it returns the key,
// which is where readers expect the problem.
func (d *Document) follow(path string) []*yaml.Node {
	chain := []*yaml.Node{d.Root}
	way, found := yamltree.Follow(d.Root, strings.TrimPrefix(path, d.prefix))
	for _, step := range way {
		chain = append(chain, step.Value)
	}
	if !found || len(way) == 0 {
		return chain
	}
	if last := way[len(way)-1]; last.Key != nil && last.Value.Kind != yaml.ScalarNode && !d.bad[last.Value] {
		chain = append(chain, last.Key)
	}
	return chain
}

var (
	atLine   = regexp.MustCompile(`\bline (\d+), column (\d+): `)
	atColumn = regexp.MustCompile(`\bcolumn (\d+): `)
)

// within changes the position of a problem to the position in a string that its message contains.
func (d *Document) within(p *Problem, n *yaml.Node) {
	literal := n.Style&yaml.LiteralStyle != 0
	if m := atLine.FindStringSubmatchIndex(p.Message); m != nil {
		line, _ := strconv.Atoi(p.Message[m[2]:m[3]])
		column, _ := strconv.Atoi(p.Message[m[4]:m[5]])
		if !literal {
			return
		}
		indent := d.blockIndent(n)
		p.Line, p.Column = min(n.Line+line, d.file.text.Lines()), indent+column
		p.Message = p.Message[:m[0]] + p.Message[m[1]:]
		return
	}
	m := atColumn.FindStringSubmatchIndex(p.Message)
	if m == nil || n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 || strings.ContainsAny(n.Value, "\n\\") {
		return
	}
	column, _ := strconv.Atoi(p.Message[m[2]:m[3]])
	source := d.file.text.From(yamltree.At(n))
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		column++
		source = strings.TrimLeft(source, `"'`)
	}
	if !strings.HasPrefix(source, n.Value) { // the string continues in the next line or contains escapes
		return
	}
	p.Column += column - 1
	p.Message = p.Message[:m[0]] + p.Message[m[1]:]
}

// Embedded returns the position in the file of a position in the text of a string, and true if the string is written as it is. Otherwise it
// returns the position of the string.
func (d *Document) Embedded(n *yaml.Node, at Position) (Position, bool) {
	if n.Style&yaml.LiteralStyle == 0 {
		return yamltree.At(n), false
	}
	out := Position{Line: min(n.Line+at.Line, d.file.text.Lines()), Column: at.Column}
	if at.Column > 0 {
		out.Column += d.blockIndent(n)
	}
	return out, true
}

// blockIndent returns the indentation of a block scalar.
func (d *Document) blockIndent(n *yaml.Node) int {
	for i := n.Line + 1; i <= d.file.text.Lines(); i++ {
		if line := d.file.Line(i); strings.TrimSpace(line) != "" {
			return len(line) - len(strings.TrimLeft(line, " "))
		}
	}
	return 0
}

package ui

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/assay-project/assay/cmd/assay/internal/check"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/manifest"
)

// maxRule is the maximum size in bytes of the text in the playground, about the size limit of the API server.
const maxRule = 1 << 20

// maxLines is the maximum number of lines of that text. Each is an element of the page: a megabyte of line feeds made a page 17 times its
// size.
const maxLines = 20_000

// sample is the initial rule in the playground.
const sample = `apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata:
  name: my-rule
spec:
  rules:
    - name: recent-kernel
      labels:
        example.com/recent-kernel: "true"
      matchFeatures:
        - feature: kernel.version
          matchExpressions:
            major: {op: Ge, value: ["6"]}
`

// playgroundPage is the page for editing a rule.
type playgroundPage struct {
	Node, Query, Text string
	// Nodes are suggestions for the name of the node.
	Nodes []string
	// NoNode is set if the named node does not exist.
	NoNode   bool
	Gutter   []gutterLine
	Findings []finding
	Errors   int
	// Evaluated is set if there is an outcome.
	Evaluated bool
	// Say is the reason why the rule is not evaluated.
	Say     string
	Outcome outcome
	Traces  []trace
	Tree    tree
}

func (p *playgroundPage) tables() []*table {
	if p.Outcome.Outputs == nil {
		return nil
	}
	return []*table{p.Outcome.Outputs}
}

// gutterLine is a line of the editor's gutter.
type gutterLine struct {
	Number          int
	Severity, Title string
}

// finding is an error or a warning about the rule.
type finding struct {
	Severity, Where, Path, Message string
	Line                           int
}

// maxChoices is the maximum number of suggestions on a page.
const maxChoices = 300

// newPlaygroundPage reviews the text, and evaluates it for a node if there are no errors.
func newPlaygroundPage(d *data, text, node, query string) *playgroundPage {
	text = strings.ReplaceAll(text, "\r\n", "\n") // browsers send CRLF
	p := &playgroundPage{Node: node, Query: query, Text: text, Nodes: d.choices()}
	n := d.node(node)
	if n != nil {
		p.Tree = newTree(n.Input.Facts, query, d.Snapshot)
	}
	p.NoNode = n == nil && node != ""
	file := manifest.Parse("rule", []byte(text))
	checker := check.New(d.Known, file)
	checker.Schema, checker.Sealed = true, true
	for _, f := range checker.File(file) {
		p.Findings = append(p.Findings, finding{string(f.Severity), f.Position.String(), f.Path, f.Message, f.Line})
		if f.Severity == manifest.Error {
			p.Errors++
		}
	}
	p.Gutter = newGutter(text, p.Findings)
	p.evaluate(d, n, file, checker)
	return p
}

// evaluate evaluates the rules in the file for a node. It does not evaluate rules with errors, because without the invalid parts
// they could match more nodes.
func (p *playgroundPage) evaluate(d *data, n *Node, file *manifest.File, checker *check.Checker) {
	var sets []*rules.RuleSet
	for _, doc := range file.Documents {
		if doc.Kind == manifest.KindRule {
			_, set := checker.Compile(doc)
			sets = append(sets, set)
		}
	}
	switch {
	case p.Errors > 0:
		p.Say = "Not evaluated: correct the errors first."
	case len(sets) == 0:
		p.Say = "Not evaluated: the text has no NodeFeatureRule."
	case d.Unknown.Features != "":
		p.Say = "Not evaluated: the features of nodes are not known."
	case n == nil && len(d.Nodes) == 0:
		p.Say = "Not evaluated: there are no nodes."
	case n == nil:
		p.Say = "Not evaluated: choose a node."
	default:
		program := rules.Link(d.Known.Rules, sets...)
		p.Outcome = newOutcome(program.Eval(n.Input), comparison{settings: d.Desired})
		p.Outcome.Outputs.Fixed = true
		p.Traces = newTraces(program.Trace(n.Input), d.Known.Rules.Mask)
		p.Evaluated = true
	}
}

// newGutter returns the gutter: one line per line of the text, with its most severe finding.
func newGutter(text string, findings []finding) []gutterLine {
	out := make([]gutterLine, strings.Count(text, "\n")+1)
	for i := range out {
		out[i].Number = i + 1
	}
	for _, f := range findings {
		line := &out[min(max(f.Line, 1), len(out))-1]
		if line.Severity != string(manifest.Error) {
			line.Severity = f.Severity
		}
		line.Title = strings.TrimPrefix(line.Title+"\n"+f.Message, "\n")
	}
	return out
}

// Lines returns the number of lines of the editor.
func (p *playgroundPage) Lines() string { return strconv.Itoa(max(len(p.Gutter), 16)) }

// firstNode returns the initial node of the playground.
func firstNode(d *data, node string) string {
	first := ""
	if len(d.Nodes) > 0 {
		first = d.Nodes[0].Input.Node.Name
	}
	return cmp.Or(node, first)
}

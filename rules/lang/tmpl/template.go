// Package tmpl expands the templates of rules into labels and vars.
//
// It implements the language of Go's text/template with NFD's data and a list of allowed functions, which have Sprig's names. It
// parses with the standard library and evaluates the syntax tree itself: it can count every step, needs no reflection, and does not
// prevent the linker from removing unused methods.
package tmpl

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/size"
)

// Options configure how templates are compiled.
type Options struct {
	// Strict follows NFD where Assay differs: an output line without = is an error.
	Strict bool
	// Size is the budget for compiled regular expressions; nil is unlimited.
	Size *size.Budget
}

// Env gives a template access to values in addition to its data.
type Env interface {
	// NodeName is the name of the node, which node and n read.
	NodeName() string
	// Var returns a variable of an earlier rule, which var reads.
	Var(name string) (value string, ok bool)
}

// Template is a compiled labelsTemplate or varsTemplate. It is immutable and safe for concurrent use.
type Template struct {
	source   string
	opt      Options
	defs     map[string]*definition
	main     *definition
	regexps  map[string]*regexp.Regexp // literal patterns
	reads    []read
	fields   []fieldRead
	paths    []DataPath
	elements []ElementPath

	readsNode, readsVars bool

	namesOnce sync.Once
	names     map[string]bool // see lineNames
}

// definition is one template of a source: the main one, or one defined with define or block.
type definition struct {
	body  block
	slots int // number of variables, including $
}

// Diagnostic is an error or warning of Compile.
type Diagnostic struct {
	// Line and Column are the position in the source, counted from 1. Columns count bytes.
	Line, Column int
	// Message describes the problem and what to write instead.
	Message string
	// Warning marks something that works but is probably not intended.
	Warning bool
}

// Error returns the position and the message.
func (p Diagnostic) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
}

// ExpandError reports why a template could not be expanded on a node.
type ExpandError struct {
	Line, Column int
	Message      string
	// Lack is set if a value does not have a field that the template reads.
	Lack *Lack
}

// Lack is a field that a value does not have.
type Lack struct {
	Field string
	// Instance is set if the value is an instance, so that other instances of the feature may have the field.
	Instance bool
}

// Error returns the position and the message.
func (e *ExpandError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// DataPath is a feature that a template reads.
type DataPath struct {
	// Domain and Name are the parts of .Domain.Name as spelled in the template.
	Domain, Name string
	// Line and Column are the position of the first read.
	Line, Column int
	// Conditional is set if all reads are inside of an if, with, range or define, so that the template may work without the
	// feature.
	Conditional bool
}

// ElementPath is a field of an element of a feature that a template reads in a range.
type ElementPath struct {
	// Feature is domain.name as spelled in the template, Field the name of the field.
	Feature, Field string
	// Line and Column are the position of the read.
	Line, Column int
}

// ElementPaths returns the fields of elements that the template reads, as far as the source shows. The result is shared: do not modify
// it.
func (t *Template) ElementPaths() []ElementPath { return t.elements }

// Feature returns the feature's name, domain.name.
func (p DataPath) Feature() string {
	if p.Name == "" {
		return p.Domain
	}
	return p.Domain + "." + p.Name
}

// DataPaths returns the features that the template reads, as far as the source shows, in source order. The result is shared: do not
// modify it.
func (t *Template) DataPaths() []DataPath { return t.paths }

// ReadsNode reports whether the template reads the node's name, so that it may differ between nodes with equal
// features.
func (t *Template) ReadsNode() bool { return t.readsNode }

// ReadsVars reports whether the template reads variables of earlier rules.
func (t *Template) ReadsVars() bool { return t.readsVars }

// Source returns the source of the template.
func (t *Template) Source() string { return t.source }

// Expand runs the template on the elements that a matcher matched and returns the labels or vars that it wrote. Each output line is
// key=value; the value of a line without = is true. With a nil env there is no node name and there are no vars. The error is an
// *ExpandError.
func (t *Template) Expand(matched []match.FeatureElements, env Env) (map[string]string, error) {
	return t.ExpandWithin(&Spent{}, matched, env)
}

// Spent is the cost of expansions so far. It starts at zero.
type Spent struct{ steps, bytes int }

// ExpandWithin is like Expand, with limits on the total cost of all expansions that share a Spent: a loop must not get a new budget
// for each item.
func (t *Template) ExpandWithin(spent *Spent, matched []match.FeatureElements, env Env) (_ map[string]string, err error) {
	s := &state{t: t, env: env, steps: spent.steps, bytes: spent.bytes, data: data{terms: matched, asIs: t.opt.Strict}}
	defer func() { *spent = Spent{s.steps, s.bytes} }()
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			line, column := t.place(f.at)
			err = &ExpandError{Line: line, Column: column, Message: f.msg, Lack: f.lack}
		}
	}()
	s.enter(t.main, value{kind: kindData, ref: &s.data})
	return t.lines(s.out)
}

// fewLabels is the initial capacity for labels. Most templates write few labels.
const fewLabels = 16

// lines parses the output of a template. If lines have the same key, the last one wins.
func (t *Template) lines(out []byte) (map[string]string, error) {
	if len(bytes.TrimSpace(out)) == 0 {
		return nil, nil
	}
	rest := string(out) // one string that all keys and values share
	values := make(map[string]string, min(strings.Count(rest, "\n")+1, fewLabels))
	for rest != "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			if t.opt.Strict {
				return nil, &ExpandError{Line: 1, Column: 1, Message: fmt.Sprintf("the line %q of the output has no =", shown(line))}
			}
			value = "true"
		}
		if old, ok := values[key]; ok && old == value {
			continue // a repeated line, as for devices of one kind
		}
		values[key] = value
		if len(values) > MaxLabels {
			return nil, &ExpandError{Line: 1, Column: 1, Message: fmt.Sprintf("the template gives more than %d labels", MaxLabels)}
		}
	}
	return values, nil
}

// place returns the line and column of a byte of the source.
func (t *Template) place(at int) (line, column int) {
	before := t.source[:min(max(at, 0), len(t.source))]
	return strings.Count(before, "\n") + 1, len(before) - strings.LastIndexByte(before, '\n')
}

// maxShown is the maximum number of bytes of a string in an error.
const maxShown = 60

func shown(s string) string { return clip.Text(s, maxShown) }

// Package tmpl expands the templates of rules into labels and vars.
//
// It implements the language of Go's text/template with NFD's data and an allow-list of functions under Sprig's
// names. It parses with the standard library's parser and evaluates the tree itself, so that it can count every step,
// needs no reflection, and does not force the linker to keep every method of the program.
package tmpl

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/lang/match"

	"github.com/assay-project/assay/rules/lang/size"
)

// Options configure how templates are compiled.
type Options struct {
	// Strict follows NFD where Assay differs: a line of output without = is an error.
	Strict bool
	// Size is the budget for compiled regular expressions; nil is unlimited.
	Size *size.Budget
}

// Env gives a template access to values in addition to its data.
type Env interface {
	// NodeName is the name of the node, for node and n.
	NodeName() string
	// Var is a variable of an earlier rule, for var.
	Var(name string) (value string, ok bool)
}

// Template is a compiled labelsTemplate or varsTemplate. It is immutable and safe for concurrent use.
type Template struct {
	source  string
	opt     Options
	defs    map[string]*definition
	main    *definition
	regexps map[string]*regexp.Regexp // the literal patterns
	paths   []DataPath

	readsNode, readsVars bool
}

// definition is one template of a source: the main one, or one made by define or block.
type definition struct {
	body  block
	slots int // number of variables, $ included
}

// Problem is an error or warning of Compile.
type Problem struct {
	// Line and Column of the source, counted from 1; columns are bytes.
	Line, Column int
	// Message describes the problem and what to write instead.
	Message string
	// Warning marks something that works, but probably not as intended.
	Warning bool
}

// Error returns the position and the message.
func (p Problem) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
}

// ExpandError reports why a template could not be expanded on a node.
type ExpandError struct {
	Line, Column int
	Message      string
}

// Error returns the position and the message.
func (e *ExpandError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// DataPath is a feature that a template reads.
type DataPath struct {
	// Domain and Name are the two parts as the template spells them, .Domain.Name.
	Domain, Name string
	// Line and Column are the position of the first read.
	Line, Column int
	// Conditional is set if the template reads it only inside of an if, a with, a range or a define, so that it may
	// work without it.
	Conditional bool
}

// Feature returns the feature's name, domain.name.
func (p DataPath) Feature() string {
	if p.Name == "" {
		return p.Domain
	}
	return p.Domain + "." + p.Name
}

// DataPaths returns the features that the template reads, as far as the source shows, in the order of the source. The
// result is shared: do not modify it.
func (t *Template) DataPaths() []DataPath { return t.paths }

// ReadsNode reports whether the template reads the node's name, so that it may differ between nodes with equal
// features.
func (t *Template) ReadsNode() bool { return t.readsNode }

// ReadsVars reports whether the template reads variables of earlier rules.
func (t *Template) ReadsVars() bool { return t.readsVars }

// Source returns the source of the template.
func (t *Template) Source() string { return t.source }

// Expand runs the template on the elements that a matcher matched and returns the labels or vars that it wrote, one
// on a line as key=value; a line without = is true. A nil env has no node and no vars. The error, if any, is an
// *ExpandError.
func (t *Template) Expand(matched []match.FeatureElements, env Env) (map[string]string, error) {
	return t.ExpandWithin(&Spent{}, matched, env)
}

// Spent is the cost of expansions so far; it starts at zero.
type Spent struct{ steps, bytes int }

// ExpandWithin is Expand with bounds on the sum of all expansions that share the same Spent: a rule that loops must
// not get a new budget for each item.
func (t *Template) ExpandWithin(spent *Spent, matched []match.FeatureElements, env Env) (_ map[string]string, err error) {
	s := states.Get().(*state)
	s.t, s.env, s.steps, s.bytes = t, env, spent.steps, spent.bytes
	s.data.terms, s.data.asIs = matched, t.opt.Strict
	defer func() {
		*spent = Spent{s.steps, s.bytes}
		s.release()
	}()
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			line, column := t.place(f.at)
			err = &ExpandError{line, column, f.msg}
		}
	}()
	s.enter(t.main, value{kind: kindData, ref: &s.data})
	return t.lines(s.out)
}

// release clears references to data and returns the buffers to the pool.
func (s *state) release() {
	clear(s.vars)
	clear(s.args[:cap(s.args)])
	clear(s.data.found)
	*s = state{out: s.out[:0], vars: s.vars[:0], args: s.args[:0], data: data{found: s.data.found[:0]}}
	states.Put(s)
}

// fewLabels is the initial capacity for labels: most templates write few, from many devices of few kinds.
const fewLabels = 16

// lines parses the output of a template. A later line wins over an earlier one with the same key.
func (t *Template) lines(out []byte) (map[string]string, error) {
	if len(bytes.TrimSpace(out)) == 0 {
		return nil, nil
	}
	rest := string(out) // one copy that all keys and values share
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
				return nil, &ExpandError{1, 1, fmt.Sprintf("the line %q of the output has no =", shown(line))}
			}
			value = "true"
		}
		if old, ok := values[key]; ok && old == value {
			continue // devices of one kind write the same line repeatedly
		}
		values[key] = value
		if len(values) > MaxLabels {
			return nil, &ExpandError{1, 1, fmt.Sprintf("the template gives more than %d labels", MaxLabels)}
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

// Package tmpl expands the templates of rules into labels and vars.
//
// It speaks the language of Go's text/template with NFD's data and an allow-list of functions under Sprig's names. It
// parses with the standard library's parser and evaluates the tree itself: so that every step can be counted, so that no
// reflection is needed, and so that a program which links it does not have to keep every method it has.
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

// Options say how templates are read.
type Options struct {
	// Strict follows NFD where Assay differs: a line of output without = is an error.
	Strict bool
	// Size is the budget that regular expressions are compiled within; nil: any number of them.
	Size *size.Budget
}

// Env is what a template can ask for besides its data.
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
	slots int // how many variables it has, $ included
}

// Problem is something wrong with a template, found when it is compiled.
type Problem struct {
	// Line and Column of the source, counted from 1; columns are bytes.
	Line, Column int
	// Message says what is wrong and what to write instead.
	Message string
	// Warning marks what works, but probably not as meant.
	Warning bool
}

// Error returns the place and the message.
func (p Problem) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
}

// ExpandError is why a template could not be expanded on a node.
type ExpandError struct {
	Line, Column int
	Message      string
}

// Error returns the place and the message.
func (e *ExpandError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// DataPath is a feature that a template reads.
type DataPath struct {
	// Domain and Name are the two parts as the template spells them, .Domain.Name.
	Domain, Name string
	// Line and Column of the first place that reads it.
	Line, Column int
	// Conditional is set if the template reads it only inside of an if, a with, a range or a define, so that it may do
	// without.
	Conditional bool
}

// Feature is the feature's name, domain.name.
func (p DataPath) Feature() string {
	if p.Name == "" {
		return p.Domain
	}
	return p.Domain + "." + p.Name
}

// DataPaths returns the features that the template reads, as far as that can be seen without data, in the order of the
// source. The result is shared: do not modify it.
func (t *Template) DataPaths() []DataPath { return t.paths }

// ReadsNode reports whether the template asks for the node's name, so that it may differ between nodes with equal features.
func (t *Template) ReadsNode() bool { return t.readsNode }

// ReadsVars reports whether the template asks for variables of earlier rules.
func (t *Template) ReadsVars() bool { return t.readsVars }

// Source returns the text of the template.
func (t *Template) Source() string { return t.source }

// Expand runs the template on the elements that a matcher matched and returns the labels or vars that it wrote, one on a
// line as key=value; a line without = is true. A nil env has no node and no vars. The error, if any, is an *ExpandError.
func (t *Template) Expand(matched []match.FeatureElements, env Env) (map[string]string, error) {
	return t.ExpandWithin(&Spent{}, matched, env)
}

// Spent is what expansions have cost so far; the zero Spent is nothing.
type Spent struct{ steps, bytes int }

// ExpandWithin is Expand with bounds that hold for all expansions together that are given the same Spent: a rule that loops
// must not get them anew for each item.
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

// release clears what refers to data and gives the buffers back.
func (s *state) release() {
	clear(s.vars)
	clear(s.args[:cap(s.args)])
	clear(s.data.found)
	*s = state{out: s.out[:0], vars: s.vars[:0], args: s.args[:0], data: data{found: s.data.found[:0]}}
	states.Put(s)
}

// fewLabels is how many labels room is made for at first: most templates give few, from many devices of few kinds.
const fewLabels = 16

// lines reads the output of a template. A later line wins over an earlier one with the same key.
func (t *Template) lines(out []byte) (map[string]string, error) {
	if len(bytes.TrimSpace(out)) == 0 {
		return nil, nil
	}
	rest := string(out) // one copy that all keys and values are parts of
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
			continue // devices of one kind give the same line again and again
		}
		values[key] = value
		if len(values) > MaxLabels {
			return nil, &ExpandError{1, 1, fmt.Sprintf("the template gives more than %d labels", MaxLabels)}
		}
	}
	return values, nil
}

// place is the line and column of a byte of the source.
func (t *Template) place(at int) (line, column int) {
	before := t.source[:min(max(at, 0), len(t.source))]
	return strings.Count(before, "\n") + 1, len(before) - strings.LastIndexByte(before, '\n')
}

// maxShown is how much of a text an error repeats.
const maxShown = 60

func shown(s string) string { return clip.Text(s, maxShown) }

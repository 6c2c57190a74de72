package match

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/assay-project/assay/rules/lang/size"
)

// PatternBytes is the size in bytes of a pattern in a list of patterns, in addition to its regular expression.
const PatternBytes = 128

// inRegexp holds if one of its patterns matches anywhere in a value.
type inRegexp struct {
	patterns []pattern
}

func compileInRegexp(c *compiler, at place, e *Expr) test {
	t := &inRegexp{}
	for i, v := range e.Value {
		list, err := c.patterns.compile(v)
		if err != nil {
			text := err.Error()
			if plain := glob(v); plain != "" {
				text += fmt.Sprintf("; a pattern matches anywhere in a value, without *: write %q", plain)
			}
			c.add(field.Invalid(at.path().Child("value").Index(i), short(v), text))
			continue
		}
		t.patterns = append(t.patterns, list...)
	}
	return t
}

// glob returns the regular expression that means the same as a pattern of a shell, or "" if a string is not one.
func glob(s string) string {
	start, end := "^", "$"
	rest, ok := strings.CutPrefix(s, "*")
	if ok {
		start = ""
	}
	if rest, ok = strings.CutSuffix(rest, "*"); ok {
		end = ""
	}
	if rest == "" || strings.Trim(rest, ".") == "" || !strings.HasPrefix(s, "*") || regexp.QuoteMeta(strings.ReplaceAll(rest, ".", "")) != strings.ReplaceAll(rest, ".", "") {
		return ""
	}
	return start + regexp.QuoteMeta(rest) + end
}

func (t *inRegexp) check(value string, work *Work) verdict {
	for i := range t.patterns {
		if t.patterns[i].matches(value, work) {
			return yes
		}
	}
	return no
}

func (t *inRegexp) problem(string) error { return nil }

// anyOf checks only those of the sorted names that can match an anchored pattern.
func (t *inRegexp) anyOf(names []string, work *Work) bool {
	for i := range t.patterns {
		p := &t.patterns[i]
		from := sort.SearchStrings(names, p.prefix)
		for _, name := range names[from:] {
			if !strings.HasPrefix(name, p.prefix) {
				break
			}
			if p.matches(name, work) {
				return true
			}
		}
	}
	return false
}

// pattern is one alternative of a regular expression. Most real ones are words with or without anchors: comparing strings is then
// twenty times faster than running an automaton.
type pattern struct {
	// prefix is the prefix of all values that match, or "" if the pattern is not anchored.
	prefix string
	// literal is compared as defined by form. If form is automaton, a value that does not contain it cannot match.
	literal string
	form    form
	re      func() *regexp.Regexp // nil unless form is automaton
	perByte int                   // cost of running it
}

// form is the way in which a pattern is compared.
type form uint8

const (
	contains form = iota
	begins
	ends
	equals
	automaton
)

func (p *pattern) matches(value string, work *Work) bool {
	if !work.take(workPerValue + len(value)/bytesPerWork) {
		return false
	}
	switch p.form {
	case contains:
		return strings.Contains(value, p.literal)
	case begins:
		return strings.HasPrefix(value, p.literal)
	case ends:
		return strings.HasSuffix(value, p.literal)
	case equals:
		return value == p.literal
	}
	return strings.HasPrefix(value, p.prefix) && strings.Contains(value, p.literal) &&
		work.take(workPerRun+p.perByte*len(value)) && p.re().MatchString(value)
}

// Patterns caches regular expressions while the rules of an object are compiled: catalogs of devices repeat the same few in every
// rule. It is not safe for concurrent use; a nil *Patterns caches nothing.
type Patterns struct {
	// Size is the budget for compiled regular expressions; nil is unlimited.
	Size *size.Budget

	known map[string][]pattern
}

func (p *Patterns) compile(text string) ([]pattern, error) {
	if p == nil {
		return compilePattern(text, nil)
	}
	if p.Size.Over() {
		return nil, size.ErrOver
	}
	if list, ok := p.known[text]; ok {
		return list, nil
	}
	list, err := compilePattern(text, p.Size)
	if err == nil {
		if p.known == nil {
			p.known = map[string][]pattern{}
		}
		p.known[text] = list
	}
	return list, err
}

// compilePattern parses a regular expression into patterns, one of which must match.
func compilePattern(text string, budget *size.Budget) ([]pattern, error) {
	parsed, err := size.Parse(text)
	if err != nil {
		return nil, notRegexp(err)
	}
	tree := parsed.Tree
	if list, ok := literals(trimLoose(tree)); ok {
		if !budget.Take(len(list) * (PatternBytes + len(text))) {
			return nil, size.ErrOver
		}
		out := make([]pattern, len(list))
		for i, l := range list {
			out[i] = l.pattern()
		}
		return out, nil
	}
	re, err := parsed.Defer(budget)
	if err != nil {
		return nil, notRegexp(err)
	}
	p := pattern{form: automaton, re: re, perByte: workPerByte + parsed.Steps/stepsPerWork}
	p.prefix, p.literal = required(tree)
	return []pattern{p}, nil
}

// notRegexp returns the syntax error and its position, without repeating a long pattern.
func notRegexp(err error) error {
	if e := (*syntax.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("not a regular expression: %s at %s", e.Code, quote(e.Expr))
	}
	return err
}

// literal is a string that the value must contain, at its start or end if anchored.
type literal struct {
	text       string
	start, end bool
}

func (l literal) pattern() pattern {
	p := pattern{literal: l.text}
	switch {
	case l.start && l.end:
		p.form, p.prefix = equals, l.text
	case l.start:
		p.form, p.prefix = begins, l.text
	case l.end:
		p.form = ends
	default:
		p.form = contains
	}
	return p
}

const (
	// maxLiterals is the maximum number of literals that replace a pattern. With more, an automaton is as fast.
	maxLiterals = 16
	// maxClass is the maximum number of runes in a class such as [vV] that is expanded.
	maxClass = 4
)

// literals expands a pattern that consists of words, anchors and alternatives of these.
func literals(re *syntax.Regexp) ([]literal, bool) {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 || strings.ContainsRune(string(re.Rune), '\uFFFD') {
			return nil, false // an automaton reads a byte that is not valid UTF-8 as U+FFFD
		}
		return []literal{{text: string(re.Rune)}}, true
	case syntax.OpEmptyMatch:
		return []literal{{}}, true
	case syntax.OpBeginText:
		return []literal{{start: true}}, true
	case syntax.OpEndText:
		return []literal{{end: true}}, true
	case syntax.OpCharClass:
		return classLiterals(re)
	case syntax.OpCapture:
		return literals(re.Sub[0])
	case syntax.OpQuest:
		list, ok := literals(re.Sub[0])
		return append(list, literal{}), ok && len(list) < maxLiterals
	case syntax.OpConcat:
		if slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return sub.Op == syntax.OpPlus || sub.Op == syntax.OpStar }) {
			return nil, false
		}
		list := []literal{{}}
		for _, sub := range re.Sub {
			next, ok := literals(sub)
			if ok {
				list, ok = join(list, next)
			}
			if !ok {
				return nil, false
			}
		}
		return list, true
	case syntax.OpAlternate:
		var list []literal
		for _, sub := range re.Sub {
			next, ok := literals(sub)
			if !ok || len(list)+len(next) > maxLiterals {
				return nil, false
			}
			list = append(list, next...)
		}
		return list, true
	}
	return nil, false
}

func classLiterals(re *syntax.Regexp) ([]literal, bool) {
	var list []literal
	for i := 0; i+1 < len(re.Rune); i += 2 {
		for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
			if len(list) == maxClass || r == '\uFFFD' {
				return nil, false
			}
			list = append(list, literal{text: string(r)})
		}
	}
	return list, len(list) > 0
}

// join concatenates each of a with each of b.
func join(a, b []literal) ([]literal, bool) {
	if len(a)*len(b) > maxLiterals {
		return nil, false
	}
	out := make([]literal, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			// Text before ^ or after $ can match only if it is empty. This is too rare to handle.
			if y.start && x.text != "" || x.end && (y.text != "" || y.start) {
				return nil, false
			}
			out = append(out, literal{text: x.text + y.text, start: x.start || y.start, end: x.end || y.end})
		}
	}
	return out, true
}

// trimLoose removes optional parts from the ends of a pattern: .*gpu.* matches the same values as gpu.
func trimLoose(re *syntax.Regexp) *syntax.Regexp {
	if re.Op != syntax.OpConcat {
		return re
	}
	subs := re.Sub
	for len(subs) > 1 && loose(subs[0]) {
		subs = subs[1:]
	}
	for len(subs) > 1 && loose(subs[len(subs)-1]) {
		subs = subs[:len(subs)-1]
	}
	if len(subs) == len(re.Sub) {
		return re
	}
	trimmed := *re
	trimmed.Sub = subs
	return &trimmed
}

func loose(re *syntax.Regexp) bool { return re.Op == syntax.OpStar || re.Op == syntax.OpQuest }

// required returns the prefix of every match (if the pattern is anchored) and the longest string that every match contains.
func required(re *syntax.Regexp) (prefix, longest string) {
	if re.Op != syntax.OpConcat {
		return "", ""
	}
	for i, sub := range re.Sub {
		if sub.Op != syntax.OpLiteral {
			continue
		}
		list, ok := literals(sub)
		if !ok {
			continue
		}
		text := list[0].text
		if i == 1 && re.Sub[0].Op == syntax.OpBeginText {
			prefix = text
		}
		if len(text) > len(longest) {
			longest = text
		}
	}
	return prefix, longest
}

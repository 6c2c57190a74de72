package ui

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// filterParser parses terms that are joined by and, or, not and parentheses.
type filterParser struct {
	text  string
	at    int
	depth int // of parentheses
	terms int
	d     *data
}

func (p *filterParser) or() (*clause, error)  { return p.list("or", p.and) }
func (p *filterParser) and() (*clause, error) { return p.list("and", p.not) }

func (p *filterParser) list(joint string, part func() (*clause, error)) (*clause, error) {
	out := &clause{op: joint}
	for {
		c, err := part()
		if err != nil {
			return nil, err
		}
		out.of = append(out.of, c)
		if !p.keyword(joint) {
			break
		}
		if p.peek() == 0 {
			return nil, fmt.Errorf("nothing follows %s; %s", joint, filterHelp)
		}
	}
	if len(out.of) == 1 {
		return out.of[0], nil
	}
	return out, nil
}

func (p *filterParser) not() (*clause, error) {
	if p.keyword("not") {
		c, err := p.not()
		return &clause{op: "not", of: []*clause{c}}, err
	}
	if p.peek() != '(' {
		return p.clause()
	}
	p.at++
	p.depth++
	if p.depth > maxTerms {
		return nil, fmt.Errorf("more than %d parentheses are open", maxTerms)
	}
	c, err := p.or()
	if err != nil {
		return nil, err
	}
	if p.peek() != ')' {
		return nil, errors.New("a closing parenthesis is missing; put a value that contains one in double quotes")
	}
	p.at++
	p.depth--
	return c, nil
}

// peek returns the first character of the next word, and 0 at the end.
func (p *filterParser) peek() byte {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n,", p.text[p.at]) >= 0 {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

// keywords join terms. As a name or value they must be quoted.
var keywords = []string{"and", "or", "not"}

// keyword consumes a keyword if it is next.
func (p *filterParser) keyword(name string) bool {
	if p.peek() == 0 || !strings.EqualFold(p.bare(" \t\r\n,()"), name) {
		return false
	}
	p.at += len(name)
	return true
}

// bare returns the characters up to one of the given ones.
func (p *filterParser) bare(end string) string {
	rest := p.text[p.at:]
	if i := strings.IndexAny(rest, end); i >= 0 {
		return rest[:i]
	}
	return rest
}

// ends reports whether a term ends here.
func (p *filterParser) ends() bool {
	c := p.peek()
	return c == 0 || c == ')' && p.depth > 0 || slices.ContainsFunc([]string{"and", "or"}, func(k string) bool {
		return strings.EqualFold(p.bare(" \t\r\n,()"), k)
	})
}

func (p *filterParser) quoted() (word, error) {
	rest := p.text[p.at:]
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return word{}, fmt.Errorf("a closing quote is missing after %s", rest)
	}
	value, err := strconv.Unquote(quoted)
	if err != nil {
		return word{}, fmt.Errorf("invalid string %s", quoted)
	}
	out := word{value, p.at, p.at + len(quoted), true}
	p.at = out.to
	return out, nil
}

// name reads the name of a term.
func (p *filterParser) name() (word, error) {
	if p.ends() {
		return word{}, fmt.Errorf("a term is missing at %q; %s", strings.TrimSpace(p.text[p.at:]), filterHelp)
	}
	if p.text[p.at] == '"' {
		return p.quoted()
	}
	text := p.bare(" \t\r\n,()=!<>~")
	if text == "" {
		return word{}, fmt.Errorf("a name is missing before %q; %s", p.text[p.at:], filterHelp)
	}
	out := word{text, p.at, p.at + len(text), false}
	p.at = out.to
	return out, nil
}

// symbols are short forms of operators, longer ones before their prefixes.
var symbols = []struct {
	text string
	op   nfdv1alpha1.MatchOp
}{
	{"==", nfdv1alpha1.MatchIn}, {"!=", nfdv1alpha1.MatchNotIn}, {">=", nfdv1alpha1.MatchGe}, {"<=", nfdv1alpha1.MatchLe},
	{"=", nfdv1alpha1.MatchIn}, {">", nfdv1alpha1.MatchGt}, {"<", nfdv1alpha1.MatchLt}, {"~", nfdv1alpha1.MatchInRegexp},
}

func (p *filterParser) operator() nfdv1alpha1.MatchOp {
	for _, s := range symbols {
		if strings.HasPrefix(p.text[p.at:], s.text) {
			p.at += len(s.text)
			return s.op
		}
	}
	text := p.bare(" \t\r\n,()")
	p.at += len(text)
	return nfdv1alpha1.MatchOp(text)
}

// values reads the values of a term.
func (p *filterParser) values() (out []word, err error) {
	for !p.ends() {
		if p.text[p.at] == '"' {
			w, err := p.quoted()
			if err != nil {
				return nil, err
			}
			out = append(out, w)
			continue
		}
		from, open := p.at, 0
		for ; p.at < len(p.text) && strings.IndexByte(" \t\r\n,", p.text[p.at]) < 0; p.at++ {
			if p.text[p.at] == '(' {
				open++
			} else if p.text[p.at] == ')' {
				if open--; open < 0 && p.depth > 0 {
					break
				}
			}
		}
		out = append(out, word{p.text[from:p.at], from, p.at, false})
	}
	return out, nil
}

// clause reads one term: a name, or a name with an operator and values.
func (p *filterParser) clause() (*clause, error) {
	if p.terms++; p.terms > maxTerms {
		return nil, fmt.Errorf("the filter has more than %d terms", maxTerms)
	}
	t := &term{op: nfdv1alpha1.MatchExists}
	var err error
	if t.name, err = p.name(); err != nil {
		return nil, err
	}
	t.from = t.name.from
	if t.name.text == "-l" && !t.name.quoted {
		err = t.testSelector(p)
		return &clause{term: t}, err
	}
	subject := ""
	if !t.name.quoted && (t.name.text == "label" || t.name.text == "rule") && !p.ends() && strings.IndexByte("=!<>~", p.text[p.at]) < 0 {
		subject = t.name.text
		if t.name, err = p.name(); err != nil {
			return nil, err
		}
	}
	alone := p.ends()
	if !alone {
		if t.op = p.operator(); t.op == "" {
			return nil, fmt.Errorf("unexpected %q; join terms with and or or", p.text[p.at:])
		}
		if t.values, err = p.values(); err != nil {
			return nil, err
		}
	}
	t.to = p.at
	return &clause{term: t}, p.resolve(t, subject, alone)
}

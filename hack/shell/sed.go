package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// edit is a command of sed: one of s, d, p, q and =, for the lines that its address names.
type edit struct {
	from, to func(line string, number int) bool // to is nil without a range, and both without an address
	inside   bool
	negated  bool
	name     byte
	re       *regexp.Regexp // of s
	with     string         // as regexp.Expand has it
	all      bool
	print    bool
	nth      int
}

func sed(c *call) (int, error) {
	got, err := c.options("nErse:")
	if err != nil {
		return 1, err
	}
	scripts := got['e']
	if scripts == nil {
		if len(c.args) == 0 {
			return 1, errors.New("it needs a script")
		}
		scripts, c.args = c.args[:1], c.args[1:]
	}
	parser := &sedParser{rest: strings.Join(scripts, "\n"), extended: got['E'] != nil || got['r'] != nil}
	edits, err := parser.edits()
	if err != nil {
		return 1, err
	}
	number, ended := 0, false
	err = c.files(func(_ string, r io.Reader) error {
		return lines(r, func(line string) error {
			if ended {
				return nil
			}
			number++
			keep := true
			for _, e := range edits {
				if e.applies(line, number) == e.negated {
					continue
				}
				switch e.name {
				case 's':
					next, changed := e.substitute(line)
					if line = next; changed && e.print {
						fmt.Fprintln(c.stdout, line)
					}
				case 'p':
					fmt.Fprintln(c.stdout, line)
				case '=':
					fmt.Fprintln(c.stdout, number)
				case 'd':
					keep = false
				case 'q':
					ended = true
				}
				if !keep || ended {
					break
				}
			}
			if keep && got['n'] == nil {
				fmt.Fprintln(c.stdout, line)
			}
			return nil
		})
	})
	return failed(err)
}

// applies says whether the address of a command names a line. It is asked about each line once, in their order.
func (e *edit) applies(line string, number int) bool {
	switch {
	case e.from == nil:
		return true
	case e.to == nil:
		return e.from(line, number)
	case e.inside:
		e.inside = !e.to(line, number)
		return true
	}
	e.inside = e.from(line, number)
	return e.inside
}

func (e *edit) substitute(line string) (string, bool) {
	var out []byte
	end, count := 0, 0
	for _, m := range e.re.FindAllStringSubmatchIndex(line, -1) {
		if count++; count < e.nth || count > e.nth && !e.all {
			continue
		}
		out = append(out, line[end:m[0]]...)
		out, end = e.re.ExpandString(out, e.with, line, m), m[1]
	}
	return string(append(out, line[end:]...)), out != nil || end > 0
}

// sedParser reads a script from its start.
type sedParser struct {
	rest     string
	extended bool
}

func (p *sedParser) edits() ([]*edit, error) {
	var out []*edit
	for {
		p.rest = strings.TrimLeft(p.rest, " \t\n;")
		if p.rest == "" {
			return out, nil
		}
		e := &edit{nth: 1}
		var err error
		if e.from, err = p.address(); err == nil && e.from != nil && strings.HasPrefix(p.rest, ",") {
			p.rest = p.rest[1:]
			if e.to, err = p.address(); err == nil && e.to == nil {
				err = errors.New("a range needs a second address: a number or /PATTERN/")
			}
		}
		if err != nil {
			return nil, err
		}
		p.rest = strings.TrimLeft(p.rest, " \t")
		if e.negated = strings.HasPrefix(p.rest, "!"); e.negated {
			p.rest = p.rest[1:]
		}
		if p.rest == "" || strings.IndexByte("sdpq=", p.rest[0]) < 0 {
			return nil, fmt.Errorf("there is no command at %q; there are s, d, p, q and =", p.rest)
		}
		e.name, p.rest = p.rest[0], p.rest[1:]
		if e.name == 's' {
			if err := p.substitution(e); err != nil {
				return nil, err
			}
		}
		if p.rest != "" && strings.IndexByte(" \t\n;", p.rest[0]) < 0 {
			return nil, fmt.Errorf("%q is not understood after %c", p.rest, e.name)
		}
		out = append(out, e)
	}
}

// address reads a number or a pattern; nil: there is none.
func (p *sedParser) address() (func(string, int) bool, error) {
	if strings.HasPrefix(p.rest, "$") {
		return nil, errors.New("$, the last line, is not known: use tail")
	}
	if digits := p.rest[:len(p.rest)-len(strings.TrimLeft(p.rest, "0123456789"))]; digits != "" {
		p.rest = p.rest[len(digits):]
		want, err := strconv.Atoi(digits)
		return func(_ string, number int) bool { return number == want }, err
	}
	if !strings.HasPrefix(p.rest, "/") {
		return nil, nil
	}
	p.rest = p.rest[1:]
	text, err := p.until('/')
	if err != nil {
		return nil, err
	}
	re, err := pattern(text, p.extended)
	return func(line string, _ int) bool { return re.MatchString(line) }, err
}

// substitution reads what follows an s: two parts between delimiters, and flags.
func (p *sedParser) substitution(e *edit) error {
	if p.rest == "" {
		return errors.New("s needs /PATTERN/REPLACEMENT/")
	}
	delimiter := p.rest[0]
	p.rest = p.rest[1:]
	text, err := p.until(delimiter)
	if err != nil {
		return err
	}
	with, err := p.until(delimiter)
	if err != nil {
		return err
	}
	for p.rest != "" && strings.IndexByte(" \t\n;", p.rest[0]) < 0 {
		switch flag := p.rest[0]; {
		case flag == 'g':
			e.all = true
		case flag == 'p':
			e.print = true
		case flag == 'i' || flag == 'I':
			if !p.extended {
				text = fromBasic(text)
			}
			re, err := pattern("(?i)"+text, true)
			if err != nil {
				return err
			}
			e.re = re
		case '1' <= flag && flag <= '9':
			e.nth = int(flag - '0')
		default:
			return fmt.Errorf("s has no flag %c; there are g, p, i and 1 to 9", flag)
		}
		p.rest = p.rest[1:]
	}
	e.with = replacement(with)
	if e.re == nil {
		e.re, err = pattern(text, p.extended)
	}
	return err
}

// until takes what comes before the delimiter, which stands for itself after a backslash.
func (p *sedParser) until(delimiter byte) (string, error) {
	var out strings.Builder
	for i := 0; i < len(p.rest); i++ {
		switch ch := p.rest[i]; {
		case ch == delimiter:
			p.rest = p.rest[i+1:]
			return out.String(), nil
		case ch == '\\' && i+1 < len(p.rest):
			i++
			if p.rest[i] != delimiter {
				out.WriteByte('\\')
			}
			out.WriteByte(p.rest[i])
		default:
			out.WriteByte(ch)
		}
	}
	return "", fmt.Errorf("there is no %c at the end of %q", delimiter, p.rest)
}

// replacement turns & and \1 into what regexp.Expand understands.
func replacement(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch ch := text[i]; {
		case ch == '&':
			out.WriteString("${0}")
		case ch == '$':
			out.WriteString("$$")
		case ch == '\\' && i+1 < len(text):
			i++
			switch next := text[i]; {
			case '0' <= next && next <= '9':
				out.WriteString("${" + string(next) + "}")
			case next == 'n':
				out.WriteByte('\n')
			case next == 't':
				out.WriteByte('\t')
			default:
				out.WriteByte(next)
			}
		default:
			out.WriteByte(ch)
		}
	}
	return out.String()
}

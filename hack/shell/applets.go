package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// applets are the programs that this one is too, by the name it is called: those that scripts use most, with the options of
// POSIX that they use. What is not known is refused, never ignored.
var applets = map[string]func(*call) (status int, err error){
	"cut": cut, "grep": grep, "head": head, "sed": sed, "sort": sortLines, "tail": tail, "tee": tee, "tr": tr,
}

// call is an applet that runs.
type call struct {
	args   []string // without the name
	stdin  io.Reader
	stdout *bufio.Writer
}

// options takes the options off the arguments. Letters are those that are known, those with a value followed by a colon, as with
// getopts. It returns what each was given: the values, or one "" for each time.
func (c *call) options(letters string) (map[byte][]string, error) {
	got := map[byte][]string{}
	for len(c.args) > 0 && len(c.args[0]) > 1 && c.args[0][0] == '-' {
		word := c.args[0]
		c.args = c.args[1:]
		if word == "--" {
			break
		}
		for i := 1; i < len(word); i++ {
			at := strings.IndexByte(letters, word[i])
			if at < 0 || word[i] == ':' {
				return nil, fmt.Errorf("there is no option -%c; there are -%s", word[i], strings.ReplaceAll(letters, ":", ""))
			}
			if at+1 == len(letters) || letters[at+1] != ':' {
				got[word[i]] = append(got[word[i]], "")
				continue
			}
			value := word[i+1:]
			if value == "" {
				if len(c.args) == 0 {
					return nil, fmt.Errorf("-%c needs a value", word[i])
				}
				value, c.args = c.args[0], c.args[1:]
			}
			got[word[i]] = append(got[word[i]], value)
			break
		}
	}
	return got, nil
}

// files calls f with each file that the arguments name, or with standard input. A file that cannot be read does not keep the
// others.
func (c *call) files(f func(name string, r io.Reader) error) error {
	if len(c.args) == 0 {
		return f("-", c.stdin)
	}
	var errs []error
	for _, name := range c.args {
		if name == "-" {
			errs = append(errs, f(name, c.stdin))
			continue
		}
		file, err := os.Open(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, f(name, file), file.Close())
	}
	return errors.Join(errs...)
}

// errEnough ends lines before the input does.
var errEnough = errors.New("that is enough")

// lines calls f with each line, without its end, until it returns errEnough.
func lines(r io.Reader, f func(line string) error) error {
	b := bufio.NewReader(r)
	for {
		line, err := b.ReadString('\n')
		if line != "" {
			if err := f(strings.TrimSuffix(line, "\n")); errors.Is(err, errEnough) {
				return nil
			} else if err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pattern compiles a regular expression of POSIX. In a basic one the operators are escaped and the bare characters are not; what
// both have is that of Go.
func pattern(text string, extended bool) (*regexp.Regexp, error) {
	if !extended {
		text = fromBasic(text)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("the pattern %q: %w", text, err)
	}
	re.Longest()
	return re, nil
}

func fromBasic(text string) string {
	const operators = "(){}|+?"
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		ch := text[i]
		switch {
		case ch == '[':
			end := bracketEnd(text, i)
			out.WriteString(text[i:end]) // everything in it stands for itself
			i = end - 1
			continue
		case ch == '\\' && i+1 < len(text):
			i++
			if ch = text[i]; strings.IndexByte(operators, ch) < 0 {
				out.WriteByte('\\')
			}
		case strings.IndexByte(operators, ch) >= 0, ch == '*' && (i == 0 || strings.HasSuffix(text[:i], `\(`)):
			out.WriteByte('\\')
		}
		out.WriteByte(ch)
	}
	return out.String()
}

// bracketEnd returns where the bracket expression at i ends: after its "]", which is no member unless it comes first.
func bracketEnd(text string, i int) int {
	i++
	if i < len(text) && text[i] == '^' {
		i++
	}
	if i < len(text) && text[i] == ']' {
		i++
	}
	for ; i < len(text); i++ {
		if text[i] == ']' {
			return i + 1
		}
		if strings.HasPrefix(text[i:], "[:") {
			if n := strings.Index(text[i:], ":]"); n > 0 {
				i += n + 1
			}
		}
	}
	return len(text)
}

func grep(c *call) (int, error) {
	got, err := c.options("EFivcnolqsxwhHe:m:")
	if err != nil {
		return exitError, err
	}
	patterns := got['e']
	if patterns == nil {
		if len(c.args) == 0 {
			return exitError, errors.New("it needs a pattern")
		}
		patterns, c.args = c.args[:1], c.args[1:]
	}
	var alternatives []string
	for _, p := range strings.Split(strings.Join(patterns, "\n"), "\n") {
		switch {
		case got['F'] != nil:
			p = regexp.QuoteMeta(p)
		case got['E'] == nil:
			p = fromBasic(p)
		}
		alternatives = append(alternatives, "(?:"+p+")")
	}
	text := strings.Join(alternatives, "|")
	switch {
	case got['x'] != nil:
		text = "^(?:" + text + ")$"
	case got['w'] != nil:
		text = `\b(?:` + text + `)\b`
	}
	if got['i'] != nil {
		text = "(?i)" + text
	}
	re, err := pattern(text, true)
	if err != nil {
		return exitError, err
	}
	found, most := false, math.MaxInt
	if m := got['m']; m != nil {
		if most, err = strconv.Atoi(m[len(m)-1]); err != nil {
			return exitError, fmt.Errorf("-m needs a number: %w", err)
		}
	}
	named := got['H'] != nil || len(c.args) > 1 && got['h'] == nil
	err = c.files(func(name string, r io.Reader) error {
		prefix, count, number := "", 0, 0
		if named {
			prefix = name + ":"
		}
		err := lines(r, func(line string) error {
			number++
			if count >= most {
				return errEnough
			}
			if re.MatchString(line) == (got['v'] != nil) {
				return nil
			}
			found = true
			count++
			if got['q'] != nil || got['l'] != nil {
				return errEnough
			}
			if got['c'] != nil {
				return nil
			}
			at := prefix
			if got['n'] != nil {
				at += strconv.Itoa(number) + ":"
			}
			if got['o'] == nil {
				_, err := fmt.Fprintln(c.stdout, at+line)
				return err
			}
			for _, match := range re.FindAllString(line, -1) {
				if match != "" {
					fmt.Fprintln(c.stdout, at+match)
				}
			}
			return nil
		})
		switch {
		case got['q'] != nil:
		case got['l'] != nil && count > 0:
			fmt.Fprintln(c.stdout, name)
		case got['c'] != nil:
			fmt.Fprintf(c.stdout, "%s%d\n", prefix, count)
		}
		return err
	})
	if got['s'] != nil && errors.Is(err, os.ErrNotExist) {
		return exitError, nil
	}
	if err != nil {
		return exitError, err
	}
	if !found {
		return 1, nil
	}
	return 0, nil
}

// span is a part of a list such as 1,3-5,7-.
type span struct{ from, to int }

func spans(list string) ([]span, error) {
	var out []span
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		s := span{1, 1 << 30}
		var err error
		if from != "" {
			s.from, err = strconv.Atoi(from)
		}
		if err == nil && to != "" {
			s.to, err = strconv.Atoi(to)
		}
		if !isRange {
			s.to = s.from
		}
		if err != nil || part == "" || part == "-" || s.from < 1 || s.to < s.from {
			return nil, fmt.Errorf("%q is no list such as 1,3-5,7-", list)
		}
		out = append(out, s)
	}
	return out, nil
}

func cut(c *call) (int, error) {
	got, err := c.options("d:f:c:b:s")
	if err != nil {
		return 1, err
	}
	delimiter, list, separator := "\t", append(append(got['f'], got['c']...), got['b']...), ""
	if len(list) != 1 {
		return 1, errors.New("it needs one of -f, -c and -b")
	}
	if got['f'] != nil {
		if d := got['d']; d != nil {
			delimiter = d[len(d)-1]
		}
		separator = delimiter
	}
	chosen, err := spans(list[0])
	if err != nil {
		return 1, err
	}
	err = c.files(func(_ string, r io.Reader) error {
		return lines(r, func(line string) error {
			if got['f'] != nil && !strings.Contains(line, delimiter) {
				if got['s'] == nil {
					fmt.Fprintln(c.stdout, line)
				}
				return nil
			}
			parts := strings.Split(line, separator) // into characters, if there is none
			var keep []string
			for i, part := range parts {
				for _, s := range chosen {
					if s.from <= i+1 && i+1 <= s.to {
						keep = append(keep, part)
						break
					}
				}
			}
			_, err := fmt.Fprintln(c.stdout, strings.Join(keep, separator))
			return err
		})
	})
	return failed(err)
}

// classes are those of tr that scripts use.
var classes = map[string]string{
	"upper": "A-Z", "lower": "a-z", "digit": "0-9", "alpha": "A-Za-z", "alnum": "A-Za-z0-9", "space": " \t-\r", "blank": " \t",
	"punct": "!-/:-@[-`{-~", "xdigit": "0-9A-Fa-f",
}

// set expands what tr is given: ranges, classes and escapes.
func set(text string) []rune {
	for name, members := range classes {
		text = strings.ReplaceAll(text, "[:"+name+":]", members)
	}
	text = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\r`, "\r", `\\`, `\`).Replace(text)
	runes := []rune(text)
	var out []rune
	for i := 0; i < len(runes); i++ {
		if i+2 < len(runes) && runes[i+1] == '-' && runes[i] <= runes[i+2] {
			for r := runes[i]; r <= runes[i+2]; r++ {
				out = append(out, r)
			}
			i += 2
			continue
		}
		out = append(out, runes[i])
	}
	return out
}

func tr(c *call) (int, error) {
	got, err := c.options("cCds")
	if err != nil {
		return 1, err
	}
	remove, squeeze, others := got['d'] != nil, got['s'] != nil, got['c'] != nil || got['C'] != nil
	if want := 2; len(c.args) != want && (len(c.args) != 1 || !remove && !squeeze) {
		return 1, errors.New("it needs two sets of characters, or one with -d or -s")
	}
	from := set(c.args[0])
	var to []rune
	if len(c.args) > 1 {
		to = set(c.args[1])
	}
	squeezed := to
	if squeeze && len(c.args) == 1 {
		squeezed = from
	}
	in := bufio.NewReader(c.stdin)
	for last := rune(-1); ; {
		r, _, err := in.ReadRune()
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil {
			return 1, err
		}
		at := strings.IndexRune(string(from), r)
		if at >= 0 {
			at = len([]rune(string(from)[:at]))
		}
		member := at >= 0 != others
		switch {
		case member && remove:
			continue
		case member && len(to) > 0:
			if others {
				at = len(to) - 1
			}
			r = to[min(at, len(to)-1)]
		}
		if squeeze && r == last && (strings.ContainsRune(string(squeezed), r) || others && len(c.args) == 1) {
			continue
		}
		last = r
		c.stdout.WriteRune(r)
	}
}

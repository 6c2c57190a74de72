package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// many is how many lines head and tail print if nobody says.
const many = 10

// number returns the value of -n, which may also be written as -NUMBER.
func (c *call) number(letters string) (n int, from bool, got map[byte][]string, err error) {
	for i, arg := range c.args {
		if len(arg) > 1 && arg[0] == '-' && arg[1] >= '0' && arg[1] <= '9' {
			c.args[i] = "-n" + arg[1:]
		}
	}
	if got, err = c.options(letters); err != nil {
		return 0, false, nil, err
	}
	n = many
	if given := got['n']; given != nil {
		text := given[len(given)-1]
		from = strings.HasPrefix(text, "+")
		if n, err = strconv.Atoi(text); err != nil || n < 0 {
			return 0, false, nil, fmt.Errorf("-n %s is no number of lines", text)
		}
	}
	return n, from, got, nil
}

func head(c *call) (int, error) {
	n, _, _, err := c.number("n:q")
	if err != nil {
		return 1, err
	}
	return failed(c.files(func(_ string, r io.Reader) error {
		count := 0
		return lines(r, func(line string) error {
			if count++; count > n {
				return errEnough
			}
			_, err := fmt.Fprintln(c.stdout, line)
			return err
		})
	}))
}

func tail(c *call) (int, error) {
	n, from, _, err := c.number("n:q")
	if err != nil {
		return 1, err
	}
	return failed(c.files(func(_ string, r io.Reader) error {
		var last []string
		count := 0
		err := lines(r, func(line string) error {
			count++
			switch {
			case from && count >= n:
				fmt.Fprintln(c.stdout, line)
			case !from:
				if last = append(last, line); len(last) > n {
					last = last[1:]
				}
			}
			return nil
		})
		for _, line := range last {
			fmt.Fprintln(c.stdout, line)
		}
		return err
	}))
}

// order is how sort compares.
type order struct {
	numbers, versions, reverse, fold bool
	separator                        string
	from, to                         int // fields, from 1; 0: the whole line, or to its end
}

func sortLines(c *call) (int, error) {
	got, err := c.options("nVrufk:t:")
	if err != nil {
		return 2, err
	}
	o := order{numbers: got['n'] != nil, versions: got['V'] != nil, reverse: got['r'] != nil, fold: got['f'] != nil}
	if t := got['t']; t != nil {
		o.separator = t[len(t)-1]
	}
	if k := got['k']; len(k) > 1 {
		return 2, errors.New("it knows one -k")
	} else if k != nil {
		if err := o.key(k[0]); err != nil {
			return 2, err
		}
	}
	var all []string
	err = c.files(func(_ string, r io.Reader) error {
		return lines(r, func(line string) error {
			all = append(all, line)
			return nil
		})
	})
	if err != nil {
		return 2, err
	}
	unique := got['u'] != nil
	slices.SortStableFunc(all, func(a, b string) int {
		by := o.compare(a, b)
		if by == 0 && !unique {
			by = strings.Compare(a, b)
		}
		if o.reverse {
			return -by
		}
		return by
	})
	if unique {
		all = slices.CompactFunc(all, func(a, b string) bool { return o.compare(a, b) == 0 })
	}
	for _, line := range all {
		fmt.Fprintln(c.stdout, line)
	}
	return 0, nil
}

// key reads the value of -k: FIELD or FIELD,FIELD, with n and r behind it.
func (o *order) key(text string) error {
	fields := strings.TrimRight(text, "nrfV")
	for _, flag := range text[len(fields):] {
		o.numbers = o.numbers || flag == 'n'
		o.versions = o.versions || flag == 'V'
		o.reverse = o.reverse || flag == 'r'
		o.fold = o.fold || flag == 'f'
	}
	from, to, both := strings.Cut(fields, ",")
	var err error
	if o.from, err = strconv.Atoi(from); err == nil && both {
		o.to, err = strconv.Atoi(to)
	}
	if err != nil || o.from < 1 {
		return fmt.Errorf("-k %s is no field or range of fields, such as 2 or 2,3", text)
	}
	return nil
}

// part returns what is compared of a line.
func (o *order) part(line string) string {
	if o.from == 0 {
		return line
	}
	fields, between := strings.Fields(line), " "
	if o.separator != "" {
		fields, between = strings.Split(line, o.separator), o.separator
	}
	to := len(fields)
	if o.to > 0 {
		to = min(o.to, to)
	}
	return strings.Join(fields[min(o.from-1, to):to], between)
}

func (o *order) compare(a, b string) int {
	a, b = o.part(a), o.part(b)
	if o.fold {
		a, b = strings.ToUpper(a), strings.ToUpper(b)
	}
	switch {
	case o.numbers:
		x, y := leadingNumber(a), leadingNumber(b)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	case o.versions:
		return compareVersions(a, b)
	}
	return strings.Compare(a, b)
}

// leadingNumber is what a line begins with; 0 if that is no number.
func leadingNumber(text string) float64 {
	text = strings.TrimLeft(text, " \t")
	end := 0
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' || text[end] == '.' || end == 0 && text[end] == '-') {
		end++
	}
	n, _ := strconv.ParseFloat(text[:end], 64)
	return n
}

// compareVersions compares runs of digits as numbers, and what is between them as text.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x != "" && y != "" {
			m, n := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if len(m) != len(n) {
				return len(m) - len(n)
			}
			if by := strings.Compare(m, n); by != 0 {
				return by
			}
			a, b = a[len(x):], b[len(y):]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func digits(text string) string {
	return text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
}

func tee(c *call) (int, error) {
	got, err := c.options("a")
	if err != nil {
		return 1, err
	}
	how := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if got['a'] != nil {
		how = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	writers := []io.Writer{c.stdout}
	for _, name := range c.args {
		f, err := os.OpenFile(name, how, 0o666)
		if err != nil {
			return 1, err
		}
		defer func() { _ = f.Close() }()
		writers = append(writers, f)
	}
	_, err = io.Copy(io.MultiWriter(writers...), c.stdin)
	return failed(err)
}

// failed is the status of what can only fail or not.
func failed(err error) (int, error) {
	if err != nil {
		return 1, err
	}
	return 0, nil
}

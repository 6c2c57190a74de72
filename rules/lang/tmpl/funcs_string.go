package tmpl

import (
	"path"
	"strconv"
	"strings"
	"unicode"
)

var stringFunctions = []function{
	{"trim", 1, 1, -1, func(c *call) value { return text(strings.TrimSpace(c.str(0))) }},
	{"trimAll", 2, 2, -1, func(c *call) value { return text(strings.Trim(c.str(1), c.str(0))) }},
	{"trimall", 2, 2, -1, func(c *call) value { return text(strings.Trim(c.str(1), c.str(0))) }},
	{"trimPrefix", 2, 2, -1, func(c *call) value { return text(strings.TrimPrefix(c.str(1), c.str(0))) }},
	{"trimSuffix", 2, 2, -1, func(c *call) value { return text(strings.TrimSuffix(c.str(1), c.str(0))) }},
	{"upper", 1, 1, -1, func(c *call) value { return text(strings.ToUpper(c.str(0))) }},
	{"lower", 1, 1, -1, func(c *call) value { return text(strings.ToLower(c.str(0))) }},
	{"title", 1, 1, -1, func(c *call) value { return text(title(c.str(0))) }},
	{"untitle", 1, 1, -1, func(c *call) value { return text(untitle(c.str(0))) }},
	{"nospace", 1, 1, -1, func(c *call) value {
		return text(strings.Map(func(r rune) rune {
			if unicode.IsSpace(r) {
				return -1
			}
			return r
		}, c.str(0)))
	}},
	{"replace", 3, 3, -1, func(c *call) value {
		old, with, s := c.str(0), c.str(1), c.str(2)
		if n := strings.Count(s, old); n*(len(with)-len(old)) > MaxOutput-len(s) {
			c.fail("the result is longer than %d bytes", MaxOutput)
		}
		return text(strings.ReplaceAll(s, old, with))
	}},
	{"repeat", 2, 2, -1, func(c *call) value {
		n, s := c.int(0), c.str(1)
		if n < 0 || len(s) > 0 && n > MaxOutput/len(s) {
			c.fail("%d times %d bytes is more than %d, or negative", n, len(s), MaxOutput)
		}
		if s == "" {
			return text("")
		}
		return text(strings.Repeat(s, n))
	}},
	{"contains", 2, 2, -1, func(c *call) value { return boolean(strings.Contains(c.str(1), c.str(0))) }},
	{"hasPrefix", 2, 2, -1, func(c *call) value { return boolean(strings.HasPrefix(c.str(1), c.str(0))) }},
	{"hasSuffix", 2, 2, -1, func(c *call) value { return boolean(strings.HasSuffix(c.str(1), c.str(0))) }},
	{"substr", 3, 3, -1, func(c *call) value {
		from, to, s := c.int(0), c.int(1), c.str(2)
		from = max(from, 0)
		if to < 0 || to > len(s) {
			to = len(s)
		}
		if from > to {
			c.fail("invalid range %d to %d: the string has %d bytes", from, to, len(s))
		}
		return text(s[from:to])
	}},
	{"trunc", 2, 2, -1, func(c *call) value {
		n, s := c.int(0), c.str(1)
		switch {
		case n < 0 && len(s)+n > 0:
			return text(s[len(s)+n:])
		case n >= 0 && len(s) > n:
			return text(s[:n])
		}
		return text(s)
	}},
	{"quote", 0, -1, -1, func(c *call) value { return c.quoted(strconv.Quote) }},
	{"squote", 0, -1, -1, func(c *call) value { return c.quoted(func(s string) string { return "'" + s + "'" }) }},
	{"cat", 0, -1, -1, func(c *call) value {
		var parts []string
		for _, v := range c.args {
			if v.kind != kindNil {
				parts = append(parts, c.show(v))
			}
		}
		return c.joined(" ", parts)
	}},
	{"toString", 1, 1, -1, func(c *call) value { return text(c.show(c.args[0])) }},
	{"join", 2, 2, -1, func(c *call) value { return c.joined(c.str(0), c.shown(c.args[1])) }},
	{"toStrings", 1, 1, -1, func(c *call) value { return c.texts(c.shown(c.args[0])) }},
	{"splitList", 2, 2, -1, func(c *call) value { return c.texts(c.split(c.str(0), c.str(1), -1)) }},
	{"split", 2, 2, -1, func(c *call) value { return c.numbered(c.split(c.str(0), c.str(1), -1)) }},
	{"splitn", 3, 3, -1, func(c *call) value { return c.numbered(c.split(c.str(0), c.str(2), c.int(1))) }},
	{"base", 1, 1, -1, func(c *call) value { return text(path.Base(c.str(0))) }},
	{"dir", 1, 1, -1, func(c *call) value { return text(path.Dir(c.str(0))) }},
	{"ext", 1, 1, -1, func(c *call) value { return text(path.Ext(c.str(0))) }},
	{"clean", 1, 1, -1, func(c *call) value { return text(path.Clean(c.str(0))) }},
	{"isAbs", 1, 1, -1, func(c *call) value { return boolean(path.IsAbs(c.str(0))) }},
}

// title converts the first letter of each word to upper case.
func title(s string) string {
	before := ' '
	return strings.Map(func(r rune) rune {
		start := !unicode.IsLetter(before) && !unicode.IsDigit(before) && before != '_' && before != '\''
		before = r
		if start {
			return unicode.ToTitle(r)
		}
		return r
	}, s)
}

// untitle converts the first letter of each word to lower case.
func untitle(s string) string {
	before := ' '
	return strings.Map(func(r rune) rune {
		start := unicode.IsSpace(before)
		before = r
		if start {
			return unicode.ToLower(r)
		}
		return r
	}, s)
}

// quoted quotes all arguments that are not nil.
func (c *call) quoted(quote func(string) string) value {
	var parts []string
	for _, v := range c.args {
		if v.kind != kindNil {
			s := c.show(v)
			c.s.work(c.at, len(s))
			c.s.take(c.at, 4*len(s))
			parts = append(parts, quote(s))
		}
	}
	return c.joined(" ", parts)
}

// joined joins strings if the result does not exceed the limit.
func (c *call) joined(sep string, parts []string) value {
	size := 0
	for _, part := range parts {
		if size += len(part) + len(sep); size > MaxOutput {
			c.fail("the result is longer than %d bytes", MaxOutput)
		}
	}
	c.s.work(c.at, size)
	return text(strings.Join(parts, sep))
}

// shown returns the items of a list as strings, without nil items. Any other value is treated as a list with one item.
func (c *call) shown(v value) []string {
	if v.kind != kindList {
		if v.kind == kindNil {
			return nil
		}
		return []string{c.show(v)}
	}
	n, _ := v.length()
	c.s.work(c.at, n*bytesPerStep)
	c.s.take(c.at, 16*n)
	out := make([]string, 0, n)
	for i := range n {
		if item := v.item(i); item.kind != kindNil {
			s := c.show(item)
			c.s.work(c.at, len(s))
			out = append(out, s)
		}
	}
	return out
}

func (c *call) split(sep, s string, n int) []string {
	c.s.take(c.at, 16*(strings.Count(s, sep)+1))
	return strings.SplitN(s, sep, n)
}

// numbered returns a map with the keys _0, _1 and so on.
func (c *call) numbered(parts []string) value {
	c.s.take(c.at, 2*valueSize*len(parts))
	out := make(dict, len(parts))
	for i, part := range parts {
		out["_"+strconv.Itoa(i)] = text(part)
	}
	return dictOf(out)
}

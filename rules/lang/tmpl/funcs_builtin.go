package tmpl

import (
	"fmt"
	"net/url"
	"strings"
)

// builtins are the functions of text/template, except for and and or, which do not evaluate all their arguments.
var builtins = []function{
	{"len", 1, 1, -1, func(c *call) value {
		n, ok := c.args[0].length()
		if !ok {
			c.fail("a %s has no length", c.args[0].typeName())
		}
		return integer(int64(n))
	}},
	{"index", 1, -1, -1, index},
	{"slice", 1, 3, -1, slice},
	{"not", 1, 1, -1, func(c *call) value { return boolean(!c.args[0].truth()) }},
	{"eq", 2, -1, -1, func(c *call) value {
		for _, v := range c.args[1:] {
			if c.equal(c.args[0], v) {
				return boolean(true)
			}
		}
		return boolean(false)
	}},
	{"ne", 2, 2, -1, func(c *call) value { return boolean(!c.equal(c.args[0], c.args[1])) }},
	{"lt", 2, 2, -1, func(c *call) value { return boolean(c.less(c.args[0], c.args[1])) }},
	{"le", 2, 2, -1, func(c *call) value { return boolean(c.less(c.args[0], c.args[1]) || c.equal(c.args[0], c.args[1])) }},
	{"gt", 2, 2, -1, func(c *call) value { return boolean(!c.less(c.args[0], c.args[1]) && !c.equal(c.args[0], c.args[1])) }},
	{"ge", 2, 2, -1, func(c *call) value { return boolean(!c.less(c.args[0], c.args[1])) }},
	{"print", 0, -1, -1, func(c *call) value { return text(fmt.Sprint(c.natives(c.args, 1)...)) }},
	{"println", 0, -1, -1, func(c *call) value { return text(fmt.Sprintln(c.natives(c.args, 1)...)) }},
	{"printf", 1, -1, -1, printf},
	{"html", 0, -1, -1, func(c *call) value { return text(htmlEscape.Replace(c.printed())) }},
	{"urlquery", 0, -1, -1, func(c *call) value { return text(url.QueryEscape(c.printed())) }},
}

var htmlEscape = strings.NewReplacer("\x00", "\uFFFD", `"`, "&#34;", "'", "&#39;", "&", "&amp;", "<", "&lt;", ">", "&gt;")

// printed returns all arguments as print formats them.
func (c *call) printed() string {
	if len(c.args) == 1 && c.args[0].kind == kindString {
		return c.str(0)
	}
	args := c.natives(c.args, 1)
	for i := range args {
		if args[i] == nil {
			args[i] = "<no value>"
		}
	}
	out := fmt.Sprint(args...)
	c.s.work(c.at, len(out))
	return out
}

// natives returns values for package fmt. It fails if their printed form, repeated times times, exceeds the limit.
func (c *call) natives(args []value, times int) []any {
	out := make([]any, len(args))
	for i, v := range args {
		c.s.work(c.at, times*c.s.measure(c.at, v, MaxOutput/times))
		out[i] = v.native()
	}
	return out
}

// printf checks the size of the result before creating it: a width can be a million, and several verbs can refer to the same
// argument.
func printf(c *call) value {
	format := c.str(0)
	widths, verbs := 0, 0
	for i, number := 0, 0; i < len(format); i++ {
		switch d := format[i]; {
		case '0' <= d && d <= '9':
			number = min(number*10+int(d-'0'), MaxOutput+1)
			if i+1 == len(format) || format[i+1] < '0' || format[i+1] > '9' {
				widths, number = min(widths+number, MaxOutput+1), 0
			}
		case d == '%':
			verbs++
		case d == '*':
			c.fail("a width of * is not available; write the number")
		}
	}
	if widths > MaxOutput {
		c.fail("the widths in %q add up to more than %d", shown(format), MaxOutput)
	}
	c.s.take(c.at, widths)
	again := 1
	if strings.Contains(format, "[") {
		again = max(verbs, 1)
	}
	return text(fmt.Sprintf(format, c.natives(c.args[1:], again)...))
}

func index(c *call) value {
	v := c.args[0]
	if v.kind == kindNil {
		c.fail("can't index a nil")
	}
	for _, key := range c.args[1:] {
		switch {
		case v.isMap():
			if key.kind != kindString {
				c.fail("the key of a map is a %s, expected a string", key.typeName())
			}
			entry, ok := v.entry(key.str)
			if !ok {
				entry = v.missing()
			}
			v = entry
		case v.kind == kindList || v.kind == kindString:
			if key.kind != kindInt {
				c.fail("the index of a %s is a %s, expected an int", v.typeName(), key.typeName())
			}
			n, _ := v.length()
			if i := key.int(); i < 0 || i >= int64(n) {
				c.fail("index out of range: %d", i)
			}
			if v.kind == kindString {
				v = integer(int64(v.str[key.int()]))
			} else {
				v = v.item(int(key.int()))
			}
		default:
			c.fail("can't index a %s", v.typeName())
		}
	}
	return v
}

func slice(c *call) value {
	v := c.args[0]
	n, ok := v.length()
	if !ok || v.isMap() {
		c.fail("can't slice a %s", v.typeName())
	}
	from, to := 0, n
	if len(c.args) > 1 {
		from = c.int(1)
	}
	if len(c.args) > 2 {
		to = c.int(2)
	}
	if from < 0 || to > n || from > to {
		c.fail("index out of range: %d to %d of %d", from, to, n)
	}
	if v.kind == kindString {
		return text(v.str[from:to])
	}
	l := v.ref.(*list)
	if l.elements != nil {
		return value{kind: kindList, ref: &list{elements: l.elements[from:to:to]}}
	}
	return listOf(l.items[from:to:to])
}

// equal compares values as eq of text/template does: lists and maps cannot be compared.
func (c *call) equal(a, b value) bool {
	if a.kind == kindNil || b.kind == kindNil {
		return a.kind == b.kind
	}
	if a.kind != b.kind || a.kind >= kindList {
		if a.kind >= kindList && b.kind >= kindList {
			c.fail("a %s and a %s cannot be compared", a.typeName(), b.typeName())
		}
		c.fail("incompatible types for comparison: %s and %s", a.typeName(), b.typeName())
	}
	if a.kind == kindFloat {
		return a.float() == b.float()
	}
	c.s.work(c.at, min(len(a.str), len(b.str)))
	return a.num == b.num && a.str == b.str
}

func (c *call) less(a, b value) bool {
	if a.kind != b.kind {
		c.fail("incompatible types for comparison: %s and %s", a.typeName(), b.typeName())
	}
	switch a.kind {
	case kindInt:
		return a.int() < b.int()
	case kindFloat:
		return a.float() < b.float()
	case kindString:
		c.s.work(c.at, min(len(a.str), len(b.str)))
		return a.str < b.str
	}
	c.fail("a %s has no order", a.typeName())
	return false
}

// appendAny appends a value as package fmt prints it.
func appendAny(b []byte, v value) []byte { return fmt.Append(b, v.native()) }

package tmpl

import (
	"slices"
	"strings"
)

var listFunctions = []function{
	{"list", 0, -1, -1, func(c *call) value { return listOf(append(c.make(len(c.args)), c.args...)) }},
	{"first", 1, 1, -1, func(c *call) value { return c.end(0) }},
	{"last", 1, 1, -1, func(c *call) value { return c.end(-1) }},
	{"rest", 1, 1, -1, func(c *call) value {
		items := c.items()
		return listOf(items[min(1, len(items)):])
	}},
	{"initial", 1, 1, -1, func(c *call) value {
		items := c.items()
		return listOf(items[:max(len(items)-1, 0)])
	}},
	{"append", 2, 2, -1, func(c *call) value { return listOf(append(c.items(), c.args[1])) }},
	{"prepend", 2, 2, -1, func(c *call) value { return listOf(slices.Insert(c.items(), 0, c.args[1])) }},
	{"reverse", 1, 1, -1, func(c *call) value {
		items := c.items()
		slices.Reverse(items)
		return listOf(items)
	}},
	{"uniq", 1, 1, -1, func(c *call) value {
		var out []value
		for _, item := range c.items() {
			if !c.holds(out, item) {
				out = append(out, item)
			}
		}
		return listOf(out)
	}},
	{"without", 1, -1, -1, func(c *call) value {
		var out []value
		for _, item := range c.items() {
			if !c.holds(c.args[1:], item) {
				out = append(out, item)
			}
		}
		return listOf(out)
	}},
	{"compact", 1, 1, -1, func(c *call) value {
		return listOf(slices.DeleteFunc(c.items(), func(v value) bool { return !v.truth() }))
	}},
	{"has", 2, 2, -1, func(c *call) value {
		if c.args[1].kind == kindNil {
			return boolean(false)
		}
		n, _ := c.list(1).length()
		for i := range n {
			if c.same(c.args[1].item(i), c.args[0]) {
				return boolean(true)
			}
		}
		return boolean(false)
	}},
	{"sortAlpha", 1, 1, -1, func(c *call) value {
		parts := c.shown(c.args[0])
		c.s.work(c.at, len(parts)*8*bytesPerStep)
		slices.SortFunc(parts, func(a, b string) int {
			c.s.work(c.at, 0)
			return strings.Compare(a, b)
		})
		return c.texts(parts)
	}},
}

// items returns a copy of the first argument, which must be a list.
func (c *call) items() []value {
	v := c.list(0)
	n, _ := v.length()
	out := c.make(n)
	for j := range n {
		out = append(out, v.item(j))
	}
	return out
}

// end returns the first or, if i is -1, the last item of a list, or nil if the list is empty.
func (c *call) end(i int) value {
	v := c.args[0]
	if v.kind != kindList {
		c.fail("argument 1 is a %s, expected a list", v.typeName())
	}
	n, _ := v.length()
	if n == 0 {
		return value{}
	}
	if i < 0 {
		i = n - 1
	}
	return v.item(i)
}

func (c *call) holds(list []value, v value) bool {
	return slices.ContainsFunc(list, func(item value) bool { return c.same(item, v) })
}

// same compares values deeply, as reflect.DeepEqual does, and counts the steps.
func (c *call) same(a, b value) bool {
	c.s.work(c.at, min(len(a.str), len(b.str)))
	if a.isMap() && b.isMap() {
		keys := a.keys()
		if !slices.Equal(keys, b.keys()) {
			return false
		}
		for _, key := range keys {
			x, _ := a.entry(key)
			y, _ := b.entry(key)
			if !c.same(x, y) {
				return false
			}
		}
		return true
	}
	if a.kind != b.kind || a.kind != kindList {
		return a.kind == b.kind && a.num == b.num && a.str == b.str
	}
	n, _ := a.length()
	if m, _ := b.length(); n != m {
		return false
	}
	for i := range n {
		if !c.same(a.item(i), b.item(i)) {
			return false
		}
	}
	return true
}

var dictFunctions = []function{
	{"dict", 0, -1, -1, func(c *call) value {
		c.s.take(c.at, valueSize*len(c.args))
		out := make(dict, len(c.args)/2)
		for i := 0; i < len(c.args); i += 2 {
			v := text("")
			if i+1 < len(c.args) {
				v = c.args[i+1]
			}
			out[c.show(c.args[i])] = v
		}
		return dictOf(out)
	}},
	{"get", 2, 2, -1, func(c *call) value {
		v, ok := c.dict(0).entry(c.str(1))
		if !ok {
			return text("")
		}
		return v
	}},
	{"hasKey", 2, 2, -1, func(c *call) value {
		_, ok := c.dict(0).entry(c.str(1))
		return boolean(ok)
	}},
	{"keys", 1, -1, -1, func(c *call) value {
		var keys []string
		for i := range c.args {
			d := c.dict(i)
			for _, key := range d.keys() {
				keys = append(keys, d.shown(key))
			}
		}
		return c.texts(keys)
	}},
	{"values", 1, 1, -1, func(c *call) value {
		d := c.dict(0)
		keys := d.keys()
		items := c.make(len(keys))
		for _, key := range keys {
			v, _ := d.entry(key)
			items = append(items, v)
		}
		return listOf(items)
	}},
	{"pick", 1, -1, -1, func(c *call) value { return c.choose(true) }},
	{"omit", 1, -1, -1, func(c *call) value { return c.choose(false) }},
}

// choose keeps or drops the entries of a map with the keys in the other arguments.
func (c *call) choose(named bool) value {
	d := c.dict(0)
	names := make(map[string]bool, len(c.args))
	for i := 1; i < len(c.args); i++ {
		names[c.str(i)] = true
	}
	out := dict{}
	for _, key := range d.keys() {
		if names[key] == named {
			c.s.take(c.at, 2*valueSize)
			out[d.shown(key)], _ = d.entry(key)
		}
	}
	return dictOf(out)
}

package featureset

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// canonical is JSON according to RFC 8785 (JSON Canonicalization Scheme): no white space, object members sorted by the UTF-16 code
// units of their names, and minimal escapes. Features contain no numbers.
type canonical []byte

// features appends the only feature with all of its fields.
func (c *canonical) features(f *nfdv1alpha1.Features) {
	for name, set := range f.Attributes {
		c.open("attributes", name)
		c.attributes(set.Elements)
	}
	for name, set := range f.Flags {
		c.open("flags", name)
		object(c, set.Elements, func(nfdv1alpha1.Nil) { c.raw("{}") })
	}
	for name, set := range f.Instances {
		c.open("instances", name)
		c.raw("[")
		for i, instance := range set.Elements {
			if i > 0 {
				c.raw(",")
			}
			c.raw(`{"attributes":`)
			c.attributes(instance.Attributes)
			c.raw("}")
		}
		c.raw("]")
	}
	c.raw("}}}")
}

func (c *canonical) open(kind, name string) {
	c.raw(`{"` + kind + `":{`)
	c.text(name)
	c.raw(`:{"elements":`)
}

func (c *canonical) attributes(m map[string]string) { object(c, m, c.text) }

// object appends a map.
func object[V any](c *canonical, m map[string]V, value func(V)) {
	c.raw("{")
	for i, key := range slices.SortedFunc(maps.Keys(m), compareUTF16) {
		if i > 0 {
			c.raw(",")
		}
		c.text(key)
		c.raw(":")
		value(m[key])
	}
	c.raw("}")
}

func (c *canonical) raw(s string) { *c = append(*c, s...) }

// text appends a string; see RFC 8785, section 3.2.2.2.
func (c *canonical) text(s string) {
	const hexDigits = "0123456789abcdef"
	*c = append(*c, '"')
	start := 0
	for i := range len(s) {
		b := s[i]
		if b >= 0x20 && b != '"' && b != '\\' {
			continue
		}
		*c = append(*c, s[start:i]...)
		start = i + 1
		if short := strings.IndexByte("\b\t\n\f\r\"\\", b); short >= 0 {
			*c = append(*c, '\\', `btnfr"\`[short])
		} else {
			*c = append(*c, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&0xF])
		}
	}
	*c = append(append(*c, s[start:]...), '"')
}

// compareUTF16 compares valid UTF-8 strings by their UTF-16 code units. The order is that of the bytes, except that characters
// above U+FFFF, whose code units are surrogates, come before those from U+E000 to U+FFFF.
func compareUTF16(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return cmp.Compare(utf16Order(a[i]), utf16Order(b[i]))
		}
	}
	return cmp.Compare(len(a), len(b))
}

// utf16Order returns the order of the first byte of a character: F0 to F4 begin characters above U+FFFF, EE and EF those from
// U+E000 to U+FFFF.
func utf16Order(b byte) byte {
	switch {
	case b >= 0xF0:
		return b - 2
	case b >= 0xEE:
		return b + 0x10
	}
	return b
}

// Size returns the size in bytes of the canonical form of features, which must contain exactly one feature.
func Size(f *nfdv1alpha1.Features) int {
	var c canonical
	c.features(f)
	return len(c)
}

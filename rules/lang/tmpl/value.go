package tmpl

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-project/assay/rules/lang/match"
)

type kind uint8

const (
	kindNil kind = iota
	kindBool
	kindInt
	kindFloat
	kindString
	kindList
	kindDict
	kindElement // a flag, attribute or instance: a map of strings
	kindData    // the root of a template's data
)

// value is the value of an expression in a template. It is passed by value. Lists and dictionaries are immutable once created.
type value struct {
	kind kind
	num  uint64 // for kindBool, kindInt and kindFloat; a flag for kindDict and kindElement
	str  string // for kindString
	ref  any    // *list, dict, *match.Element or *data
}

// list is a list of values, or of elements that are not copied.
type list struct {
	items    []value
	elements []match.Element
	asIs     bool
}

type dict map[string]value

func boolean(b bool) value {
	if b {
		return value{kind: kindBool, num: 1}
	}
	return value{kind: kindBool}
}

func integer(n int64) value      { return value{kind: kindInt, num: uint64(n)} }
func number(f float64) value     { return value{kind: kindFloat, num: math.Float64bits(f)} }
func text(s string) value        { return value{kind: kindString, str: s} }
func listOf(items []value) value { return value{kind: kindList, ref: &list{items: items}} }
func dictOf(d dict) value        { return value{kind: kindDict, ref: d} }

// versionOf returns a map with the parts of a version, which is printed as the version.
func versionOf(d dict) value { return value{kind: kindDict, num: isVersion, ref: d} }

// domainOf returns a map from feature names to elements.
func domainOf(d dict) value { return value{kind: kindDict, num: isDomain, ref: d} }

const (
	// isDomain marks maps of lists of elements.
	isDomain = 1
	// isVersion marks the parts of a version.
	isVersion = 2
	// isAsIs marks elements whose strings may contain line breaks.
	isAsIs = 1
)

// oneLine replaces line breaks in a string from a node. Each line that a template writes is a label, so a publisher could add one
// with a serial number such as "1\nexample.com/trusted=true".
func oneLine(s string) string {
	if strings.IndexByte(s, '\n') < 0 {
		return s
	}
	return strings.ReplaceAll(s, "\n", " ")
}

// of returns a string of an element as a value.
func (v value) of(s string) value {
	if v.num == isAsIs {
		return text(s)
	}
	return text(oneLine(s))
}

func (v value) int() int64     { return int64(v.num) }
func (v value) float() float64 { return math.Float64frombits(v.num) }

// typeName returns the name of the Go type that text/template would use, because users know its messages.
func (v value) typeName() string {
	switch v.kind {
	case kindBool:
		return "bool"
	case kindInt:
		return "int"
	case kindFloat:
		return "float64"
	case kindString:
		return "string"
	case kindList:
		return "list"
	case kindDict, kindElement, kindData:
		return "map"
	}
	return "nil"
}

// truth returns the truth value for if, with, and, or and not.
func (v value) truth() bool {
	switch v.kind {
	case kindBool, kindInt:
		return v.num != 0
	case kindFloat:
		return v.float() != 0
	case kindNil:
		return false
	}
	n, _ := v.length()
	return n > 0
}

// length returns the number of bytes, items or entries.
func (v value) length() (int, bool) {
	switch v.kind {
	case kindString:
		return len(v.str), true
	case kindList:
		l := v.ref.(*list)
		return len(l.items) + len(l.elements), true
	case kindDict:
		return len(v.ref.(dict)), true
	case kindElement:
		return len(elementKeys(v.ref.(*match.Element))), true
	case kindData:
		return len(v.ref.(*data).tree()), true
	}
	return 0, false
}

// item returns the item of a list at i, which must be in range.
func (v value) item(i int) value {
	l := v.ref.(*list)
	if l.elements != nil {
		v := value{kind: kindElement, ref: &l.elements[i]}
		if l.asIs {
			v.num = isAsIs
		}
		return v
	}
	return l.items[i]
}

// isMap reports whether a value is a map.
func (v value) isMap() bool { return v.kind == kindDict || v.kind == kindElement || v.kind == kindData }

// entry returns the value of a key in a map. Other values have none.
func (v value) entry(key string) (value, bool) {
	switch v.kind {
	case kindElement:
		e := v.ref.(*match.Element)
		if e.Instance.Exists() {
			s, ok := e.Instance.Get(key)
			return v.of(s), ok
		}
		switch {
		case key == "Name":
			return v.of(e.Name), true
		case key == "Value" && e.HasValue:
			return v.of(e.Value), true
		}
		return value{}, false
	case kindDict:
		out, ok := v.ref.(dict)[key]
		return out, ok
	case kindData:
		out, ok := v.ref.(*data).tree()[key]
		return out, ok
	}
	return value{}, false
}

// shown returns a key as templates see it: keys of elements come from a node too.
func (v value) shown(key string) string {
	if v.kind == kindElement {
		return v.of(key).str
	}
	return key
}

// keys returns the keys of a map, sorted.
func (v value) keys() []string {
	switch v.kind {
	case kindElement:
		return elementKeys(v.ref.(*match.Element))
	case kindDict:
		return slices.Sorted(maps.Keys(v.ref.(dict)))
	}
	return slices.Sorted(maps.Keys(v.ref.(*data).tree()))
}

var (
	flagKeys      = []string{"Name"}
	attributeKeys = []string{"Name", "Value"}
)

func elementKeys(e *match.Element) []string {
	switch {
	case e.Instance.Exists():
		return e.Instance.Names()
	case e.HasValue:
		return attributeKeys
	}
	return flagKeys
}

// missing returns the result of index for a key that does not exist: the zero value of the map's element type.
func (v value) missing() value {
	switch v.kind {
	case kindElement:
		return text("")
	case kindData:
		return domainOf(dict{})
	case kindDict:
		if v.num == isDomain {
			return listOf(nil)
		}
	}
	return value{}
}

// native returns the value for package fmt.
func (v value) native() any {
	switch v.kind {
	case kindBool:
		return v.num != 0
	case kindInt:
		return int(v.int())
	case kindFloat:
		return v.float()
	case kindString:
		return v.str
	case kindList:
		n, _ := v.length()
		out := make([]any, n)
		for i := range out {
			out[i] = v.item(i).native()
		}
		return out
	case kindDict, kindElement, kindData:
		if v.kind == kindDict && v.num == isVersion {
			return v.ref.(dict).version()
		}
		out := map[string]any{}
		for _, key := range v.keys() {
			entry, _ := v.entry(key)
			out[v.shown(key)] = entry.native()
		}
		return out
	}
	return nil
}

// appendTo appends the value as an action prints it.
func (v value) appendTo(b []byte) []byte {
	switch v.kind {
	case kindString:
		return append(b, v.str...)
	case kindInt:
		return strconv.AppendInt(b, v.int(), 10)
	case kindBool:
		return strconv.AppendBool(b, v.num != 0)
	case kindNil:
		return append(b, "<no value>"...)
	}
	return appendAny(b, v)
}

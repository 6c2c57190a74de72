package expr

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is the kind of a Value.
type Kind uint8

// The kinds of values. The zero Value is Missing.
const (
	Missing Kind = iota
	Masked
	Bool
	Int
	String
	ListKind
	MapKind

	anyKind    // static type of an expression whose kind is known only at evaluation
	collection // static type of a whole feature, which may be a list or a map
)

// String returns the name of the kind in messages.
func (k Kind) String() string {
	return [...]string{"nothing", "a masked value", "a boolean", "a number", "a string", "a list", "a map", "a value", "a whole feature"}[k]
}

// Value is the value of an expression. It is small and passed by value, and stores numbers and strings without allocating. Lists
// and maps are shared and must not be modified once they are in a Value.
type Value struct {
	kind Kind
	num  int64
	text string
	list List
	dict Map
}

// List is a sequence of values, possibly computed on demand. Implementations are safe for concurrent use.
type List interface {
	Len() int
	At(i int) Value // 0 <= i < Len()
}

// Map is a set of named values, possibly computed on demand. Implementations are safe for concurrent use.
type Map interface {
	Len() int
	Get(key string) (Value, bool)
	Keys() []string // sorted and shared: do not modify
}

// OfBool returns true or false.
func OfBool(b bool) Value {
	if b {
		return Value{kind: Bool, num: 1}
	}
	return Value{kind: Bool}
}

// OfInt returns a number.
func OfInt(n int64) Value { return Value{kind: Int, num: n} }

// OfText returns a string.
func OfText(s string) Value { return Value{kind: String, text: s} }

// OfList returns a list. Nil is an empty list.
func OfList(l List) Value {
	if l == nil {
		l = Values(nil)
	}
	return Value{kind: ListKind, list: l}
}

// OfMap returns a map. Nil is an empty map.
func OfMap(m Map) Value {
	if m == nil {
		m = Texts(nil)
	}
	return Value{kind: MapKind, dict: m}
}

// OfMasked returns a value that exists but that expressions cannot use: every use is an error.
func OfMasked() Value { return Value{kind: Masked} }

// FromJSON returns the value of decoded JSON (see nfdv1alpha1.JSON.Decode). null is Missing. A number that is not a 64-bit integer
// becomes a string, because the language has no fractions.
func FromJSON(v any) (Value, error) {
	switch v := v.(type) {
	case nil:
		return Value{}, nil
	case bool:
		return OfBool(v), nil
	case string:
		return OfText(v), nil
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return OfInt(n), nil
		}
		return OfText(v.String()), nil
	case int64:
		return OfInt(v), nil
	case int:
		return OfInt(int64(v)), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return OfInt(int64(v)), nil
		}
		return OfText(strconv.FormatFloat(v, 'f', -1, 64)), nil
	case []any:
		list := make(Values, len(v))
		for i, item := range v {
			value, err := FromJSON(item)
			if err != nil {
				return Value{}, err
			}
			list[i] = value
		}
		return OfList(list), nil
	case map[string]any:
		dict := make(Dict, len(v))
		for key, item := range v {
			value, err := FromJSON(item)
			if err != nil {
				return Value{}, err
			}
			dict[key] = value
		}
		return OfMap(dict), nil
	}
	return Value{}, fmt.Errorf("%T is not JSON", v)
}

// Kind returns the kind of the value.
func (v Value) Kind() Kind { return v.kind }

// Truth returns the value of a Bool, and false for other kinds.
func (v Value) Truth() bool { return v.kind == Bool && v.num != 0 }

// Number returns the value as a number. It accepts an Int, or a string that is a decimal 64-bit integer with optional blanks around
// it.
func (v Value) Number() (int64, bool) {
	switch v.kind {
	case Int:
		return v.num, true
	case String:
		text := strings.TrimSpace(v.text)
		if !isInteger(text) {
			return 0, false // most strings are not numbers, and creating the error would allocate memory
		}
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	}
	return 0, false
}

// isInteger reports whether s is a decimal number, with or without a sign.
func isInteger(s string) bool {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// Text returns the value as a string. It returns false for lists, maps, and missing or masked values.
func (v Value) Text() (string, bool) {
	switch v.kind {
	case String:
		return v.text, true
	case Int:
		return strconv.FormatInt(v.num, 10), true
	case Bool:
		return strconv.FormatBool(v.num != 0), true
	}
	return "", false
}

// List returns the elements of a list, or nil for other kinds.
func (v Value) List() List { return v.list }

// Map returns the elements of a map, or nil for other kinds.
func (v Value) Map() Map { return v.dict }

// Len returns the number of characters of the string form of a scalar, or the number of elements of a list or map.
func (v Value) Len() int {
	switch v.kind {
	case String:
		return utf8.RuneCountInString(v.text)
	case ListKind:
		return v.list.Len()
	case MapKind:
		return v.dict.Len()
	}
	text, _ := v.Text()
	return len(text)
}

// appendText appends the string form of a scalar and reports whether the value is a scalar.
func (v Value) appendText(dst []byte) ([]byte, bool) {
	switch v.kind {
	case String:
		return append(dst, v.text...), true
	case Int:
		return strconv.AppendInt(dst, v.num, 10), true
	case Bool:
		return strconv.AppendBool(dst, v.num != 0), true
	}
	return dst, false
}

// String returns the string form of a scalar, and lists and maps as JSON, for display.
func (v Value) String() string {
	if text, ok := v.Text(); ok {
		return text
	}
	return string(v.appendJSON(nil))
}

// MarshalJSON returns a JSON value that shows the kind: numbers are numbers, missing and masked values are null.
func (v Value) MarshalJSON() ([]byte, error) { return v.appendJSON(nil), nil }

func (v Value) appendJSON(dst []byte) []byte {
	switch v.kind {
	case Int, Bool:
		dst, _ = v.appendText(dst)
		return dst
	case String:
		return appendQuoted(dst, v.text)
	case ListKind:
		dst = append(dst, '[')
		for i := range v.list.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.list.At(i).appendJSON(dst)
		}
		return append(dst, ']')
	case MapKind:
		dst = append(dst, '{')
		for i, key := range v.dict.Keys() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(dst, key), ':')
			item, _ := v.dict.Get(key)
			dst = item.appendJSON(dst)
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}

// appendQuoted appends a JSON string without HTML escapes.
func appendQuoted(dst []byte, s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // encoding a string cannot fail
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

// Values is a List of values.
type Values []Value

// Len returns the number of values.
func (l Values) Len() int { return len(l) }

// At returns the i-th value.
func (l Values) At(i int) Value { return l[i] }

// Names is a List of strings.
type Names []string

// Len returns the number of strings.
func (l Names) Len() int { return len(l) }

// At returns the i-th string.
func (l Names) At(i int) Value { return OfText(l[i]) }

// Dict is a Map of values.
type Dict map[string]Value

// Len returns the number of elements.
func (m Dict) Len() int { return len(m) }

// Get returns an element.
func (m Dict) Get(key string) (Value, bool) { v, ok := m[key]; return v, ok }

// Keys returns the sorted names of the elements.
func (m Dict) Keys() []string { return sortedKeys(m) }

// Texts is a Map of strings.
type Texts map[string]string

// Len returns the number of elements.
func (m Texts) Len() int { return len(m) }

// Get returns an element.
func (m Texts) Get(key string) (Value, bool) {
	text, ok := m[key]
	return OfText(text), ok
}

// Keys returns the sorted names of the elements.
func (m Texts) Keys() []string { return sortedKeys(m) }

func sortedKeys[V any](m map[string]V) []string {
	keys := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	return keys
}

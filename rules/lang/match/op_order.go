package match

import (
	"errors"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/version"
)

// relation defines which results of a comparison with a bound satisfy an operator.
type relation struct{ less, equal, greater bool }

var (
	lessThan       = relation{less: true}
	lessOrEqual    = relation{less: true, equal: true}
	greaterThan    = relation{greater: true}
	greaterOrEqual = relation{greater: true, equal: true}
)

// holds reports whether the result of a comparison (-1, 0, +1) holds.
func (r relation) holds(comparison int) bool {
	switch {
	case comparison < 0:
		return r.less
	case comparison > 0:
		return r.greater
	}
	return r.equal
}

func compileOrder(c *compiler, at place, e *Expr, wanted []relation) test {
	switch e.Type {
	case nfdv1alpha1.TypeInteger:
		return compileIntegers(c, at, e, wanted)
	case nfdv1alpha1.TypeVersion:
		return compileVersions(c, at, e, wanted)
	}
	c.add(&field.Error{Type: field.ErrorTypeNotSupported, Field: at.path().Child("type").String(), BadValue: short(string(e.Type)),
		Detail: `leave it out to compare integers, or write "version" to compare versions`})
	return nil
}

// integers compares integers.
type integers struct {
	wanted []relation
	bounds []int64
}

func compileIntegers(c *compiler, at place, e *Expr, wanted []relation) test {
	t := &integers{wanted: wanted}
	ok := true
	for i, v := range e.Value {
		n, valid := parseInteger(v)
		if !valid {
			var why string
			if n, why, valid = c.quantity(at, v); !valid {
				c.add(field.Invalid(at.path().Child("value").Index(i), short(v), string(e.Op)+" compares integers, and this is not an integer"+why))
				ok = false
			}
		}
		t.bounds = append(t.bounds, n)
	}
	if ok && len(t.bounds) == 2 && t.bounds[0] >= t.bounds[1] {
		hint := "write the smaller one first"
		if t.bounds[0] == t.bounds[1] {
			hint = "use {op: In} to match one number"
		}
		c.add(field.Invalid(at.path().Child("value"), shorten(e.Value), "the first bound must be below the second: "+hint))
	}
	return t
}

func (t *integers) check(value string, work *Work) verdict {
	work.take(workPerValue)
	n, ok := parseInteger(value)
	if !ok {
		return bad
	}
	for i, b := range t.bounds {
		comparison := 0
		if n < b {
			comparison = -1
		} else if n > b {
			comparison = 1
		}
		if !t.wanted[i].holds(comparison) {
			return no
		}
	}
	return yes
}

var errNotInteger = errors.New("not an integer")

func (t *integers) problem(string) error { return errNotInteger }

// parseInteger parses the strings that strconv.Atoi parses on a 64-bit machine, without allocating an error.
func parseInteger(s string) (int64, bool) {
	digits, negative := s, false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		digits, negative = s[1:], s[0] == '-'
	}
	if digits == "" {
		return 0, false
	}
	limit := uint64(math.MaxInt64)
	if negative {
		limit++
	}
	var n uint64
	for i := range len(digits) {
		d := uint64(digits[i] - '0')
		if d > 9 || n > (limit-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	if negative {
		return -int64(n), true
	}
	return int64(n), true
}

// versions compares versions.
type versions struct {
	wanted []relation
	bounds []version.V
	parse  func(string) (version.V, error)
}

func compileVersions(c *compiler, at place, e *Expr, wanted []relation) test {
	t := &versions{wanted: wanted, parse: version.Parse}
	if c.strict {
		t.parse = version.ParseStrict
	}
	for i, v := range e.Value {
		parsed, err := t.parse(v)
		if err != nil {
			c.add(field.Invalid(at.path().Child("value").Index(i), short(v), fmt.Sprintf("%s compares versions: %v", e.Op, err)))
		}
		t.bounds = append(t.bounds, parsed)
	}
	if len(t.bounds) == 2 && t.bounds[0].Compare(t.bounds[1]) > 0 {
		c.warn(at.path().Child("value"), "never holds: the first bound is above the second")
	}
	return t
}

// maxVersionLength is the maximum length of a version, so that a message can quote it.
const maxVersionLength = 128

var errNotVersion = errors.New("not a version")

func (t *versions) check(value string, work *Work) verdict {
	work.take(workPerVersion)
	if len(value) > maxVersionLength {
		return bad
	}
	v, err := t.parse(value)
	if err != nil {
		return bad
	}
	for i, b := range t.bounds {
		if !t.wanted[i].holds(v.Compare(b)) {
			return no
		}
	}
	return yes
}

func (t *versions) problem(value string) error {
	if len(value) > maxVersionLength {
		return errNotVersion
	}
	_, err := t.parse(value)
	return err
}

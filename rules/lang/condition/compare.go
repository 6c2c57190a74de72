package condition

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/size"
	"github.com/assay-project/assay/rules/version"
)

// relation is the required order of adjacent values.
type relation uint8

const (
	equalTo relation = iota
	lessThan
	greaterThan
)

func (r relation) holds(order int) bool {
	switch r {
	case lessThan:
		return order < 0
	case greaterThan:
		return order > 0
	}
	return order == 0
}

// prepareVersions rejects constants that are not valid versions, and the combination of two comparison modes.
func prepareVersions(a args.Values, _ *size.Budget) (any, string, error) {
	if a[argType].Fixed("") != "version" {
		return nil, "", nil
	}
	if a[argForce].Flag() {
		return nil, "force_strings", fmt.Errorf("text and type: version cannot be combined")
	}
	var bad error
	a[argValues].Constants(func(v expr.Value) {
		if _, err := parseVersion(v); err != nil && bad == nil {
			bad = err
		}
	})
	return nil, "values", bad
}

// compareWith returns an operator that compares each value with the next one.
func compareWith(r relation) func(*Condition, expr.Env) (bool, error) {
	return func(c *Condition, env expr.Env) (bool, error) {
		values, ok, err := c.args[argValues].Items(env)
		if err != nil || !ok {
			return false, c.noList(env, err)
		}
		if values.Len() < 2 {
			return false, errTooFew
		}
		if !env.Spend(values.Len()) {
			return false, expr.ErrBudget
		}
		last, err := values.At(0)
		for i := 1; i < values.Len() && err == nil; i++ {
			var next expr.Value
			if next, err = values.At(i); err != nil {
				break
			}
			if ok, err = c.compare(r, last, next); !ok {
				return false, err
			}
			last = next
		}
		return err == nil, err
	}
}

var errTooFew = errors.New("values must be a list of at least two")

// noList returns the reason why values has no elements, or nil if values does not exist on the node.
func (c *Condition) noList(env expr.Env, err error) error {
	if err != nil {
		return err
	}
	if v, err := c.argument("values").EvalOrMissing(env); err != nil || isNone(v) {
		return err
	}
	return errors.New("values is not a list")
}

// compare compares two values. Every comparison with a missing value is false.
func (c *Condition) compare(r relation, a, b expr.Value) (bool, error) {
	if isNone(a) || isNone(b) {
		return false, nil
	}
	switch {
	case c.args[argForce].Flag():
		return r.holds(strings.Compare(a.String(), b.String())), nil
	case c.args[argType].Fixed("") == "version":
		x, err := parseVersion(a)
		if err != nil {
			return false, err
		}
		y, err := parseVersion(b)
		if err != nil {
			return false, err
		}
		return r.holds(x.Compare(y)), nil
	case r == equalTo:
		return same(a, b), nil
	}
	order, err := compare(a, b)
	return err == nil && r.holds(order), err
}

func parseVersion(v expr.Value) (version.V, error) {
	text, ok := v.Text()
	if !ok {
		return version.V{}, fmt.Errorf("%s is not a version", v.Kind())
	}
	return version.Parse(text)
}

// same reports whether two values are equal. A string is converted to the kind of the other value: "4" equals 4, "true" equals
// true. Two strings are compared as numbers if both are whole numbers.
func same(a, b expr.Value) bool {
	switch {
	case a.Kind() == expr.ListKind && b.Kind() == expr.ListKind:
		return sameLists(a.List(), b.List())
	case a.Kind() == expr.MapKind && b.Kind() == expr.MapKind:
		return sameMaps(a.Map(), b.Map())
	case !isScalar(a) || !isScalar(b):
		return false
	}
	_, whole := a.Number()
	_, whole2 := b.Number()
	// Strings with a decimal point are usually versions: 6.1 and 6.10 differ.
	if a.Kind() == expr.Int || b.Kind() == expr.Int || whole && whole2 {
		if order, ok := compareNumbers(a, b); ok {
			return order == 0
		}
	}
	x, _ := a.Text()
	y, _ := b.Text()
	if a.Kind() == expr.Bool || b.Kind() == expr.Bool {
		return strings.EqualFold(x, y)
	}
	return x == y
}

func sameLists(a, b expr.List) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		if !same(a.At(i), b.At(i)) {
			return false
		}
	}
	return true
}

func sameMaps(a, b expr.Map) bool {
	if a.Len() != b.Len() {
		return false
	}
	for _, key := range a.Keys() {
		x, _ := a.Get(key)
		y, ok := b.Get(key)
		if !ok || !same(x, y) {
			return false
		}
	}
	return true
}

func isScalar(v expr.Value) bool {
	return v.Kind() == expr.String || v.Kind() == expr.Int || v.Kind() == expr.Bool
}

// compare compares two values, as numbers or as strings. Comparing a number with a word is an error.
func compare(a, b expr.Value) (int, error) {
	if order, ok := compareNumbers(a, b); ok {
		return order, nil
	}
	if a.Kind() == expr.String && b.Kind() == expr.String {
		x, _ := a.Text()
		y, _ := b.Text()
		return strings.Compare(x, y), nil
	}
	return 0, fmt.Errorf("%s and %s cannot be ordered", describe(a), describe(b))
}

// maxDescribed is the maximum number of bytes of a value in a message.
const maxDescribed = 64

func describe(v expr.Value) string {
	return fmt.Sprintf("%s %q", v.Kind(), clip.Text(v.String(), maxDescribed))
}

// compareNumbers compares two values if both are whole or decimal numbers.
func compareNumbers(a, b expr.Value) (int, bool) {
	x, okA := a.Number()
	y, okB := b.Number()
	if okA && okB {
		return cmp.Compare(x, y), true
	}
	r, okA := decimal(a)
	s, okB := decimal(b)
	if !okA || !okB {
		return 0, false
	}
	return r.Cmp(s), true
}

// maxDecimal is the maximum number of characters of a decimal number: twice the length of the largest integer.
const maxDecimal = 40

// decimal parses a number with a decimal point. Exponents and fractions, which big.Rat also parses, are not numbers here.
func decimal(v expr.Value) (*big.Rat, bool) {
	text, _ := v.Text()
	text = strings.TrimSpace(text)
	if len(text) > maxDecimal || strings.Trim(text, "0123456789.+-") != "" {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

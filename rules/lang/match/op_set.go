package match

import "slices"

// fewValues is the maximum number of values that are compared one by one. Longer lists are hashed.
const fewValues = 12

// in holds if a value is in a set, or if it is not in the set.
type in struct {
	want   bool
	list   []string // sorted
	lookup map[string]struct{}
}

func compileIn(_ *compiler, _ place, e *Expr) test    { return newIn(true, e.Value) }
func compileNotIn(_ *compiler, _ place, e *Expr) test { return newIn(false, e.Value) }

// The operators compare strings: "True" and "1" are neither true nor false.
func compileIsTrue(*compiler, place, *Expr) test  { return newIn(true, []string{"true"}) }
func compileIsFalse(*compiler, place, *Expr) test { return newIn(true, []string{"false"}) }

func newIn(want bool, values []string) *in {
	t := &in{want: want, list: values}
	if len(values) > 1 {
		t.list = slices.Clone(values)
		slices.Sort(t.list)
		t.list = slices.Compact(t.list)
	}
	if len(t.list) > fewValues {
		t.lookup = make(map[string]struct{}, len(t.list))
		for _, v := range t.list {
			t.lookup[v] = struct{}{}
		}
	}
	return t
}

func (t *in) check(value string, work *Work) verdict {
	work.take(workPerValue)
	if t.lookup != nil {
		_, ok := t.lookup[value]
		return verdictOf(ok == t.want)
	}
	for _, v := range t.list {
		if v == value {
			return verdictOf(t.want)
		}
	}
	return verdictOf(!t.want)
}

func (t *in) problem(string) error { return nil }

// anyOf searches the names for each value instead of the values for each name, because there are far fewer values.
func (t *in) anyOf(names []string, work *Work) bool {
	if !t.want {
		for _, name := range names {
			if t.check(name, work) == yes {
				return true
			}
		}
		return false
	}
	for _, v := range t.list {
		if _, ok := slices.BinarySearch(names, v); ok {
			return true
		}
	}
	return false
}

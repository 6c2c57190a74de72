package match

import (
	"math/bits"
	"slices"

	"github.com/assay-project/assay/rules/facts"
)

// evaluation evaluates one term on one feature.
type evaluation struct {
	term     *term
	position int
	strict   bool
	want     bool
	work     *Work

	elements []Element
	errors   []*EvalError
}

// eval evaluates the expressions and, if they hold, the names.
func (e *evaluation) eval(f *facts.Feature) (bool, error) {
	if e.term.hasExpressions {
		if ok, err := e.expressions(f); !ok || err != nil {
			return false, err
		}
	}
	if e.term.name != nil {
		return e.names(f)
	}
	return true, nil
}

// expressions evaluates the set of expressions. The flags and attributes of a feature form one set of elements, each instance
// another; one of these must satisfy all expressions.
func (e *evaluation) expressions(f *facts.Feature) (bool, error) {
	matched := false
	if f.Flags != nil || f.Attributes != nil {
		ok, err := e.elementExpressions(f)
		if err != nil {
			return false, err
		}
		matched = ok
	}
	if f.Instances != nil {
		ok, err := e.instanceExpressions(f.Instances)
		if err != nil {
			return false, err
		}
		matched = matched || ok
	}
	return matched, nil
}

func (e *evaluation) elementExpressions(f *facts.Feature) (bool, error) {
	list := e.term.expressions
	if len(list) == 0 && e.want && !e.strict {
		// Rules use an empty set in templates that iterate over all elements.
		e.everyElement(f)
	}
	mark := len(e.elements)
	for i := range list {
		x := &list[i]
		flag, attribute, value, err := e.element(x, f)
		if err != nil {
			return false, err
		}
		if !satisfied(x, f, flag, attribute) {
			e.elements = e.elements[:mark]
			return false, nil
		}
		if e.want && flag {
			e.elements = append(e.elements, Element{Name: x.key.String()})
		}
		if e.want && attribute {
			e.elements = append(e.elements, Element{Name: x.key.String(), Value: value, HasValue: true})
		}
	}
	return true, nil
}

// element evaluates an expression on the flag and on the attribute with its name.
func (e *evaluation) element(x *expression, f *facts.Feature) (flag, attribute bool, value string, err error) {
	if f.Flags != nil {
		flag = x.onFlag(f.Flags.HasKey(x.key))
	}
	if f.Attributes != nil {
		var exists bool
		value, exists = f.Attributes.GetKey(x.key)
		v := x.onAttribute(value, exists, e.work)
		if v == bad {
			return false, false, "", e.problem(x, -1, value)
		}
		attribute = v == yes
	}
	return flag, attribute, value, nil
}

// satisfied combines the results for the flag and the attribute: one of them is sufficient, but DoesNotExist requires that both are
// absent.
func satisfied(x *expression, f *facts.Feature, flag, attribute bool) bool {
	if x.kind == absent {
		return (flag || f.Flags == nil) && (attribute || f.Attributes == nil)
	}
	return flag || attribute
}

// everyElement collects all flags and attributes, sorted by name.
func (e *evaluation) everyElement(f *facts.Feature) {
	n := f.Flags.Len() + f.Attributes.Len()
	if !e.work.take(n * workPerElement) {
		return
	}
	e.elements = make([]Element, 0, n)
	_ = eachName(f, func(name string, isFlag bool, value string) error {
		e.elements = append(e.elements, Element{Name: name, Value: value, HasValue: !isFlag})
		return nil
	})
}

// eachName calls do for all flags and attributes, sorted by name. If a name is both, the flag comes first.
func eachName(f *facts.Feature, do func(name string, isFlag bool, value string) error) error {
	flags, attributes := f.Flags.Names(), f.Attributes.Names()
	for i, j := 0, 0; i < len(flags) || j < len(attributes); {
		var err error
		if j == len(attributes) || i < len(flags) && flags[i] <= attributes[j] {
			err = do(flags[i], true, "")
			i++
		} else {
			err = do(attributes[j], false, f.Attributes.Value(j))
			j++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// names evaluates matchName. The names of an instance are the names of its attributes.
func (e *evaluation) names(f *facts.Feature) (bool, error) {
	ok, err := e.elementNames(f)
	if err != nil {
		return false, err
	}
	if f.Instances != nil {
		other, err := e.instanceNames(f.Instances)
		if err != nil {
			return false, err
		}
		ok = ok || other
	}
	return ok, nil
}

// namesTest is a test that never returns bad and that can check a sorted list of names faster than one by one.
type namesTest interface {
	anyOf(sorted []string, work *Work) bool
}

func (e *evaluation) elementNames(f *facts.Feature) (bool, error) {
	x := e.term.name
	if !e.want {
		if x.kind != onValue {
			return x.kind != absent && f.Flags.Len()+f.Attributes.Len() > 0, nil
		}
		if fast, ok := x.test.(namesTest); ok {
			return fast.anyOf(f.Flags.Names(), e.work) || fast.anyOf(f.Attributes.Names(), e.work), nil
		}
	}
	matched := false
	err := eachName(f, func(name string, isFlag bool, value string) error {
		switch x.onName(name, e.work) {
		case bad:
			return e.problem(x, -1, name)
		case yes:
			matched = true
			if e.want && e.work.take(workPerElement) {
				e.elements = append(e.elements, Element{Name: name, Value: value, HasValue: !isFlag})
			}
		}
		return nil
	})
	return matched && err == nil, err
}

// stackWords is the number of words of a bit set on the stack: enough for 256 instances, or for the dictionary of a narrow column.
const stackWords = 4

// instanceExpressions evaluates the expressions on the instances; one instance must satisfy all of them. It works by column, on
// sets of instances, and evaluates each expression once per distinct value.
func (e *evaluation) instanceExpressions(s *facts.Instances) (bool, error) {
	if s.Len() == 0 {
		return false, nil
	}
	var onStack [3][stackWords]uint64
	left := newBits(onStack[0][:], s.Len())
	left.fill(s.Len())
	for i := range e.term.expressions {
		x := &e.term.expressions[i]
		column := s.Column(x.key)
		if column == nil {
			if !x.onFlag(false) {
				return false, nil
			}
			continue
		}
		if x.kind == anything {
			continue
		}
		hits := newBits(onStack[1][:], s.Len())
		if err := e.column(x, column, left, hits, onStack[2][:]); err != nil {
			return false, err
		}
		if !left.keep(hits, x.kind == absent) {
			return false, nil
		}
	}
	e.collect(s, left)
	return true, nil
}

// column sets the bits in hits of the instances whose value satisfies the expression; for DoesNotExist, of those that have any
// value. It reports values that cannot be tested if an instance in left has them.
func (e *evaluation) column(x *expression, c *facts.Column, left, hits bitset, stack []uint64) error {
	marks := newBits(stack, c.Len())
	problems := 0
	for i := range c.Len() {
		verdict := yes
		if x.kind == onValue {
			verdict = x.test.check(c.Value(i), e.work)
		}
		switch verdict {
		case yes:
			marks.set(i)
		case bad:
			problems++
		}
	}
	if !marks.empty() {
		c.Mark(marks, hits)
	}
	if problems == 0 {
		return nil
	}
	return e.badValues(x, c, left)
}

// badValues reports the first instance in left whose value cannot be tested.
func (e *evaluation) badValues(x *expression, c *facts.Column, left bitset) error {
	rejected := make([]bool, c.Len())
	for i := range rejected {
		rejected[i] = x.test.check(c.Value(i), e.work) == bad
	}
	for value, row := range c.Cells() {
		if rejected[value] && left.has(row) {
			return e.instanceProblem(x, row, c.Value(value))
		}
	}
	return nil
}

// instanceNames evaluates matchName on the names of the attributes of each instance.
func (e *evaluation) instanceNames(s *facts.Instances) (bool, error) {
	x := e.term.name
	var onStack [2][stackWords]uint64
	hits := newBits(onStack[0][:], s.Len())
	var problem *EvalError
	for i, name := range s.Names() {
		verdict := x.onName(name, e.work)
		if verdict == no {
			continue
		}
		for _, row := range s.ColumnAt(i).Cells() {
			if verdict == yes {
				hits.set(row)
			} else if problem == nil && !hits.has(row) {
				problem = e.problem(x, row, name)
			}
		}
	}
	if problem != nil {
		if e.strict {
			return false, problem
		}
		if !hits.has(problem.Instance) {
			e.errors = append(e.errors, problem)
		}
	}
	if hits.empty() {
		return false, nil
	}
	e.collect(s, hits)
	return true, nil
}

// collect adds the instances in a set to the elements.
func (e *evaluation) collect(s *facts.Instances, rows bitset) {
	if !e.want {
		return
	}
	n := rows.count()
	if !e.work.take(n * workPerElement) {
		return
	}
	e.elements = slices.Grow(e.elements, n)
	for i := range s.Len() {
		if rows.has(i) {
			e.elements = append(e.elements, Element{Instance: s.Row(i)})
		}
	}
}

// instanceProblem records an error for one instance. In strict mode it is an error of the rule; otherwise the instance does not
// match. NFD's result depends on the order of a Go map.
func (e *evaluation) instanceProblem(x *expression, instance int, found string) error {
	problem := e.problem(x, instance, found)
	if e.strict {
		return problem
	}
	e.errors = append(e.errors, problem)
	return nil
}

func (e *evaluation) problem(x *expression, instance int, found string) *EvalError {
	return &EvalError{Term: e.position, Feature: e.term.feature, Key: x.key.String(), Instance: instance, Found: found, Err: x.test.problem(found)}
}

// bitset is a set of small numbers.
type bitset []uint64

// newBits returns an empty set for n numbers. It uses stack if that is large enough.
func newBits(stack []uint64, n int) bitset {
	words := (n + 63) / 64
	if words > len(stack) {
		return make(bitset, words)
	}
	clear(stack)
	return stack[:words]
}

func (b bitset) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitset) has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }

// fill adds the numbers below n.
func (b bitset) fill(n int) {
	for i := range b {
		b[i] = ^uint64(0)
	}
	if n%64 != 0 {
		b[len(b)-1] = 1<<(n%64) - 1
	}
}

// keep removes the numbers that are not in other (or those that are, if invert is true) and reports whether any remain.
func (b bitset) keep(other bitset, invert bool) bool {
	flip, left := uint64(0), uint64(0)
	if invert {
		flip = ^flip
	}
	for i := range b {
		b[i] &= other[i] ^ flip
		left |= b[i]
	}
	return left != 0
}

func (b bitset) empty() bool { return b.count() == 0 }

func (b bitset) count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

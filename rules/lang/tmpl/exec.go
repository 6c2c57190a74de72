package tmpl

import (
	"fmt"
	"strings"

	"github.com/assay-project/assay/rules/lang/match"
)

// state is the state of one expansion.
type state struct {
	t     *Template
	env   Env
	data  data
	out   []byte
	vars  []value // variables of the running templates, innermost last
	args  []value // arguments of the running calls
	frame int     // start of the variables of the innermost template
	calls int
	steps int
	bytes int
}

// failure is an error of an expansion. It is passed by panic and recovered in Expand.
type failure struct {
	at   int
	msg  string
	lack *Lack
}

func fail(at int, format string, args ...any) {
	panic(failure{at: at, msg: fmt.Sprintf(format, args...)})
}

// step counts one step.
func (s *state) step(at int) {
	if s.steps++; s.steps > MaxSteps {
		fail(at, "the template takes more than %d steps", MaxSteps)
	}
}

// work counts the steps of processing n bytes.
func (s *state) work(at, n int) {
	s.steps += n/bytesPerStep + 1
	if s.steps > MaxSteps {
		fail(at, "the template takes more than %d steps", MaxSteps)
	}
}

// take counts the memory of a value before a function creates it.
func (s *state) take(at, n int) {
	if s.bytes += n; s.bytes > MaxBytes {
		fail(at, "the functions of the template make more than %d bytes", MaxBytes)
	}
}

func (s *state) checkOutput(at int) {
	if len(s.out) > MaxOutput {
		fail(at, "the template writes more than %d bytes", MaxOutput)
	}
}

// signal defines how a statement ends.
type signal uint8

const (
	goOn signal = iota
	doBreak
	doContinue
)

type stmt interface {
	exec(s *state, dot value) signal
}

type block []stmt

func (b block) exec(s *state, dot value) signal {
	for _, st := range b {
		if sig := st.exec(s, dot); sig != goOn {
			return sig
		}
	}
	return goOn
}

// textStmt writes text.
type textStmt struct {
	at   int
	text string
}

func (n *textStmt) exec(s *state, _ value) signal {
	s.step(n.at)
	s.out = append(s.out, n.text...)
	s.checkOutput(n.at)
	return goOn
}

// printStmt writes the value of a pipeline.
type printStmt struct {
	at   int
	pipe expr
}

func (n *printStmt) exec(s *state, dot value) signal {
	s.step(n.at)
	v := n.pipe.eval(s, dot)
	if v.kind >= kindList {
		s.measure(n.at, v, MaxOutput-len(s.out))
	}
	s.out = v.appendTo(s.out)
	s.checkOutput(n.at)
	return goOn
}

// letStmt evaluates a pipeline for the variables that it sets.
type letStmt struct {
	at   int
	pipe expr
}

func (n *letStmt) exec(s *state, dot value) signal {
	s.step(n.at)
	n.pipe.eval(s, dot)
	return goOn
}

type jumpStmt struct{ signal }

func (n jumpStmt) exec(*state, value) signal { return n.signal }

// ifStmt is an if statement or, if it sets the dot, a with statement.
type ifStmt struct {
	at          int
	with        bool
	pipe        expr
	then, else_ block
}

func (n *ifStmt) exec(s *state, dot value) signal {
	s.step(n.at)
	v := n.pipe.eval(s, dot)
	if !v.truth() {
		return n.else_.exec(s, dot)
	}
	if n.with {
		dot = v
	}
	return n.then.exec(s, dot)
}

// rangeStmt runs its body for each item. The slots are those of its variables, or -1.
type rangeStmt struct {
	at          int
	pipe        expr
	key, item   int
	body, else_ block
}

func (n *rangeStmt) exec(s *state, dot value) signal {
	s.step(n.at)
	v := n.pipe.eval(s, dot)
	ran := false
	once := func(key, item value) bool {
		ran = true
		s.step(n.at)
		if n.item >= 0 {
			s.vars[s.frame+n.item] = item
		}
		if n.key >= 0 {
			s.vars[s.frame+n.key] = key
		}
		return n.body.exec(s, item) != doBreak
	}
	switch {
	case v.kind == kindInt:
		if n.key >= 0 {
			fail(n.at, "can't use %d to iterate over more than one variable", v.int())
		}
		for i := int64(0); i < v.int() && once(value{}, integer(i)); i++ {
		}
	case v.kind == kindList:
		size, _ := v.length()
		for i := 0; i < size && once(integer(int64(i)), v.item(i)); i++ {
		}
	case v.isMap():
		keys := v.keys()
		s.work(n.at, 64*len(keys))
		for _, key := range keys {
			entry, _ := v.entry(key)
			if !once(text(v.shown(key)), entry) {
				break
			}
		}
	case v.kind == kindNil:
	default:
		fail(n.at, "range can't iterate over a %s", v.typeName())
	}
	if !ran {
		return n.else_.exec(s, dot)
	}
	return goOn
}

// callStmt runs another template.
type callStmt struct {
	at   int
	name string
	pipe expr // nil for none
}

func (n *callStmt) exec(s *state, dot value) signal {
	s.step(n.at)
	def := s.t.defs[n.name]
	if n.name == mainName {
		def = s.t.main
	}
	if s.calls++; s.calls > MaxCalls {
		fail(n.at, "templates call each other more than %d deep", MaxCalls)
	}
	var arg value
	if n.pipe != nil {
		arg = n.pipe.eval(s, dot)
	}
	s.enter(def, arg)
	s.calls--
	return goOn
}

// enter runs a template with its own variables.
func (s *state) enter(def *definition, dot value) {
	outer := s.frame
	s.frame = len(s.vars)
	for range def.slots {
		s.vars = append(s.vars, value{})
	}
	s.vars[s.frame] = dot
	def.body.exec(s, dot)
	s.vars = s.vars[:s.frame]
	s.frame = outer
}

type expr interface {
	eval(s *state, dot value) value
}

type constExpr struct{ v value }

func (e *constExpr) eval(*state, value) value { return e.v }

type dotExpr struct{}

func (dotExpr) eval(_ *state, dot value) value { return dot }

type varExpr struct{ slot int }

func (e varExpr) eval(s *state, _ value) value { return s.vars[s.frame+e.slot] }

// setExpr assigns the value of a pipeline to its variables.
type setExpr struct {
	pipe  expr
	slots []int
}

func (e *setExpr) eval(s *state, dot value) value {
	v := e.pipe.eval(s, dot)
	for _, slot := range e.slots {
		s.vars[s.frame+slot] = v
	}
	return v
}

// fieldExpr is base.a.b.c. A nil base is the dot.
type fieldExpr struct {
	at   int
	base expr
	path []string
}

func (e *fieldExpr) eval(s *state, dot value) value {
	v := dot
	if e.base != nil {
		v = e.base.eval(s, dot)
	}
	path, from := e.path, ""
	if v.kind == kindData && len(path) > 1 {
		from = "." + strings.Join(path[:2], ".")
		list, ok := v.ref.(*data).feature(path[0], path[1])
		if !ok {
			fail(e.at, "no matcher of this rule gives %s", from)
		}
		v, path = list, path[2:]
	}
	for _, name := range path {
		v, from = field(e.at, v, name, from), ""
	}
	return v
}

// field returns a field of a value. from is the value in the source, if it is a feature.
func field(at int, v value, name, from string) value {
	entry, ok := v.entry(name)
	if !ok {
		panic(failure{at, lacks(v, name, from), lackOf(v, name)})
	}
	return entry
}

// lackOf returns which field a value does not have.
func lackOf(v value, name string) *Lack {
	e, is := v.ref.(*match.Element)
	return &Lack{Field: name, Instance: is && e.Instance.Exists()}
}

// lacks explains why a value does not have a field; see field.
func lacks(v value, name, from string) string {
	switch v.kind {
	case kindNil:
		return fmt.Sprintf("nil data; no entry for key %q", name)
	case kindData:
		return fmt.Sprintf("the data has no key %q; it has %s", name, strings.Join(v.ref.(*data).names(), ", "))
	case kindDict:
		return fmt.Sprintf("map has no entry for key %q", name)
	case kindElement:
		switch e := v.ref.(*match.Element); {
		case e.Instance.Exists():
			return fmt.Sprintf("the element has no %q", name)
		case e.HasValue:
			return fmt.Sprintf("an attribute has a Name and a Value, and no %s", name)
		}
		return fmt.Sprintf("a flag has a Name, and no %s", name)
	case kindList:
		if l := v.ref.(*list); from != "" && len(l.elements) > 0 {
			if l.elements[0].Instance.Exists() {
				return fmt.Sprintf("%s is a list: use range, or (index %s 0).%s for the first element", from, from, name)
			}
			return fmt.Sprintf("%s is a list of elements with %s: use range", from, strings.Join(elementKeys(&l.elements[0]), " and "))
		}
	}
	return fmt.Sprintf("can't evaluate field %s in a %s", name, v.typeName())
}

// logicExpr is an and or an or: its value is the first argument that decides the result, or the last argument.
type logicExpr struct {
	or   bool
	args []expr
}

func (e *logicExpr) eval(s *state, dot value) (v value) {
	for _, arg := range e.args {
		if v = arg.eval(s, dot); v.truth() == e.or {
			return v
		}
	}
	return v
}

// callExpr calls a function.
type callExpr struct {
	at   int
	fn   *function
	args []expr
}

func (e *callExpr) eval(s *state, dot value) value {
	s.step(e.at)
	base := len(s.args)
	for _, arg := range e.args {
		v := arg.eval(s, dot)
		s.args = append(s.args, v)
	}
	c := call{s: s, at: e.at, name: e.fn.name, args: s.args[base:]}
	v := e.fn.run(&c)
	if v.kind == kindString {
		s.take(e.at, len(v.str))
		if len(v.str) > MaxOutput {
			fail(e.at, "%s makes a string of more than %d bytes", e.fn.name, MaxOutput)
		}
	}
	clear(s.args[base:])
	s.args = s.args[:base]
	return v
}

// measure fails if the printed form of a value is longer than limit. A value may contain another value more than once, so its
// printed form can be exponentially longer; measure stops at the limit.
func (s *state) measure(at int, v value, limit int) int {
	s.step(at)
	n := 0
	switch v.kind {
	case kindString:
		n = len(v.str)
	case kindList:
		size, _ := v.length()
		for i := range size {
			n += 1 + s.measure(at, v.item(i), limit-n)
		}
	case kindDict, kindElement, kindData:
		for _, key := range v.keys() {
			entry, _ := v.entry(key)
			n += len(key) + 2 + s.measure(at, entry, limit-n)
		}
	default:
		n = 20
	}
	if n > max(limit, 0) {
		fail(at, "the value is longer than %d bytes", MaxOutput)
	}
	return n
}

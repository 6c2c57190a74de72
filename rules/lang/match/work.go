package match

import "errors"

// MaxWork is the maximum cost of the terms of a rule on one node: a few tenths of a second at worst. Ten patterns
// that need an automaton, over the names of 4,000 kernel options, use all of it; words, and patterns that begin with
// one after a ^, cost almost nothing. A rule may hold 256 patterns in each of 64 terms in each of 64 alternatives.
const MaxWork = 1 << 25

// Costs in units of three to ten nanoseconds each. Like all budgets it counts and never measures, so that a rule that
// works on one machine works on all.
const (
	// workPerValue is the cost of comparing a value.
	workPerValue = 1
	// workPerVersion is the cost of parsing and comparing a version.
	workPerVersion = 32
	// bytesPerWork is the number of bytes that are searched for a word per unit.
	bytesPerWork = 16
	// workPerRun is the cost of running an automaton, workPerByte the cost of each byte of its input, and
	// stepsPerWork the number of steps of its program that make a byte cost one unit more.
	workPerRun, workPerByte, stepsPerWork = 256, 32, 4
	// workPerElement is the cost of collecting an element, mostly for its memory.
	workPerElement = 512
)

// Work is the cost of evaluations so far; it starts at zero. Passing one Work to several evaluations bounds their
// sum.
type Work int

// ErrWork is wrapped by the error of an evaluation that exceeded the bound.
var ErrWork = errors.New("stopped: it looks through more of what the node has than it may; write fewer or simpler patterns")

// take adds to the work and reports whether it is still within the bound.
func (w *Work) take(n int) bool {
	*w += Work(n)
	return *w <= MaxWork
}

func (w *Work) exhausted() bool { return *w > MaxWork }

package match

import "errors"

// MaxWork is the maximum cost of evaluating the terms of a rule on one node, at most a few tenths of a second. It is reached by ten
// patterns that need an automaton, on the names of 4,000 kernel options; words, and patterns that begin with ^ and a word, cost
// almost nothing. A rule may have 256 patterns in each of 64 terms in each of 64 alternatives.
const MaxWork = 1 << 25

// Costs in units of three to ten nanoseconds each. Like all budgets they are counts, not times, so that a rule that works on one
// machine works on all machines.
const (
	// workPerValue is the cost of comparing a value.
	workPerValue = 1
	// workPerVersion is the cost of parsing and comparing a version.
	workPerVersion = 32
	// bytesPerWork is the number of bytes per unit that are searched for a word.
	bytesPerWork = 16
	// workPerRun is the cost of running an automaton, workPerByte the cost of each byte of its input. Each stepsPerWork steps of
	// its program increase the cost of a byte by one unit.
	workPerRun, workPerByte, stepsPerWork = 256, 32, 4
	// workPerElement is the cost of collecting an element, mostly of its memory.
	workPerElement = 512
)

// Work is the cost of evaluations so far. It starts at zero. Evaluations that share a Work share the limit.
type Work int

// ErrWork is wrapped by the error of an evaluation that exceeds the limit.
var ErrWork = errors.New("stopped: evaluating it costs too much on this node; use fewer or simpler patterns")

// take adds to the work and reports whether it is still within the limit.
func (w *Work) take(n int) bool {
	*w += Work(n)
	return *w <= MaxWork
}

func (w *Work) exhausted() bool { return *w > MaxWork }

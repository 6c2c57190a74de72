package match

import "errors"

// MaxWork bounds what the terms of a rule may cost on one node: some tenths of a second at worst. Ten patterns that need an automaton,
// over the names of 4,000 kernel options, take it all; words, and patterns that begin with one after a ^, cost next to nothing. A
// rule may hold 256 patterns in each of 64 terms in each of 64 alternatives.
const MaxWork = 1 << 25

// What is counted: three to ten nanoseconds each. Like all budgets it counts and never measures, so that a rule which works on
// one machine works on all.
const (
	// workPerValue is for comparing a value.
	workPerValue = 1
	// workPerVersion is for parsing a version and comparing it.
	workPerVersion = 32
	// bytesPerWork is how much text is searched for a word.
	bytesPerWork = 16
	// workPerRun is what running an automaton costs, workPerByte what each byte of the text does, and stepsPerWork how many steps
	// of its program make a byte cost one more.
	workPerRun, workPerByte, stepsPerWork = 256, 32, 4
	// workPerElement is for an element that is collected, mostly for the memory it takes.
	workPerElement = 512
)

// Work is what evaluations have cost so far; the zero Work is nothing. A Work that is handed from one to the next bounds all of
// them together.
type Work int

// ErrWork is what the error of an evaluation wraps that was stopped.
var ErrWork = errors.New("stopped: it looks through more of what the node has than it may; write fewer or simpler patterns")

// take adds to the work, and reports whether it is still within the bound.
func (w *Work) take(n int) bool {
	*w += Work(n)
	return *w <= MaxWork
}

func (w *Work) exhausted() bool { return *w > MaxWork }

package expr

import "errors"

// Env gives an evaluation access to a node. Methods return false for values that the node does not have. An Env is
// used by one evaluation at a time.
type Env interface {
	// Node returns the node's name and metadata.
	Node() Node
	// Var returns a variable.
	Var(name string) (Value, bool)
	// Element returns the value of an attribute, or true for a flag, of the feature "domain.feature".
	Element(feature, element string) (Value, bool)
	// Feature returns a whole feature: a map of attributes, a list of maps for instances, a list of names for flags.
	Feature(feature string) (Value, bool)
	// Matched returns what the rule's matchers matched of a feature, in the shapes of Feature.
	Matched(feature string) (Value, bool)
	// Item returns the element of the loop, Missing outside of one.
	Item() Value
	// Spend takes steps from the evaluation's budget and reports whether enough were left.
	Spend(steps int) bool
}

// Node is the metadata of a node. In the early phase only the name is set.
type Node struct {
	Name                string
	Labels, Annotations map[string]string
}

// Budget counts steps down. It stops an evaluation after a fixed amount of work, independent of time, so that the
// same rules give the same result on every machine. The zero Budget is exhausted.
type Budget struct {
	left int
}

// NewBudget returns a budget of a number of steps. One step is roughly the evaluation of one operator or function.
func NewBudget(steps int) *Budget { return &Budget{left: steps} }

// Spend takes steps and reports whether enough were left.
func (b *Budget) Spend(steps int) bool {
	if steps > b.left {
		b.left = 0
		return false
	}
	b.left -= steps
	return true
}

// Left returns the number of steps left.
func (b *Budget) Left() int { return b.left }

// ErrBudget is wrapped by the error of an evaluation that ran out of steps.
var ErrBudget = errors.New("step budget exhausted")

// Scope defines which names a string may use. The zero Scope has no variables, no node metadata, no item and no
// matched elements. Compile neither changes nor keeps it.
type Scope struct {
	// Vars are the declared variables. Any other name is an error, unless Open is set.
	Vars map[string]bool
	// Open is set if a template may create variables that are not declared: unknown names are then variables that may
	// be missing.
	Open bool
	// Metadata is set if node.labels and node.annotations may be read.
	Metadata bool
	// Item is set inside a loop.
	Item bool
	// Matched is set if the rule has matchers.
	Matched bool
}

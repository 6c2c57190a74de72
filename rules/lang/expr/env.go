package expr

import "errors"

// Env is what an evaluation sees of a node. Methods return false for what the node does not have. An Env is used by one
// evaluation at a time.
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
	// Spend takes steps from the evaluation's budget and reports whether there were as many left.
	Spend(steps int) bool
}

// Node is the metadata of a node. In the early phase only the name is known.
type Node struct {
	Name                string
	Labels, Annotations map[string]string
}

// Budget counts steps down. It makes an evaluation stop after a fixed amount of work, whatever the clock says, so that the
// same rules give the same result on every machine. The zero Budget is spent.
type Budget struct {
	left int
}

// NewBudget returns a budget of so many steps: roughly, one is the evaluation of one operator or function.
func NewBudget(steps int) *Budget { return &Budget{left: steps} }

// Spend takes steps and reports whether there were as many left.
func (b *Budget) Spend(steps int) bool {
	if steps > b.left {
		b.left = 0
		return false
	}
	b.left -= steps
	return true
}

// Left returns how many steps are left.
func (b *Budget) Left() int { return b.left }

// ErrBudget is what the error of an evaluation wraps that ran out of steps.
var ErrBudget = errors.New("step budget exhausted")

// Scope says which names exist where a text stands. The zero Scope has no variables, no node metadata, no item and no
// matched elements. Compile does not change it and does not keep it.
type Scope struct {
	// Vars are the declared variables. Any other name is a mistake, unless Open is set.
	Vars map[string]bool
	// Open says that there may be variables that nobody declared, because a template makes them: unknown names are then
	// variables that may be missing.
	Open bool
	// Metadata says that node.labels and node.annotations may be read.
	Metadata bool
	// Item says that there is a loop.
	Item bool
	// Matched says that the rule has matchers.
	Matched bool
}

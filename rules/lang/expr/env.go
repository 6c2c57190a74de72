package expr

import "errors"

// Env gives an evaluation access to a node. Methods return false for values that do not exist on the node. An Env must not be used
// by two evaluations at the same time.
type Env interface {
	// Node returns the node's name and metadata.
	Node() Node
	// Var returns a variable.
	Var(name string) (Value, bool)
	// Element returns the value of an attribute, or true for a flag, of the feature "domain.feature".
	Element(feature, element string) (Value, bool)
	// Feature returns a whole feature: a map of attributes, a list of maps for instances, a list of names for flags.
	Feature(feature string) (Value, bool)
	// Matched returns the elements of a feature that the rule's matchers matched, in the same form as Feature.
	Matched(feature string) (Value, bool)
	// Item returns the current item of the loop, or Missing outside of a loop.
	Item() Value
	// Spend takes steps from the evaluation's budget and reports whether enough steps were left. Steps are work, not time, so that the same
	// rules give the same result on every machine.
	Spend(steps int) bool
}

// Node is the metadata of a node. In the early phase only the name is set.
type Node struct {
	Name                string
	Labels, Annotations map[string]string
}

// ErrBudget is wrapped by the error of an evaluation that ran out of steps.
var ErrBudget = errors.New("step budget exhausted")

// Scope defines which names a string may use. The zero Scope has no variables, no node metadata, no item and no matched elements.
// Compile does not modify or keep it.
type Scope struct {
	// Vars are the declared variables. Any other name is an error, unless Open is set.
	Vars map[string]bool
	// Open is set if a template may create undeclared variables. Unknown names are then variables that may be missing.
	Open bool
	// Metadata is set if node.labels and node.annotations may be read.
	Metadata bool
	// Item is set inside a loop.
	Item bool
	// Matched is set if the rule has matchers.
	Matched bool
}

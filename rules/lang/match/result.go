package match

import "github.com/assay-project/assay/rules/facts"

// Result is the result of a Matcher on a node.
type Result struct {
	// OK is true if all terms hold.
	OK bool
	// Failed is the position of the first term that does not hold; -1 if all do.
	Failed int
	// Matched holds one entry per term, in order, if all terms hold and the elements were wanted.
	Matched []FeatureElements
	// Errors are the errors for single instances. These instances do not match.
	Errors []*EvalError
}

// FeatureElements are the elements of one feature that satisfied one term.
type FeatureElements struct {
	// Feature is the name as written in the rule.
	Feature string
	// Elements are the elements that satisfied the term, in a fixed order. An element occurs more than once if several expressions
	// name it.
	Elements []Element
}

// Element is one flag, one attribute or one instance.
type Element struct {
	// Name of the flag or attribute.
	Name string
	// Value of the attribute.
	Value string
	// HasValue distinguishes an attribute from a flag.
	HasValue bool
	// Instance is the instance. It does not exist for flags and attributes.
	Instance facts.Row
}

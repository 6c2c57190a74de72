package tmpl

// Limits on the cost of a template. They are counts, not times, so that a template that works on one machine works on all machines,
// regardless of load.
const (
	// MaxSource is the maximum length of a template in bytes, the same as NFD's.
	MaxSource = 64 << 10
	// MaxOutput is the maximum length in bytes of the output of a template, and of each string in it. 256 labels of the maximum
	// length take 100 kB; real templates write at most 10 kB.
	MaxOutput = 64 << 10
	// MaxLabels is the maximum number of labels or vars of one expansion. All components of a cluster read Node objects, which must
	// not become too large.
	MaxLabels = 256
	// MaxSteps is the maximum number of actions, iterations and function calls in all expansions of a rule on one node. 6,000
	// kernel options with ten actions each take 60,000.
	MaxSteps = 200_000
	// MaxDepth is the maximum depth of nested blocks and parentheses. The parser and the evaluation are recursive.
	MaxDepth = 100
	// MaxCalls is the maximum depth of templates that call templates.
	MaxCalls = 20
	// MaxBytes is the maximum total size of the strings and lists that functions create in all expansions of a rule on one node.
	MaxBytes = 512 << 10
	// MaxPattern is the maximum length of a regular expression in bytes, as in matchers.
	MaxPattern = 1 << 10
	// costPattern is the number of steps to compile a pattern at run time. Literal patterns are compiled once, with the rule.
	costPattern = 1000
	// bytesPerStep is the number of bytes that a function processes per step.
	bytesPerStep = 64
)

package tmpl

// Limits on the cost of a template. They are counts and never times, so that a template that works on one machine
// works on all, independent of load.
const (
	// MaxSource is the maximum length of a template in bytes, the same as NFD's.
	MaxSource = 64 << 10
	// MaxOutput is the maximum length in bytes of the output of a template, and of each string in it. 256 labels of
	// the maximum length are 100 kB; the largest seen in practice are 10 kB.
	MaxOutput = 64 << 10
	// MaxLabels is the maximum number of labels or vars of one expansion. The annotation that records a node's
	// labels, and the Node itself, are read by every component of a cluster.
	MaxLabels = 256
	// MaxSteps is the maximum number of actions, iterations and function calls of the expansions of a rule on one
	// node. 6,000 kernel options with ten actions each are 60,000.
	MaxSteps = 200_000
	// MaxDepth is the maximum depth of nested blocks and parentheses; the parser and the evaluation are recursive.
	MaxDepth = 100
	// MaxCalls is the maximum depth of templates that call templates.
	MaxCalls = 20
	// MaxBytes is the maximum number of bytes of the strings and lists that functions create in all expansions of a
	// rule on one node.
	MaxBytes = 512 << 10
	// MaxPattern is the maximum length of a regular expression in bytes, as in matchers.
	MaxPattern = 1 << 10
	// costPattern is the number of steps that compiling a pattern at run time costs; a literal one is compiled once,
	// with the rule.
	costPattern = 1000
	// bytesPerStep is the number of bytes that a function processes in one step.
	bytesPerStep = 64
)

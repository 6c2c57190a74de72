package tmpl

// Bounds on what a template may cost. They are counts and never times, so that a template which works on one machine
// works on all, and on a busy day as well.
const (
	// MaxSource is the length of a template in bytes, the same as NFD's: what lies beyond is a program, not a rule.
	MaxSource = 64 << 10
	// MaxOutput is the length in bytes of what a template may write, and of any one text in it. 256 labels of the
	// greatest length are 100 kB, the greatest seen in practice are 10 kB.
	MaxOutput = 64 << 10
	// MaxLabels is how many labels or vars one expansion may give. The annotation that records a node's labels, and the
	// Node itself, are read by every component of a cluster.
	MaxLabels = 256
	// MaxSteps is how many actions, iterations and function calls the expansions of a rule may take on one node. 6,000 kernel
	// options with ten actions each are 60,000.
	MaxSteps = 200_000
	// MaxDepth is how deep blocks and parentheses may nest; the parser is recursive, and so is the evaluation.
	MaxDepth = 100
	// MaxCalls is how deep templates may call templates.
	MaxCalls = 20
	// MaxBytes is how much memory the texts and lists that functions make may take in all expansions of a rule on one node.
	MaxBytes = 512 << 10
	// MaxPattern is the length of a regular expression in bytes, as in matchers.
	MaxPattern = 1 << 10
	// costPattern is the steps that compiling a pattern at run time takes; a literal one is compiled once, with the rule.
	costPattern = 1000
	// bytesPerStep is how many bytes a function may work through in one step.
	bytesPerStep = 64
)

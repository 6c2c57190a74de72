package match

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/suggest"
)

// operator defines an operator. Matchers, lint, the reference, the schema for editors and the enum of the CRD are generated from
// the list of operators.
type operator struct {
	op       nfdv1alpha1.MatchOp
	kind     kind
	says     string   // condition under which it holds, for the reference
	aliases  []string // alternative names from other tools, in lower case
	min, max int      // number of arguments
	// bounds are the comparisons of an ordering operator, one for each argument.
	bounds []relation
	// patterns is set if the arguments are regular expressions.
	patterns bool
	// compile compiles the test after the number of arguments has been checked. It is nil if the operator does not read values, or
	// has bounds.
	compile func(c *compiler, at place, e *Expr) test
}

// unbounded is the maximum for operators with any number of arguments, which MaxValues limits.
const unbounded = math.MaxInt

// operators lists all operators in the order of the reference and the CRD. To add one, add its name to api/nfd/v1alpha1/matcher.go
// and a line here, and run make generate.
var operators = []operator{
	{op: nfdv1alpha1.MatchAny, kind: anything, says: "always; only in the worker's configuration"},
	{op: nfdv1alpha1.MatchIn, kind: onValue, aliases: []string{"=", "==", "eq", "equals", "equal", "is"},
		says: "the value is one of these strings", min: 1, max: unbounded, compile: compileIn},
	{op: nfdv1alpha1.MatchNotIn, kind: onValue, aliases: []string{"!=", "ne", "notequals", "isnot"},
		says: "the element has a value that is none of these strings", min: 1, max: unbounded, compile: compileNotIn},
	{op: nfdv1alpha1.MatchInRegexp, kind: onValue, aliases: []string{"regexp", "regex", "matches"},
		says: "one of these regular expressions (RE2) matches part of the value", min: 1, max: unbounded, patterns: true, compile: compileInRegexp},
	{op: nfdv1alpha1.MatchExists, kind: present, aliases: []string{"present"}, says: "the element exists"},
	{op: nfdv1alpha1.MatchDoesNotExist, kind: absent, aliases: []string{"notexists", "absent"}, says: "the feature exists and the element does not"},
	{op: nfdv1alpha1.MatchGt, kind: onValue, aliases: []string{">"}, says: "the value is greater", min: 1, max: 1, bounds: []relation{greaterThan}},
	{op: nfdv1alpha1.MatchGe, kind: onValue, aliases: []string{">="}, says: "the value is greater or equal", min: 1, max: 1, bounds: []relation{greaterOrEqual}},
	{op: nfdv1alpha1.MatchLt, kind: onValue, aliases: []string{"<"}, says: "the value is less", min: 1, max: 1, bounds: []relation{lessThan}},
	{op: nfdv1alpha1.MatchLe, kind: onValue, aliases: []string{"<="}, says: "the value is less or equal", min: 1, max: 1, bounds: []relation{lessOrEqual}},
	{op: nfdv1alpha1.MatchGtLt, kind: onValue, says: "the value is between the two, both excluded", min: 2, max: 2,
		bounds: []relation{greaterThan, lessThan}},
	{op: nfdv1alpha1.MatchGeLe, kind: onValue, aliases: []string{"between"}, says: "the value is between the two, both included", min: 2, max: 2,
		bounds: []relation{greaterOrEqual, lessOrEqual}},
	{op: nfdv1alpha1.MatchIsTrue, kind: onValue, aliases: []string{"true"}, says: "the value is the string \"true\"", compile: compileIsTrue},
	{op: nfdv1alpha1.MatchIsFalse, kind: onValue, aliases: []string{"false"}, says: "the value is the string \"false\"", compile: compileIsFalse},
}

// find returns an operator by its name, or nil. A linear search is as fast as a map here.
func find(op nfdv1alpha1.MatchOp) *operator {
	for i := range operators {
		if operators[i].op == op {
			return &operators[i]
		}
	}
	return nil
}

// Doc describes an operator in the documentation.
type Doc struct {
	Op           nfdv1alpha1.MatchOp
	Values, Says string
	// Min and Max are the limits on the number of values.
	Min, Max int
	// Valued operators read the value of an element. Ordered operators compare it as a number or version.
	Valued, Ordered bool
	// Patterns is set if the values are regular expressions.
	Patterns bool
}

// Operators describes all operators that objects in the cluster may use.
func Operators() []Doc {
	docs := make([]Doc, 0, len(operators))
	for i := range operators {
		if o := &operators[i]; o.op != nfdv1alpha1.MatchAny {
			docs = append(docs, o.doc())
		}
	}
	return docs
}

// Operator describes one operator. Op is empty for an unknown operator.
func Operator(op nfdv1alpha1.MatchOp) Doc {
	if o := find(op); o != nil {
		return o.doc()
	}
	return Doc{}
}

func (o *operator) doc() Doc {
	return Doc{
		Op: o.op, Values: o.count(), Says: o.says, Min: o.min, Max: min(o.max, MaxValues),
		Valued: o.kind == onValue, Ordered: o.bounds != nil, Patterns: o.patterns,
	}
}

// count describes the number of arguments of an operator.
func (o *operator) count() string {
	switch o.max {
	case 0:
		return "no value"
	case unbounded:
		return "at least one value"
	case 1:
		return "exactly one value"
	case 2:
		return "exactly 2 values"
	}
	return fmt.Sprintf("exactly %d values", o.max)
}

// unknownOperator reports an unknown operator and suggests the closest one.
func unknownOperator(path *field.Path, op string) *field.Error {
	var all []string
	for _, o := range Operators() {
		all = append(all, string(o.Op))
	}
	slices.Sort(all)
	detail := "the operators are " + strings.Join(all, ", ")
	if near := nearest(op, all); near != "" {
		detail = fmt.Sprintf("did you mean %s? ", near) + detail
	}
	return &field.Error{Type: field.ErrorTypeNotSupported, Field: path.String(), BadValue: short(op), Detail: detail}
}

// nearest returns the operator that is most similar to op, or "" if none is similar.
func nearest(op string, all []string) string {
	lower := strings.ToLower(op)
	for i := range operators {
		if slices.Contains(operators[i].aliases, lower) {
			return string(operators[i].op)
		}
	}
	if len(op) > 2*len("DoesNotExist") {
		return ""
	}
	return suggest.NearestFold(op, all, 1+len(op)/3)
}

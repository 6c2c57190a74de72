package match

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/suggest"
)

// operator describes an operator.
type operator struct {
	kind     kind
	says     string // when it holds, for the reference
	min, max int    // how many arguments
	// compile prepares the test, whose arguments were counted; nil if the operator looks at no value.
	compile func(c *compiler, path *field.Path, e *Expr) test
}

// unbounded is for operators that take any number of arguments; MaxValues bounds them all.
const unbounded = math.MaxInt

// operators lists all operators. To add one, add a line here and the test in the file of its family.
var operators = map[nfdv1alpha1.MatchOp]operator{
	nfdv1alpha1.MatchAny:          {kind: anything, says: "always; only in the worker's configuration"},
	nfdv1alpha1.MatchExists:       {kind: present, says: "the element is there"},
	nfdv1alpha1.MatchDoesNotExist: {kind: absent, says: "the feature is there and the element is not"},
	nfdv1alpha1.MatchIn:           {kind: onValue, says: "the value is one of these texts", min: 1, max: unbounded, compile: compileIn},
	nfdv1alpha1.MatchNotIn:        {kind: onValue, says: "there is a value, and it is none of these texts", min: 1, max: unbounded, compile: compileNotIn},
	nfdv1alpha1.MatchIsTrue:       {kind: onValue, says: "the value is the text true", compile: compileIsTrue},
	nfdv1alpha1.MatchIsFalse:      {kind: onValue, says: "the value is the text false", compile: compileIsFalse},
	nfdv1alpha1.MatchInRegexp:     {kind: onValue, says: "one of these regular expressions (RE2) is found anywhere in the value", min: 1, max: unbounded, compile: compileInRegexp},
	nfdv1alpha1.MatchGt:           {kind: onValue, says: "the value is greater", min: 1, max: 1, compile: compileOrder},
	nfdv1alpha1.MatchGe:           {kind: onValue, says: "the value is greater or equal", min: 1, max: 1, compile: compileOrder},
	nfdv1alpha1.MatchLt:           {kind: onValue, says: "the value is less", min: 1, max: 1, compile: compileOrder},
	nfdv1alpha1.MatchLe:           {kind: onValue, says: "the value is less or equal", min: 1, max: 1, compile: compileOrder},
	nfdv1alpha1.MatchGtLt:         {kind: onValue, says: "the value lies between the two, both excluded", min: 2, max: 2, compile: compileOrder},
	nfdv1alpha1.MatchGeLe:         {kind: onValue, says: "the value lies between the two, both included", min: 2, max: 2, compile: compileOrder},
}

// Doc describes an operator for the reference.
type Doc struct {
	Op           nfdv1alpha1.MatchOp
	Values, Says string
	// Min and Max are the numbers of values that it takes.
	Min, Max int
}

// Operators describes every operator that an object in the cluster may have.
func Operators() []Doc {
	var docs []Doc
	for _, op := range []nfdv1alpha1.MatchOp{
		nfdv1alpha1.MatchExists, nfdv1alpha1.MatchDoesNotExist, nfdv1alpha1.MatchIn, nfdv1alpha1.MatchNotIn,
		nfdv1alpha1.MatchInRegexp, nfdv1alpha1.MatchIsTrue, nfdv1alpha1.MatchIsFalse, nfdv1alpha1.MatchGt, nfdv1alpha1.MatchGe,
		nfdv1alpha1.MatchLt, nfdv1alpha1.MatchLe, nfdv1alpha1.MatchGtLt, nfdv1alpha1.MatchGeLe,
	} {
		docs = append(docs, Doc{
			Op: op, Values: operators[op].count(), Says: operators[op].says,
			Min: operators[op].min, Max: min(operators[op].max, MaxValues),
		})
	}
	return docs
}

// count says in words how many arguments an operator takes.
func (o operator) count() string {
	switch o.max {
	case 0:
		return "no value"
	case unbounded:
		return "at least one value"
	case 1:
		return "exactly one value"
	}
	return fmt.Sprintf("exactly %d values", o.max)
}

// otherNames are what people write who come from elsewhere, in lower case.
var otherNames = map[string]nfdv1alpha1.MatchOp{
	"=": nfdv1alpha1.MatchIn, "==": nfdv1alpha1.MatchIn, "eq": nfdv1alpha1.MatchIn, "equals": nfdv1alpha1.MatchIn, "equal": nfdv1alpha1.MatchIn,
	"!=": nfdv1alpha1.MatchNotIn, "ne": nfdv1alpha1.MatchNotIn, "notequals": nfdv1alpha1.MatchNotIn,
	">": nfdv1alpha1.MatchGt, ">=": nfdv1alpha1.MatchGe, "<": nfdv1alpha1.MatchLt, "<=": nfdv1alpha1.MatchLe,
	"regexp": nfdv1alpha1.MatchInRegexp, "regex": nfdv1alpha1.MatchInRegexp, "matches": nfdv1alpha1.MatchInRegexp,
	"notexists": nfdv1alpha1.MatchDoesNotExist, "absent": nfdv1alpha1.MatchDoesNotExist, "present": nfdv1alpha1.MatchExists,
	"true": nfdv1alpha1.MatchIsTrue, "false": nfdv1alpha1.MatchIsFalse, "between": nfdv1alpha1.MatchGeLe,
}

// unknownOperator names the operator that was probably meant.
func unknownOperator(path *field.Path, op string) *field.Error {
	list := slices.Sorted(maps.Keys(operators))[1:] // the empty one is not for people
	all := make([]string, len(list))
	for i, o := range list {
		all[i] = string(o)
	}
	detail := "the operators are " + strings.Join(all, ", ")
	if near := nearest(op, all); near != "" {
		detail = fmt.Sprintf("did you mean %s? ", near) + detail
	}
	return &field.Error{Type: field.ErrorTypeNotSupported, Field: path.String(), BadValue: short(op), Detail: detail}
}

// nearest returns the operator that looks most like op, or nothing if none does.
func nearest(op string, all []string) string {
	lower := strings.ToLower(op)
	if o, ok := otherNames[lower]; ok {
		return string(o)
	}
	if len(op) > 2*len("DoesNotExist") {
		return ""
	}
	return suggest.NearestFold(op, all, 1+len(op)/3)
}

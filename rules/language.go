package rules

import (
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lang/action"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/condition"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/tmpl"
)

// The parts of the language, as described in the reference and in the schemas for editors.
type (
	// MatchOperator is an operator of matchExpressions and matchName.
	MatchOperator = match.Doc
	// ConditionOperator is an operator of conditions.
	ConditionOperator = condition.Doc
	// ActionKind is an action.
	ActionKind = action.Doc
	// Parameter is an argument of an operator of conditions or of an action.
	Parameter = args.Param
)

// What templates are expanded with.
type (
	// MatchedFeature are the elements that a term of a matcher gives to a template.
	MatchedFeature = match.FeatureElements
	// MatchedElement is one of them.
	MatchedElement = match.Element
	// TemplateSpent is the cost of expansions so far.
	TemplateSpent = tmpl.Spent
	// TemplateError reports why a template could not be expanded.
	TemplateError = tmpl.ExpandError
)

// MatchOperators returns the operators of matchers, in the order of the reference.
func MatchOperators() []MatchOperator { return match.Operators() }

// MatchOperatorOf returns one operator of matchers; its Op is empty for an unknown operator.
func MatchOperatorOf(op nfdv1alpha1.MatchOp) MatchOperator { return match.Operator(op) }

// ConditionOperators returns the operators of conditions, in the order of the reference.
func ConditionOperators() []ConditionOperator { return condition.Operators() }

// ActionKinds returns the actions, in the order of the reference.
func ActionKinds() []ActionKind { return action.Kinds() }

// ExpressionNames returns the names that {expressions} may use.
func ExpressionNames() []expr.NameDoc { return expr.NameDocs() }

// ExpressionFunctions returns the functions of {expressions}.
func ExpressionFunctions() []expr.FunctionDoc { return expr.Functions() }

// TemplateFunctions returns the names of the functions of templates, sorted.
func TemplateFunctions() []string { return tmpl.Functions() }

// LeftOutFunctions returns the functions of NFD's templates that Assay rejects, and why.
func LeftOutFunctions() []tmpl.LeftOut { return tmpl.LeftOutFunctions() }

// Quantity returns the number of bytes of a quantity such as 500Gi, with which attributes in bytes are compared. It returns false if the
// string is not a quantity, or not a whole number of bytes.
func Quantity(s string) (int64, bool) { return match.Quantity(s) }

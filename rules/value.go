package rules

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/size"
)

// Value is a compiled string with expressions that has a value on each node. It is immutable and safe for concurrent use.
type Value struct {
	program *Program // has no rules; evaluations read its options
	rule    *rule    // has no matchers; evaluations read its features
	text    *expr.Text
	size    int
}

// CompileValue compiles a string with at least one {expression} that reads features. It returns nil if it adds errors to the report.
func CompileValue(path *field.Path, source string, opt Options) (*Value, *Report) {
	report := &Report{}
	c := newCompiler(&opt, report, MaxRequirementSize)
	c.phaseNumber = phaseMain
	r := &rule{set: &RuleSet{}, keys: &c.opt.Keys}
	c.scope = c.newScope(r, &nfdv1alpha1.Rule{})
	if !c.size.Take(ruleBytes + size.Entry("", source)) {
		report.Errors, report.Over = field.ErrorList{tooLarge(path, c.limit)}, true
		return nil, report
	}
	text := c.text(path, source, expr.Strict)
	if text == nil {
		return nil, report
	}
	if text.IsLiteral() {
		report.add(field.Invalid(path, source, `is the same on every node; write an expression, such as {@"system.dmiid.bios_version"}`))
		return nil, report
	}
	r.vars = []assignment{{key: expr.Literal("value"), value: text}}
	c.finish(r)
	return &Value{program: &Program{opt: opt}, rule: r, text: text, size: c.size.Used()}, report
}

// Size returns the estimated size of the value in bytes; see package size.
func (v *Value) Size() int { return v.size }

// Reads returns the names of the features that the value reads, sorted.
func (v *Value) Reads() []string { return v.rule.reads }

// ReadsMatched reports whether the value depends on outputs of rules.
func (v *Value) ReadsMatched() bool { return v.rule.readsMatched }

// Eval returns the value on a node; ok is false if the node lacks something that the value reads. The error is another reason why there is
// no value, for example that an expression takes too many steps.
func (v *Value) Eval(in Input) (value string, ok bool, err error) {
	e := newEvaluation(v.program, &in)
	e.begin(v.rule)
	value, err = v.text.Format(e)
	var fault *expr.Error
	if errors.As(err, &fault) && fault.Missing {
		return "", false, nil
	}
	return value, err == nil, err
}

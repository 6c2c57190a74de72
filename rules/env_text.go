package rules

import (
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lang/expr"
)

// TextEnv returns the Env of a node outside of any rule, with the given variables, to test strings with expressions.
func TextEnv(in Input, vars map[string]string, opt Options) expr.Env {
	if in.Facts == nil {
		in.Facts = facts.FromMap(nil, nil)
	}
	e := newEvaluation(&Program{opt: opt}, &in)
	e.begin(&rule{set: &RuleSet{}, keys: &opt.Keys})
	e.local = map[string]expr.Value{}
	for name, value := range vars {
		e.local[name] = expr.OfText(value)
	}
	return e
}

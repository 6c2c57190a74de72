package lint

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/warning"
)

// How a proposal relates to the rule; see warning.Fix.
const (
	sameMeaning   = true
	probablyMeant = false
)

// steps returns the path of the term or expression in its rule.
func (p place) steps() []any {
	var out []any
	if p.alternative >= 0 {
		out = append(out, "matchAny", p.alternative)
	}
	out = append(out, "matchFeatures", p.term)
	if p.expression {
		out = append(out, "matchExpressions", p.key)
	}
	return out
}

// fix returns a change of the rule that the place is in.
func (p place) fix(same bool, edits ...warning.Edit) *warning.Fix {
	return &warning.Fix{Same: same, Rule: p.rule.String(), Edits: edits}
}

// advise warns, and proposes a change.
func (l *linter) advise(path *field.Path, rank int, fix *warning.Fix, format string, args ...any) {
	l.warn(path, rank, format, args...)
	l.out[len(l.out)-1].Fix = fix
}

// rewrite warns about an expression and proposes another one. The reason comes first in the message.
func (l *linter) rewrite(at place, rank int, same bool, to nfdv1alpha1.MatchExpression, reason string, args ...any) {
	fix := at.fix(same, warning.Edit{Path: at.steps(), Value: to})
	l.advise(at.path(), rank, fix, "%s: write %s", fmt.Sprintf(reason, args...), fields(to))
}

// replace warns about a value of an expression and proposes another one that was probably meant.
func (l *linter) replace(at place, i int, to, message string, args ...any) {
	fix := at.fix(probablyMeant, warning.Edit{Path: append(at.steps(), "value", i), Value: to})
	l.advise(at.value(i), warning.Suspicious, fix, message, args...)
}

// fields returns the fields of an expression as one writes them in YAML, such as op: In, value: ["1"].
func fields(e nfdv1alpha1.MatchExpression) string {
	out := "op: " + string(e.Op)
	if len(e.Value) > 0 {
		out += ", value: [" + clip.QuoteAll(e.Value) + "]"
	}
	if e.Type != "" {
		out += ", type: " + string(e.Type)
	}
	return out
}

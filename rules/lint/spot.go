package lint

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/assay-project/assay/rules/warning"
)

// spot is the place of a string in a rule: its path for people, and the steps to it for a change of the rule.
type spot struct {
	path, rule *field.Path
	steps      []any
}

func ruleSpot(rule *field.Path) spot { return spot{path: rule, rule: rule} }

func (s spot) child(name string) spot { return s.at(s.path.Child(name), name) }
func (s spot) entry(key string) spot  { return s.at(s.path.Key(key), key) }
func (s spot) index(i int) spot       { return s.at(s.path.Index(i), i) }

func (s spot) at(path *field.Path, step any) spot {
	return spot{path, s.rule, append(slices.Clip(s.steps), step)}
}

// fix proposes another string, which was probably meant.
func (s spot) fix(text string) *warning.Fix {
	return &warning.Fix{Rule: s.rule.String(), Edits: []warning.Edit{{Path: s.steps, Value: text}}}
}

// refer proposes another reference in the string. One that is all of it gets braces if it is an expression.
func (s spot) refer(text, ref, to string) *warning.Fix {
	if text == ref && strings.ContainsAny(to, "[(") {
		return s.fix("{" + to + "}")
	}
	return s.fix(regexp.MustCompile(regexp.QuoteMeta(ref)+`\b`).ReplaceAllLiteralString(text, to))
}

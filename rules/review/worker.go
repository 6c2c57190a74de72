package review

import (
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/convert"
	"github.com/assay-project/assay/rules/manifest"
)

// IsCustomRules reports whether a document is a list of custom rules of the worker, as in a file of custom.d.
func IsCustomRules(d *manifest.Document) bool {
	return d.Kind == "" && d.APIVersion == "" && d.Root.Kind == yaml.SequenceNode
}

// CustomRules reviews the list of the worker's custom rules at a path of a document, in any of NFD's notations, and compiles those without
// errors, as the worker does. The set has the name of the file.
func CustomRules(d *manifest.Document, list *yaml.Node, path string, known Known) ([]manifest.Problem, *rules.RuleSet) {
	if list.Kind != yaml.SequenceNode {
		return []manifest.Problem{d.Problem(manifest.Error, "type", path, "expected a list of rules")}, nil
	}
	var problems []manifest.Problem
	copied := clone(list)
	copied.Content = nil
	var places []int // index in the document of each remaining rule
	for i, rule := range list.Content {
		one := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{clone(rule)}}
		if _, err := convert.MatchOn(one); err != nil {
			text := lineInText.ReplaceAllString(err.Error(), "")
			problems = append(problems, d.Problem(manifest.Error, "invalid", fmt.Sprintf("%s[%d]", path, i), text))
			continue
		}
		convert.LongForm(one)
		copied.Content, places = append(copied.Content, one.Content...), append(places, i)
	}
	var spec nfdv1alpha1.NodeFeatureRuleSpec
	problems = append(problems, d.DecodeNode(copied, path, &spec.Rules)...)
	known.Rules.Custom = true
	set, report := rules.CompileSpec(d.File().Name, &spec, known.Rules)
	found := Findings{}
	found.report(report, &known)
	at := func(p string) string {
		n, rest, ok := split(p)
		if !ok || n >= len(places) {
			return path
		}
		return fmt.Sprintf("%s[%d]%s", path, places[n], rest)
	}
	for _, e := range found.Errors {
		e.Field = at(e.Field)
	}
	for i := range found.Warnings {
		found.Warnings[i].Path = at(found.Warnings[i].Path)
	}
	return append(problems, Problems(d, found)...), set
}

// lineInText matches the line number in a converter's message, which is redundant.
var lineInText = regexp.MustCompile(`^line \d+: `)

func clone(n *yaml.Node) *yaml.Node {
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = clone(c)
	}
	return &out
}

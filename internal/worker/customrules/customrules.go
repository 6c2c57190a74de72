// Package customrules evaluates the worker's custom rules with the same engine as the cluster.
package customrules

import (
	"fmt"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/custom"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/convert"
	"github.com/assay-project/assay/rules/facts"
)

// Engine implements custom.Engine.
type Engine struct{}

// Compile compiles rules in any notation of NFD's custom rules.
func (Engine) Compile(docs []custom.Document) (custom.Program, []error) {
	opt := rules.Options{Custom: true}
	var sets []*rules.RuleSet
	var errs []error
	for i, doc := range docs {
		list, notes, err := convert.CustomRules(doc.Origin, doc.Data)
		if err != nil {
			errs = append(errs, err) // valid rules are returned anyway
		}
		for _, note := range notes {
			if note.Lost {
				errs = append(errs, fmt.Errorf("%s: %s", doc.Origin, note))
			}
		}
		// The name keeps the order of the documents.
		spec := nfdv1alpha1.NodeFeatureRuleSpec{Rules: list}
		set, report := rules.CompileSpec(fmt.Sprintf("%03d %s", i, doc.Origin), &spec, opt)
		for _, err := range report.Errors {
			errs = append(errs, fmt.Errorf("%s: %w", doc.Origin, err))
		}
		for _, warning := range report.Warnings {
			errs = append(errs, fmt.Errorf("%s: %s", doc.Origin, warning))
		}
		sets = append(sets, set)
	}
	return program{rules.Link(opt, sets...)}, errs
}

type program struct{ *rules.Program }

// Labels returns the labels of the rules that match, without the default namespace: labels of other sources are written in the same
// way, so that equal labels are recognized.
func (p program) Labels(node string, features *nfdv1alpha1.Features) (map[string]string, []error) {
	out := p.Eval(rules.Input{Node: rules.Node{Name: node}, Facts: facts.New(features, nil)})
	labels := map[string]string{}
	for name, value := range out.Labels() {
		labels[strings.TrimPrefix(name, nfdv1alpha1.FeatureLabelNamespace+"/")] = value
	}
	var errs []error
	for _, r := range out.Rules() {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("rule %q: %w", r.Rule, r.Err))
		}
	}
	for _, r := range out.Rejected() {
		if !r.Missing {
			errs = append(errs, fmt.Errorf("rule %q: %s %s: %s", r.Rule, r.Kind, r.Key, r.Reason))
		}
	}
	return labels, errs
}

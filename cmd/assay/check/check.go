// Package check finds everything that is wrong with documents of rules and features, with the place of each mistake.
package check

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/manifest"
)

// Finding is a problem in a file.
type Finding struct {
	File string
	manifest.Problem
}

// Options are what the answers depend on. The zero value is the default.
type Options struct {
	Rules rules.Options
	Lint  lint.Options
	// Strict makes what NFD would drop at run time an error, as an admission that is strict does.
	Strict bool
	// Read returns the text of a file that a document is based on; nil: such bases are not looked at.
	Read func(path string) ([]byte, error)
	// Templates are those of the cluster, which rules may be based on; nil: no cluster was asked.
	Templates map[string]*nfdv1alpha1.NodeFeatureRuleSpec
	// Features are the names of those that any node of the cluster has; nil: no cluster was asked.
	Features map[string]bool
}

// Checker checks documents that belong together: a rule finds the templates it is based on among them. It is safe for
// concurrent use.
type Checker struct {
	opt       Options
	templates map[string]*manifest.Document
}

// New returns a Checker that knows the templates in the files.
func New(opt Options, files ...*manifest.File) *Checker {
	c := &Checker{opt: opt, templates: map[string]*manifest.Document{}}
	for _, f := range files {
		for _, d := range f.Documents {
			if d.Kind == manifest.KindTemplate {
				c.templates[d.Name] = d
			}
		}
	}
	return c
}

// File returns all that is wrong with a file, in the order of its lines.
func (c *Checker) File(f *manifest.File) []Finding {
	problems := slices.Clone(f.Problems)
	for _, d := range f.Documents {
		problems = append(problems, c.Document(d)...)
	}
	problems = append(problems, twice(f)...)
	manifest.Sort(problems)
	out := make([]Finding, len(problems))
	for i, p := range problems {
		out[i] = Finding{f.Name, p}
	}
	return out
}

// Sort orders findings by file and place.
func Sort(list []Finding) {
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Errors counts the findings that are errors.
func Errors(list []Finding) int {
	n := 0
	for _, f := range list {
		if f.Severity == manifest.Error {
			n++
		}
	}
	return n
}

// Document returns all that is wrong with a document. Kinds that are not Assay's are none of its business.
func (c *Checker) Document(d *manifest.Document) []manifest.Problem {
	if workerConfig(d) {
		return c.worker(d)
	}
	if !d.Known() {
		return nil
	}
	problems := d.CheckType()
	switch d.Kind {
	case manifest.KindRule, manifest.KindTemplate:
		_, _, more := c.Rule(d)
		problems = append(problems, more...)
	case manifest.KindGroup:
		problems = append(problems, c.group(d)...)
	case manifest.KindFeature:
		problems = append(problems, c.feature(d)...)
	case manifest.KindRequest:
		problems = append(problems, c.request(d)...)
	case manifest.KindPolicy:
		problems = append(problems, c.policy(d)...)
	}
	return problems
}

// twice reports objects of the same name in one file: the later one replaces the other.
func twice(f *manifest.File) []manifest.Problem {
	type key struct{ kind, namespace, name string }
	seen := map[key]*manifest.Document{}
	var out []manifest.Problem
	for _, d := range f.Documents {
		if !d.Known() || d.Name == "" {
			continue
		}
		k := key{d.Kind, "", d.Name}
		if ns := d.Child("metadata", "namespace"); ns != nil {
			k.namespace = ns.Value
		}
		if before, ok := seen[k]; ok {
			out = append(out, d.Problem(manifest.Error, "duplicate-object", "metadata.name",
				"there is a "+d.Title()+" on line "+itoa(before.Position().Line)+" already; applied together, only one of them stays"))
			continue
		}
		seen[k] = d
	}
	return out
}

// compiled turns what a compiler reported into problems of the document.
func compiled(d *manifest.Document, report *rules.Report, strict bool, own func(string) (string, bool)) []manifest.Problem {
	var out []manifest.Problem
	for _, e := range report.Errors {
		path, mine := own(e.Field)
		if !mine {
			out = append(out, d.Problem(manifest.Warning, "base", "spec.basedOn", "with its bases, "+e.Field+": "+message(e)))
			continue
		}
		if !d.Suspect(path) {
			out = append(out, d.Problem(manifest.Error, code(e), path, message(e)))
		}
	}
	for _, w := range report.Warnings {
		path, mine := own(w.Path)
		if !mine || d.Suspect(path) {
			continue
		}
		severity, code := manifest.Warning, "suspicious"
		if w.Defect {
			code = "dropped"
			if strict {
				severity = manifest.Error
			}
		}
		out = append(out, d.Problem(severity, code, path, w.Message))
	}
	return out
}

func same(path string) (string, bool) { return path, true }

// message is an error without its path. The value stands in the source, so it is not repeated.
func message(e *field.Error) string {
	switch {
	case e.Type == field.ErrorTypeRequired && e.Detail == "":
		return "missing"
	case e.Type == field.ErrorTypeDuplicate:
		return "is there already"
	case e.Type == field.ErrorTypeInvalid && e.Detail != "", e.Type == field.ErrorTypeRequired, e.Type == field.ErrorTypeForbidden && e.Detail != "":
		return e.Detail
	}
	return e.ErrorBody()
}

// code names the kind of an error for tools.
func code(e *field.Error) string {
	switch e.Type {
	case field.ErrorTypeRequired:
		return "required"
	case field.ErrorTypeNotSupported:
		return "unsupported"
	case field.ErrorTypeForbidden:
		return "forbidden"
	case field.ErrorTypeTooMany, field.ErrorTypeTooLong:
		return "limit"
	}
	return "invalid"
}

// asRule looks at the rules of a group as rules that produce variables only.
func asRule(g *nfdv1alpha1.NodeFeatureGroup) *nfdv1alpha1.NodeFeatureRule {
	r := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: g.ObjectMeta}
	for _, rule := range g.Spec.Rules {
		r.Spec.Rules = append(r.Spec.Rules, nfdv1alpha1.Rule{
			Name: rule.Name, Vars: rule.Vars, VarsTemplate: rule.VarsTemplate,
			MatchFeatures: rule.MatchFeatures, MatchAny: rule.MatchAny,
		})
	}
	return r
}

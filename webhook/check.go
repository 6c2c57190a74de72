package webhook

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/lint"
)

// Check says what is wrong with rules. It must be deterministic and must not change its argument.
type Check func(*nfdv1alpha1.NodeFeatureRule) Findings

// Findings are what a Check found: mistakes, and what is legal but probably not meant.
type Findings struct {
	Errors   field.ErrorList
	Warnings []lint.Warning
	// Set are the rules without mistakes; nil if the Check does not compile.
	Set *rules.RuleSet
}

// CompileCheck is the Check that compiles rules as the controller does.
func CompileCheck(opt rules.Options) Check {
	return func(object *nfdv1alpha1.NodeFeatureRule) Findings {
		set, report := rules.Compile(object, opt)
		found := Findings{Errors: report.Errors, Set: set}
		for _, w := range report.Warnings {
			found.Warnings = append(found.Warnings, lint.Warning(w))
		}
		return found
	}
}

// check compiles the object together with what it is based on. Below is the template that all such objects are based on.
func (o *Options) check(object *nfdv1alpha1.NodeFeatureRule, template bool, below string) *verdict {
	v := &verdict{}
	whole, own, complete := v.assemble(object, template, below, o.Templates)
	found := o.Check(whole)
	if complete {
		v.set = found.Set
	}
	for _, e := range found.Errors {
		path, ok := own(e.Field)
		switch {
		case !ok:
			v.warn("spec.basedOn", lint.RankDefect, "with its bases, %s: %s", e.Field, e.ErrorBody())
		case (template || !complete) && rules.Undeclared(e):
			// A base, or what is based on this, may declare it.
			v.warn(path, lint.RankUnlikely, "%s", e.Detail)
		default:
			same := *e
			same.Field = path
			v.errs = append(v.errs, &same)
		}
	}
	for _, w := range found.Warnings {
		path, ok := own(w.Path)
		if !ok {
			continue // whoever wrote the base was told
		}
		w.Path = path
		if w.Defect && o.Strict {
			v.errs = append(v.errs, &field.Error{
				Type: field.ErrorTypeForbidden, Field: path, Detail: w.Message + " (admission is strict)",
			})
			continue
		}
		v.warnings = append(v.warnings, w)
	}
	return v
}

// assemble returns the object with its bases, and how the paths of what Compile finds in it translate to paths in the object
// itself. Bases that are missing, or are not what they were pinned to, are warned about, since objects may be applied in any
// order; a circle of bases is an error. In both cases, and without lookup, it returns the object as it is.
func (v *verdict) assemble(object *nfdv1alpha1.NodeFeatureRule, template bool, below string, lookup compose.Lookup) (whole *nfdv1alpha1.NodeFeatureRule, own func(string) (string, bool), complete bool) {
	same := func(path string) (string, bool) { return path, true }
	if len(object.Spec.BasedOn) == 0 && below == "" {
		return object, same, len(object.Spec.RulesFrom) == 0
	}
	if lookup == nil {
		return object, same, false
	}
	if stored := lookup; template { // a circle may close with what is being written
		lookup = func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
			if name == object.Name {
				return &object.Spec, nil
			}
			return stored(name)
		}
	}
	out, err := compose.AssembleOver(compose.Document{Name: object.Name, Template: template, Spec: &object.Spec}, below, lookup)
	if err != nil {
		path := field.NewPath("spec", "basedOn")
		if missing, digest := new(*compose.MissingError), new(*compose.DigestError); errors.As(err, missing) || errors.As(err, digest) {
			v.warn(path.String(), lint.RankDefect, "%s; the rules wait for it", err)
		} else {
			v.errs = append(v.errs, field.Invalid(path, names(object.Spec.BasedOn), err.Error()))
		}
		return object, same, false
	}
	index := map[string]int{}
	for i := range object.Spec.Rules {
		index[object.Spec.Rules[i].Name] = i
	}
	v.places = map[int]int{}
	for n := range out.Spec.Rules {
		if i, ok := index[out.Spec.Rules[n].Name]; ok {
			v.places[i] = n
		}
	}
	whole = &nfdv1alpha1.NodeFeatureRule{ObjectMeta: object.ObjectMeta, Spec: *out.Spec}
	return whole, func(path string) (string, bool) {
		m := rulePath.FindStringSubmatch(path)
		if m == nil {
			return path, true
		}
		n := 0
		if _, err := fmt.Sscan(m[1], &n); err != nil || n >= len(out.Spec.Rules) {
			return "", false
		}
		i, ok := index[out.Spec.Rules[n].Name]
		return fmt.Sprintf("spec.rules[%d]%s", i, m[2]), ok
	}, len(out.Spec.RulesFrom) == 0
}

func names(bases []nfdv1alpha1.Base) string {
	out := make([]string, len(bases))
	for i := range bases {
		out[i] = bases[i].Name
	}
	return strings.Join(out, ", ")
}

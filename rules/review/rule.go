package review

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/warning"
)

func (k *Known) rule(object *nfdv1alpha1.NodeFeatureRule) Findings {
	return k.object(compose.Document{Name: object.Name, Spec: &object.Spec}, k.DefaultTemplate, k.options())
}

func (k *Known) template(object *assayv1alpha1.NodeFeatureRuleTemplate) Findings {
	opt := k.options()
	opt.Template = true
	return k.object(compose.Document{Name: object.Name, Template: true, Spec: &object.Spec}, "", opt)
}

// object reviews an object with rules, together with its bases. below is the template on which all such objects are based.
func (k *Known) object(d compose.Document, below string, opt lint.Options) Findings {
	f := Findings{}
	whole, p, complete := k.assemble(&f, d, below)
	if whole == nil {
		whole = d.Spec
	}
	k.spec(&f, d, whole, p, complete, opt)
	return f
}

// Assembled reviews an object with rules whose references the caller has resolved: whole is its spec with everything that it refers
// to; bases are the templates from which the rules of whole come, or nil if there are none.
func Assembled(d compose.Document, whole *nfdv1alpha1.NodeFeatureRuleSpec, bases []string, known Known) Findings {
	f := Findings{}
	var p *paths
	if bases != nil || len(whole.Rules) != len(d.Spec.Rules) {
		p = newPaths(d.Spec.Rules, whole.Rules, bases)
	}
	known.Rules.Bases = bases
	opt := known.options()
	opt.Template = d.Template
	known.spec(&f, d, whole, p, true, opt)
	return f
}

// spec compiles the assembled spec and adds the findings on the object itself.
func (k *Known) spec(f *Findings, d compose.Document, whole *nfdv1alpha1.NodeFeatureRuleSpec, p *paths, complete bool, opt lint.Options) {
	set, report := rules.CompileSpec(d.Name, whole, k.Rules)
	f.Whole, f.Set, f.Complete, f.places, f.Over = whole, set, complete, p.places(), report.Over
	if s := d.Spec; s.Rules == nil && s.BasedOn == nil && s.RulesFrom == nil && !d.Template {
		f.Errors = append(f.Errors, field.Required(field.NewPath("spec", "rules"), "there are no rules: write rules, basedOn or rulesFrom"))
	}
	if s := d.Spec.NodeSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		// Most likely a plain map of labels, which the API server has dropped.
		f.Errors = append(f.Errors, field.Required(field.NewPath("spec", "nodeSelector"),
			"an empty selector selects all nodes: write matchLabels or matchExpressions below it, or remove it"))
	}
	for _, e := range report.Errors {
		path, own := p.translate(e.Field)
		switch {
		case !own:
			inherited := p.inherited(e)
			f.Inherited = append(f.Inherited, inherited)
			f.Warn("spec.basedOn", warning.Defect, "inherited error: %s: %s", inherited.Field, Text(e))
		case (d.Template || !complete) && rules.Undeclared(e):
			// A base, or an object that is based on this one, may declare the name.
			f.Warn(path, warning.Unlikely, "%s", e.Detail)
		default:
			same := *e
			same.Field = path
			f.Errors = append(f.Errors, &same)
		}
	}
	for _, w := range report.Warnings {
		if path, own := p.translate(w.Path); own { // warnings about a base are shown to its author
			w.Path = path
			f.compiled(w, k)
		}
	}
	if report.Over {
		return // the rules are too large to be used: skip further checks
	}
	k.uniqueNames(f, d)
	f.Warnings = append(f.Warnings, lint.Spec(d.Spec, opt)...)
	k.templates(f, d)
	k.effects(f, d)
	k.withheld(f, p)
	k.unpublished(f, lint.Features(d.Spec))
	k.claimed(f, d.Spec)
}

// uniqueNames rejects two rules with the same name if rules are combined by name. Otherwise they are valid, as in NFD, and Compile
// warns about them.
func (k *Known) uniqueNames(f *Findings, d compose.Document) {
	if !d.Template && len(d.Spec.BasedOn) == 0 {
		return
	}
	seen := map[string]bool{}
	for i := range d.Spec.Rules {
		name := d.Spec.Rules[i].Name
		if name != "" && seen[name] {
			at := field.NewPath("spec", "rules").Index(i).Child("name").String()
			f.Warnings = without(f.Warnings, func(w warning.Warning) bool { return w.Path == at })
			f.Errors = append(f.Errors, &field.Error{Type: field.ErrorTypeInvalid, BadValue: name,
				Field:  at,
				Detail: fmt.Sprintf("another rule of the object is named %q; rules of templates and of objects with basedOn combine by their name, give them different names", name)})
		}
		seen[name] = true
	}
}

// effects rejects taints with an effect that Kubernetes does not have. A stored rule keeps its other outputs, so Compile warns only.
func (k *Known) effects(f *Findings, d compose.Document) {
	for i := range d.Spec.Rules {
		for j, t := range d.Spec.Rules[i].Taints {
			switch t.Effect {
			case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
				continue
			}
			path := field.NewPath("spec", "rules").Index(i).Child("taints").Index(j)
			verdict := k.Rules.Keys.Taint(t)
			f.Warnings = without(f.Warnings, func(w warning.Warning) bool { return w.Defect && w.Path == path.String() })
			f.Errors = append(without(f.Errors, func(e *field.Error) bool { return e.Field == path.String() }),
				field.Invalid(path.Child("effect"), t.Effect, verdict.Message()))
		}
	}
}

// templates warns about templates that fail on typical nodes, or whose labels are not written there.
func (k *Known) templates(f *Findings, d compose.Document) {
	trial := lint.Trial{Keys: &k.Rules.Keys}
	for i := range d.Spec.Rules {
		if r := &d.Spec.Rules[i]; r.LabelsTemplate != "" || r.VarsTemplate != "" {
			for _, t := range f.Set.Templates(f.Place(i)) {
				f.Warnings = append(f.Warnings, trial.Template(field.NewPath("spec", "rules").Index(i), r, t)...)
			}
		}
	}
}

// withheld warns about outputs that the controller does not write.
func (k *Known) withheld(f *Findings, p *paths) {
	for _, w := range k.Withholding.Of(f.Set) {
		path, own := p.translate(fmt.Sprintf("spec.rules[%d].%s", w.Rule.Index, w.Field))
		if !own {
			path = "spec.basedOn"
		}
		f.Warn(path, warning.Dangerous, "not written on nodes: %s", w.Why)
	}
}

// assemble returns the spec with its bases, and the translation of paths. It returns nil and not complete if a base is unknown. A
// base that does not exist or does not match its digest causes a warning, because objects may be applied in any order; a cycle is
// an error.
func (k *Known) assemble(f *Findings, d compose.Document, below string) (whole *nfdv1alpha1.NodeFeatureRuleSpec, p *paths, complete bool) {
	if len(d.Spec.BasedOn) == 0 && below == "" {
		return d.Spec, nil, len(d.Spec.RulesFrom) == 0
	}
	if k.Templates == nil {
		return nil, nil, false
	}
	lookup := k.Templates
	if d.Template { // the object itself may be part of a cycle
		lookup = func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
			if name == d.Name {
				return d.Spec, nil
			}
			return k.Templates(name)
		}
	}
	out, err := compose.AssembleOver(d, below, lookup)
	if err != nil {
		path := field.NewPath("spec", "basedOn")
		missing, digest := new(*compose.MissingError), new(*compose.DigestError)
		nameless := slices.IndexFunc(d.Spec.BasedOn, func(b nfdv1alpha1.Base) bool { return b.Name == "" })
		switch {
		case errors.As(err, missing) && nameless >= 0: // such as a file, of which only assay template knows the rules
			f.Errors = append(f.Errors, field.Required(path.Index(nameless).Child("name"), "write the name of a NodeFeatureRuleTemplate"))
		case errors.As(err, missing) && !k.AllTemplates:
			f.Warn(path.String(), warning.Defect, "%s; it is not among these files, so the rules are checked without it", err)
		case errors.As(err, missing), errors.As(err, digest):
			f.Warn(path.String(), warning.Defect, "%s; the rules wait for it", err)
		default:
			f.Errors = append(f.Errors, field.Invalid(path, names(d.Spec.BasedOn), err.Error()))
		}
		return nil, nil, false
	}
	return out.Spec, newPaths(d.Spec.Rules, out.Spec.Rules, out.RuleBases()), len(out.Spec.RulesFrom) == 0
}

package webhook

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/lint"
)

func (o *Options) reviewRule(ctx context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	object, old, err := decode[nfdv1alpha1.NodeFeatureRule](req)
	if err != nil || object == nil {
		return &verdict{}, err
	}
	v := o.rules(object, old, o.Lint, o.DefaultTemplate)
	o.fits(v, object.Name)
	for _, w := range o.Withholding.Of(v.set) {
		v.warn(v.path(object, w.Rule, w.Field), lint.RankDangerous, "not written on nodes: %s", w.Why)
	}
	if len(v.errs) == 0 && o.Cluster != nil && object.DeletionTimestamp == nil {
		o.aboutNodes(ctx, v, object)
	}
	return v, nil
}

// path returns where an object has a field of a compiled rule; spec.basedOn if the rule came from a base.
func (v *verdict) path(object *nfdv1alpha1.NodeFeatureRule, ref rules.Ref, name string) string {
	for i := range object.Spec.Rules {
		if v.place(i) == ref.Index {
			return fmt.Sprintf("spec.rules[%d].%s", i, name)
		}
	}
	return "spec.basedOn"
}

func (o *Options) reviewTemplate(_ context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	object, old, err := decode[assayv1alpha1.NodeFeatureRuleTemplate](req)
	if err != nil || object == nil {
		return &verdict{}, err
	}
	settings := o.Lint
	settings.Template = true
	asRule := func(t *assayv1alpha1.NodeFeatureRuleTemplate) *nfdv1alpha1.NodeFeatureRule {
		if t == nil {
			return nil
		}
		return &nfdv1alpha1.NodeFeatureRule{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	}
	return o.rules(asRule(object), asRule(old), settings, ""), nil
}

// reviewGroup checks the rules of a group as rules that produce variables only.
func (o *Options) reviewGroup(_ context.Context, req *admissionv1.AdmissionRequest) (*verdict, error) {
	object, old, err := decode[nfdv1alpha1.NodeFeatureGroup](req)
	if err != nil || object == nil {
		return &verdict{}, err
	}
	asRule := func(g *nfdv1alpha1.NodeFeatureGroup) *nfdv1alpha1.NodeFeatureRule {
		if g == nil {
			return nil
		}
		r := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: g.ObjectMeta}
		for _, rule := range g.Spec.Rules {
			r.Spec.Rules = append(r.Spec.Rules, nfdv1alpha1.Rule{
				Name: rule.Name, Vars: rule.Vars, VarsTemplate: rule.VarsTemplate,
				MatchFeatures: rule.MatchFeatures, MatchAny: rule.MatchAny,
			})
		}
		return r
	}
	v := o.rules(asRule(object), asRule(old), o.Lint, "")
	const from, to = "spec.rules[", "spec.featureGroupRules["
	for _, e := range v.errs { // they are copies, see check
		e.Field = strings.Replace(e.Field, from, to, 1)
	}
	for i := range v.warnings {
		v.warnings[i].Path = strings.Replace(v.warnings[i].Path, from, to, 1)
	}
	return v, nil
}

// rules reviews rules, and of an update what is new in it.
func (o *Options) rules(object, old *nfdv1alpha1.NodeFeatureRule, settings lint.Options, below string) *verdict {
	v := o.check(object, settings.Template, below)
	if len(v.errs) > 0 && old != nil {
		v.ratchet(&object.Spec, &old.Spec, o.check(old, settings.Template, below).errs)
	}
	if old != nil && isTrue(old.Spec.Sensitive) && !isTrue(object.Spec.Sensitive) {
		v.errs = append(v.errs, field.Forbidden(field.NewPath("spec", "sensitive"),
			"cannot be taken back: delete the object and create it again"))
	}
	if len(v.errs) == 0 {
		v.warnings = append(v.warnings, lint.Spec(&object.Spec, settings)...)
	}
	return v
}

// decode returns the object of a request and, of an update, its predecessor; both are nil for a deletion.
func decode[T any](req *admissionv1.AdmissionRequest) (object, old *T, err error) {
	if object, err = decodeOne[T](req.Object.Raw); err != nil {
		return nil, nil, fmt.Errorf("decode the %s: %w", req.Kind.Kind, err)
	}
	if object == nil || req.Operation != admissionv1.Update {
		return object, nil, nil
	}
	if old, err = decodeOne[T](req.OldObject.Raw); err != nil {
		return object, nil, nil //nolint:nilerr // an old object that we cannot read grants no exception
	}
	return object, old, nil
}

// decodeOne returns an object, or nil if there is none.
func decodeOne[T any](raw []byte) (*T, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	object := new(T)
	return object, utiljson.Unmarshal(raw, object)
}

func isTrue(b *bool) bool { return b != nil && *b }

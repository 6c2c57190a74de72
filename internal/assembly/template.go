package assembly

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/review"
)

// Template checks whether rules can be based on a template: it combines the template with its own bases and compiles the result.
// Undeclared names are not errors, because rules that are based on the template may declare them. Secrets and ConfigMaps are not
// read.
//
// Errors are not about the template: they mean that the source could not be read.
func (a *Assembler) Template(ctx context.Context, t *assayv1alpha1.NodeFeatureRuleTemplate) (*Object, error) {
	out := &Object{UID: t.UID, Generation: t.Generation, Sensitive: ptr.Deref(t.Spec.Sensitive, false)}
	if out.Refused = a.tooOld(&t.Spec); out.Refused != nil {
		return out, nil //nolint:nilerr // the problem is a part of the object
	}
	d := compose.Document{Name: t.Name, Template: true, Spec: &t.Spec}
	whole := &resolved{spec: &t.Spec}
	if len(t.Spec.BasedOn) > 0 {
		lookup := func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
			spec, err := a.source.Template(ctx, name)
			if apierrors.IsNotFound(err) {
				return nil, nil
			}
			return spec, err
		}
		combined, err := compose.AssembleOver(d, "", lookup)
		if err != nil {
			var problem *Error
			if !errors.As(compositionProblem(err), &problem) {
				return nil, err
			}
			out.Unresolved = problem
			return out, nil
		}
		whole.spec, whole.bases = combined.Spec, combined.RuleBases()
	}
	found := review.Assembled(d, whole.spec, whole.bases, a.opt.known(a.opt.Rules))
	out.Errors, out.Warnings = slices.Concat(found.Errors, found.Inherited), found.Warnings
	out.Rules = Rules{found.Set, whole.spec}
	return out, nil
}

package assembly

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
)

// The reasons of Resolved=False and Accepted=False, besides mistakes in the rules themselves. People alert on them: they do
// not change.
const (
	reasonBase         = "BaseMissing"         // a template does not exist
	reasonDigest       = "DigestMismatch"      // a template is not what it is pinned to
	reasonCycle        = "BaseCycle"           // a template is based on itself
	reasonOrder        = "BaseOrder"           // templates want their bases in orders that contradict one another
	reasonConflict     = "BaseConflict"        // templates cannot be combined because of what a field holds
	reasonLimit        = "TooLarge"            // too deep, too many, too much
	reasonMissing      = "ReferenceMissing"    // a Secret or a ConfigMap, or the key in it, does not exist
	reasonUnreadable   = "ReferenceUnreadable" // it may not be read, or holds something else
	reasonVersion      = "VersionTooOld"       // minimumVersion
	reasonSchema       = "SchemaOutdated"      // the definition lacks fields that the object may need
	reasonDropped      = "FieldsDropped"       // it did when the object was written
	maxReferencedBytes = 1 << 20               // what a Secret or a ConfigMap can hold
)

// RefKind is a kind of objects that rules can refer to.
type RefKind string

// What rules can refer to.
const (
	TemplateRef  RefKind = "NodeFeatureRuleTemplate"
	SecretRef    RefKind = "Secret"
	ConfigMapRef RefKind = "ConfigMap"
)

// Ref is something that rules refer to, whether it exists or not.
type Ref struct {
	Kind RefKind
	Name string
}

// resolved is a spec that refers to nothing any more.
type resolved struct {
	spec      *nfdv1alpha1.NodeFeatureRuleSpec
	keep      *nfdv1alpha1.NodeFeatureRuleSpec // the same without what comes from Secrets
	versions  []string                         // of those Secrets
	sensitive bool                             // some of it comes from a Secret
	refs      []Ref
	origins   []nfdv1alpha1.RuleOrigin
	bases     []string // of each rule, the template that it came from; nil if the object is based on nothing
}

// resolve gathers what an object refers to. The error is a *Problem if that is the user's affair. The result holds the
// references in any case.
func (a *Assembler) resolve(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule) (*resolved, error) {
	out := &resolved{spec: &obj.Spec}
	if err := a.assemble(ctx, obj, out); err != nil {
		return out, err
	}
	return out, a.fetch(ctx, out)
}

// fetch puts what lies in ConfigMaps and Secrets into a spec that has no bases.
func (a *Assembler) fetch(ctx context.Context, out *resolved) error {
	if err := a.templatesFrom(ctx, out); err != nil {
		return err
	}
	out.keep = out.spec
	if err := a.rulesFrom(ctx, out); err != nil {
		return err
	}
	return a.templatesFrom(ctx, out) // of the rules that came from Secrets
}

// hash identifies what came out, for people. What lies in a Secret is not in it: anybody who reads the status could test
// guesses of it.
func (r *resolved) hash(set *rules.RuleSet) string {
	if len(r.versions) == 0 {
		return set.Hash()
	}
	sum := sha256.Sum256([]byte(compose.Digest(r.keep) + "\n" + strings.Join(r.versions, "\n")))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

// assemble combines the object with its bases, and with the template that the administrator has put below all objects.
func (a *Assembler) assemble(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule, out *resolved) error {
	if len(obj.Spec.BasedOn) == 0 && a.opt.DefaultTemplate == "" {
		return nil
	}
	lookup := func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
		out.refs = append(out.refs, Ref{TemplateRef, name})
		spec, err := a.source.Template(ctx, name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return spec, err
	}
	whole, err := compose.AssembleOver(compose.Document{Name: obj.Name, Spec: &obj.Spec}, a.opt.DefaultTemplate, lookup)
	if err != nil {
		return compositionProblem(err)
	}
	out.spec, out.origins, out.bases = whole.Spec, whole.Origins(), whole.RuleBases()
	return nil
}

func compositionProblem(err error) error {
	var (
		missing *compose.MissingError
		digest  *compose.DigestError
		cycle   *compose.CycleError
		order   *compose.OrderError
		limit   *compose.LimitError
		value   *compose.ValueError
	)
	switch {
	case errors.As(err, &missing):
		return &Problem{reasonBase, err.Error()}
	case errors.As(err, &digest):
		return &Problem{reasonDigest, err.Error()}
	case errors.As(err, &cycle):
		return &Problem{reasonCycle, err.Error()}
	case errors.As(err, &order):
		return &Problem{reasonOrder, err.Error()}
	case errors.As(err, &value):
		return &Problem{reasonConflict, err.Error()}
	case errors.As(err, &limit):
		return &Problem{reasonLimit, err.Error()}
	}
	return err
}

// rulesFrom appends the rules that lie in Secrets. What comes out is sensitive: neither status nor Events may repeat it.
func (a *Assembler) rulesFrom(ctx context.Context, out *resolved) error {
	if len(out.spec.RulesFrom) == 0 {
		return nil
	}
	spec := *out.spec // shared with the cache
	spec.Rules, spec.RulesFrom, spec.Sensitive = slices.Clone(spec.Rules), nil, ptr.To(true)
	out.sensitive = true
	for _, from := range out.spec.RulesFrom {
		if from.SecretKeyRef == nil {
			continue
		}
		key := from.SecretKeyRef
		out.refs = append(out.refs, Ref{SecretRef, key.Name})
		secret, err := a.source.Secret(ctx, key.Name)
		if err != nil {
			return a.unreadable(SecretRef, key.Name, err)
		}
		out.versions = append(out.versions, string(secret.UID)+" "+secret.ResourceVersion)
		text, ok := secret.Data[key.Key]
		if !ok {
			return &Problem{reasonMissing, fmt.Sprintf("Secret %s has no key %s", key.Name, key.Key)}
		}
		var more []nfdv1alpha1.Rule
		if err := yaml.UnmarshalStrict(text, &more); err != nil || len(text) > maxReferencedBytes {
			return &Problem{reasonUnreadable, fmt.Sprintf("key %s of Secret %s does not hold a YAML list of rules", key.Key, key.Name)}
		}
		spec.Rules = append(spec.Rules, more...)
	}
	out.spec = &spec
	return nil
}

// templatesFrom puts the text of templates that lie in ConfigMaps into the rules.
func (a *Assembler) templatesFrom(ctx context.Context, out *resolved) error {
	external := func(r nfdv1alpha1.Rule) bool { return r.LabelsTemplateFrom != nil || r.VarsTemplateFrom != nil }
	if !slices.ContainsFunc(out.spec.Rules, external) {
		return nil
	}
	spec := *out.spec
	spec.Rules = slices.Clone(spec.Rules)
	out.spec = &spec
	for i := range spec.Rules {
		r := &spec.Rules[i]
		if err := a.templateFrom(ctx, out, &r.LabelsTemplate, &r.LabelsTemplateFrom); err != nil {
			return err
		}
		if err := a.templateFrom(ctx, out, &r.VarsTemplate, &r.VarsTemplateFrom); err != nil {
			return err
		}
	}
	return nil
}

// templateFrom fetches one template. A rule that has both is left to Compile, which refuses it.
func (a *Assembler) templateFrom(ctx context.Context, out *resolved, text *string, from **nfdv1alpha1.TemplateSource) error {
	if *from == nil || (*from).ConfigMapKeyRef == nil || *text != "" {
		return nil
	}
	key := (*from).ConfigMapKeyRef
	out.refs = append(out.refs, Ref{ConfigMapRef, key.Name})
	cm, err := a.source.ConfigMap(ctx, key.Name)
	if err != nil {
		return a.unreadable(ConfigMapRef, key.Name, err)
	}
	found, ok := cm.Data[key.Key]
	if !ok {
		return &Problem{reasonMissing, fmt.Sprintf("ConfigMap %s has no key %s", key.Name, key.Key)}
	}
	*text, *from = found, nil
	return nil
}

// unreadable says of something that rules refer to why it cannot be had, if that is anybody's affair who reads a status.
func (a *Assembler) unreadable(kind RefKind, name string, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return &Problem{reasonMissing, fmt.Sprintf("%s %s does not exist in namespace %s", kind, name, a.opt.Namespace)}
	case apierrors.IsForbidden(err):
		return &Problem{reasonUnreadable, fmt.Sprintf("the manager may not read %s %s in namespace %s", kind, name, a.opt.Namespace)}
	}
	return err
}

// tooOld refuses rules that need a newer Assay.
func (a *Assembler) tooOld(spec *nfdv1alpha1.NodeFeatureRuleSpec) *Problem {
	if spec.MinimumVersion == nil {
		return nil
	}
	need, err := version.ParseGeneric(*spec.MinimumVersion)
	if err != nil {
		return &Problem{reasonVersion, fmt.Sprintf("minimumVersion %q is not a version", *spec.MinimumVersion)}
	}
	have, err := version.ParseGeneric(a.opt.Version)
	if err != nil || have.AtLeast(need) {
		return nil //nolint:nilerr // a build without a version is a developer's, and newer than all releases
	}
	return &Problem{reasonVersion, fmt.Sprintf("the rules need Assay %s, and this is %s", need, have)}
}

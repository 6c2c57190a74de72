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

// The reasons of Resolved=False and Accepted=False, except for errors in the rules themselves. Users alert on them: do not change
// them.
const (
	reasonBase         = "BaseMissing"         // a template does not exist
	reasonDigest       = "DigestMismatch"      // a template does not match its digest
	reasonCycle        = "BaseCycle"           // a template is based on itself
	reasonOrder        = "BaseOrder"           // templates require contradictory orders of their bases
	reasonConflict     = "BaseConflict"        // templates cannot be combined because of the value of a field
	reasonLimit        = "TooLarge"            // a limit is exceeded
	reasonMissing      = "ReferenceMissing"    // a Secret, a ConfigMap or a key in it does not exist
	reasonUnreadable   = "ReferenceUnreadable" // it cannot be read, or its content is invalid
	reasonVersion      = "VersionTooOld"       // minimumVersion
	reasonDefinition   = "DefinitionNotWhole"  // the definition may lack fields that the object has, or had
	reasonDropped      = "FieldsDropped"       // the definition lacked fields when the object was written
	maxReferencedBytes = 1 << 20               // maximum size of the data of a Secret or ConfigMap
)

// RefKind is a kind of objects to which rules can refer.
type RefKind string

// The kinds of references.
const (
	TemplateRef  RefKind = "NodeFeatureRuleTemplate"
	SecretRef    RefKind = "Secret"
	ConfigMapRef RefKind = "ConfigMap"
)

// Ref is a reference to an object, which may not exist.
type Ref struct {
	Kind RefKind
	Name string
}

// resolved is a spec without references.
type resolved struct {
	spec      *nfdv1alpha1.NodeFeatureRuleSpec
	keep      *nfdv1alpha1.NodeFeatureRuleSpec // the same without content of Secrets
	versions  []string                         // versions of the Secrets
	sensitive bool                             // parts of it come from a Secret
	refs      []Ref
	origins   []nfdv1alpha1.RuleOrigin
	bases     []string // for each rule, the template that it came from; nil if the object has no bases
}

// resolve resolves the references of an object. If the user can fix the error, it is a *Error. The result contains the references
// in any case.
func (a *Assembler) resolve(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule) (*resolved, error) {
	out := &resolved{spec: &obj.Spec}
	if err := a.assemble(ctx, obj, out); err != nil {
		return out, err
	}
	return out, a.fetch(ctx, out)
}

// fetch replaces references to ConfigMaps and Secrets in a spec without bases by their content.
func (a *Assembler) fetch(ctx context.Context, out *resolved) error {
	if err := a.templatesFrom(ctx, out); err != nil {
		return err
	}
	out.keep = out.spec
	if err := a.rulesFrom(ctx, out); err != nil {
		return err
	}
	return a.templatesFrom(ctx, out) // again, for the rules from Secrets
}

// hash returns a hash of the rules for messages. It does not include the content of Secrets, which a reader of the status could
// otherwise guess and verify.
func (r *resolved) hash(set *rules.RuleSet) string {
	if len(r.versions) == 0 {
		return set.Hash()
	}
	sum := sha256.Sum256([]byte(compose.Digest(r.keep) + "\n" + strings.Join(r.versions, "\n")))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

// assemble combines the object with its bases and with the administrator's default template.
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
		return &Error{reasonBase, err.Error()}
	case errors.As(err, &digest):
		return &Error{reasonDigest, err.Error()}
	case errors.As(err, &cycle):
		return &Error{reasonCycle, err.Error()}
	case errors.As(err, &order):
		return &Error{reasonOrder, err.Error()}
	case errors.As(err, &value):
		return &Error{reasonConflict, err.Error()}
	case errors.As(err, &limit):
		return &Error{reasonLimit, err.Error()}
	}
	return err
}

// rulesFrom appends the rules from Secrets. The result is sensitive: status and Events must not contain it.
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
			return &Error{reasonMissing, fmt.Sprintf("Secret %s has no key %s", key.Name, key.Key)}
		}
		var more []nfdv1alpha1.Rule
		if err := yaml.UnmarshalStrict(text, &more); err != nil || len(text) > maxReferencedBytes {
			return &Error{reasonUnreadable, fmt.Sprintf("key %s of Secret %s does not contain a YAML list of rules", key.Key, key.Name)}
		}
		spec.Rules = append(spec.Rules, more...)
	}
	out.spec = &spec
	return nil
}

// templatesFrom sets the templates from ConfigMaps in the rules.
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

// templateFrom reads one template. Compile rejects a rule with both a template and a reference.
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
		return &Error{reasonMissing, fmt.Sprintf("ConfigMap %s has no key %s", key.Name, key.Key)}
	}
	*text, *from = found, nil
	return nil
}

// unreadable returns the reason why a referenced object cannot be read as a *Error, unless the error is temporary.
func (a *Assembler) unreadable(kind RefKind, name string, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return &Error{reasonMissing, fmt.Sprintf("%s %s does not exist in namespace %s", kind, name, a.opt.Namespace)}
	case apierrors.IsForbidden(err):
		return &Error{reasonUnreadable, fmt.Sprintf("the manager may not read %s %s in namespace %s", kind, name, a.opt.Namespace)}
	}
	return err
}

// tooOld rejects rules that require a newer version of Assay.
func (a *Assembler) tooOld(spec *nfdv1alpha1.NodeFeatureRuleSpec) *Error {
	if spec.MinimumVersion == nil {
		return nil
	}
	need, err := version.ParseGeneric(*spec.MinimumVersion)
	if err != nil {
		return &Error{reasonVersion, fmt.Sprintf("invalid minimumVersion %q: use for example 0.2.0", *spec.MinimumVersion)}
	}
	have, err := version.ParseGeneric(a.opt.Version)
	if err != nil || have.AtLeast(need) {
		return nil //nolint:nilerr // a build without a version is a developer's, and newer than all releases
	}
	return &Error{reasonVersion, fmt.Sprintf("the rules need Assay %s, and this is %s", need, have)}
}

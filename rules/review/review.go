// Package review checks objects of Assay's kinds.
//
// The webhook returns the findings, the command line prints them with positions, and the controller writes them to conditions. A
// review depends only on the object and on Known. Checks that need information that Known does not have are skipped.
package review

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/requirements"
	"github.com/assay-project/assay/rules/warning"
)

// Known holds everything that a review depends on in addition to the object. The zero value has no information about a cluster.
type Known struct {
	// Rules are the controller's settings for compiling rules.
	Rules rules.Options
	// Strict reports defects, which NFD drops at run time, as errors.
	Strict bool
	// Withholding defines which outputs the controller does not write.
	Withholding rules.Withholding
	// Templates returns the templates on which rules are based. If it is nil, rules are checked without their bases.
	Templates compose.Lookup
	// AllTemplates is set if Templates knows all templates of the cluster. A template that it does not return is then missing.
	AllTemplates bool
	// DefaultTemplate is the template on which every NodeFeatureRule is based. Empty means none.
	DefaultTemplate string
	// Published reports whether a node of the cluster publishes a feature, by its lower-case name. known is false if this is not
	// known yet. Nil means unknown.
	Published func(feature string) (published, known bool)
	// NoDevices returns why no node of the cluster can have devices of DRA drivers; empty: they can. Nil means unknown.
	NoDevices func() string
	// Namespace is Assay's own, in which the workers publish; empty: unknown.
	Namespace string
	// HasNode reports whether the cluster has a Node of this name. known is false if this is not known yet. Nil means unknown.
	HasNode func(name string) (has, known bool)
	// Labels returns the keys of the labels that a Node of the cluster has or that a rule names. known is false if this is not known yet. Nil
	// means unknown.
	Labels func() (list []string, known bool)
	// Claimed returns the DeviceClass that claims an extended resource, or "". Nil means unknown.
	Claimed func(resource string) string
	// IDs returns the names of PCI and USB IDs. Nil means unknown.
	IDs lint.IDs
	// Tolerations are those of the worker's pods. Nil means unknown, an empty list means no tolerations.
	Tolerations []corev1.Toleration
}

// Findings are the errors and warnings of one object, in a fixed order.
type Findings struct {
	Errors   field.ErrorList
	Warnings []warning.Warning
	// Inherited are errors in rules that the object inherits from its bases. The author of the base must fix them. Warnings
	// contains them too.
	Inherited field.ErrorList
	// Whole is the spec with the known bases. Set contains its compiled rules without those that have errors. Both are nil for
	// kinds without rules.
	Whole *nfdv1alpha1.NodeFeatureRuleSpec
	Set   *rules.RuleSet
	// Complete is set if Whole contains everything that the object refers to.
	Complete bool
	// Over is set if the rules exceed Known.Rules.Room; see rules.Report.
	Over bool
	// Requirements are the compiled requirements of a request, a policy or a pod. They are nil if there are none, or if there are
	// errors.
	Requirements *requirements.Requirements
	// Baseline is a compiled NodeBaseline. It is nil for other kinds, or if there are errors.
	Baseline *baseline.Baseline

	places map[int]int // index of a rule in the object -> index in Set; nil: the indexes are equal
}

// Place returns the index in Set of a rule of the object, or -1 if the rule is not in Set.
func (f *Findings) Place(i int) int {
	if f.places == nil {
		return i
	}
	if n, ok := f.places[i]; ok {
		return n
	}
	return -1
}

// Warn adds a warning.
func (f *Findings) Warn(path string, rank int, format string, args ...any) {
	f.Warnings = append(f.Warnings, warning.Warning{Path: path, Message: fmt.Sprintf(format, args...), Rank: rank})
}

// Review reviews an object: a pointer to a supported kind, or Pods. It does not modify its arguments.
func Review(object any, known Known) Findings {
	switch o := object.(type) {
	case *nfdv1alpha1.NodeFeatureRule:
		return known.rule(o)
	case *assayv1alpha1.NodeFeatureRuleTemplate:
		return known.template(o)
	case *nfdv1alpha1.NodeFeatureGroup:
		return known.group(o)
	case *nfdv1alpha1.NodeFeature:
		return known.feature(o)
	case *assayv1alpha1.NodeFeatureRequest:
		return known.request(o)
	case *assayv1alpha1.NodeFeatureSchedulingPolicy:
		return known.policy(o)
	case *assayv1alpha1.NodeBaseline:
		return known.baseline(o)
	case *assayv1alpha1.NodeFeatureSet, *assayv1alpha1.NodeShape:
		return Findings{} // programs write them: the API server checks their schema
	case *Pods:
		return known.pods(o)
	}
	panic(fmt.Sprintf("review of a %T", object)) // programming error
}

// Text returns an error without its path and its value, which are in the source.
func Text(e *field.Error) string {
	switch {
	case e.Type == field.ErrorTypeDuplicate, e.Detail == "":
		return e.ErrorBody()
	case e.Type == field.ErrorTypeInvalid, e.Type == field.ErrorTypeTypeInvalid, e.Type == field.ErrorTypeRequired, e.Type == field.ErrorTypeForbidden:
		return e.Detail
	}
	return e.ErrorBody()
}

// options returns the options for warnings about rules.
func (k *Known) options() lint.Options {
	return lint.Options{IDs: k.IDs, Tolerations: k.Tolerations}
}

// unpublished warns about features with valid names that no node of the cluster publishes, or that the cluster cannot have.
func (k *Known) unpublished(f *Findings, refs []lint.FeatureRef) {
	warned := map[string]bool{}
	for _, w := range f.Warnings {
		warned[w.Path] = true
	}
	for _, ref := range refs {
		if k.NoDevices != nil && facts.IsDevices(ref.Feature) && !warned[ref.Path] {
			if why := k.NoDevices(); why != "" {
				f.Warn(ref.Path, warning.Suspicious, "no node has %s: %s", ref.Feature, why)
				continue
			}
		}
		if k.Published == nil {
			continue
		}
		if published, known := k.Published(ref.Feature); !known || published || warned[ref.Path] {
			continue
		}
		rank := warning.Suspicious
		if lint.Known(ref.Feature) {
			rank = warning.Unlikely
		}
		f.Warn(ref.Path, rank, "no node of this cluster publishes %s", ref.Feature)
	}
}

// claimed warns about extended resources that a DeviceClass claims: the scheduler gives pods devices of the class only on nodes that do not
// have the resource themselves (KEP-5004).
func (k *Known) claimed(f *Findings, spec *nfdv1alpha1.NodeFeatureRuleSpec) {
	if k.Claimed == nil {
		return
	}
	for i := range spec.Rules {
		for _, name := range facts.SortedKeys(spec.Rules[i].ExtendedResources) {
			class := k.Claimed(k.Rules.Keys.Qualify(name))
			if class == "" {
				continue
			}
			f.Warn(field.NewPath("spec", "rules").Index(i).Child("extendedResources").Key(name).String(), warning.Suspicious,
				"DeviceClass %s claims this resource: on nodes that have it from the rule, pods that request it get no device of the class; use another name", class)
		}
	}
}

// report adds the errors and warnings of a compiler.
func (f *Findings) report(r *rules.Report, known *Known) {
	f.Errors = append(f.Errors, r.Errors...)
	for _, w := range r.Warnings {
		f.compiled(w, known)
	}
}

// compiled adds a warning of a compiler. Under strict admission, defects are errors.
func (f *Findings) compiled(w warning.Warning, known *Known) {
	if w.Defect && known.Strict {
		f.Errors = append(f.Errors, &field.Error{
			Type: field.ErrorTypeForbidden, Field: w.Path, Detail: w.Message + " (admission is strict)",
		})
		return
	}
	f.Warnings = append(f.Warnings, w)
}

func names(bases []nfdv1alpha1.Base) string {
	out := make([]string, len(bases))
	for i := range bases {
		out[i] = bases[i].Name
	}
	return strings.Join(out, ", ")
}

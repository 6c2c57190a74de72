// Package review checks objects of Assay's kinds.
//
// All programs use it: the webhook responds with its findings, the command line prints them with positions, and the
// controller writes them to conditions. A review is a pure function of the object and Known; checks that need
// something that Known lacks are skipped.
package review

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/requirements"
)

// Known is the input of a review in addition to the object. The zero value has no information about a cluster.
type Known struct {
	// Rules are the settings of the controller that rules are compiled under.
	Rules rules.Options
	// Strict turns defects that NFD drops at run time into errors.
	Strict bool
	// Withholding defines which outputs the controller does not write.
	Withholding rules.Withholding
	// Templates returns the templates that rules are based on; nil: none are known, and rules with bases are checked
	// without them.
	Templates compose.Lookup
	// AllTemplates is set if Templates knows every template of the cluster, so that one it does not return is
	// missing.
	AllTemplates bool
	// DefaultTemplate is the template that every NodeFeatureRule is based on; empty: none.
	DefaultTemplate string
	// Published reports whether a node of the cluster publishes a feature, by its name in lower case; known is false
	// while this is unknown. Nil: unknown.
	Published func(feature string) (published, known bool)
	// IDs returns the names of PCI and USB IDs; nil: unknown.
	IDs lint.IDs
	// Tolerations are those of the worker's pods; nil: unknown, an empty list: none.
	Tolerations []corev1.Toleration
}

// Findings are the errors and warnings of one object. They are the same ones in the same order each time.
type Findings struct {
	Errors   field.ErrorList
	Warnings []rules.Warning
	// Inherited are errors in rules that the object inherits from its bases: the author of the base must correct them. The
	// Warnings mention them too.
	Inherited field.ErrorList
	// Whole is the spec with its bases as far as they are known, Set its compiled rules without those that have errors. Both are nil
	// for kinds without rules.
	Whole *nfdv1alpha1.NodeFeatureRuleSpec
	Set   *rules.RuleSet
	// Complete is set if everything that the object refers to is in Whole.
	Complete bool
	// Over is set if the rules exceed the room of Known.Rules, see rules.Report.
	Over bool
	// Requirements are the compiled ones of a request, a policy or a pod; nil if there are none, or errors.
	Requirements *requirements.Requirements

	places map[int]int // index of a rule in the object -> index in the Set; nil: the same
}

// Place returns the index in the Set of a rule of the object, -1 if it is not in the Set.
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
	f.Warnings = append(f.Warnings, rules.Warning{Path: path, Message: fmt.Sprintf(format, args...), Rank: rank})
}

// Review checks an object: a pointer to one of Assay's kinds, or the metadata of Pods. It does not change its arguments.
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
	case *Pods:
		return known.pods(o)
	}
	panic(fmt.Sprintf("review of a %T", object)) // a programming error, which no object can cause
}

// Text returns an error without its path and without the value, which is in the source.
func Text(e *field.Error) string {
	switch {
	case e.Type == field.ErrorTypeDuplicate, e.Detail == "":
		return e.ErrorBody()
	case e.Type == field.ErrorTypeInvalid, e.Type == field.ErrorTypeTypeInvalid, e.Type == field.ErrorTypeRequired, e.Type == field.ErrorTypeForbidden:
		return e.Detail
	}
	return e.ErrorBody()
}

// options returns the settings of warnings about rules.
func (k *Known) options() lint.Options {
	return lint.Options{IDs: k.IDs, Tolerations: k.Tolerations}
}

// unpublished warns about features that no node of the cluster publishes, if their names are otherwise valid.
func (k *Known) unpublished(f *Findings, refs []lint.FeatureRef) {
	if k.Published == nil {
		return
	}
	warned := map[string]bool{}
	for _, w := range f.Warnings {
		warned[w.Path] = true
	}
	for _, ref := range refs {
		if published, known := k.Published(ref.Feature); !known || published || warned[ref.Path] {
			continue
		}
		rank := rules.RankSuspicious
		if lint.Known(ref.Feature) {
			rank = rules.RankUnlikely
		}
		f.Warn(ref.Path, rank, "no node of this cluster publishes %s", ref.Feature)
	}
}

// report adds the findings of a compiler.
func (f *Findings) report(r *rules.Report, known *Known) {
	f.Errors = append(f.Errors, r.Errors...)
	for _, w := range r.Warnings {
		f.compiled(w, known)
	}
}

// compiled adds a warning of a compiler. Under strict admission a defect is an error.
func (f *Findings) compiled(w rules.Warning, known *Known) {
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

package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/glob"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/warning"
)

// Facts are the facts of a node.
type Facts = facts.Facts

// Options are the cluster-wide settings for compiling and evaluating rules. The zero value is the default.
type Options struct {
	// Strict follows NFD where Assay deliberately differs: braces are literal, a template line without = is an error, and
	// back-references see unresolved @ values.
	Strict bool
	// Keys defines which names may be written.
	Keys keys.Policy
	// DefaultScope applies to objects that set neither scope nor nodeSelector, except for built-in ones.
	DefaultScope string
	// DefaultNodeScope is the scope of nodes without the label assay.dev/scope.
	DefaultNodeScope string
	// FeatureSources selects, by namespace/name, the NodeFeatures that rules without featureSources read, except for built-in
	// rules. Nil selects all.
	FeatureSources *regexp.Regexp
	// IgnoreFail makes the action fail report only.
	IgnoreFail bool
	// Mask defines which values rules must not read, even if Strict is set; see Masking.
	Mask Masking
	// BuiltIn marks rules that the administrator installed with the controller. Their priority is not limited, and the default
	// scope does not apply to them.
	BuiltIn bool
	// Bases are the templates that rules of the object came from, by rule index; "" for its own rules. It may be shorter than the
	// list of rules.
	Bases []string
	// Room is the maximum compiled size in bytes if it is less than MaxSize; 0 means MaxSize.
	Room int
	// Custom marks rules of the worker's configuration, which produce only labels and vars.
	Custom bool
}

// Report is the result of Compile for one object.
type Report struct {
	// Errors are in the order of the fields. Rules with errors are omitted from the RuleSet.
	Errors field.ErrorList
	// Warnings are about valid input that is probably not intended, in the order of the fields.
	Warnings []warning.Warning
	// Over reports whether the object exceeds its maximum compiled size. The rules before the one that exceeds it are compiled, and
	// an error reports the limit.
	Over bool
}

// maxWarnings is the maximum number of warnings about one object: a template of 64 KiB in a rule with 64 alternatives could have
// 400,000.
const maxWarnings = 1000

// Undeclared reports whether an error is about an undeclared name. In a template this is not an error: rules based on the template
// may declare the name.
func Undeclared(err *field.Error) bool { return strings.Contains(err.Detail, "unknown name") }

func (r *Report) warn(path *field.Path, rank int, format string, args ...any) {
	if len(r.Warnings) < maxWarnings {
		r.Warnings = append(r.Warnings, warning.Warning{Path: path.String(), Message: fmt.Sprintf(format, args...), Rank: rank})
	}
}

// defect records input that NFD accepts and then drops at run time.
func (r *Report) defect(path *field.Path, format string, args ...any) {
	if len(r.Warnings) < maxWarnings {
		r.Warnings = append(r.Warnings, warning.Warning{
			Path: path.String(), Message: fmt.Sprintf(format, args...), Rank: warning.Defect, Defect: true,
		})
	}
}

func (r *Report) add(errs ...*field.Error) { r.Errors = append(r.Errors, errs...) }

// OK reports whether there were no errors.
func (r *Report) OK() bool { return len(r.Errors) == 0 }

// Masking defines feature values that rules must not compare, read or write, such as passwords and tokens that were published by
// accident. The existence of such an element is not secret: Exists and DoesNotExist match it.
type Masking struct {
	// Mode selects the rules to which masking applies.
	Mode MaskMode
	// Elements are names of elements, with * for any run of characters. Case does not matter. Nil means DefaultMasked.
	Elements []string
}

// MaskMode selects the rules for which values are masked.
type MaskMode string

// The modes of masking. The default is MaskAlways.
const (
	MaskAlways    MaskMode = "always"
	MaskNever     MaskMode = "never"
	MaskSensitive MaskMode = "sensitive" // sensitive rules may read them
)

// DefaultMasked are the elements that are masked by default.
var DefaultMasked = []string{"*password*", "*token*"}

func (m *Masking) applies(sensitive bool) bool {
	switch m.Mode {
	case MaskNever:
		return false
	case MaskSensitive:
		return !sensitive
	}
	return true
}

func (m *Masking) masks(element string) bool {
	patterns := m.Elements
	if patterns == nil {
		patterns = DefaultMasked
	}
	element = strings.ToLower(element)
	for _, p := range patterns {
		if glob.Match(strings.ToLower(p), element) {
			return true
		}
	}
	return false
}

// instances removes masked attributes from the instances of elements. Elements of one feature share one list of instances.
func (m *Masking) instances(elements []match.Element) []match.Element {
	if len(elements) == 0 || !elements[0].Instance.Exists() {
		return elements
	}
	all := elements[0].Instance.List()
	shown := all.Without(m.masks)
	if shown == all {
		return elements
	}
	out := slices.Clone(elements)
	for i := range out {
		if out[i].Instance.Exists() {
			out[i].Instance = shown.Row(out[i].Instance.Index())
		}
	}
	return out
}

// Hidden is shown in place of a masked value.
const Hidden = "(not shown)"

// Hides reports whether the values of an element are hidden from users as well as from rules. Call it before printing facts.
func (m *Masking) Hides(element string) bool { return m.Mode != MaskNever && m.masks(element) }

// Conceal replaces the masked values of features by Hidden, in place.
func (m *Masking) Conceal(f *nfdv1alpha1.Features) {
	conceal := func(elements map[string]string) {
		for name := range elements {
			if m.Hides(name) {
				elements[name] = Hidden
			}
		}
	}
	for _, set := range f.Attributes {
		conceal(set.Elements)
	}
	for _, set := range f.Instances {
		for i := range set.Elements {
			conceal(set.Elements[i].Attributes)
		}
	}
}

// Place returns a path up to the first key that the author chose. The rest of the path of a sensitive rule could contain sensitive
// values.
func Place(path string) string {
	for i := range len(path) - 1 {
		if path[i] == '[' && (path[i+1] < '0' || path[i+1] > '9') {
			return path[:i]
		}
	}
	return path
}

// withheldKey replaces a rejected key of a sensitive rule. Keys that are written to a node are public anyway.
const withheldKey = "(withheld)"

// conceal returns a rejection without sensitive values.
func (s *RuleSet) conceal(r Rejection) Rejection {
	if !s.sensitive {
		return r
	}
	r.Key = withheldKey
	if !r.Missing {
		r.Reason = "no rule may write it"
	}
	return r
}

// concealed returns rejections without sensitive values. It does not change the list, which is shared.
func (s *RuleSet) concealed(list []Rejection) []Rejection {
	if !s.sensitive {
		return list
	}
	out := slices.Clone(list)
	for i := range out {
		out[i] = s.conceal(out[i])
	}
	return out
}

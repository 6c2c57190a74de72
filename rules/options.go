package rules

import (
	"regexp"
	"strings"

	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
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

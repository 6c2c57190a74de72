package rules

import (
	"regexp"
	"strings"

	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// Facts are the facts of a node.
type Facts = facts.Facts

// Options are the cluster-wide settings for compiling and evaluating rules. The zero value is the default.
type Options struct {
	// Strict follows NFD where Assay differs from it on purpose: braces are literal, a template line without = is an
	// error, back-references see unresolved @ values.
	Strict bool
	// Keys defines which names may be written.
	Keys keys.Policy
	// DefaultScope applies to objects that set neither scope nor nodeSelector; built-in ones are exempt.
	DefaultScope string
	// DefaultNodeScope is the scope of nodes that do not carry the label assay.dev/scope.
	DefaultNodeScope string
	// FeatureSources selects, by namespace/name, the NodeFeatures that rules of objects without featureSources read;
	// built-in ones are exempt. Nil: all.
	FeatureSources *regexp.Regexp
	// IgnoreFail reduces the action fail to a report.
	IgnoreFail bool
	// Mask defines which values must not leave the facts, strict or not; see Masking.
	Mask Masking
	// BuiltIn marks rules that the administrator installed with the controller: their priority is not bounded, and the
	// default scope does not apply to them.
	BuiltIn bool
	// Bases are the templates that the rules of the object came from, by their index; "" for its own. May be shorter.
	Bases []string
	// Room is the maximum compiled size in bytes, if it is below that of every object; 0: MaxSize.
	Room int
	// Custom marks rules of the worker's configuration, which produce labels and vars only.
	Custom bool
}

// Report is the result of Compile for one object.
type Report struct {
	// Errors are errors, in the order of the fields. Rules with errors are left out of the RuleSet.
	Errors field.ErrorList
	// Warnings report legal input that is probably not intended, in the order of the fields.
	Warnings []Warning
	// Over reports whether the compiled object exceeds its maximum size. It is then compiled up to the rule that
	// exceeds it, and an error reports this.
	Over bool
}

// maxWarnings is the maximum number of warnings about one object: a template of 64 KiB in a rule of 64 alternatives has 400,000.
const maxWarnings = 1000

// Undeclared reports whether an error is about an undeclared name. In a template that is not an error: the rules that
// are based on it may declare the name.
func Undeclared(err *field.Error) bool { return strings.Contains(err.Detail, "unknown name") }

// Warning reports legal input that is probably not intended.
type Warning struct {
	// Path of the field, such as spec.rules[2].labels[foo].
	Path string
	// Message describes the problem and what to write instead.
	Message string
	// Rank orders warnings if only some can be shown: a lower rank is worse.
	Rank int
	// Defect marks input that NFD would drop silently at run time: strict admission rejects it.
	Defect bool
}

// The ranks of warnings, worst first.
const (
	// RankDangerous is for warnings about input that may take a cluster down.
	RankDangerous = 5
	// RankDefect is for warnings about input that is dropped at run time.
	RankDefect = 10
	// RankSuspicious is for warnings about input that almost certainly has an unintended meaning.
	RankSuspicious = 20
	// RankUnlikely is for warnings about input that may well be correct, and about style.
	RankUnlikely = 30
)

// String returns the path and the message.
func (w Warning) String() string { return w.Path + ": " + w.Message }

func (r *Report) warn(path *field.Path, rank int, format string, args ...any) {
	if len(r.Warnings) >= maxWarnings {
		return
	}
	r.Warnings = append(r.Warnings, Warning{Path: path.String(), Message: fmt.Sprintf(format, args...), Rank: rank})
}

// defect records input that NFD accepts and then drops at run time.
func (r *Report) defect(path *field.Path, format string, args ...any) {
	if len(r.Warnings) >= maxWarnings {
		return
	}
	r.Warnings = append(r.Warnings, Warning{
		Path: path.String(), Message: fmt.Sprintf(format, args...), Rank: RankDefect, Defect: true,
	})
}

func (r *Report) add(errs ...*field.Error) { r.Errors = append(r.Errors, errs...) }

// OK reports whether there were no errors.
func (r *Report) OK() bool { return len(r.Errors) == 0 }

// Package baseline decides which nodes of a set deviate from a NodeBaseline.
//
// It needs no cluster: the controller and the command line give it the inputs of rules, and get the same verdicts.
package baseline

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/warning"
)

// Limits, which the CustomResourceDefinition has too.
const (
	// MaxChecks is the maximum number of entries in require, and in uniform: a set of failing checks is one word.
	MaxChecks = 64
	// MaxWithin is the maximum number of labels in within: node group, instance type, zone and one more.
	MaxWithin = 4
	// MaxBaselines is the maximum number of NodeBaselines of a cluster: each is evaluated on each changed node. The oldest come first.
	MaxBaselines = 100
	// MaxClusterSize is the maximum compiled size of all NodeBaselines of a cluster together, in bytes, as of all rules. The oldest come first.
	MaxClusterSize = rules.MaxClusterSize
)

// Limits on what a status contains: 50 deviations of 300 bytes, and 64 checks with 5 values, take less than 64 kB.
const (
	maxDeviations = 50
	maxValues     = 5
	// maxValue is the maximum number of bytes of a value in a status. Nodes are compared by their whole values.
	maxValue = 63
	// maxMessage is the maximum number of bytes of the message of a deviation.
	maxMessage = 256
)

// Baseline is a compiled NodeBaseline. It is immutable and safe for concurrent use.
type Baseline struct {
	selector labels.Selector    // nil: all nodes
	match    *rules.Requirement // nil: all nodes
	require  []requirement
	uniform  []value
	within   []string
	levels   []Level
	size     int
	reads    []string
}

type requirement struct {
	*rules.Requirement
	name, message string
}

type value struct {
	*rules.Value
	name string
}

// Compile compiles the spec of a NodeBaseline. It returns nil if it adds errors to the report.
func Compile(spec *assayv1alpha1.NodeBaselineSpec, path *field.Path, opt rules.Options) (*Baseline, *rules.Report) {
	c := &compiler{opt: opt, report: &rules.Report{}, out: &Baseline{within: spec.Within}, names: map[string]bool{}}
	c.selection(spec, path)
	c.requirements(spec.Require, path.Child("require"))
	c.values(spec.Uniform, path.Child("uniform"))
	c.labels(spec.Within, path.Child("within"))
	c.levels(spec.Levels, path.Child("levels"))
	c.condition(spec, path)
	if !c.report.OK() {
		return nil, c.report
	}
	slices.Sort(c.out.reads)
	c.out.reads = slices.Compact(c.out.reads)
	return c.out, c.report
}

// Size returns the estimated size of the baseline in bytes; see package rules/lang/size.
func (b *Baseline) Size() int { return b.size }

// Reads returns the names of the features that the baseline reads, sorted.
func (b *Baseline) Reads() []string { return b.reads }

// compiler compiles one baseline.
type compiler struct {
	opt    rules.Options
	report *rules.Report
	out    *Baseline
	names  map[string]bool // of checks
}

func (c *compiler) errors(errs ...*field.Error) { c.report.Errors = append(c.report.Errors, errs...) }

func (c *compiler) selection(spec *assayv1alpha1.NodeBaselineSpec, path *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		value, at := spec.NodeSelector[name], path.Child("nodeSelector").Key(name)
		for _, fault := range validation.IsQualifiedName(name) {
			c.errors(field.Invalid(at, name, fault))
		}
		for _, fault := range validation.IsValidLabelValue(value) {
			c.errors(field.Invalid(at, value, fault))
		}
		c.byRules(at.String(), name)
	}
	if len(spec.NodeSelector) > 0 {
		c.out.selector = labels.SelectorFromValidatedSet(spec.NodeSelector)
	}
	if len(spec.MatchFeatures) > 0 {
		c.out.match = c.requirement(&assayv1alpha1.Requirement{MatchFeatures: spec.MatchFeatures}, path, path.Child("matchFeatures"))
	}
}

// byRules warns about labels that rules or workers write: they are not part of the input of rules.
func (c *compiler) byRules(path, name string) {
	namespace, _, _ := strings.Cut(name, "/")
	if namespace == nfdv1alpha1.FeatureLabelNamespace || namespace == assayv1alpha1.RequestLabelNamespace {
		c.report.Warnings = append(c.report.Warnings, warning.Warning{
			Path: path, Rank: warning.Suspicious,
			Message: fmt.Sprintf("labels that rules write do not count, and %s is likely one; use matchFeatures", name),
		})
	}
}

// requirement compiles a requirement within the remaining budget. Path is the path of its parent, at that for errors of the whole.
func (c *compiler) requirement(in *assayv1alpha1.Requirement, path, at *field.Path) *rules.Requirement {
	if c.report.Over {
		return nil
	}
	opt := c.opt
	opt.Room = max(1, rules.MaxRequirementSize-c.out.size)
	r, report := rules.CompileRequirement(path, in.MatchFeatures, in.MatchAny, in.Conditions, opt)
	c.merge(report)
	if r == nil {
		return nil
	}
	if r.ReadsMatched() {
		c.readsRules(at)
	}
	c.out.size += r.Size()
	c.out.reads = append(c.out.reads, r.Reads()...)
	return r
}

func (c *compiler) merge(r *rules.Report) {
	c.errors(r.Errors...)
	c.report.Warnings = append(c.report.Warnings, r.Warnings...)
	c.report.Over = c.report.Over || r.Over
}

func (c *compiler) readsRules(at *field.Path) {
	c.errors(field.Forbidden(at, "reads "+nfdv1alpha1.RuleMatchedFeature+", which holds outputs of rules; use features only"))
}

// name checks the name of a check.
func (c *compiler) name(at *field.Path, name string) {
	switch {
	case name == "":
		c.errors(field.Required(at, "write a name, such as nic-firmware"))
	case len(validation.IsDNS1035Label(name)) > 0:
		c.errors(field.Invalid(at, clip.Text(name, maxValue), fmt.Sprintf(
			"write up to %d lower-case letters, digits and dashes, with a letter first, such as nic-firmware", validation.DNS1035LabelMaxLength)))
	case c.names[name]:
		c.errors(field.Duplicate(at, name))
	}
	c.names[name] = true
}

func (c *compiler) requirements(list []assayv1alpha1.BaselineRequirement, path *field.Path) {
	if len(list) > MaxChecks {
		c.errors(field.TooMany(path, len(list), MaxChecks))
		return
	}
	for i := range list {
		in, at := &list[i], path.Index(i)
		c.name(at.Child("name"), in.Name)
		if len(in.MatchFeatures)+len(in.MatchAny)+len(in.Conditions) == 0 {
			c.errors(field.Required(at, "write matchFeatures, matchAny or conditions"))
			continue
		}
		if r := c.requirement(&in.Requirement, at, at); r != nil {
			c.out.require = append(c.out.require, requirement{Requirement: r, name: in.Name, message: in.Message})
		}
	}
}

func (c *compiler) values(list []assayv1alpha1.BaselineValue, path *field.Path) {
	if len(list) > MaxChecks {
		c.errors(field.TooMany(path, len(list), MaxChecks))
		return
	}
	for i := range list {
		in, at := &list[i], path.Index(i)
		c.name(at.Child("name"), in.Name)
		if c.report.Over {
			return
		}
		opt := c.opt
		opt.Room = max(1, rules.MaxRequirementSize-c.out.size)
		v, report := rules.CompileValue(at.Child("value"), in.Value, opt)
		c.merge(report)
		if v == nil {
			continue
		}
		if v.ReadsMatched() {
			c.readsRules(at.Child("value"))
		}
		c.out.size += v.Size()
		c.out.reads = append(c.out.reads, v.Reads()...)
		c.out.uniform = append(c.out.uniform, value{Value: v, name: in.Name})
	}
}

func (c *compiler) labels(list []string, path *field.Path) {
	if len(list) > MaxWithin {
		c.errors(field.TooMany(path, len(list), MaxWithin))
		return
	}
	for i, name := range list {
		for _, fault := range validation.IsQualifiedName(name) {
			c.errors(field.Invalid(path.Index(i), name, fault))
		}
		if slices.Contains(list[:i], name) {
			c.errors(field.Duplicate(path.Index(i), name))
		}
		c.byRules(path.Index(i).String(), name)
	}
}

// condition checks spec.nodeCondition.
func (c *compiler) condition(spec *assayv1alpha1.NodeBaselineSpec, path *field.Path) {
	if spec.NodeCondition == "" {
		return
	}
	at := path.Child("nodeCondition")
	if verdict := c.opt.Keys.ConditionType(spec.NodeCondition); !verdict.OK() {
		c.errors(field.Invalid(at, clip.Text(spec.NodeCondition, maxMessage), verdict.Message()))
	}
	if len(spec.Require) == 0 {
		c.errors(field.Forbidden(at, "the condition reports what require says, and there is none; add require, or remove nodeCondition"))
	}
}

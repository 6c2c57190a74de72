package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/lang/args"
	"github.com/assay-project/assay/rules/lang/condition"
	"github.com/assay-project/assay/rules/lang/expr"
	"github.com/assay-project/assay/rules/lang/match"
	"github.com/assay-project/assay/rules/lang/size"
	"github.com/assay-project/assay/rules/suggest"
	"github.com/assay-project/assay/rules/warning"
)

// Limits on one object. They repeat the CRD's limits for rules that do not pass through an API server.
const (
	// MaxRules is the maximum number of rules in an object: enough for any catalog of devices, and few enough for a person to
	// review.
	MaxRules = 256
	// MaxTerms is the maximum number of terms, alternatives, conditions or actions of a rule.
	MaxTerms = 64
	// MaxOutputs is the maximum number of labels, annotations, variables or resources of a rule.
	MaxOutputs = 256
	// MaxPriority is the maximum priority of a user's object; higher priorities are reserved for built-in rules.
	MaxPriority = 9999
)

// lowestPriority is the priority of labels that NodeFeatures request directly.
const lowestPriority = -1 << 31

// Compile compiles an object. The RuleSet is never nil: it omits rules with errors and keeps the others. An error in a field that
// all rules share removes all rules. The report for an object is always the same.
func Compile(obj *nfdv1alpha1.NodeFeatureRule, opt Options) (*RuleSet, *Report) {
	return CompileSpec(obj.Name, &obj.Spec, opt)
}

// CompileSpec compiles a spec with the given object name. See Compile. The spec must not be modified later.
func CompileSpec(name string, spec *nfdv1alpha1.NodeFeatureRuleSpec, opt Options) (*RuleSet, *Report) {
	report := &Report{}
	c := newCompiler(&opt, report, MaxSize)
	c.object = name
	set := c.settings(spec)
	usable := report.OK()
	path := field.NewPath("spec", "rules")
	if len(spec.Rules) > MaxRules {
		report.add(field.TooMany(path, len(spec.Rules), MaxRules))
		usable = false
	}
	for i := range spec.Rules[:min(len(spec.Rules), MaxRules)] {
		before := len(report.Errors)
		r := c.rule(path.Index(i), i, &spec.Rules[i])
		if c.size.Over() {
			report.Errors = append(report.Errors[:before], tooLarge(path.Index(i), c.limit))
			break // later rules are left out too
		}
		if len(report.Errors) == before && usable {
			r.set = set
			set.rules = append(set.rules, r)
		}
	}
	c.duplicates(path, spec.Rules)
	if set.size, report.Over = c.size.Used(), c.size.Over(); report.Over {
		set.size = c.limit // independent of the position of the cut
	}
	return set, report
}

// settings compiles the fields that the rules of an object share.
func (c *compiler) settings(spec *nfdv1alpha1.NodeFeatureRuleSpec) *RuleSet {
	path := field.NewPath("spec")
	set := &RuleSet{
		Name: c.object, BuiltIn: c.opt.BuiltIn,
		priority:  ptr.Deref(spec.Priority, 0),
		sensitive: ptr.Deref(spec.Sensitive, false),
		hash:      sync.OnceValue(func() string { return hashSpec(spec) }), // a review needs none
	}
	c.sensitive = set.sensitive
	set.phase = c.phase(path.Child("phase"), ptr.Deref(spec.Phase, ""))
	c.phaseNumber = set.phase
	if (set.priority < 0 || set.priority > MaxPriority) && !c.opt.BuiltIn {
		c.report.add(field.Invalid(path.Child("priority"), set.priority,
			fmt.Sprintf("must be between 0 and %d; higher priorities are reserved for built-in rules", MaxPriority)))
	}
	c.selection(path, set, spec)
	return set
}

func (c *compiler) phase(path *field.Path, phase nfdv1alpha1.Phase) int {
	switch phase {
	case "", nfdv1alpha1.PhaseMain:
		return phaseMain
	case nfdv1alpha1.PhaseEarly:
		return phaseEarly
	case nfdv1alpha1.PhasePreprocess:
		return phasePreprocess
	}
	known := []string{string(nfdv1alpha1.PhaseEarly), string(nfdv1alpha1.PhasePreprocess), string(nfdv1alpha1.PhaseMain)}
	err := field.NotSupported(path, phase, known)
	if near := suggest.NearestFold(string(phase), known, maxPhaseTypo); near != "" {
		err.Detail = fmt.Sprintf("did you mean %s? %s", near, err.Detail)
	}
	c.report.add(err)
	return phaseMain
}

// maxPhaseTypo is one more than the number of letters by which a phase may differ from the one that an error suggests.
const maxPhaseTypo = 3

// selection compiles the fields that select nodes and publishers.
func (c *compiler) selection(path *field.Path, set *RuleSet, spec *nfdv1alpha1.NodeFeatureRuleSpec) {
	set.scope = ptr.Deref(spec.Scope, "")
	if spec.Scope == nil && spec.NodeSelector == nil && !c.opt.BuiltIn {
		set.scope = c.opt.DefaultScope
	}
	if len(validation.IsValidLabelValue(set.scope)) > 0 {
		c.report.add(field.Invalid(path.Child("scope"), set.scope, fmt.Sprintf("a scope is the value of a label: at most %d letters, digits, "+
			"'-', '_' and '.', of which the first and the last are letters or digits", validation.LabelValueMaxLength)))
	}
	if spec.NodeSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(spec.NodeSelector)
		if err != nil {
			c.report.add(field.Invalid(path.Child("nodeSelector"), "", err.Error()))
		} else if !selector.Empty() {
			set.selector = selector
		}
	}
	if pattern := ptr.Deref(spec.FeatureSources, ""); pattern != "" {
		re, err := size.Compile(pattern, c.size)
		if err != nil {
			c.report.add(field.Invalid(path.Child("featureSources"), clip.Text(pattern, maxShown), regexpFault(err)))
			return
		}
		set.sources = &publishers{pattern: re}
	} else if c.opt.FeatureSources != nil && !c.opt.BuiltIn {
		set.sources = &publishers{pattern: c.opt.FeatureSources}
	}
}

func regexpFault(err error) string {
	return strings.TrimPrefix(err.Error(), "error parsing regexp: ")
}

// rule compiles one rule. Use the result only if no error was added to the report.
func (c *compiler) rule(path *field.Path, index int, in *nfdv1alpha1.Rule) *rule {
	r := &rule{ref: Ref{Object: c.object, Rule: in.Name, Index: index}, keys: &c.opt.Keys}
	if index < len(c.opt.Bases) {
		r.ref.Base = c.opt.Bases[index]
	}
	if in.Name == "" {
		c.report.add(field.Required(path.Child("name"), "a rule must have a name"))
	}
	if !c.size.Take(ruleSize(in)) {
		return r
	}
	c.limits(path, in)
	c.mode = c.expressionMode(path, in.Expressions)
	c.matchers(path, r, in)
	c.scope = c.newScope(r, in)
	c.loop(path, r, in.Loop)
	c.conditions(path.Child("conditions"), r, in.Conditions)
	c.outputs(path, r, in)
	c.actions(path.Child("actions"), r, in.Actions)
	c.templates(path, r, in)
	c.forbidOutputs(path, in)
	c.finish(r)
	return r
}

func (c *compiler) limits(path *field.Path, in *nfdv1alpha1.Rule) {
	limit := func(name string, n, most int) {
		if n > most {
			c.report.add(field.TooMany(path.Child(name), n, most))
		}
	}
	limit("matchFeatures", len(in.MatchFeatures), MaxTerms)
	limit("matchAny", len(in.MatchAny), MaxTerms)
	limit("conditions", len(in.Conditions), MaxTerms)
	limit("actions", len(in.Actions), MaxTerms)
	limit("taints", len(in.Taints), MaxTerms)
	limit("nodeConditions", len(in.NodeConditions), MaxNodeConditions)
	limit("labels", len(in.Labels), MaxOutputs)
	limit("annotations", len(in.Annotations), MaxOutputs)
	limit("vars", len(in.Vars), MaxOutputs)
	limit("extendedResources", len(in.ExtendedResources), MaxOutputs)
}

func (c *compiler) expressionMode(path *field.Path, mode nfdv1alpha1.ExpressionMode) expr.Mode {
	m, err := expr.ParseMode(string(mode))
	if err != nil {
		c.report.add(field.NotSupported(path.Child("expressions"), mode, []nfdv1alpha1.ExpressionMode{
			nfdv1alpha1.ExpressionsAuto, nfdv1alpha1.ExpressionsStrict, nfdv1alpha1.ExpressionsDisabled,
		}))
	}
	if c.opt.Strict {
		return expr.Disabled
	}
	return m
}

func (c *compiler) matchers(path *field.Path, r *rule, in *nfdv1alpha1.Rule) {
	if len(in.MatchFeatures) > 0 {
		r.features = c.matcher(path.Child("matchFeatures"), in.MatchFeatures)
	}
	for i, alternative := range in.MatchAny {
		r.any = append(r.any, c.matcher(path.Child("matchAny").Index(i).Child("matchFeatures"), alternative.MatchFeatures))
	}
}

func (c *compiler) matcher(path *field.Path, terms nfdv1alpha1.FeatureMatcher) *match.Matcher {
	opt := match.Options{Strict: c.opt.Strict, Patterns: &c.patterns}
	if c.opt.Mask.applies(c.sensitive) {
		opt.Masked = c.opt.Mask.masks
	}
	m, errs := match.Compile(path, Terms(terms), opt)
	c.report.add(errs...)
	if m == nil {
		return nil
	}
	c.report.Warnings = append(c.report.Warnings, m.Warnings()...)
	return m
}

// Terms converts the terms of the API to those of package match, which share their expressions.
func Terms(in nfdv1alpha1.FeatureMatcher) []match.Term {
	out := make([]match.Term, len(in))
	for i, term := range in {
		out[i] = match.Term{Feature: term.Feature, Name: term.MatchName}
		if term.MatchExpressions != nil {
			out[i].HasExpressions, out[i].Expressions = true, *term.MatchExpressions
		}
	}
	return out
}

// outputs compiles the maps and the lists of a rule.
func (c *compiler) outputs(path *field.Path, r *rule, in *nfdv1alpha1.Rule) {
	r.vars = c.variables(path, in.Vars)
	r.labels = c.assignments(path, keys.Label, in.Labels, r)
	if c.opt.Custom {
		c.ignoreOnNodes(path, in)
		return
	}
	r.annotations = c.assignments(path, keys.Annotation, in.Annotations, r)
	r.resources = c.assignments(path, keys.Resource, in.ExtendedResources, r)
	for i, t := range in.Taints {
		c.taint(path.Child("taints").Index(i), r, t)
	}
	for i := range in.NodeConditions {
		c.nodeCondition(path.Child("nodeConditions").Index(i), r, &in.NodeConditions[i])
	}
}

// ignoreOnNodes warns about outputs that a rule in the worker's configuration cannot have: a worker publishes labels and does not
// write to Nodes.
func (c *compiler) ignoreOnNodes(path *field.Path, in *nfdv1alpha1.Rule) {
	ignored := func(name string, n int) {
		if n > 0 {
			c.report.warn(path.Child(name), warning.Defect, "ignored in the worker's configuration; write a NodeFeatureRule")
		}
	}
	ignored("annotations", len(in.Annotations))
	ignored("extendedResources", len(in.ExtendedResources))
	ignored("taints", len(in.Taints))
	ignored("nodeConditions", len(in.NodeConditions))
}

func (c *compiler) taint(path *field.Path, r *rule, t corev1.Taint) {
	key := c.text(path.Child("key"), t.Key, expr.Strict)
	value := c.text(path.Child("value"), t.Value, expr.Strict)
	if key == nil || value == nil {
		return
	}
	if key.IsLiteral() && value.IsLiteral() {
		t.Key, t.Value = literal(key), literal(value)
		if verdict := r.keys.Taint(t); !verdict.OK() {
			c.report.defect(path, "%s", verdict.Message())
			r.rejected = append(r.rejected, Rejection{Kind: keys.Taint, Key: t.Key, Reason: verdict.Message()})
			return
		}
	}
	r.taints = append(r.taints, taint{key: key, value: value, effect: t.Effect})
}

// nodeCondition compiles a condition of the Node. NFD has none, so that every error is one.
func (c *compiler) nodeCondition(path *field.Path, r *rule, in *nfdv1alpha1.NodeCondition) {
	n := nodeCondition{
		kind: c.text(path.Child("type"), in.Type, expr.Strict), status: c.text(path.Child("status"), in.Status, expr.Strict),
		reason: c.text(path.Child("reason"), in.Reason, expr.Strict), message: c.text(path.Child("message"), in.Message, expr.Free),
	}
	ok := n.kind != nil
	if ok && n.kind.IsLiteral() {
		if verdict := r.keys.ConditionType(literal(n.kind)); !verdict.OK() {
			c.report.add(field.Invalid(path.Child("type"), in.Type, verdict.Message()))
			ok = false
		}
	}
	// Each part alone: one may be computed while another is wrong on every node, and several may be wrong.
	const valid = "example.com/Valid"
	for i, part := range n.parts() {
		if part == nil {
			ok = false
			continue
		}
		if !part.IsLiteral() {
			continue
		}
		said := [3]string{string(corev1.ConditionTrue)}
		said[i] = literal(part)
		if verdict := (&keys.Policy{}).Condition(valid, keys.FormatCondition(said[0], said[1], said[2])); !verdict.OK() {
			name := []string{"status", "reason", "message"}[i]
			c.report.add(field.Invalid(path.Child(name), said[i], strings.Replace(verdict.Message(), valid, clip.Text(in.Type, maxShown), 1)))
			ok = false
		}
	}
	if ok {
		r.nodeConditions = append(r.nodeConditions, n)
	}
}

// forbidOutputs rejects outputs that the phase of a rule cannot write.
func (c *compiler) forbidOutputs(path *field.Path, in *nfdv1alpha1.Rule) {
	if c.phaseNumber == phaseMain {
		return
	}
	forbid := func(name string, present bool) {
		if present {
			c.report.add(field.Forbidden(path.Child(name),
				"rules in this phase can only derive features and vars; use phase main to write to nodes"))
		}
	}
	forbid("labels", len(in.Labels) > 0)
	forbid("labelsTemplate", in.LabelsTemplate != "")
	forbid("annotations", len(in.Annotations) > 0)
	forbid("taints", len(in.Taints) > 0)
	forbid("nodeConditions", len(in.NodeConditions) > 0)
	forbid("extendedResources", len(in.ExtendedResources) > 0)
}

func (c *compiler) templates(path *field.Path, r *rule, in *nfdv1alpha1.Rule) {
	both := func(name string, text string, from *nfdv1alpha1.TemplateSource) {
		if text != "" && from != nil {
			c.report.add(field.Forbidden(path.Child(name+"From"), "set either this or "+name+", not both"))
		}
	}
	both("labelsTemplate", in.LabelsTemplate, in.LabelsTemplateFrom)
	both("varsTemplate", in.VarsTemplate, in.VarsTemplateFrom)
	r.labelsTemplate = c.template(path.Child("labelsTemplate"), in.LabelsTemplate, in)
	r.templateReferences = c.templateReferences(in.LabelsTemplate)
	r.varsTemplate = c.template(path.Child("varsTemplate"), in.VarsTemplate, in)
}

// duplicates warns about two rules with the same name. They are valid, as in NFD, and existing files contain them.
func (c *compiler) duplicates(path *field.Path, list []nfdv1alpha1.Rule) {
	first := make(map[string]int, len(list))
	for i := range list {
		name := list[i].Name
		at, seen := first[name]
		if !seen {
			first[name] = i
			continue
		}
		if name != "" {
			c.report.warn(path.Index(i).Child("name"), warning.Unlikely, "rules[%d] has the name %q already; messages cannot distinguish them", at, name)
		}
	}
}

// hashSpec returns a hash of what is evaluated of a spec: its description changes no outcome, and NFD's definition drops it.
func hashSpec(spec *nfdv1alpha1.NodeFeatureRuleSpec) string {
	evaluated := *spec
	evaluated.Description = nil
	data, err := json.Marshal(&evaluated)
	if err != nil {
		return "" // only for args that are not JSON, which the decoder rejects
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:8])
}

// newScope returns the names that the expressions of a rule may use.
func (c *compiler) newScope(r *rule, in *nfdv1alpha1.Rule) *expr.Scope {
	for name := range in.Vars {
		c.open = c.open || strings.ContainsAny(name, "{}")
		c.declared[name] = true
	}
	for _, a := range in.Actions {
		name, literal := declaredBy(a)
		if name != "" {
			c.declared[name] = true
		}
		c.open = c.open || !literal
	}
	c.open = c.open || in.VarsTemplate != "" || in.VarsTemplateFrom != nil
	return &expr.Scope{
		Vars:     c.declared,
		Open:     c.open,
		Metadata: c.phaseNumber != phaseEarly,
		Item:     in.Loop != nil,
		Matched:  r.features != nil || len(r.any) > 0,
	}
}

// declaredBy returns the variable that an action sets, and whether its name is literal.
func declaredBy(a nfdv1alpha1.Action) (name string, literal bool) {
	if a.Op != "set-var" && a.Op != "extend-var" {
		return "", true
	}
	var args struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(a.Args.Raw, &args) != nil {
		return "", false
	}
	return args.Name, !strings.ContainsAny(args.Name, "{}")
}

// loop compiles the loop of a rule. A rule with a loop evaluates its conditions for each item.
func (c *compiler) loop(path *field.Path, r *rule, raw *nfdv1alpha1.JSON) {
	if raw == nil {
		return
	}
	outside := *c.scope
	outside.Item = false
	a := &args.Compiler{Mode: c.mode, Scope: &outside, Size: c.size}
	r.loop = a.Loop(path.Child("loop"), raw)
	c.collect(a)
}

func (c *compiler) conditions(path *field.Path, r *rule, list []nfdv1alpha1.Condition) {
	a := &args.Compiler{Mode: c.mode, Scope: c.scope, Size: c.size}
	for i := range list {
		r.conditions = append(r.conditions, condition.Compile(a, path.Index(i), list[i]))
	}
	c.collect(a)
}

// collect adds the errors and warnings of an argument compiler to the report.
func (c *compiler) collect(a *args.Compiler) {
	c.report.add(a.Errors...)
	c.report.Warnings = append(c.report.Warnings, a.Warnings[:min(len(a.Warnings), max(0, maxWarnings-len(c.report.Warnings)))]...)
}

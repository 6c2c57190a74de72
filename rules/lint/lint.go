// Package lint reports rules that are valid but certainly not intended. It does not need a cluster.
//
// False warnings teach users to ignore all warnings, so lint does not warn about anything that a working rule could contain. It
// warns about an unknown name only if a known name is similar, or if only Assay publishes features in its domain.
package lint

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/warning"
)

// IDs returns names of PCI and USB IDs. IDs are lower-case hexadecimal numbers.
type IDs interface {
	PCIVendor(vendor string) (string, bool)
	PCIDevice(vendor, device string) (string, bool)
	PCIClass(class string) (string, bool)
	USBVendor(vendor string) (string, bool)
	USBDevice(vendor, device string) (string, bool)
}

// Options configure the warnings. The zero value is the default.
type Options struct {
	// Template marks the rules of a template. Rules that are based on it may add what is missing.
	Template bool
	// Group marks the rules of a NodeFeatureGroup, which have no outputs.
	Group bool
	// IDs adds names to the IDs in warnings. With nil, there are no names and fewer warnings.
	IDs IDs
	// Tolerations are those of the worker's pods, which a NoExecute taint could evict. Nil means unknown, an empty list means no
	// tolerations.
	Tolerations []corev1.Toleration
}

// linter collects the warnings about one object.
type linter struct {
	Options
	spec *nfdv1alpha1.NodeFeatureRuleSpec
	out  []warning.Warning
}

func (l *linter) warn(path *field.Path, rank int, format string, args ...any) {
	l.out = append(l.out, warning.Warning{Path: path.String(), Message: fmt.Sprintf(format, args...), Rank: rank})
}

// Spec returns the warnings about rules. The order of the warnings is fixed.
func Spec(spec *nfdv1alpha1.NodeFeatureRuleSpec, o Options) []warning.Warning {
	l := &linter{Options: o, spec: spec}
	l.selector()
	path := field.NewPath("spec", "rules")
	for i := range spec.Rules {
		l.rule(path.Index(i), &spec.Rules[i])
	}
	l.conflicts()
	return l.out
}

// Matchers returns the warnings about matchFeatures, matchAny and conditions alone, for example of a NodeFeatureRequest. path is the path of
// their parent.
func Matchers(path *field.Path, r *nfdv1alpha1.Rule, o Options) []warning.Warning {
	l := &linter{Options: o, spec: &nfdv1alpha1.NodeFeatureRuleSpec{}}
	eachTerm(path, r, func(at place, t *nfdv1alpha1.FeatureMatcherTerm) { l.term(at, r, t) })
	l.conditions(ruleSpot(path), r.Conditions, "")
	return l.out
}

// FeatureRef is a reference to a feature in a rule.
type FeatureRef struct{ Feature, Path string }

// Features returns the features that the matchers of the rules read, without duplicates, each with its first path.
func Features(spec *nfdv1alpha1.NodeFeatureRuleSpec) []FeatureRef {
	var out []FeatureRef
	seen := map[string]bool{nfdv1alpha1.RuleMatchedFeature: true}
	path := field.NewPath("spec", "rules")
	for i := range spec.Rules {
		out = append(out, unseenFeatures(path.Index(i), &spec.Rules[i], seen)...)
	}
	return out
}

// RuleFeatures returns the features that the matchers of one rule read. path is the path of the rule.
func RuleFeatures(path *field.Path, r *nfdv1alpha1.Rule) []FeatureRef {
	return unseenFeatures(path, r, map[string]bool{nfdv1alpha1.RuleMatchedFeature: true})
}

// unseenFeatures returns the features that are not in seen, and adds them.
func unseenFeatures(path *field.Path, r *nfdv1alpha1.Rule, seen map[string]bool) []FeatureRef {
	var out []FeatureRef
	eachTerm(path, r, func(at place, t *nfdv1alpha1.FeatureMatcherTerm) {
		if name := strings.ToLower(t.Feature); !seen[name] {
			seen[name] = true
			out = append(out, FeatureRef{name, at.path().Child("feature").String()})
		}
	})
	return out
}

// place is the place of a term in a rule, or of an expression in the term. Its path is built only for a warning: most rules have none.
type place struct {
	rule              *field.Path
	alternative, term int // alternative is -1 in matchFeatures
	expression        bool
	key               string // of matchExpressions
}

func (p place) path() *field.Path {
	path := p.rule
	if p.alternative >= 0 {
		path = path.Child("matchAny").Index(p.alternative)
	}
	path = path.Child("matchFeatures").Index(p.term)
	if p.expression {
		path = path.Child("matchExpressions").Key(p.key)
	}
	return path
}

// value returns the path of a value of an expression.
func (p place) value(i int) *field.Path { return p.path().Child("value").Index(i) }

// eachTerm calls f for every term of a rule with its place.
func eachTerm(path *field.Path, r *nfdv1alpha1.Rule, f func(place, *nfdv1alpha1.FeatureMatcherTerm)) {
	for i := range r.MatchFeatures {
		f(place{rule: path, alternative: -1, term: i}, &r.MatchFeatures[i])
	}
	for i := range r.MatchAny {
		for j := range r.MatchAny[i].MatchFeatures {
			f(place{rule: path, alternative: i, term: j}, &r.MatchAny[i].MatchFeatures[j])
		}
	}
}

// selector warns about a nodeSelector on labels that rules write: it is evaluated without these labels and selects no nodes.
func (l *linter) selector() {
	s := l.spec.NodeSelector
	if s == nil {
		return
	}
	keys := facts.SortedKeys(s.MatchLabels)
	for _, e := range s.MatchExpressions {
		keys = append(keys, e.Key)
	}
	for _, key := range keys {
		if ns, _, ok := strings.Cut(key, "/"); ok && (ns == nfdv1alpha1.FeatureLabelNamespace || strings.HasSuffix(ns, "."+nfdv1alpha1.FeatureLabelNamespace)) {
			l.warn(field.NewPath("spec", "nodeSelector"), warning.Suspicious,
				"rules cannot select nodes by labels that rules write; match the feature instead of %s", key)
		}
	}
}

func (l *linter) rule(path *field.Path, r *nfdv1alpha1.Rule) {
	eachTerm(path, r, func(at place, t *nfdv1alpha1.FeatureMatcherTerm) { l.term(at, r, t) })
	l.everyNode(path, r)
	l.noOutput(path, r)
	l.language(path, r)
	l.taints(path, r)
	l.templateData(path, "labelsTemplate", r.LabelsTemplate)
	l.templateData(path, "varsTemplate", r.VarsTemplate)
	for _, m := range []struct {
		field  string
		values map[string]string
	}{{"labels", r.Labels}, {"annotations", r.Annotations}, {"extendedResources", r.ExtendedResources}} {
		for _, key := range facts.SortedKeys(m.values) {
			if !strings.Contains(m.values[key], "@") {
				continue
			}
			at := ruleSpot(path).child(m.field).entry(key)
			switch ref, whole := strings.CutPrefix(m.values[key], "@"); {
			case whole && m.field == "annotations" && wholeReference.MatchString(m.values[key]):
				l.literal(at, m.values[key], "annotations are written as they are, with the @")
			case whole && m.field != "annotations":
				l.reference(at, m.values[key], ref)
			default:
				l.references(at, m.values[key])
			}
		}
	}
	for i, c := range r.NodeConditions {
		at := ruleSpot(path).child("nodeConditions").index(i)
		l.references(at.child("status"), c.Status)
		l.references(at.child("reason"), c.Reason)
		l.references(at.child("message"), c.Message)
		if wholeReference.MatchString(c.Message) {
			l.literal(at.child("message"), c.Message, "messages are written as they are, with the @")
		}
	}
}

// literal warns about a string that is a reference but is not replaced with its value.
func (l *linter) literal(at spot, text, why string) {
	before := len(l.out)
	if l.reference(at, text, text[1:]); len(l.out) > before { // what it refers to does not exist either
		l.out[before].Message = why + ", unless it is in braces; " + l.out[before].Message
		return
	}
	l.advise(at.path, warning.Suspicious, at.fix("{"+text+"}"), "%s: write %q", why, "{"+text+"}")
}

// expression matches {expressions} without strings in braces, and reference an @domain.feature.element in one; an instance such as
// @pci.device[0].vendor does not match.
var (
	expression     = regexp.MustCompile(`\{[^{}]*\}`)
	reference      = regexp.MustCompile(`@[A-Za-z]+\.[A-Za-z_]+\.[A-Za-z0-9_]+\(?`)
	wholeReference = regexp.MustCompile(`^@[a-z]+\.[a-z_]+\.[A-Za-z0-9_.]+$`)
)

// references warns about references in the expressions of a string.
func (l *linter) references(at spot, value string) {
	for _, e := range expression.FindAllString(value, -1) {
		for _, ref := range reference.FindAllString(e, -1) {
			if !strings.HasSuffix(ref, "(") { // a function of the whole feature, such as @pci.device.len()
				l.reference(at, value, ref[1:])
			}
		}
		l.instances(at, value, e)
	}
}

// wholeName matches lookups of a feature by its whole name, such as index . "kernel.version".
var wholeName = regexp.MustCompile(`\bindex\s+[.$]\s+"([a-z]+\.[a-z]+)"`)

// templateData warns about a lookup of a feature by its whole name: template data contains domains, which contain features.
func (l *linter) templateData(rule *field.Path, name, source string) {
	if !strings.Contains(source, "index") {
		return // to search for a pattern takes much longer
	}
	for _, m := range wholeName.FindAllStringSubmatch(source, -1) {
		if Known(m[1]) {
			l.warn(rule.Child(name), warning.Defect,
				"the data of a template has no key %q: .%s is the list of what matched, for {{range .%s}}", m[1], m[1], m[1])
		}
	}
}

// hasMatcher reports whether the rule has a matcher or condition.
func hasMatcher(r *nfdv1alpha1.Rule) bool {
	if len(r.MatchFeatures) > 0 || len(r.Conditions) > 0 {
		return true
	}
	for _, e := range r.MatchAny {
		if len(e.MatchFeatures) == 0 {
			return false // an empty alternative always holds
		}
	}
	return len(r.MatchAny) > 0
}

// everyNode warns about a rule that sets the same literal outputs on all nodes, which carry no information. Computed outputs differ
// between nodes and cause no warning.
func (l *linter) everyNode(path *field.Path, r *nfdv1alpha1.Rule) {
	if hasMatcher(r) || l.Template || r.Name == "*" || len(l.spec.BasedOn) > 0 || l.spec.NodeSelector != nil || l.spec.Scope != nil {
		return
	}
	if len(r.Taints) > 0 {
		l.warn(path, warning.Dangerous, "the rule has no matcher: it taints every node")
		return
	}
	if l.Group {
		l.warn(path, warning.Suspicious, "the rule has no matcher: every node is in the group")
		return
	}
	if r.Loop != nil || !static(r.Labels) || !static(r.ExtendedResources) || !static(r.Annotations) {
		return
	}
	if len(r.Labels)+len(r.ExtendedResources)+len(r.Annotations) > 0 {
		l.warn(path, warning.Suspicious, "the rule has no matcher: it matches every node and gives all nodes the same output")
	}
}

// noOutput warns about a rule without outputs and without variables that other rules could match.
func (l *linter) noOutput(path *field.Path, r *nfdv1alpha1.Rule) {
	if l.Template || l.Group || r.Name == "*" || len(l.spec.BasedOn) > 0 {
		return
	}
	if r.Labels != nil || r.Annotations != nil || r.Taints != nil || r.NodeConditions != nil || r.ExtendedResources != nil || r.Vars != nil || r.Actions != nil ||
		r.LabelsTemplate != "" || r.VarsTemplate != "" || r.LabelsTemplateFrom != nil || r.VarsTemplateFrom != nil {
		return
	}
	l.warn(path, warning.Suspicious, "the rule has no output and does nothing; add labels, annotations, taints, extendedResources, nodeConditions, vars or actions")
}

// static reports whether all values are the same on every node.
func static(values map[string]string) bool {
	for k, v := range values {
		if strings.HasPrefix(v, "@") || strings.Contains(v, "{") || strings.Contains(k, "{") {
			return false
		}
	}
	return true
}

// taints warns about taints that evict the worker, which must run for the taint to be removed.
func (l *linter) taints(path *field.Path, r *nfdv1alpha1.Rule) {
	for i := range r.Taints {
		t := &r.Taints[i]
		if t.Effect == corev1.TaintEffectNoExecute && l.Tolerations != nil && !l.tolerated(t) {
			l.warn(path.Child("taints").Index(i), warning.Dangerous,
				"NoExecute evicts Assay's own worker too: add a toleration of %s to worker.tolerations", t.Key)
		}
	}
}

func (l *linter) tolerated(t *corev1.Taint) bool {
	for i := range l.Tolerations {
		w := &l.Tolerations[i]
		keys := w.Key == "" && w.Operator == corev1.TolerationOpExists || w.Key == t.Key
		value := w.Operator == corev1.TolerationOpExists || w.Value == t.Value
		if keys && value && (w.Effect == "" || w.Effect == t.Effect) {
			return true
		}
	}
	return false
}

package desired

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// State is what a key of a Node is compared with what rules give.
type State string

// The states. The first five are those of keys that rules give, the others those of keys that only the Node has.
const (
	Written   State = "Written"   // the Node has the desired value
	Missing   State = "Missing"   // the Node lacks the key
	Different State = "Different" // the Node has another value
	Withheld  State = "Withheld"  // a setting keeps it from Nodes
	Unknown   State = "Unknown"   // the Node is not known
	Kept      State = "Kept"      // the controller wrote it, and nothing gives it now
	Own       State = "Assay"     // Assay writes it without a rule
	Foreign   State = "Foreign"   // another client has set it
)

// Describe returns how a Node differs that has another value or none; empty: it does not, as far as is known.
func (s State) Describe(has string) string {
	switch s {
	case Missing:
		return "the Node does not have it"
	case Different:
		return "the Node has " + has + " instead"
	}
	return ""
}

// Comparison is a Node compared with what rules give. What has to wait is not considered.
type Comparison struct {
	settings Settings
	node     *corev1.Node
	plan     *plan.Plan // nil: the Node is not known
	recorded []Recorded
}

// Compare compares a Node with what rules give, also if one of them rejects the node. The Node can be nil.
func (s *Settings) Compare(node *corev1.Node, out Outputs) *Comparison {
	c := &Comparison{settings: *s, node: node}
	if node != nil {
		out.Failed = nil
		c.plan, c.recorded = s.Plan(node, out, Others{Loss: s.LossOn(node)}), s.Recorded(node)
	}
	return c
}

// Given returns the state of a key that rules give, and what the Node has if it is Different. Why is set if it is Withheld.
func (c *Comparison) Given(kind keys.Kind, key string) (state State, has, why string) {
	if why = c.settings.Withholding.Withholds(kind); why != "" {
		return Withheld, "", why
	}
	if c.plan == nil {
		return Unknown, "", ""
	}
	step, left := c.plan.Leaves(kind, key)
	if !left {
		step, _ = c.plan.Step(kind, key)
	}
	switch step.Op {
	case plan.Add:
		return Missing, "", ""
	case plan.Change:
		return Different, step.Old, ""
	}
	return Written, "", ""
}

// Leaves reports whether a key keeps the value of another client, although rules give another one.
func (c *Comparison) Leaves(kind keys.Kind, key string) bool {
	if c.plan == nil {
		return false
	}
	step, left := c.plan.Leaves(kind, key)
	return left && step.Op == plan.Change
}

// Found returns the state of a key of the Node that rules do not give, and the instance of the controller that has written it.
func (c *Comparison) Found(kind keys.Kind, key string) (state State, instance string) {
	if kind == keys.Annotation && Bookkeeping(key) || kind == keys.Condition && key == assayv1alpha1.FeaturesReadyCondition {
		return Own, ""
	}
	i := slices.IndexFunc(c.recorded, func(r Recorded) bool { return r.Kind == kind && r.Key == key })
	switch {
	case i < 0:
		return Foreign, ""
	case c.settings.beyondRules(kind, key):
		return Own, c.recorded[i].Instance
	}
	return Kept, c.recorded[i].Instance
}

// Step returns what the controller would do with a key if nothing had to wait, and whether it would do anything.
func (c *Comparison) Step(kind keys.Kind, key string) (s plan.Step, found bool) {
	if c.plan == nil {
		return s, false
	}
	return c.plan.Step(kind, key)
}

// Differences returns the changes that the Node lacks, in the order of plans. It leaves out keys that the controller writes without a rule.
func (c *Comparison) Differences() (out []plan.Step) {
	if c.plan == nil {
		return nil
	}
	for _, s := range c.plan.Steps {
		own := s.Mark || s.Op == plan.Remove && c.settings.beyondRules(s.Kind, s.Key)
		if !own && s.Op != plan.Adopt && s.Op != plan.Forget && c.settings.Withholding.Withholds(s.Kind) == "" {
			out = append(out, s)
		}
	}
	return out
}

// beyondRules reports whether the controller writes a key without a rule: the labels of requests, and its own taints.
func (s *Settings) beyondRules(kind keys.Kind, key string) bool {
	switch kind {
	case keys.Label:
		return strings.HasPrefix(key, assayv1alpha1.RequestLabelNamespace+"/")
	case keys.Taint:
		return slices.ContainsFunc([]*corev1.Taint{s.FailTaint, s.LossTaint}, func(t *corev1.Taint) bool { return t != nil && keys.TaintName(*t) == key })
	}
	return false
}

// Recorded is a key that an instance of the controller has recorded on a Node as its own.
type Recorded struct {
	Kind     keys.Kind
	Key      string
	Instance string
}

// records are the annotations in which an instance of the controller records its keys, by their kind, without the instance.
var records = map[keys.Kind]string{
	keys.Taint: nfdv1alpha1.TaintsAnnotation,
	keys.Label: nfdv1alpha1.FeatureLabelsAnnotation, keys.Annotation: nfdv1alpha1.FeatureAnnotationsAnnotation,
	keys.Resource: nfdv1alpha1.ExtendedResourcesAnnotation, keys.Condition: assayv1alpha1.NodeConditionsAnnotation,
}

// instanceOf returns the instance whose record of a kind an annotation is.
func instanceOf(annotation, base string) (instance string, ok bool) {
	prefix, found := strings.CutSuffix(annotation, base)
	instance, dotted := strings.CutSuffix(prefix, ".")
	return instance, found && (prefix == "" || dotted)
}

// Recorded returns the keys that instances of the controller have recorded on a Node as their own.
func (s *Settings) Recorded(node *corev1.Node) (out []Recorded) {
	for _, name := range facts.SortedKeys(node.Annotations) {
		for kind, base := range records {
			instance, ok := instanceOf(name, base)
			if !ok {
				continue
			}
			if kind == keys.Taint {
				for _, t := range plan.ParseTaints(node.Annotations[name]) {
					out = append(out, Recorded{kind, keys.TaintName(t), instance})
				}
				continue
			}
			r := plan.Record{Instance: instance, Bare: s.Policy.Record.Bare}
			for _, key := range r.Parse(node.Annotations[name]) {
				if key != assayv1alpha1.FeaturesReadyCondition { // no rule sets it
					out = append(out, Recorded{kind, key, instance})
				}
			}
		}
	}
	return out
}

// Bookkeeping reports whether an annotation of a Node is one in which the controller stores what it needs itself.
func Bookkeeping(annotation string) bool {
	if annotation == assayv1alpha1.FailedAnnotation || annotation == assayv1alpha1.FeaturesGenerationAnnotation {
		return true
	}
	for _, base := range records {
		if _, ok := instanceOf(annotation, base); ok {
			return true
		}
	}
	return false
}

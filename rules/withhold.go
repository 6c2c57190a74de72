package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
)

// Withholding holds the settings of the controller that prevent outputs from being written to nodes. The zero value withholds
// nothing.
type Withholding struct {
	// All corresponds to the setting noPublish: nothing is written to nodes.
	All bool
	// Taints are withheld unless enableTaints is set. The others are restrictions.
	Taints, Labels, Annotations, ExtendedResources bool
	// Losses withholds the taints of nodes that lost features, which no rule writes. They are withheld unless lossTaint is set.
	Losses bool
}

// Withheld describes a kind of outputs of an object that is not written.
type Withheld struct {
	// Reason is the reason of the Withheld condition.
	Reason string
	// Rule is the first rule with such outputs, Field their field, such as taints or actions[1], and More the number of other rules
	// with such outputs.
	Rule  Ref
	Field string
	More  int
	// Why is the setting that withholds the outputs.
	Why string

	outputs string
}

// String describes which outputs are withheld and why.
func (w Withheld) String() string {
	which := fmt.Sprintf("rule %q", w.Rule.Rule) + clip.More(" ", w.More)
	return fmt.Sprintf("%s of %s are not written: %s", w.outputs, which, w.Why)
}

// The reasons of the Withheld condition. Users alert on them: do not change them.
const (
	reasonPublishing  = "PublishingDisabled"
	reasonTaints      = "TaintsDisabled"
	reasonLabels      = "LabelsDisabled"
	reasonAnnotations = "AnnotationsDisabled"
	reasonResources   = "ExtendedResourcesDisabled"
	reasonLosses      = "LossTaintDisabled"
)

// withholdings are the settings that withhold outputs, in the order of their conditions.
var withholdings = []struct {
	reason, outputs string
	roots           []string // first elements of the paths of actions
	setting         func(*Withholding) *bool
	why             string
}{
	{reasonPublishing, "the outputs", []string{"taints", "labels", "annotations", "extendedResources", "nodeConditions"}, func(w *Withholding) *bool { return &w.All },
		"publishing is disabled; unset noPublish in the controller's configuration"},
	{reasonTaints, "taints", []string{"taints"}, func(w *Withholding) *bool { return &w.Taints },
		"taints are disabled; set enableTaints in the controller's configuration"},
	{reasonLabels, "labels", []string{"labels"}, func(w *Withholding) *bool { return &w.Labels },
		"labels are disabled; unset disableLabels in the controller's configuration"},
	{reasonAnnotations, "annotations", []string{"annotations"}, func(w *Withholding) *bool { return &w.Annotations },
		"annotations are disabled; unset disableAnnotations in the controller's configuration"},
	{reasonResources, "extended resources", []string{"extendedResources"}, func(w *Withholding) *bool { return &w.ExtendedResources },
		"extended resources are disabled; unset disableExtendedResources in the controller's configuration"},
}

// Of returns which outputs of compiled rules are withheld, at most one entry per setting. The set may be nil.
func (w Withholding) Of(set *RuleSet) (out []Withheld) {
	if set == nil {
		return nil
	}
	for _, x := range withholdings {
		if !*x.setting(&w) || w.All && len(out) > 0 {
			continue
		}
		found := Withheld{Reason: x.reason, Why: x.why, outputs: x.outputs}
		for _, r := range set.rules {
			field := r.writes(x.roots, set.phase)
			switch {
			case field == "":
			case found.Field == "":
				found.Rule, found.Field = r.ref, field
			default:
				found.More++
			}
		}
		if found.Field != "" {
			out = append(out, found)
		}
	}
	return out
}

// Withholds returns why an output of this kind is not written to nodes, or "" if it is.
func (w Withholding) Withholds(kind keys.Kind) string {
	root := map[keys.Kind]string{keys.Taint: "taints", keys.Label: "labels", keys.Annotation: "annotations", keys.Resource: "extendedResources", keys.Condition: "nodeConditions"}[kind]
	for _, x := range withholdings {
		if *x.setting(&w) && slices.Contains(x.roots, root) {
			return x.why
		}
	}
	return ""
}

// Loss returns why the taints of nodes that lost features are not written, with the reason of the Withheld condition; both are
// empty if they are.
func (w Withholding) Loss() (reason, why string) {
	switch {
	case w.All:
		return reasonPublishing, w.Withholds(keys.Taint)
	case w.Losses:
		return reasonLosses, "the administrator has not set lossTaint in the controller's configuration"
	}
	return "", ""
}

// Read adds the setting that a Withheld condition reports.
func (w *Withholding) Read(reason, message string) {
	for _, x := range withholdings {
		if reason == x.reason || strings.Contains(message, x.why) {
			*x.setting(w) = true
		}
	}
}

// writes returns the first field of the rule that writes to one of these parts of the Node, or "". In early phases only actions
// write.
func (r *rule) writes(roots []string, phase int) string {
	if phase == phaseMain {
		for _, part := range []struct {
			root, field string
			written     bool
		}{
			{"taints", "taints", len(r.taints) > 0},
			{"labels", "labels", len(r.labels) > 0},
			{"labels", "labelsTemplate", r.labelsTemplate != nil},
			{"annotations", "annotations", len(r.annotations) > 0},
			{"extendedResources", "extendedResources", len(r.resources) > 0},
			{"nodeConditions", "nodeConditions", len(r.nodeConditions) > 0},
		} {
			if part.written && slices.Contains(roots, part.root) {
				return part.field
			}
		}
	}
	if phase == phaseEarly {
		return ""
	}
	for i, a := range r.actions {
		if root, _ := a.Output(); slices.Contains(roots, root) {
			return fmt.Sprintf("actions[%d]", i)
		}
	}
	return ""
}

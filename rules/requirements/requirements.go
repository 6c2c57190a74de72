// Package requirements compiles the requirements and preferences of pods on their nodes.
//
// A pod has up to three sources of requirements, and must meet all of them: its own annotations, a NodeFeatureRequest that it
// refers to, and the NodeFeatureSchedulingPolicies that select it.
package requirements

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// Limits on the requirements of one pod or object. Limits on each requirement are in package rules.
const (
	// MaxPreferred is the maximum number of preferences of one object. Each one is evaluated on all nodes when it is first used.
	MaxPreferred = 32
	// MaxWeight is the maximum weight of a preference, as in node affinity.
	MaxWeight = 100
)

// Spec holds requirements and preferences as written.
type Spec = assayv1alpha1.PodRequirements

// Key identifies the content of a requirement: requirements with equal keys hold on the same nodes.
type Key [sha256.Size]byte

// Requirement is one compiled requirement with its identity. It is immutable and safe for concurrent use.
type Requirement struct {
	*rules.Requirement
	Key Key
	// Origin describes the source for messages: an annotation, a request or a policy.
	Origin string
}

// Preference is a preferred requirement and its weight.
type Preference struct {
	*Requirement
	Weight int32
}

// Requirements holds all requirements and preferences of a pod. It is immutable and safe for concurrent use. A nil *Requirements has
// none.
type Requirements struct {
	// Required are the requirements that a node must meet.
	Required []*Requirement
	// Preferred are the preferences that a node should meet.
	Preferred []Preference
	// StaleAfter is the age in seconds after which features count as unknown; 0 means never. StaleOrigin is the source of this
	// setting.
	StaleAfter  int64
	StaleOrigin string
}

// Reads returns the features that the requirements and preferences read, some of them more than once.
func (a *Requirements) Reads() (out []string) {
	if a == nil {
		return nil
	}
	for _, r := range a.Required {
		out = append(out, r.Reads()...)
	}
	for _, p := range a.Preferred {
		out = append(out, p.Reads()...)
	}
	return out
}

// Compile compiles the requirements and preferences of one object. Paths in the report begin with path. It returns nil if there are
// errors.
func Compile(spec *Spec, path *field.Path, origin string, opt rules.Options) (*Requirements, *rules.Report) {
	reqs, report := &Requirements{}, &rules.Report{}
	if spec.Required != nil {
		p := path.Child("required")
		if r := compile(reqs, spec.Required, p, origin, opt, report); r != nil {
			reqs.Required = append(reqs.Required, r)
		}
	}
	compilePreferred(reqs, spec.Preferred, path.Child("preferred"), origin, opt, report)
	if !report.OK() {
		return nil, report
	}
	return reqs, report
}

func compilePreferred(reqs *Requirements, list []assayv1alpha1.Preference, path *field.Path, origin string, opt rules.Options, report *rules.Report) {
	if len(list) > MaxPreferred {
		report.Errors = append(report.Errors, field.TooMany(path, len(list), MaxPreferred))
		return
	}
	for i := range list {
		p := path.Index(i)
		if w := list[i].Weight; w < 1 || w > MaxWeight {
			report.Errors = append(report.Errors, field.Invalid(p.Child("weight"), w, fmt.Sprintf("must be 1 to %d", MaxWeight)))
		}
		if r := compile(reqs, &list[i].Requirement, p, origin, opt, report); r != nil {
			reqs.Preferred = append(reqs.Preferred, Preference{Requirement: r, Weight: list[i].Weight})
		}
		if report.Over {
			return // later preferences would exceed the budget too
		}
	}
}

// compile compiles a requirement within the remaining budget.
func compile(reqs *Requirements, in *assayv1alpha1.Requirement, path *field.Path, origin string, opt rules.Options, report *rules.Report) *Requirement {
	if len(in.MatchFeatures) == 0 && len(in.MatchAny) == 0 && len(in.Conditions) == 0 {
		report.Errors = append(report.Errors, field.Required(path,
			"write matchFeatures, matchAny or conditions, or remove it"))
		return nil
	}
	opt.Room = max(1, rules.MaxRequirementSize-reqs.Size())
	r, sub := rules.CompileRequirement(path, in.MatchFeatures, in.MatchAny, in.Conditions, opt)
	report.Errors = append(report.Errors, sub.Errors...)
	report.Warnings = append(report.Warnings, sub.Warnings...)
	report.Over = report.Over || sub.Over
	if r == nil {
		return nil
	}
	return &Requirement{Requirement: r, Key: KeyOf(in), Origin: origin}
}

// KeyOf returns the key of a requirement: the hash of its JSON with sorted maps.
func KeyOf(in *assayv1alpha1.Requirement) Key {
	data, err := json.Marshal(in)
	if err != nil {
		// Encoding fails only for invalid raw JSON, which decoders reject.
		data = fmt.Appendf(nil, "%#v", in)
	}
	return sha256.Sum256(data)
}

// Join combines the requirements and preferences of several sources, without duplicate requirements. It returns nil if there are
// none.
func Join(all ...*Requirements) *Requirements {
	var out *Requirements
	for _, a := range all {
		if a == nil || a.Empty() {
			continue
		}
		if out == nil {
			out = &Requirements{}
		}
		for _, r := range a.Required {
			if !slices.ContainsFunc(out.Required, func(have *Requirement) bool { return have.Key == r.Key }) {
				out.Required = append(out.Required, r)
			}
		}
		out.Preferred = append(out.Preferred, a.Preferred...)
		if a.StaleAfter > 0 && (out.StaleAfter == 0 || a.StaleAfter < out.StaleAfter) {
			out.StaleAfter, out.StaleOrigin = a.StaleAfter, a.StaleOrigin
		}
	}
	return out
}

// Empty reports whether there are no requirements, preferences or other settings.
func (a *Requirements) Empty() bool {
	return a == nil || len(a.Required) == 0 && len(a.Preferred) == 0 && a.StaleAfter == 0
}

// Size returns the estimated size of the compiled requirements in bytes; see package rules/lang/size.
func (a *Requirements) Size() int {
	n := 0
	if a == nil {
		return n
	}
	for _, r := range a.Required {
		n += r.Size()
	}
	for _, p := range a.Preferred {
		n += p.Size()
	}
	return n
}

// Hash identifies the requirements, independent of their order and origin. A pod keeps the hash from its creation. Hash returns ""
// if there are no requirements.
func (a *Requirements) Hash() string {
	if a == nil || len(a.Required) == 0 {
		return ""
	}
	keys := make([]string, len(a.Required))
	for i, r := range a.Required {
		keys[i] = string(r.Key[:])
	}
	slices.Sort(keys)
	h := sha256.New()
	for _, k := range keys {
		h.Write([]byte(k))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

package imagespec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// ErrNoRequirement is the error of Requirement if every node meets the sets.
var ErrNoRequirement = errors.New("every node meets the image's requirements")

// Requirement returns the requirement that holds on the same nodes as the sets: their alternatives, multiplied out. Weights are not in
// it. The error says why there is none.
func Requirement(sets []*Set) (*assayv1alpha1.Requirement, error) {
	if len(sets) == 0 {
		return nil, ErrNoRequirement
	}
	var all []nfdv1alpha1.FeatureMatcher
	var common nfdv1alpha1.FeatureMatcher
	for _, s := range sets {
		if err := s.plain(); err != nil {
			return nil, err
		}
		always, alternatives, err := s.alternatives()
		if err != nil {
			return nil, err
		}
		if len(sets) == 1 {
			common = always
		} else {
			for i := range alternatives {
				alternatives[i] = append(always[:len(always):len(always)], alternatives[i]...)
			}
		}
		all = append(all, alternatives...)
	}
	if len(all) > rules.MaxTerms {
		return nil, tooMany(len(all))
	}
	out := &assayv1alpha1.Requirement{MatchFeatures: common}
	if slices.ContainsFunc(all, func(terms nfdv1alpha1.FeatureMatcher) bool { return len(terms) == 0 }) {
		if len(common) == 0 {
			return nil, ErrNoRequirement
		}
		all = nil // an alternative without terms always holds
	}
	for _, terms := range all {
		out.MatchAny = append(out.MatchAny, nfdv1alpha1.MatchAnyElem{MatchFeatures: terms})
	}
	for _, terms := range append(all, common) {
		if len(terms) > rules.MaxTerms {
			return nil, fmt.Errorf("a set has %d terms together: a NodeFeatureRequest has at most %d", len(terms), rules.MaxTerms)
		}
	}
	return out, nil
}

func tooMany(n int) error {
	return fmt.Errorf("the sets have %d alternatives when their matchAny are multiplied out: a NodeFeatureRequest has at most %d; choose sets with --tags", n, rules.MaxTerms)
}

// plain returns an error if a rule reads the vars of another one: a requirement has no vars.
func (s *Set) plain() error {
	reads := func(terms nfdv1alpha1.FeatureMatcher) bool {
		for i := range terms {
			if strings.EqualFold(terms[i].Feature, nfdv1alpha1.RuleMatchedFeature) {
				return true
			}
		}
		return false
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		any := reads(r.MatchFeatures)
		for j := range r.MatchAny {
			any = any || reads(r.MatchAny[j].MatchFeatures)
		}
		if any {
			return fmt.Errorf("rule %q of %s reads %s: a NodeFeatureRequest has no vars", r.Name, s.Title(), nfdv1alpha1.RuleMatchedFeature)
		}
	}
	return nil
}

// alternatives returns the terms that must all hold, and the alternatives of which one must hold as well: every combination of the
// rules' matchAny. There is always one, which may be empty.
func (s *Set) alternatives() (always nfdv1alpha1.FeatureMatcher, all []nfdv1alpha1.FeatureMatcher, err error) {
	all = []nfdv1alpha1.FeatureMatcher{nil}
	for i := range s.Rules {
		r := &s.Rules[i]
		always = append(always, r.MatchFeatures...)
		if len(r.MatchAny) == 0 {
			continue
		}
		if n := len(all) * len(r.MatchAny); n > rules.MaxTerms {
			return nil, nil, tooMany(n)
		}
		var next []nfdv1alpha1.FeatureMatcher
		for _, before := range all {
			for j := range r.MatchAny {
				next = append(next, append(before[:len(before):len(before)], r.MatchAny[j].MatchFeatures...))
			}
		}
		all = next
	}
	return always, all, nil
}

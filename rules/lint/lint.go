// Package lint finds what is legal in rules but surely not meant. It needs no cluster.
package lint

import (
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Warning is about something legal but probably not meant.
type Warning struct {
	// Path of the field, such as spec.rules[2].labels[foo].
	Path string
	// Message says what is wrong and what to write instead.
	Message string
	// Rank orders warnings where only some can be shown: lower is worse.
	Rank int
	// Defect marks what NFD would drop at run time without a word.
	Defect bool
}

// String returns the path and the message.
func (w Warning) String() string { return w.Path + ": " + w.Message }

// The ranks, worst first.
const (
	// RankDangerous is about what may take a cluster down.
	RankDangerous = 5
	// RankDefect is about what is dropped at run time.
	RankDefect = 10
	// RankSuspicious is about what surely means something else.
	RankSuspicious = 20
	// RankUnlikely is about what may well be right.
	RankUnlikely = 30
)

// Options are what the warnings depend on. The zero value is useful.
type Options struct {
	// Template marks rules that others build upon: what is missing in them may be added there.
	Template bool
}

// Spec returns the warnings about the rules, in the order of the fields.
func Spec(spec *nfdv1alpha1.NodeFeatureRuleSpec, o Options) []Warning { return nil }

// FeatureRef is a place where a rule names a feature.
type FeatureRef struct{ Feature, Path string }

// Features lists the features that the rules read.
func Features(spec *nfdv1alpha1.NodeFeatureRuleSpec) []FeatureRef { return nil }

// Known reports whether the feature is one that Assay itself publishes.
func Known(feature string) bool { return false }

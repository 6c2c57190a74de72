//go:build linux

package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/test/scale/fleet"
)

// ownFeature holds the attribute that changes.
const ownFeature = "faults.own"

// content returns what the worker of a node publishes.
func content(n fleet.Node, value string) publish.Content {
	flags := map[string]nfdv1alpha1.Nil{}
	for _, name := range []string{"AVX", "AVX2", "AESNI", "SSE42"} {
		flags[name] = nfdv1alpha1.Nil{}
	}
	return publish.Content{Features: nfdv1alpha1.Features{
		Flags: map[string]nfdv1alpha1.FlagFeatureSet{"cpu.cpuid": {Elements: flags}},
		Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{
			"system.name": {Elements: map[string]string{"nodename": n.Name}},
			ownFeature:    {Elements: map[string]string{"value": value}},
		},
	}}
}

// model is the state that the Nodes must converge to. It is safe for concurrent use.
type model struct {
	mu      sync.Mutex
	facts   map[string]int // by node
	edit    int            // number of edits of the rule "edit"
	extra   map[int]bool   // rules that exist beside it; a number is used once
	last    int            // of these numbers
	removed map[string]bool
}

func newModel() *model {
	return &model{facts: map[string]int{}, extra: map[int]bool{}, removed: map[string]bool{}}
}

// isRemoved reports whether the rule that gives a key has been deleted.
func (m *model) isRemoved(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.removed[key]
}

// fact changes the fact of a node, and returns its new value.
func (m *model) fact(node string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.facts[node]++
	return strconv.Itoa(m.facts[node])
}

// want returns the wanted keys of each Node.
func (m *model) want() map[string]map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]map[string]string, len(m.facts))
	for node, value := range m.facts {
		keys := map[string]string{
			"label " + prefix + "value": strconv.Itoa(value), "label " + prefix + "avx": "true", "annotation " + prefix + "note": "x",
			"extended resource " + prefix + "units": "4", "taint " + prefix + "closed:NoSchedule": "yes", "label " + prefix + "edit": strconv.Itoa(m.edit),
		}
		for n := range m.extra {
			keys["label "+extraKey(n)] = "true"
		}
		all[node] = keys
	}
	return all
}

func extraKey(n int) string { return fmt.Sprintf("%sextra-%d", prefix, n) }

// factRule returns the rules that give keys of all kinds.
func factRule() *nfdv1alpha1.NodeFeatureRule {
	return &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: "facts"},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{
			{
				Name: "value", Labels: map[string]string{prefix + "value": "@" + ownFeature + ".value"},
				MatchFeatures: exists(ownFeature, "value"),
			},
			{
				Name: "avx", Labels: map[string]string{prefix + "avx": "true"}, Annotations: map[string]string{prefix + "note": "x"},
				ExtendedResources: map[string]string{prefix + "units": "4"},
				Taints:            []corev1.Taint{{Key: prefix + "closed", Value: "yes", Effect: corev1.TaintEffectNoSchedule}},
				MatchFeatures:     exists("cpu.cpuid", "AVX"),
			},
		}},
	}
}

// editRule returns the rule that is edited, as of now.
func (m *model) editRule() *nfdv1alpha1.NodeFeatureRule {
	return labelRule("edit", prefix+"edit", strconv.Itoa(m.edit))
}

// labelRule returns a rule that gives a label to all nodes.
func labelRule(name, label, value string) *nfdv1alpha1.NodeFeatureRule {
	return &nfdv1alpha1.NodeFeatureRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{
			Name: name, Labels: map[string]string{label: value}, MatchFeatures: exists("cpu.cpuid", "AVX2"),
		}}},
	}
}

func exists(feature, element string) nfdv1alpha1.FeatureMatcher {
	return nfdv1alpha1.FeatureMatcher{{
		Feature: feature, MatchExpressions: &nfdv1alpha1.MatchExpressionSet{element: {Op: nfdv1alpha1.MatchExists}},
	}}
}

// extraName returns the name of the rule with a number.
func extraName(n int) string { return strings.TrimPrefix(extraKey(n), prefix) }

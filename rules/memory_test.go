package rules_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/suite"
	"github.com/assay-project/assay/test/bench"
)

// TestCacheAgreesWithEval lets the features of nodes change at random and compares what a cache that has seen it all says
// with a fresh evaluation.
func TestCacheAgreesWithEval(t *testing.T) {
	for _, size := range []int{10, 100} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			program, cache := benchProgram(t, size), rules.NewCache()
			random := rand.New(rand.NewPCG(1, uint64(size)))
			in := facts.NewInterner()
			features := [2]*nfdv1alpha1.Features{nodeFeatures(t, "node-0"), nodeFeatures(t, "node-4")}
			var before [2]*rules.Outcome
			for step := range 150 {
				which := random.IntN(2)
				change(random, features[which])
				input := rules.Input{Node: rules.Node{Name: fmt.Sprint("node-", which)}, Facts: facts.New(features[which], in)}
				before[which] = cache.Eval(program, input, before[which])
				fresh := program.Eval(input)
				if diff := cmp.Diff(suite.Expect(fresh), suite.Expect(before[which])); diff != "" {
					t.Fatalf("step %d (-fresh +cached):\n%s", step, diff)
				}
			}
		})
	}
}

func nodeFeatures(t *testing.T, name string) *nfdv1alpha1.Features {
	var obj nfdv1alpha1.NodeFeature
	bench.Read(t, name, &obj)
	return &obj.Spec.Features
}

// change changes one to three things about a node.
func change(random *rand.Rand, f *nfdv1alpha1.Features) {
	for range 1 + random.IntN(3) {
		switch random.IntN(4) {
		case 0:
			set := pick(random, f.Attributes)
			set.Elements[pickKey(random, set.Elements)] = fmt.Sprint(random.IntN(9))
		case 1:
			set := pick(random, f.Flags)
			delete(set.Elements, pickKey(random, set.Elements))
		case 2:
			set := pick(random, f.Instances)
			if len(set.Elements) > 0 {
				attributes := set.Elements[random.IntN(len(set.Elements))].Attributes
				attributes[pickKey(random, attributes)] = fmt.Sprint(random.IntN(9))
			}
		case 3:
			name := pickKey(random, f.Attributes)
			if name != "kernel.config" { // 4,000 elements, which nothing would be left to change of
				f.Attributes[name] = nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{"enabled": "true"}}
			}
		}
	}
}

func pick[V any](random *rand.Rand, m map[string]V) V { return m[pickKey(random, m)] }

func pickKey[V any](random *rand.Rand, m map[string]V) string {
	keys := slices.Sorted(maps.Keys(m))
	if len(keys) == 0 {
		return "new"
	}
	return keys[random.IntN(len(keys))]
}

// TestUnchangedOutcomeIsTheSame shows what lets a controller do nothing when nothing has changed.
func TestUnchangedOutcomeIsTheSame(t *testing.T) {
	program, cache, in := benchProgram(t, 100), rules.NewCache(), facts.NewInterner()
	first := cache.Eval(program, benchNode(t, "node-0", in), nil)
	if again := cache.Eval(program, benchNode(t, "node-0", in), first); again != first {
		t.Error("another outcome for the same facts")
	}
}

package featuresets

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

const (
	kernel = `{"attributes":{"kernel.config":{"elements":{"A":"y","B":"m"}}}}`
	cpu    = `{"flags":{"cpu.cpuid":{"elements":{"AVX":{}}}}}`
)

// decode decodes an object as an informer does.
func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func nameOf(t *testing.T, features string) string {
	t.Helper()
	name, err := featureset.Name(decode[nfdv1alpha1.Features](t, features))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func set(t *testing.T, name, features string) *assayv1alpha1.NodeFeatureSet {
	return decode[assayv1alpha1.NodeFeatureSet](t, fmt.Sprintf(`{"metadata":{"namespace":"own","name":%q},"spec":{"features":%s}}`, name, features))
}

func naming(t *testing.T, namespace, features string, names ...string) *nodefeature.NodeFeature {
	list, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	return decode[nodefeature.NodeFeature](t, fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"n"},"spec":{"features":%s,"featureSets":%s}}`, namespace, features, list))
}

func TestResolve(t *testing.T) {
	kernelName, cpuName := nameOf(t, kernel), nameOf(t, cpu)
	s := New("own")
	s.Put(set(t, kernelName, kernel))
	s.Put(set(t, kernelName, kernel)) // an informer's resync
	s.Put(set(t, cpuName, cpu))
	other := set(t, nameOf(t, `{"flags":{"x":{}}}`), `{"flags":{"x":{}}}`)
	other.Namespace = "other"
	s.Put(other)
	for name, test := range map[string]struct {
		feature *nodefeature.NodeFeature
		want    string // the same content in one NodeFeature
		missing []string
	}{
		"AllThere": {
			naming(t, "own", `{"attributes":{"system.name":{"elements":{"nodename":"n"}}}}`, cpuName, kernelName),
			`{"attributes":{"system.name":{"elements":{"nodename":"n"}},"kernel.config":{"elements":{"A":"y","B":"m"}}},"flags":{"cpu.cpuid":{"elements":{"AVX":{}}}}}`, nil,
		},
		"InlineWins": {
			naming(t, "own", `{"attributes":{"kernel.config":{"elements":{"C":"y"}}}}`, kernelName),
			`{"attributes":{"kernel.config":{"elements":{"C":"y"}}}}`, nil,
		},
		"OfAnotherTypeBothCount": {
			naming(t, "own", `{"flags":{"kernel.config":{"elements":{"C":{}}}}}`, kernelName),
			`{"flags":{"kernel.config":{"elements":{"C":{}}}},"attributes":{"kernel.config":{"elements":{"A":"y","B":"m"}}}}`, nil,
		},
		"SomeMissing": {
			naming(t, "own", `{}`, "z-v1-0", cpuName, "a-v1-0", "z-v1-0"), `{}`, []string{"a-v1-0", "z-v1-0"},
		},
		"OfAnotherNamespace": {naming(t, "vendor", `{"flags":{"x":{"elements":{}}}}`, cpuName, "missing"), `{"flags":{"x":{"elements":{}}}}`, nil},
		"NamesNone":          {naming(t, "own", cpu), cpu, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, missing := s.Resolve(test.feature)
			want := facts.New(decode[nfdv1alpha1.Features](t, test.want), nodefeature.Interner())
			if got := got.Spec.Features.Facts; !got.Same(want) {
				t.Errorf("got %v, want %v", got.Features(), want.Features())
			}
			if !slices.Equal(missing, test.missing) {
				t.Errorf("missing %q, want %q", missing, test.missing)
			}
		})
	}
}

func TestASetWithOtherContentDoesNotCount(t *testing.T) {
	kernelName := nameOf(t, kernel)
	for name, features := range map[string]string{
		"OtherFeature": cpu, "OtherValue": `{"attributes":{"kernel.config":{"elements":{"A":"n","B":"m"}}}}`,
		"TwoFeatures": `{"flags":{"a":{}},"attributes":{"b":{}}}`, "None": `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := New("own")
			s.Put(set(t, kernelName, kernel))
			s.Put(set(t, kernelName, features)) // deleted and created again between two events
			if _, missing := s.Resolve(naming(t, "own", `{}`, kernelName)); len(missing) != 1 {
				t.Errorf("missing %q, want the set", missing)
			}
		})
	}
}

// A set is replaced by one with other content, and the informer reports the deletion late: the wrong set was forgotten, so that the
// controller did not delete it, and its nodes had no features (found by seed 323 of the simulator).
func TestALateDeletionKeepsTheWrongSetThatHasReplacedASet(t *testing.T) {
	s := New("own")
	name := nameOf(t, kernel)
	before, wrong := set(t, name, kernel), set(t, name, cpu)
	before.UID, wrong.UID = "1", "2"
	s.Put(before)
	s.Remove(before) // by the watch
	s.Put(wrong)
	s.Remove(before) // by the informer's handler
	if got := s.Wrong(); len(got) != 1 || got[0].UID != "2" {
		t.Errorf("wrong sets: %v", got)
	}
	s.Remove(wrong)
	if got := s.Wrong(); len(got) != 0 {
		t.Errorf("wrong sets after their deletion: %v", got)
	}
}

func TestASetOfANewerFormatDoesNotCount(t *testing.T) {
	newer := set(t, "kernel-config-v2-0123", `{"flags":{"a":{}}}`)
	s := New("own")
	s.Put(newer)
	if _, missing := s.Resolve(naming(t, "own", `{}`, newer.Name)); len(missing) != 1 {
		t.Errorf("missing %q, want the set", missing)
	}
}

func TestADeletedSetIsMissing(t *testing.T) {
	s, name := New("own"), nameOf(t, cpu)
	s.Put(set(t, name, cpu))
	s.Remove(set(t, name, cpu))
	if _, missing := s.Resolve(naming(t, "own", `{}`, name)); !slices.Equal(missing, []string{name}) {
		t.Errorf("missing %q, want the one that was deleted", missing)
	}
}

// TestNodesShareTheFactsOfASet compares pointers: each of thousands of nodes must not have its own copy of a kernel's
// configuration.
func TestNodesShareTheFactsOfASet(t *testing.T) {
	s, name := New("own"), nameOf(t, kernel)
	s.Put(set(t, name, kernel))
	one, _ := s.Resolve(naming(t, "own", `{"flags":{"a":{"elements":{}}}}`, name))
	two, _ := s.Resolve(naming(t, "own", kernel))
	a, b := one.Spec.Features.Feature("kernel.config"), two.Spec.Features.Feature("kernel.config")
	if a == nil || a.ID() != b.ID() {
		t.Error("a set and the same feature in a NodeFeature differ")
	}
}

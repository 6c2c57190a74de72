package assembly

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/rules"
)

// object returns a rule object of a generation.
func object(t *testing.T, generation int64, spec, applied string) *nfdv1alpha1.NodeFeatureRule {
	t.Helper()
	o := &nfdv1alpha1.NodeFeatureRule{}
	o.Name, o.UID, o.Generation = "r", "1", generation
	if err := yaml.Unmarshal([]byte(spec), &o.Spec); err != nil {
		t.Fatal(err)
	}
	if applied != "" {
		o.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": applied}
	}
	return o
}

// TestWhatIsEvaluatedUnderEachDefinition reads an object as it is stored, and without its conditions, as a definition of NFD makes the API
// server answer. Without them the rule matched every node.
func TestWhatIsEvaluatedUnderEachDefinition(t *testing.T) {
	const (
		whole   = `{description: d, rules: [{name: x, labels: {a: b}, conditions: [{op: is-true, args: {value: "{node}"}}]}]}`
		pruned  = `{rules: [{name: x, labels: {a: b}}]}`
		edited  = `{rules: [{name: x, labels: {a: c}}]}`
		ofWhole = `{"spec":{"description":"d","rules":[{"name":"x","labels":{"a":"b"},"conditions":[{"op":"is-true","args":{"value":"{node}"}}]}]}}`
		ofPlain = `{"spec":{"description":"d","rules":[{"name":"x","labels":{"a":"b"}}]}}`
	)
	foreign := definition.Status{State: definition.Foreign, Missing: []string{"spec.description", "spec.rules[].conditions"}}
	type history struct{ memory, stored bool } // what is known of the object as it was accepted with generation 1
	for name, tc := range map[string]struct {
		state   definition.Status
		known   history
		object  *nfdv1alpha1.NodeFeatureRule
		reason  string // of Lost
		matches bool   // rules are evaluated
		first   bool   // they are those that were accepted first
	}{
		"Whole":                       {state: definition.Status{State: definition.Whole}, object: object(t, 1, whole, ""), matches: true, first: true},
		"Older":                       {state: definition.Status{State: definition.Older}, object: object(t, 1, whole, ""), matches: true, first: true},
		"ForeignAndNew":               {state: foreign, object: object(t, 1, pruned, ""), reason: reasonDefinition},
		"ForeignAndNewByKubectl":      {state: foreign, object: object(t, 1, pruned, ofWhole), reason: reasonDefinition},
		"ForeignAndNothingLost":       {state: foreign, object: object(t, 1, pruned, ofPlain), matches: true},
		"ForeignAndNotReadAgain":      {state: foreign, known: history{memory: true}, object: object(t, 1, whole, ""), matches: true, first: true},
		"ForeignAndPruned":            {state: foreign, known: history{memory: true}, object: object(t, 1, pruned, ""), reason: reasonDefinition, matches: true, first: true},
		"ForeignAndAnnotated":         {state: foreign, known: history{memory: true}, object: annotated(object(t, 1, pruned, "")), reason: reasonDefinition, matches: true, first: true},
		"ForeignAndEdited":            {state: foreign, known: history{memory: true}, object: object(t, 2, edited, ""), reason: reasonDefinition},
		"ForeignAfterRestart":         {state: foreign, known: history{stored: true}, object: object(t, 1, whole, ""), matches: true, first: true},
		"ForeignPrunedAfterRestart":   {state: foreign, known: history{stored: true}, object: object(t, 1, pruned, ""), reason: reasonDefinition},
		"ForeignWithAllFieldsOfRules": {state: definition.Status{State: definition.Foreign, Missing: []string{"status.origins"}}, object: object(t, 1, whole, ""), matches: true, first: true},
		"AbsentAndKnown":              {state: definition.Status{State: definition.Absent}, known: history{memory: true}, object: object(t, 1, whole, ""), matches: true, first: true},
		"UnknownAndNew":               {state: definition.Status{State: definition.Unknown}, object: object(t, 1, whole, ""), reason: reasonDefinition},
		"WholeAgainAndLost":           {state: definition.Status{State: definition.Whole}, known: history{memory: true}, object: object(t, 1, pruned, ""), reason: reasonDropped, matches: true, first: true},
		"WholeAgainAndApplied":        {state: definition.Status{State: definition.Whole}, known: history{memory: true}, object: object(t, 2, edited, ""), matches: true},
	} {
		t.Run(name, func(t *testing.T) {
			state := definition.Status{State: definition.Whole}
			accepted := map[types.UID]Accepted{}
			a := New(Options{
				Definition: func() definition.Status { return state },
				Accepted:   func(uid types.UID) (Accepted, bool) { was, ok := accepted[uid]; return was, ok },
			}, stored{})
			first, err := a.Assemble(t.Context(), object(t, 1, whole, ""), nil, rules.MaxClusterSize)
			if err != nil || first.Set == nil {
				t.Fatal(err, first)
			}
			var last *Object
			if tc.known.memory {
				last = first
			}
			if tc.known.stored {
				accepted = DecodeAccepted(EncodeAccepted(map[types.UID]Accepted{"1": first.Accepted}))
			}
			state = tc.state
			got, err := a.Assemble(t.Context(), tc.object, last, rules.MaxClusterSize)
			if err != nil {
				t.Fatal(err)
			}
			reason := ""
			if got.Lost != nil {
				reason = got.Lost.Reason
			}
			if reason != tc.reason || (got.Set != nil) != tc.matches || tc.matches && (got.Set.Hash() == first.Set.Hash()) != tc.first {
				t.Errorf("lost %q, evaluated %v; want %q, %v", reason, got.Set != nil, tc.reason, tc.matches)
			}
			if suspended := got.Lost != nil && got.Set == nil; got.Suspended() != suspended {
				t.Errorf("suspended: %v, want %v", got.Suspended(), suspended)
			}
		})
	}
}

// annotated returns an object after another client has annotated it, which changes no generation.
func annotated(o *nfdv1alpha1.NodeFeatureRule) *nfdv1alpha1.NodeFeatureRule {
	o.ResourceVersion, o.Annotations = "2", map[string]string{"argocd.argoproj.io/tracking-id": "x"}
	return o
}

// TestObjectsOfOtherKindsAreWhatWasKnown while their definition is not to be trusted: requests and baselines have no fingerprint, so what was
// known before stays also when they are edited, and new ones wait. Both may have lost fields once the definition is whole.
func TestObjectsOfOtherKindsAreWhatWasKnown(t *testing.T) {
	known := &Object{UID: "1", Generation: 1, Rules: Rules{Set: &rules.RuleSet{Name: "known"}}}
	for _, state := range []definition.State{definition.Foreign, definition.Absent, definition.Unknown} {
		same, edited, d := object(t, 1, `{rules: [{name: x}]}`, ""), object(t, 2, `{rules: [{name: x}]}`, ""), definition.Status{State: state}
		if got := Distrust(same, known, d); got != known {
			t.Errorf("%s: what was known of an object is replaced by %v", state, got)
		}
		if got := Distrust(edited, known, d); got.Set != known.Set || got.Accepted != (Accepted{Generation: 2}) || got.Suspended() {
			t.Errorf("%s: what was known of an object before it was edited is replaced by %v", state, got)
		}
		for name, last := range map[string]*Object{"new": nil, "created again": {UID: "0", Rules: known.Rules}} {
			if got := Distrust(edited, last, d); got.Accepted != (Accepted{Generation: 2}) || got.Set != nil || !got.Suspended() || !strings.Contains(got.Lost.Message, string(state)) {
				t.Errorf("%s: an object that is %s is %v", state, name, got)
			}
		}
	}
}

// TestWhatWasFirstReadUnderAForeignDefinitionWaitsForItsUser: nothing that the API server stores shows what such an object has lost.
func TestWhatWasFirstReadUnderAForeignDefinitionWaitsForItsUser(t *testing.T) {
	state := definition.Status{State: definition.Foreign, Missing: []string{"spec.rules[].conditions"}}
	a := New(Options{Definition: func() definition.Status { return state }}, stored{})
	last, err := a.Assemble(t.Context(), object(t, 1, `{rules: [{name: x, labels: {a: b}}]}`, ""), nil, rules.MaxClusterSize)
	if err != nil || last.Set != nil {
		t.Fatal(err, "it is evaluated")
	}
	state = definition.Status{State: definition.Whole}
	for generation, dropped := range map[int64]bool{1: true, 2: false} { // the second one is what its user has applied again
		got, err := a.Assemble(t.Context(), object(t, generation, `{rules: [{name: x, labels: {a: b}}]}`, ""), last, rules.MaxClusterSize)
		if err != nil || (got.Lost != nil) != dropped || (got.Set == nil) != dropped {
			t.Errorf("generation %d: lost %v, %v; want %v", generation, got.Lost, err, dropped)
		}
	}
}

// TestWhatIsCreatedOnceTheDefinitionIsWholeIsAccepted: rules that were applied right after the definition had to be deleted and created.
func TestWhatIsCreatedOnceTheDefinitionIsWholeIsAccepted(t *testing.T) {
	state := definition.Status{State: definition.Absent, Returning: true}
	a := New(Options{Definition: func() definition.Status { return state }}, stored{})
	rule := object(t, 1, `{rules: [{name: x, labels: {a: b}}]}`, "")
	last, err := a.Assemble(t.Context(), rule, nil, rules.MaxClusterSize)
	if err != nil || last.Set != nil {
		t.Fatal(err, "it is evaluated before the objects were listed")
	}
	state = definition.Status{State: definition.Whole}
	if got, err := a.Assemble(t.Context(), rule, last, rules.MaxClusterSize); err != nil || got.Set == nil {
		t.Errorf("it is not evaluated afterwards: %v, %v", got.Lost, err)
	}
}

// TestTheDescriptionIsNotEvaluated: rules that had lost nothing else were rejected.
func TestTheDescriptionIsNotEvaluated(t *testing.T) {
	spec := object(t, 1, `{rules: [{name: x, labels: {a: b}}]}`, "").Spec
	described := spec
	described.Description = ptr.To("what it is")
	if Print(&spec) != Print(&described) {
		t.Error("the fingerprint changes with the description")
	}
	hash := func(spec *nfdv1alpha1.NodeFeatureRuleSpec) string {
		set, _ := rules.CompileSpec("r", spec, rules.Options{})
		return set.Hash()
	}
	if hash(&spec) != hash(&described) {
		t.Error("rules without their description count as edited, and an edit explains every removal")
	}
}

// TestAcceptancesThatDoNotFitAreLeftOut: a ConfigMap that is too large could not be written at all.
func TestAcceptancesThatDoNotFitAreLeftOut(t *testing.T) {
	all := map[types.UID]Accepted{}
	for i := range 5000 {
		all[types.UID(string(rune('a'+i%26))+"-0000-4000-8000-"+string(rune('a'+i/26%26))+string(rune('a'+i/676))+"0000000000000000000")] = Accepted{Generation: 1, Print: "0123456789abcdef"}
	}
	text := EncodeAccepted(all)
	if got := DecodeAccepted(text); len(text) > MaxAccepted+2 || len(got) < 1000 {
		t.Errorf("%d bytes with %d objects", len(text), len(got))
	}
}

package plan_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

const feature = "feature.node.kubernetes.io/"

func amounts(of map[string]string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, amount := range of {
		out[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return out
}

func TestCompute(t *testing.T) {
	labels := plan.Record{}.Labels()
	taints := plan.Record{}.Taints()
	resources := plan.Record{}.Resources()
	tests := map[string]struct {
		reason      string
		state       plan.State
		want        plan.Desired
		policy      plan.Policy
		shown       []string // the plan in its display form
		patch       string
		taintsPatch string
		takes       bool
	}{
		"NothingToDo": {
			state: plan.State{Labels: map[string]string{feature + "a": "1"}, Annotations: map[string]string{labels: "a"}},
			want:  plan.Desired{Labels: map[string]string{feature + "a": "1"}},
		},
		"AddsToANodeWithoutMaps": {
			state: plan.State{ResourceVersion: "7"},
			want:  plan.Desired{Labels: map[string]string{feature + "b": "1", "v.io/a": "2"}},
			shown: []string{"+ label feature.node.kubernetes.io/b=1", "+ label v.io/a=2"},
			patch: `{"metadata":{"resourceVersion":"7","labels":{"feature.node.kubernetes.io/b":"1","v.io/a":"2"},"annotations":{"nfd.node.kubernetes.io/feature-labels":"b,v.io/a"}}}`,
		},
		"AddsResourceToANodeWithoutCapacity": {
			want:  plan.Desired{Labels: map[string]string{"v.io/a": "1"}, ExtendedResources: map[string]string{"v.io/r": "2"}},
			shown: []string{"+ label v.io/a=1", "+ extended resource v.io/r=2"},
			patch: `{"metadata":{"labels":{"v.io/a":"1"},"annotations":{"nfd.node.kubernetes.io/extended-resources":"v.io/r","nfd.node.kubernetes.io/feature-labels":"v.io/a"}},"status":{"capacity":{"v.io/r":"2"},"allocatable":{"v.io/r":"2"}}}`,
		},
		"ConditionsOfOthersStay": {
			reason: "the list is merged by type; only what changes is in the patch",
			state: plan.State{
				Annotations: map[string]string{"assay.dev/node-conditions": "Ready,v.io/Gone,v.io/Same"},
				Conditions:  []corev1.NodeCondition{{Type: "Ready", Status: "True"}, {Type: "v.io/Gone", Status: "True"}, {Type: "v.io/Same", Status: "True", Reason: "R", Message: "m"}},
			},
			want:  plan.Desired{Conditions: map[string]string{"v.io/New": "False Why", "v.io/Same": "True R: m"}},
			shown: []string{"- condition v.io/Gone=True", "+ condition v.io/New=False Why"},
			patch: `{"metadata":{"annotations":{"assay.dev/node-conditions":"v.io/New,v.io/Same"}},"status":{"conditions":[{"$patch":"delete","type":"v.io/Gone"},{"type":"v.io/New","status":"False","reason":"Why","message":""}]}}`,
			takes: true,
		},
		"FeaturesReadyStaysWithoutAVerdict": {
			state: plan.State{
				Annotations: map[string]string{"assay.dev/node-conditions": "assay.dev/FeaturesReady"},
				Conditions:  []corev1.NodeCondition{{Type: "assay.dev/FeaturesReady", Status: "True"}},
			},
		},
		"RemovesWhatItOwnsAndNothingElse": {
			state: plan.State{Labels: map[string]string{feature + "a": "1", feature + "foreign": "1"}, Annotations: map[string]string{labels: "a"}},
			shown: []string{"- label feature.node.kubernetes.io/a=1"},
			patch: `{"metadata":{"labels":{"feature.node.kubernetes.io/a":null},"annotations":{"nfd.node.kubernetes.io/feature-labels":null}}}`,
			takes: true,
		},
		"TakesOverForeignLabel": {
			state: plan.State{Labels: map[string]string{"v.io/a": "old"}},
			want:  plan.Desired{Labels: map[string]string{"v.io/a": "new"}},
			shown: []string{"~ label v.io/a=old -> new"},
			patch: `{"metadata":{"labels":{"v.io/a":"new"},"annotations":{"nfd.node.kubernetes.io/feature-labels":"v.io/a"}}}`,
		},
		"TakesOverForeignAnnotation": {
			state: plan.State{Annotations: map[string]string{"v.io/a": "old"}},
			want:  plan.Desired{Annotations: map[string]string{"v.io/a": "new"}},
			shown: []string{"~ annotation v.io/a=old -> new"},
			patch: `{"metadata":{"annotations":{"nfd.node.kubernetes.io/feature-annotations":"v.io/a","v.io/a":"new"}}}`,
		},
		"KeepsForeignResource": {
			state:  plan.State{Capacity: amounts(map[string]string{"v.io/r": "1"}), Allocatable: amounts(map[string]string{"v.io/r": "1"})},
			want:   plan.Desired{ExtendedResources: map[string]string{"v.io/r": "2"}},
			policy: plan.Policy{KeepForeign: true},
			shown:  []string{"! extended resource v.io/r=1 stays: another client wrote it (wanted 2)"},
		},
		"KeepsForeignLabel": {
			state:  plan.State{Labels: map[string]string{"v.io/a": "old"}},
			want:   plan.Desired{Labels: map[string]string{"v.io/a": "new"}},
			policy: plan.Policy{KeepForeign: true},
			shown:  []string{"! label v.io/a=old stays: another client wrote it (wanted new)"},
		},
		"KeepForeignNeverLimitsOwnLabels": {
			state:  plan.State{Labels: map[string]string{"v.io/a": "old"}, Annotations: map[string]string{labels: "v.io/a"}},
			want:   plan.Desired{Labels: map[string]string{"v.io/a": "new"}},
			policy: plan.Policy{KeepForeign: true},
			shown:  []string{"~ label v.io/a=old -> new"},
			patch:  `{"metadata":{"labels":{"v.io/a":"new"}}}`,
			takes:  true,
		},
		"AdoptsWhatIsAsItShouldBe": {
			state: plan.State{Labels: map[string]string{"v.io/a": "1"}},
			want:  plan.Desired{Labels: map[string]string{"v.io/a": "1"}},
			shown: []string{"= label v.io/a=1 (taken over as it is)"},
			patch: `{"metadata":{"annotations":{"nfd.node.kubernetes.io/feature-labels":"v.io/a"}}}`,
		},
		"OtherInstance": {
			state:  plan.State{Labels: map[string]string{"v.io/a": "1"}, Annotations: map[string]string{labels: "v.io/a"}},
			policy: plan.Policy{Record: plan.Record{Instance: "blue"}},
		},
		"ForgetsWhatAnotherClientRemoved": {
			reason: "if that client sets it again, it is not ours to remove",
			state:  plan.State{Labels: map[string]string{"v.io/b": "1"}, Annotations: map[string]string{labels: "v.io/a,v.io/b"}},
			want:   plan.Desired{Labels: map[string]string{"v.io/b": "1"}},
			patch:  `{"metadata":{"annotations":{"nfd.node.kubernetes.io/feature-labels":"v.io/b"}}}`,
		},
		"AdoptsATaint": {
			reason:      "it is there already: the taints of the Node are not written",
			state:       plan.State{Taints: []corev1.Taint{{Key: "v.io/t", Value: "1", Effect: "NoSchedule"}}},
			want:        plan.Desired{Taints: []corev1.Taint{{Key: "v.io/t", Value: "1", Effect: "NoSchedule"}}},
			policy:      plan.Policy{Taints: true},
			shown:       []string{"= taint v.io/t:NoSchedule=1 (taken over as it is)"},
			taintsPatch: `{"metadata":{"resourceVersion":"9","annotations":{"nfd.node.kubernetes.io/taints":"v.io/t=1:NoSchedule"}}}`,
		},
		"TaintsOfAnotherInstance": {
			reason: "two controllers took the taints of one another",
			state: plan.State{
				Taints:      []corev1.Taint{{Key: "v.io/t", Effect: "NoSchedule"}, {Key: "v.io/u", Effect: "NoSchedule"}},
				Annotations: map[string]string{plan.Record{}.Taints(): "v.io/t:NoSchedule", "blue." + plan.Record{}.Taints(): "v.io/u:NoSchedule"},
			},
			policy:      plan.Policy{Taints: true, Record: plan.Record{Instance: "blue"}},
			shown:       []string{"- taint v.io/u:NoSchedule="},
			taintsPatch: `{"metadata":{"resourceVersion":"9","annotations":{"blue.nfd.node.kubernetes.io/taints":null}},"spec":{"taints":[{"key":"v.io/t","effect":"NoSchedule"}]}}`,
			takes:       true,
		},
		"RemovesBareLabel": {
			state: plan.State{Labels: map[string]string{"a": "1", feature + "a": "1"}, Annotations: map[string]string{labels: "a," + feature + "b"}},
			want:  plan.Desired{Labels: map[string]string{feature + "b": "1"}}, policy: plan.Policy{Record: plan.Record{Bare: true}},
			shown: []string{"- label a=1", "+ label feature.node.kubernetes.io/b=1"},
			patch: `{"metadata":{"labels":{"a":null,"feature.node.kubernetes.io/b":"1"},"annotations":{"nfd.node.kubernetes.io/feature-labels":"feature.node.kubernetes.io/b"}}}`,
			takes: true,
		},
		"UnderstandsRecordFromBeforeNamesWereBare": {
			state:  plan.State{Labels: map[string]string{feature + "a": "1"}, Annotations: map[string]string{labels: "a"}},
			policy: plan.Policy{Record: plan.Record{Bare: true}},
			shown:  []string{"- label feature.node.kubernetes.io/a=1"},
			patch:  `{"metadata":{"labels":{"feature.node.kubernetes.io/a":null},"annotations":{"nfd.node.kubernetes.io/feature-labels":null}}}`,
			takes:  true,
		},
		"ComparesAmountsByValue": {
			state: plan.State{Capacity: amounts(map[string]string{"v.io/m": "1073741824"}), Allocatable: amounts(map[string]string{"v.io/m": "1Gi"}),
				Annotations: map[string]string{resources: "v.io/m"}},
			want: plan.Desired{ExtendedResources: map[string]string{"v.io/m": "1024Mi"}},
		},
		"RestoresWhatAKubeletReset": {
			reason: "it takes nothing away, so that no budget holds it back",
			state: plan.State{Capacity: amounts(map[string]string{"v.io/m": "0", "cpu": "4"}), Allocatable: amounts(map[string]string{"v.io/m": "0", "cpu": "4"}),
				Annotations: map[string]string{resources: "v.io/m"}},
			want:  plan.Desired{ExtendedResources: map[string]string{"v.io/m": "4"}},
			shown: []string{"~ extended resource v.io/m=0 -> 4"},
			patch: `{"metadata":{},"status":{"capacity":{"v.io/m":"4"},"allocatable":{"v.io/m":"4"}}}`,
		},
		"RestoresTheAllocatableAmountAlone": {
			state: plan.State{Capacity: amounts(map[string]string{"v.io/m": "4"}), Allocatable: amounts(map[string]string{"v.io/m": "2"}),
				Annotations: map[string]string{resources: "v.io/m"}},
			want:  plan.Desired{ExtendedResources: map[string]string{"v.io/m": "4"}},
			shown: []string{"~ extended resource v.io/m=2 of 4 -> 4"},
			patch: `{"metadata":{},"status":{"capacity":{"v.io/m":"4"},"allocatable":{"v.io/m":"4"}}}`,
		},
		"RestoresTheCapacityAlone": {
			state: plan.State{Capacity: amounts(map[string]string{"v.io/m": "2"}), Allocatable: amounts(map[string]string{"v.io/m": "4"}),
				Annotations: map[string]string{resources: "v.io/m"}},
			want:  plan.Desired{ExtendedResources: map[string]string{"v.io/m": "4"}},
			shown: []string{"~ extended resource v.io/m=4 of 2 -> 4"},
			patch: `{"metadata":{},"status":{"capacity":{"v.io/m":"4"},"allocatable":{"v.io/m":"4"}}}`,
		},
		"ShrinkingAnAmountTakes": {
			state: plan.State{Capacity: amounts(map[string]string{"v.io/m": "4"}), Allocatable: amounts(map[string]string{"v.io/m": "4"}),
				Annotations: map[string]string{resources: "v.io/m"}},
			want:  plan.Desired{ExtendedResources: map[string]string{"v.io/m": "3"}},
			shown: []string{"~ extended resource v.io/m=4 -> 3"},
			patch: `{"metadata":{},"status":{"capacity":{"v.io/m":"3"},"allocatable":{"v.io/m":"3"}}}`,
			takes: true,
		},
		"ShrinkingTheCapacityAloneTakes": {
			state: plan.State{Capacity: amounts(map[string]string{"v.io/m": "4"}), Allocatable: amounts(map[string]string{"v.io/m": "2"}),
				Annotations: map[string]string{resources: "v.io/m"}},
			want:  plan.Desired{ExtendedResources: map[string]string{"v.io/m": "3"}},
			shown: []string{"~ extended resource v.io/m=2 of 4 -> 3"},
			patch: `{"metadata":{},"status":{"capacity":{"v.io/m":"3"},"allocatable":{"v.io/m":"3"}}}`,
			takes: true,
		},
		"RemovesResourceFromBothLists": {
			state: plan.State{Capacity: amounts(map[string]string{"v.io/m": "4"}), Allocatable: amounts(map[string]string{"v.io/m": "4"}),
				Annotations: map[string]string{resources: "v.io/m"}},
			shown: []string{"- extended resource v.io/m=4"},
			patch: `{"metadata":{"annotations":{"nfd.node.kubernetes.io/extended-resources":null}},"status":{"capacity":{"v.io/m":null},"allocatable":{"v.io/m":null}}}`,
			takes: true,
		},
		"AddsTaintAndKeepsForeignOnes": {
			state:       plan.State{Taints: []corev1.Taint{{Key: "dedicated", Value: "x", Effect: "NoSchedule"}}},
			want:        plan.Desired{Taints: []corev1.Taint{{Key: "v.io/t", Value: "1", Effect: "NoExecute"}}},
			policy:      plan.Policy{Taints: true},
			shown:       []string{"+ taint v.io/t:NoExecute=1"},
			taintsPatch: `{"metadata":{"resourceVersion":"9","annotations":{"nfd.node.kubernetes.io/taints":"v.io/t=1:NoExecute"}},"spec":{"taints":[{"key":"dedicated","value":"x","effect":"NoSchedule"},{"key":"v.io/t","value":"1","effect":"NoExecute"}]}}`,
		},
		"TakesOverForeignTaint": {
			state:       plan.State{Taints: []corev1.Taint{{Key: "v.io/t", Value: "old", Effect: "NoSchedule"}}},
			want:        plan.Desired{Taints: []corev1.Taint{{Key: "v.io/t", Value: "new", Effect: "NoSchedule"}}},
			policy:      plan.Policy{Taints: true},
			shown:       []string{"~ taint v.io/t:NoSchedule=old -> new"},
			taintsPatch: `{"metadata":{"resourceVersion":"9","annotations":{"nfd.node.kubernetes.io/taints":"v.io/t=new:NoSchedule"}},"spec":{"taints":[{"key":"v.io/t","value":"new","effect":"NoSchedule"}]}}`,
		},
		"KeepsForeignTaint": {
			state:  plan.State{Taints: []corev1.Taint{{Key: "v.io/t", Value: "old", Effect: "NoSchedule"}}},
			want:   plan.Desired{Taints: []corev1.Taint{{Key: "v.io/t", Value: "new", Effect: "NoSchedule"}}},
			policy: plan.Policy{Taints: true, KeepForeign: true},
			shown:  []string{"! taint v.io/t:NoSchedule=old stays: another client wrote it (wanted new)"},
		},
		"KeepForeignNeverLimitsOwnTaints": {
			state: plan.State{Taints: []corev1.Taint{{Key: "v.io/t", Value: "old", Effect: "NoSchedule"}},
				Annotations: map[string]string{taints: "v.io/t=old:NoSchedule"}},
			want:        plan.Desired{Taints: []corev1.Taint{{Key: "v.io/t", Value: "new", Effect: "NoSchedule"}}},
			policy:      plan.Policy{Taints: true, KeepForeign: true},
			shown:       []string{"~ taint v.io/t:NoSchedule=old -> new"},
			taintsPatch: `{"metadata":{"resourceVersion":"9","annotations":{"nfd.node.kubernetes.io/taints":"v.io/t=new:NoSchedule"}},"spec":{"taints":[{"key":"v.io/t","value":"new","effect":"NoSchedule"}]}}`,
			takes:       true,
		},
		"RemovesTaintsOnceTheyAreDisabled": {
			state:       plan.State{Taints: []corev1.Taint{{Key: "v.io/t", Effect: "NoSchedule"}}, Annotations: map[string]string{taints: "v.io/t:NoSchedule"}},
			want:        plan.Desired{Taints: []corev1.Taint{{Key: "v.io/t", Effect: "NoSchedule"}}},
			shown:       []string{"- taint v.io/t:NoSchedule="},
			taintsPatch: `{"metadata":{"resourceVersion":"9","annotations":{"nfd.node.kubernetes.io/taints":null}},"spec":{"taints":[]}}`,
			takes:       true,
		},
		"ForgedRecordRemovesNoProtectedTaint": {
			reason: "a kubelet may edit annotations of its Node and not its taints",
			state: plan.State{Taints: []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}, {Key: "dedicated", Effect: "NoSchedule"}},
				Annotations: map[string]string{taints: "node-role.kubernetes.io/control-plane:NoSchedule,dedicated:NoSchedule"}},
			policy:      plan.Policy{Taints: true},
			taintsPatch: `{"metadata":{"resourceVersion":"9","annotations":{"nfd.node.kubernetes.io/taints":null}}}`,
		},
		"SaysThatARuleFailedTheNode": {
			want:  plan.Desired{Failed: "site/no-gpu"},
			shown: []string{"+ annotation assay.dev/failed=site/no-gpu"},
			patch: `{"metadata":{"annotations":{"assay.dev/failed":"site/no-gpu"}}}`,
		},
		"TakesBackThatARuleFailedTheNode": {
			state: plan.State{Annotations: map[string]string{"assay.dev/failed": "site/no-gpu"}},
			shown: []string{"- annotation assay.dev/failed=site/no-gpu"},
			patch: `{"metadata":{"annotations":{"assay.dev/failed":null}}}`,
		},
		"ForgedRecordRemovesNoProtectedLabel": {
			state: plan.State{Labels: map[string]string{"kubernetes.io/hostname": "h", "x.node-restriction.kubernetes.io/y": "1", "bank.com/z": "1"},
				Annotations: map[string]string{labels: "kubernetes.io/hostname,x.node-restriction.kubernetes.io/y,bank.com/z"}},
			policy: plan.Policy{Keys: &keys.Policy{Protected: []string{"bank.com"}}},
			patch:  `{"metadata":{"annotations":{"nfd.node.kubernetes.io/feature-labels":null}}}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := plan.Compute(tc.state, tc.want, tc.policy)
			shown := strings.Split(strings.TrimSuffix(p.String(), "\n"), "\n")
			if p.String() == "" {
				shown = nil
			}
			if diff := cmp.Diff(tc.shown, shown); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.patch, string(p.Patch())); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.taintsPatch, string(p.TaintPatch("9"))); diff != "" {
				t.Errorf("taint patch (-want +got):\n%s", diff)
			}
			if takes := slices.ContainsFunc(p.Steps, plan.Step.Takes); takes != tc.takes {
				t.Errorf("takes something away: %v, want %v; %s", takes, tc.takes, tc.reason)
			}
		})
	}
}

// apply applies a plan as the API server does.
func apply(t *testing.T, s plan.State, p *plan.Plan) plan.State {
	t.Helper()
	out := plan.State{Labels: maps.Clone(s.Labels), Annotations: maps.Clone(s.Annotations), Taints: s.Taints,
		Capacity: s.Capacity.DeepCopy(), Allocatable: s.Allocatable.DeepCopy()}
	for _, body := range [][]byte{p.Patch(), p.TaintPatch("")} {
		if body == nil {
			continue
		}
		var patch struct {
			Metadata struct{ Labels, Annotations map[string]*string }
			Status   struct{ Capacity, Allocatable map[string]*string }
			Spec     *struct{ Taints []corev1.Taint }
		}
		if err := json.Unmarshal(body, &patch); err != nil {
			t.Fatal(err)
		}
		merge(out.Labels, patch.Metadata.Labels)
		merge(out.Annotations, patch.Metadata.Annotations)
		mergeAmounts(out.Capacity, patch.Status.Capacity)
		mergeAmounts(out.Allocatable, patch.Status.Allocatable)
		if patch.Spec != nil {
			out.Taints = patch.Spec.Taints
		}
	}
	return out
}

func merge(into map[string]string, patch map[string]*string) {
	for k, v := range patch {
		if v == nil {
			delete(into, k)
		} else {
			into[k] = *v
		}
	}
}

func mergeAmounts(into corev1.ResourceList, patch map[string]*string) {
	for k, v := range patch {
		if v == nil {
			delete(into, corev1.ResourceName(k))
		} else {
			into[corev1.ResourceName(k)] = resource.MustParse(*v)
		}
	}
}

// TestEveryPlan checks the properties of all plans on random Nodes.
func TestEveryPlan(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	some := func(prefix string, values ...string) map[string]string {
		out := map[string]string{}
		for i := range 6 {
			if rng.IntN(2) == 0 {
				out[fmt.Sprintf("%s%d", prefix, i)] = values[rng.IntN(len(values))]
			}
		}
		return out
	}
	effects := []corev1.TaintEffect{"NoSchedule", "NoExecute"}
	someTaints := func() (out []corev1.Taint) {
		for i := range 3 {
			if rng.IntN(2) == 0 {
				out = append(out, corev1.Taint{Key: fmt.Sprintf("v.io/t%d", i), Value: fmt.Sprint(rng.IntN(2)), Effect: effects[rng.IntN(2)]})
			}
		}
		return out
	}
	desired := func() plan.Desired {
		return plan.Desired{Labels: some(feature+"l", "1", "2"), Annotations: some("v.io/a", "x", "y"),
			ExtendedResources: some("v.io/r", "1", "1k", "1000"), Taints: someTaints()}
	}
	for range 5000 {
		policy := plan.Policy{KeepForeign: rng.IntN(2) == 0, Taints: true, Record: plan.Record{Instance: []string{"", "blue"}[rng.IntN(2)]}}
		foreign := plan.State{Labels: some(feature+"l", "1", "3"), Annotations: some("v.io/a", "x"), Taints: someTaints(),
			Capacity: amounts(some("v.io/r", "1", "1k")), Allocatable: corev1.ResourceList{}}
		first, second := desired(), desired()
		one := apply(t, foreign, plan.Compute(foreign, first, policy))
		two := apply(t, one, plan.Compute(one, second, policy))

		if again := plan.Compute(two, second, policy); !again.Empty() || again.Patch() != nil || again.TaintPatch("") != nil {
			t.Fatalf("a second time it still wants\n%s", again)
		}
		none := plan.Compute(two, second, policy).Without(func(plan.Step) bool { return true })
		if none.Patch() != nil {
			t.Fatalf("a plan without any step patches %s", none.Patch())
		}
		for key, value := range second.Labels {
			if _, theirs := foreign.Labels[key]; two.Labels[key] != value && !(policy.KeepForeign && theirs) {
				t.Fatalf("label %s is %q, want %q", key, two.Labels[key], value)
			}
		}
		for key, value := range foreign.Labels {
			_, a := first.Labels[key]
			_, b := second.Labels[key]
			if (policy.KeepForeign || !a && !b) && two.Labels[key] != value {
				t.Fatalf("foreign label %s was %q and is %q", key, value, two.Labels[key])
			}
		}
		for _, key := range policy.Record.Parse(two.Annotations[policy.Record.Labels()]) {
			if two.Labels[key] != second.Labels[key] || second.Labels[key] == "" {
				t.Fatalf("the record claims %s, which is %q and should be %q", key, two.Labels[key], second.Labels[key])
			}
		}
		gone := apply(t, two, plan.Compute(two, plan.Desired{}, policy))
		for annotation := range gone.Annotations {
			if strings.Contains(annotation, "nfd.node.kubernetes.io/") {
				t.Fatalf("%s stays when nothing is owned", annotation)
			}
		}
	}
}

func TestWithoutKeepsOwnershipOfWhatStays(t *testing.T) {
	state := plan.State{Labels: map[string]string{feature + "a": "1"}, Annotations: map[string]string{plan.Record{}.Labels(): "a"}}
	p := plan.Compute(state, plan.Desired{Labels: map[string]string{feature + "b": "1"}}, plan.Policy{})
	got := string(p.Without(plan.Step.Takes).Patch())
	want := `{"metadata":{"labels":{"feature.node.kubernetes.io/b":"1"},"annotations":{"nfd.node.kubernetes.io/feature-labels":"a,b"}}}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a plan that holds a removal back (-want +got):\n%s", diff)
	}
}

func FuzzRecord(f *testing.F) {
	for _, s := range []string{
		"", "a,b", "v.io/a,b", " a , ,b,", "a/b/c", ",", "feature.node.kubernetes.io/a",
		"feature.node.kubernetes.io/", "feature.node.kubernetes.io/a/b", "feature.node.kubernetes.io/ a", "feature.node.kubernetes.io/feature.node.kubernetes.io/",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		var r plan.Record
		names := r.Parse(list)
		again := r.Parse(r.Format(names))
		slices.Sort(names)
		slices.Sort(again)
		if diff := cmp.Diff(slices.Compact(names), slices.Compact(again)); diff != "" {
			t.Errorf("a record changes by being written (-before +after):\n%s", diff)
		}
		taints := plan.ParseTaints(list)
		for _, taint := range taints {
			if got := plan.ParseTaints(plan.FormatTaint(taint)); len(got) != 1 || got[0] != taint {
				t.Errorf("taint %+v becomes %+v", taint, got)
			}
		}
	})
}

// TestARecordInAnotherFormIsWrittenAgain: nothing on the Node changes, but its record does not list exactly what is owned, in the form in
// which it is written.
func TestARecordInAnotherFormIsWrittenAgain(t *testing.T) {
	const a, b = "feature.node.kubernetes.io/a", "feature.node.kubernetes.io/b"
	for name, test := range map[string]struct {
		record plan.Record
		have   string
		want   string // empty: nothing is written
	}{
		"Same":         {plan.Record{}, "a,b", ""},
		"Unsorted":     {plan.Record{}, "b,a", "a,b"},
		"Blank":        {plan.Record{}, "a, b", "a,b"},
		"Twice":        {plan.Record{}, "a,a,b", "a,b"},
		"Comma":        {plan.Record{}, "a,b,", "a,b"},
		"LongNames":    {plan.Record{}, a + "," + b, "a,b"},
		"Protected":    {plan.Record{}, "a,b,node.kubernetes.io/x", "a,b"},
		"SameBare":     {plan.Record{Bare: true}, a + "," + b, ""},
		"WithoutBare":  {plan.Record{Bare: true}, "a,b", a + "," + b},
		"PartlyBefore": {plan.Record{Bare: true}, "a," + b, a + "," + b},
	} {
		t.Run(name, func(t *testing.T) {
			labels := map[string]string{a: "1", b: "1"}
			state := plan.State{Labels: labels, Annotations: map[string]string{test.record.Labels(): test.have}}
			p := plan.Compute(state, plan.Desired{Labels: labels}, plan.Policy{Record: test.record})
			var patch struct {
				Metadata struct{ Annotations map[string]string }
			}
			if body := p.Patch(); body != nil {
				if err := json.Unmarshal(body, &patch); err != nil {
					t.Fatal(err)
				}
			}
			if got := patch.Metadata.Annotations[test.record.Labels()]; got != test.want || len(p.Steps) > 0 {
				t.Errorf("the record %q becomes %q, want %q; steps %v", test.have, got, test.want, p.Steps)
			}
		})
	}
}

// TestTheRecordOfTaintsIsSorted: rules that give the same taints in another order cause no write.
func TestTheRecordOfTaintsIsSorted(t *testing.T) {
	a, b := corev1.Taint{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: "example.com/b", Effect: corev1.TaintEffectNoSchedule}
	policy := plan.Policy{Taints: true}
	p := plan.Compute(plan.State{}, plan.Desired{Taints: []corev1.Taint{b, a}}, policy)
	const record = "example.com/a:NoSchedule,example.com/b:NoSchedule"
	if got := string(p.TaintPatch("1")); !strings.Contains(got, `"nfd.node.kubernetes.io/taints":"`+record+`"`) {
		t.Errorf("the record is not %s: %s", record, got)
	}
	state := plan.State{Taints: []corev1.Taint{b, a}, Annotations: map[string]string{plan.Record{}.Taints(): record}}
	for _, order := range [][]corev1.Taint{{a, b}, {b, a}} {
		if p := plan.Compute(state, plan.Desired{Taints: order}, policy); p.Patch() != nil || p.TaintPatch("1") != nil {
			t.Errorf("the order %v is written: %s, %s", order, p.Patch(), p.TaintPatch("1"))
		}
	}
}

// TestAnUnchangedRecordIsKept changes something else of a Node whose labels are as wanted.
func TestAnUnchangedRecordIsKept(t *testing.T) {
	const record = "a,b,example.com/c"
	labels := map[string]string{feature + "a": "1", feature + "b": "1", "example.com/c": "1"}
	state := plan.State{Labels: labels, Annotations: map[string]string{plan.Record{}.Labels(): record}}
	p := plan.Compute(state, plan.Desired{Labels: labels, Failed: "rule"}, plan.Policy{})
	for name, test := range map[string]struct {
		plan *plan.Plan
		want string
	}{
		"OtherAnnotation": {p, `{"metadata":{"annotations":{"assay.dev/failed":"rule"}}}`},
		"NoStep":          {p.Without(func(plan.Step) bool { return true }), ""},
		"Disowned":        {p.Disown([]string{feature + "a"}), `{"metadata":{"annotations":{"assay.dev/failed":"rule","nfd.node.kubernetes.io/feature-labels":"b,example.com/c"}}}`},
	} {
		if got := string(test.plan.Patch()); got != test.want {
			t.Errorf("%s: patch %s, want %s", name, got, test.want)
		}
	}
	if !p.Owns(feature+"a") || p.Owns(feature+"d") {
		t.Error("the plan does not own the labels of the record, or others")
	}
	for name, test := range map[string]struct {
		record string
		policy plan.Policy
		want   string
	}{
		"OneIsNotRecorded": {"a,b", plan.Policy{}, "= label example.com/c=1 (taken over as it is)\n"},
		"OneIsProtected":   {record, plan.Policy{KeepForeign: true, Keys: &keys.Policy{Protected: []string{"example.com"}}}, "! label example.com/c=1 stays: another client wrote it (wanted 1)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			state.Annotations = map[string]string{plan.Record{}.Labels(): test.record}
			p := plan.Compute(state, plan.Desired{Labels: labels}, test.policy)
			if got := p.String(); got != test.want {
				t.Errorf("plan %q, want %q", got, test.want)
			}
		})
	}
}

// BenchmarkComputeUnchanged compares a Node that is as wanted.
func BenchmarkComputeUnchanged(b *testing.B) {
	labels, names := map[string]string{}, []string{}
	for i := range 135 {
		name := fmt.Sprintf("cpu-cpuid.FLAG%03d", i)
		labels[feature+name], names = "true", append(names, name)
	}
	state := plan.State{Labels: labels, Annotations: map[string]string{plan.Record{}.Labels(): strings.Join(names, ",")}}
	b.ReportAllocs()
	for b.Loop() {
		if p := plan.Compute(state, plan.Desired{Labels: labels}, plan.Policy{}); !p.Empty() || p.Patch() != nil {
			b.Fatal(p)
		}
	}
}

// TestRemovesEveryKeyThatIsNotWanted has nine taints and labels, of which one is desired: the others must be removed, whatever
// their order.
func TestRemovesEveryKeyThatIsNotWanted(t *testing.T) {
	state := plan.State{Labels: map[string]string{}}
	var taints, labels []string
	for i := range 9 {
		key := fmt.Sprintf("v.io/t%d", i)
		state.Taints = append(state.Taints, corev1.Taint{Key: key, Effect: "NoSchedule"})
		taints = append(taints, key+":NoSchedule")
		state.Labels[key] = "1"
		labels = append(labels, key)
	}
	state.Annotations = map[string]string{plan.Record{}.Taints(): strings.Join(taints, ","), plan.Record{}.Labels(): strings.Join(labels, ",")}
	p := plan.Compute(state, plan.Desired{Taints: state.Taints[:1], Labels: map[string]string{"v.io/t0": "1"}}, plan.Policy{Taints: true})
	removed := map[keys.Kind]int{}
	for _, s := range p.Steps {
		if s.Op == plan.Remove {
			removed[s.Kind]++
		}
	}
	if removed[keys.Taint] != 8 || removed[keys.Label] != 8 {
		t.Errorf("%d taints and %d labels are removed, want 8 each", removed[keys.Taint], removed[keys.Label])
	}
}

// TestTaintsOfARecordThatAUserEdited: invalid entries are skipped.
func TestTaintsOfARecordThatAUserEdited(t *testing.T) {
	var got []string
	for _, taint := range plan.ParseTaints("a:NoSchedule, b=1:NoExecute,,:NoSchedule,c,d:,v.io/e=x:y:NoSchedule") {
		got = append(got, plan.FormatTaint(taint))
	}
	if diff := cmp.Diff([]string{"a:NoSchedule", "b=1:NoExecute", "v.io/e=x:y:NoSchedule"}, got); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
}

func TestOtherTaintsKeepTheirValues(t *testing.T) {
	theirs := corev1.Taint{Key: "example.com/theirs", Value: "x", Effect: corev1.TaintEffectNoSchedule}
	ours := corev1.Taint{Key: "vendor.io/ours", Value: "new", Effect: corev1.TaintEffectNoSchedule}
	p := plan.Compute(plan.State{Taints: []corev1.Taint{theirs}}, plan.Desired{Taints: []corev1.Taint{ours}}, plan.Policy{Taints: true})
	var patch struct {
		Spec struct{ Taints []corev1.Taint }
	}
	if err := json.Unmarshal(p.TaintPatch("7"), &patch); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(patch.Spec.Taints, []corev1.Taint{theirs, ours}) {
		t.Errorf("the patch has %v", patch.Spec.Taints)
	}
}

package extender_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// things are the objects that answers depend on, by what they do to a Decider.
type things map[string]func(*index.Index, *podrequirements.Resolver)

// decider returns a Decider that has seen nothing but these objects.
func (all things) decider() *extender.Decider {
	d := &extender.Decider{Index: index.New(), Requirements: podrequirements.New(rules.Options{}), Now: func() time.Time { return time.Unix(1000, 0) }}
	d.Index.SetSynced()
	for _, put := range all {
		put(d.Index, d.Requirements)
	}
	return d
}

// TestWhatIsRememberedChangesNoAnswer compares a Decider that remembers requirements of pods and which nodes meet them with one that has
// just been made, after random changes of everything that answers depend on. Each request is overwritten once it is answered.
func TestWhatIsRememberedChangesNoAnswer(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	flags := []string{"AVX", "AMXBF16", "SHA"}
	one := func(list []string) string { return list[random.IntN(len(list))] }
	known, in := things{}, facts.NewInterner()
	d := known.decider()
	nodes := []string{"n0", "n1", "n2", "n3"}
	change := func() {
		name, namespace, flag := one(nodes), one([]string{"ml", "batch"}), one(flags)
		key, gone := "", random.IntN(3) == 0
		var put, remove func(*index.Index, *podrequirements.Resolver)
		switch random.IntN(4) {
		case 0:
			key = "node " + name
			n := index.Node{
				Input:  rules.Input{Node: rules.Node{Name: name}, Facts: facts.FromMap(map[string]facts.Feature{"cpu.cpuid": {Flags: facts.NewFlags(flag, one(flags))}}, in)},
				Labels: map[string]string{"zone": flag},
			}
			put = func(v *index.Index, _ *podrequirements.Resolver) { v.Put(n) }
			remove = func(v *index.Index, _ *podrequirements.Resolver) { v.Remove(name) }
		case 1:
			key = "request " + namespace
			o := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "r"}}
			o.Spec.Required = &assayv1alpha1.Requirement{MatchFeatures: matcher(flag)}
			o.Spec.Preferred = []assayv1alpha1.Preference{{Weight: 30, Requirement: assayv1alpha1.Requirement{MatchFeatures: matcher(one(flags))}}}
			put = func(_ *index.Index, a *podrequirements.Resolver) { a.PutRequest(o) }
			remove = func(_ *index.Index, a *podrequirements.Resolver) { a.RemoveRequest(namespace, "r") }
		case 2:
			key = "policy " + name
			o := &assayv1alpha1.NodeFeatureSchedulingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
			o.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": flag}}
			o.Spec.Required = &assayv1alpha1.Requirement{MatchFeatures: matcher(one(flags))}
			put = func(_ *index.Index, a *podrequirements.Resolver) { a.PutPolicy(o) }
			remove = func(_ *index.Index, a *podrequirements.Resolver) { a.RemovePolicy(name) }
		case 3:
			key = "namespace " + namespace
			put = func(_ *index.Index, a *podrequirements.Resolver) {
				a.PutNamespace(namespace, map[string]string{"team": flag})
			}
			remove = func(_ *index.Index, a *podrequirements.Resolver) { a.PutNamespace(namespace, nil) }
		}
		if known[key] = put; gone {
			delete(known, key)
			put = remove
		}
		put(d.Index, d.Requirements)
	}
	different := map[string]bool{}
	for step := range 5_000 {
		if random.IntN(2) == 0 {
			change()
		}
		if random.IntN(500) == 0 {
			d.Sweep()
		}
		labels, annotations := map[string]string{}, map[string]string{}
		if random.IntN(2) == 0 {
			labels[assayv1alpha1.FeatureRequestLabel] = "r"
		}
		switch random.IntN(3) {
		case 0:
			annotations["assay.dev/required-features"] = fmt.Sprintf("matchFeatures: [{feature: cpu.cpuid, matchExpressions: {%s: {op: Exists}}}]", one(flags))
		case 1:
			annotations["assay.dev/required-features"] = fmt.Sprintf(`conditions: [{op: eq, args: {values: ["{node.labels.zone}", %q]}}]`, one(flags))
		}
		request := body(t, extenderv1.ExtenderArgs{Pod: pod(one([]string{"ml", "batch"}), labels, annotations), NodeNames: &nodes})
		fresh := known.decider()
		wantFilter, _, wantErr := fresh.Filter(request, nil)
		wantScores, _ := fresh.Prioritize(request)
		gotFilter, _, err := d.Filter(request, nil)
		gotScores, _ := d.Prioritize(request)
		if string(gotFilter) != string(wantFilter) || string(gotScores) != string(wantScores) || (err == nil) != (wantErr == nil) {
			t.Fatalf("step %d: %s\ngot %s and %s, %v\nwant %s and %s, %v", step, request, gotFilter, gotScores, err, wantFilter, wantScores, wantErr)
		}
		different[string(wantFilter)+string(wantScores)] = true
		for i := range request {
			request[i] = 0xAA
		}
	}
	if len(different) < 100 {
		t.Errorf("only %d different answers", len(different))
	}
}

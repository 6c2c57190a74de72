package inputs_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/inputs/inputstest"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
)

// content returns everything that rules can read of an input.
func content(in rules.Input) map[string]any {
	publishers := []any{}
	for _, p := range in.Publishers {
		publishers = append(publishers, p.Name, p.Facts.Features())
	}
	return map[string]any{
		"node": in.Node.Name, "labels": in.Node.Labels, "annotations": in.Node.Annotations, "requested": len(in.Labels), "features": in.Facts.Features(),
		"publishers": publishers, "requests": fmt.Sprint(in.Labels),
	}
}

// TestAnInputThatIsKeptIsTheOneOfNow compares inputs, which are kept as long as no object has another version, with what the objects give
// when they are merged without an Interner, after random changes of three nodes and what is published about them.
func TestAnInputThatIsKeptIsTheOneOfNow(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	stored := inputstest.New()
	n := watched(t, inputs.Options{}, stored)
	nodes, features := map[string]*corev1.Node{}, map[string]*nodefeature.NodeFeature{}
	value := func() string { return fmt.Sprint("v", random.IntN(4)) }
	values := func(keys ...string) map[string]string {
		out := map[string]string{}
		for _, key := range keys {
			if random.IntN(3) > 0 {
				out[key] = value()
			}
		}
		return out
	}
	version := 0
	meta := func(namespace, name string) metav1.ObjectMeta {
		version++
		return metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: fmt.Sprint(version)}
	}
	decoded := func() *facts.Facts {
		text := fmt.Sprintf(`{"attributes":{"a.b":{"elements":{"x":%q}}},"flags":{%q:{"elements":{%q:{}}}},"instances":{"c.d":{"elements":[{"attributes":{"x":%q}}]}}}`,
			value(), "a."+value(), value(), value())
		out, err := facts.Decode(text, nodefeature.Interner())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for range 5_000 {
		name := fmt.Sprint("n", random.IntN(3))
		switch namespace := []string{"own", "vendor", "other"}[random.IntN(3)]; random.IntN(5) {
		case 0:
			o := &corev1.Node{ObjectMeta: meta("", name)}
			o.UID, o.Labels, o.Annotations = types.UID(value()), values("zone", "feature.node.kubernetes.io/x"), values("note", "nfd.node.kubernetes.io/feature-labels")
			o.Status.NodeInfo.KernelVersion = value()
			nodes[name] = o
			stored.Put(o)
		case 1:
			if f := features[namespace+name]; f != nil {
				stored.Remove(f)
				delete(features, namespace+name)
			}
		case 2: // sets that it names have arrived
			if f := features[namespace+name]; f != nil {
				next := *f
				next.Spec.Features.Facts = decoded()
				features[namespace+name] = &next
				stored.Remove(f)
				stored.Put(&next)
			}
		default:
			f := &nodefeature.NodeFeature{ObjectMeta: meta(namespace, name)}
			f.Labels = map[string]string{nfdv1alpha1.NodeNameLabel: name}
			f.Spec.Labels, f.Spec.Features.Facts = values("p", "q.example.com/q"), decoded()
			features[namespace+name] = f
			stored.Put(f)
		}
		node := nodes[name]
		if node == nil {
			continue
		}
		var all []*nodefeature.NodeFeature
		for _, f := range features {
			if f.NodeName() == name {
				all = append(all, f)
			}
		}
		policy := gather.Policy{Namespace: "own"}
		selected, err := gather.Select(policy, gather.Stored(node), nil, all)
		if err != nil {
			t.Fatal(err)
		}
		got, err := n.Of(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(content(selected.Input(gather.Stored(node), nil)), content(got.Input)); diff != "" {
			t.Fatalf("%s (-merged now +kept):\n%s", name, diff)
		}
	}
}

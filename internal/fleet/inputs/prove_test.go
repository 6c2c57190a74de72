package inputs_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
)

// contents is a fake API server with whole NodeFeatures and NodeFeatureSets.
type contents struct {
	client.Reader
	features map[string]*nfdv1alpha1.NodeFeature // by name
	sets     map[string]*assayv1alpha1.NodeFeatureSet
	gets     int // of sets
}

func (s *contents) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *unstructured.Unstructured:
		if f := s.features[key.Name]; f != nil {
			text, err := json.Marshal(f)
			return errors.Join(err, json.Unmarshal(text, &into.Object))
		}
	case *assayv1alpha1.NodeFeatureSet:
		s.gets++
		if set := s.sets[key.Name]; set != nil {
			set.DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// TestProveReadsWhatIsStored merges inline features, encoded instances and a feature set; what the object has itself wins.
func TestProveReadsWhatIsStored(t *testing.T) {
	inSet := nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"kernel.version": {Elements: map[string]string{"full": "6.1"}}}}
	name, err := featureset.Name(&inSet)
	if err != nil {
		t.Fatal(err)
	}
	set := &assayv1alpha1.NodeFeatureSet{ObjectMeta: metav1.ObjectMeta{Namespace: "assay", Name: name}, Spec: assayv1alpha1.NodeFeatureSetSpec{Features: inSet}}
	own := &nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Namespace: "assay", Name: "n", ResourceVersion: "7", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n"}},
		Spec: nfdv1alpha1.NodeFeatureSpec{
			Labels: map[string]string{"vendor.io/asked": "1"}, FeatureSets: []string{name},
			EncodedInstances: `{"network.virtual":[{"name":"veth0"}],"usb.device":[{"vendor":"of the encoded ones"}]}`,
			Features: nfdv1alpha1.Features{Instances: map[string]nfdv1alpha1.InstanceFeatureSet{
				"usb.device": {Elements: []nfdv1alpha1.InstanceFeature{{Attributes: map[string]string{"vendor": "046d"}}}},
			}},
		},
	}
	want := nfdv1alpha1.Features{
		Flags: map[string]nfdv1alpha1.FlagFeatureSet{}, Attributes: inSet.Attributes,
		Instances: map[string]nfdv1alpha1.InstanceFeatureSet{
			"usb.device":      own.Spec.Features.Instances["usb.device"],
			"network.virtual": {Elements: []nfdv1alpha1.InstanceFeature{{Attributes: map[string]string{"name": "veth0"}}}},
		},
	}
	cached := &nodefeature.NodeFeature{ObjectMeta: own.ObjectMeta}
	cached.Spec.Features.Facts = facts.FromMap(map[string]facts.Feature{"of.another": {Flags: facts.NewFlags("node")}}, nil)
	state := inputs.State{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, Features: selected(cached), Own: cached}
	store := featuresets.New("assay")
	store.Put(set)
	for where, sets := range map[string]*featuresets.Store{"API server": nil, "memory": store} {
		live := &contents{features: map[string]*nfdv1alpha1.NodeFeature{"n": own}, sets: map[string]*assayv1alpha1.NodeFeatureSet{name: set}}
		nodes := inputs.New(inputs.Options{Policy: gather.Policy{Namespace: "assay"}, Live: live, Sets: sets})
		proof, err := nodes.Prove(t.Context(), state)
		if err != nil {
			t.Fatal(err)
		}
		got := proof.Input.Facts.Features()
		delete(got.Flags, facts.DeclaredFeature) // of the Node object
		delete(got.Attributes, facts.NodeFeature)
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("with the set of the %s (-want +got):\n%s", where, diff)
		}
		if got := proof.Input.Labels["vendor.io/asked"]; got != "1" {
			t.Errorf("the requested label is %q", got)
		}
		if wantGets := map[string]int{"API server": 1, "memory": 0}[where]; live.gets != wantGets {
			t.Errorf("with the set of the %s: %d requests for sets, want %d", where, live.gets, wantGets)
		}
		live.sets, nodes = nil, inputs.New(inputs.Options{Policy: gather.Policy{Namespace: "assay"}, Live: live})
		if _, err := nodes.Prove(t.Context(), state); !errors.Is(err, inputs.ErrStale) {
			t.Errorf("without the set: %v", err)
		}
	}
}

// TestProveNeedsTheSameVersions distinguishes features that are wrong from features that are old.
func TestProveNeedsTheSameVersions(t *testing.T) {
	object := metav1.ObjectMeta{Namespace: "assay", Name: "n", ResourceVersion: "7", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n"}}
	newer := object
	newer.ResourceVersion = "8"
	other := newer
	other.Namespace = "vendor"
	cached := &nodefeature.NodeFeature{ObjectMeta: object}
	for name, tc := range map[string]struct {
		live       *nfdv1alpha1.NodeFeature
		held       bool
		unreadable *nodefeature.NodeFeature
		want       error
	}{
		"Same":            {&nfdv1alpha1.NodeFeature{ObjectMeta: object}, false, nil, nil},
		"Newer":           {&nfdv1alpha1.NodeFeature{ObjectMeta: newer}, false, nil, inputs.ErrStale},
		"Deleted":         {nil, false, nil, inputs.ErrStale},
		"DeletedAndHeld":  {nil, true, nil, nil},
		"CreatedAndHeld":  {&nfdv1alpha1.NodeFeature{ObjectMeta: newer}, true, nil, inputs.ErrStale},
		"Unreadable":      {&nfdv1alpha1.NodeFeature{ObjectMeta: newer}, false, &nodefeature.NodeFeature{ObjectMeta: newer}, nil},
		"NoLongerSo":      {&nfdv1alpha1.NodeFeature{ObjectMeta: newer}, false, &nodefeature.NodeFeature{ObjectMeta: object}, inputs.ErrStale},
		"UnreadableOther": {&nfdv1alpha1.NodeFeature{ObjectMeta: newer}, false, &nodefeature.NodeFeature{ObjectMeta: other}, inputs.ErrStale},
	} {
		live := &contents{features: map[string]*nfdv1alpha1.NodeFeature{}}
		if tc.live != nil {
			live.features["n"] = tc.live
		}
		state := inputs.State{Node: &corev1.Node{}, Features: selected(cached), Own: cached}
		if tc.held {
			state.HeldUntil = time.Now().Add(time.Minute)
		}
		if tc.unreadable != nil {
			state.LeftOut = []inputs.LeftOut{{Object: tc.unreadable, Err: errors.New("not JSON")}}
		}
		if _, err := inputs.New(inputs.Options{Policy: gather.Policy{Namespace: "assay"}, Live: live}).Prove(t.Context(), state); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func selected(f *nodefeature.NodeFeature) gather.Selection[*nodefeature.NodeFeature] {
	all, _ := gather.Select(gather.Policy{}, gather.Node{}, nil, []*nodefeature.NodeFeature{f}) // without namespaces there is no error
	return all
}

func TestDifferNamesTheFirstDifference(t *testing.T) {
	of := func(features map[string]facts.Feature) *facts.Facts { return facts.FromMap(features, nil) }
	one := facts.Feature{
		Flags: facts.NewFlags("A"), Attributes: facts.NewAttributes(map[string]string{"x": "1", "y": "1"}),
		Instances: facts.NewInstances([]map[string]string{{"a": "1"}, {"a": "2"}}),
	}
	text := func(s string) *string { return &s }
	for name, tc := range map[string]struct {
		change func(*facts.Feature)
		want   *inputs.Difference
	}{
		"Equal":    {func(*facts.Feature) {}, nil},
		"Flag":     {func(f *facts.Feature) { f.Flags = facts.NewFlags("B") }, &inputs.Difference{Feature: "f.f", Element: "A", Instance: -1, First: text("")}},
		"Value":    {func(f *facts.Feature) { f.Attributes = facts.NewAttributes(map[string]string{"x": "2", "y": "2"}) }, &inputs.Difference{Feature: "f.f", Element: "x", Instance: -1, First: text("1"), Second: text("2")}},
		"Instance": {func(f *facts.Feature) { f.Instances = facts.NewInstances([]map[string]string{{"a": "1"}, {"a": "3"}}) }, &inputs.Difference{Feature: "f.f", Element: "a", Instance: 1, First: text("2"), Second: text("3")}},
		"OneInstance": {func(f *facts.Feature) {
			f.Instances = facts.NewInstances([]map[string]string{{"a": "1"}, {"a": "2"}, {}})
		}, &inputs.Difference{Feature: "f.f", Instance: 2, Second: text("")}},
	} {
		two := one
		tc.change(&two)
		got := inputs.Differ(of(map[string]facts.Feature{"f.f": one}), of(map[string]facts.Feature{"f.f": two}))
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

package offline_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/inputs/inputstest"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/plan"
)

// feature returns a NodeFeature of node n, which requests a label with its name.
func feature(namespace, name string, change ...func(*nodefeature.NodeFeature)) *nodefeature.NodeFeature {
	f := &nodefeature.NodeFeature{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n"},
	}}
	f.Spec.Labels = map[string]string{"from": namespace + "." + name}
	f.Spec.Features.Facts = facts.New(&nfdv1alpha1.Features{}, nil)
	for _, c := range change {
		c(f)
	}
	return f
}

func ownedBy(uid types.UID) func(*nodefeature.NodeFeature) {
	return func(f *nodefeature.NodeFeature) {
		f.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: uid}}
	}
}

func deleted(f *nodefeature.NodeFeature) {
	f.DeletionTimestamp, f.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/x"}
}

func unreadable(f *nodefeature.NodeFeature) {
	f.Spec.Features.Facts, f.Spec.Features.Err = nil, errors.New("attributes: expected a map")
}

// cases are tables of NodeFeatures of Node n with UID now, in which ours is Assay's namespace.
var cases = map[string]struct {
	policy     gather.Policy
	features   []*nodefeature.NodeFeature
	publishers []string // those that count, in merge order
	from       string   // the label of the last one that requests it
	noted      string   // part of what the command line says about one that does not count
}{
	"AllNamespacesInNFDsOrder": {
		features:   []*nodefeature.NodeFeature{feature("vendor", "b"), feature("vendor", "a"), feature("other", "b"), feature("ours", "z"), feature("ours", "n")},
		publishers: []string{"ours/n", "ours/z", "vendor/a", "other/b", "vendor/b"}, from: "vendor.b",
	},
	"OwnerIsADeletedNode": {
		features:   []*nodefeature.NodeFeature{feature("ours", "n", ownedBy("before")), feature("ours", "z")},
		publishers: []string{"ours/z"}, from: "ours.z", noted: "ours/n is left out: its owner is a deleted Node",
	},
	"OwnerIsTheNode":              {features: []*nodefeature.NodeFeature{feature("ours", "n", ownedBy("now"))}, publishers: []string{"ours/n"}, from: "ours.n"},
	"OthersMayOutliveTheirNode":   {features: []*nodefeature.NodeFeature{feature("vendor", "n", ownedBy("before"))}, publishers: []string{"vendor/n"}, from: "vendor.n"},
	"OneIsBeingDeleted":           {features: []*nodefeature.NodeFeature{feature("ours", "n", deleted)}, noted: "ours/n is left out: it is being deleted"},
	"OneHasFeaturesOfAnotherForm": {features: []*nodefeature.NodeFeature{feature("vendor", "a", unreadable)}, noted: "vendor/a is left out: attributes: expected a map"},
	"ANamespaceIsNotSelected": {
		policy: gather.Policy{Namespaces: labels.SelectorFromSet(labels.Set{"trusted": "yes"})},
		features: []*nodefeature.NodeFeature{
			feature("ours", "n"), feature("other", "a"), feature("vendor", "b"), feature("nowhere", "c"),
		},
		publishers: []string{"ours/n", "vendor/b"}, from: "vendor.b", noted: "other/a is left out: restrictions.nodeFeatureNamespaceSelector does not select",
	},
	"LabelsOfOthersAreDenied": {
		policy:     gather.Policy{IgnoreLabels: true},
		features:   []*nodefeature.NodeFeature{feature("ours", "n"), feature("ours", "z"), feature("vendor", "b")},
		publishers: []string{"ours/n", "ours/z", "vendor/b"}, from: "ours.n",
	},
	"AnInstanceHasAnotherRecord": {
		policy:     gather.Policy{Record: plan.Record{Instance: "two"}},
		features:   []*nodefeature.NodeFeature{feature("ours", "n")},
		publishers: []string{"ours/n"}, from: "ours.n",
	},
}

// nodeLabels are the labels of Node n that are not the outputs of rules of a controller, by its instance name.
var nodeLabels = map[string][]string{"": {"pool", "written-by-two"}, "two": {"pool", "written-by-one"}}

func TestTheControllerAndTheCommandLineUseTheSameNodeFeatures(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", UID: "now", Labels: map[string]string{"pool": "a", "written-by-one": "x", "written-by-two": "x"},
		Annotations: map[string]string{
			nfdv1alpha1.FeatureLabelsAnnotation: "written-by-one", "two." + nfdv1alpha1.FeatureLabelsAnnotation: "written-by-two",
		},
	}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.policy.Namespace = "ours"
			tc.policy.Keys.DisableAutoPrefix = true
			tc.policy.Record.Bare = true
			list := offline.Objects{
				Nodes:      map[string]*corev1.Node{"n": node},
				Namespaces: map[string]map[string]string{"ours": nil, "other": {"trusted": "no"}, "vendor": {"trusted": "yes"}},
			}
			cached := []client.Object{node}
			for name, of := range list.Namespaces {
				ns := inputs.Namespace()
				ns.Name, ns.Labels = name, of
				cached = append(cached, ns)
			}
			for _, f := range tc.features {
				list.Published = append(list.Published, f.Published())
				cached = append(cached, f)
			}
			nodes := inputs.New(inputs.Options{Policy: tc.policy})
			if err := nodes.Watch(t.Context(), inputstest.New(cached...)); err != nil {
				t.Fatal(err)
			}
			state, err := nodes.Of(t.Context(), node)
			if err != nil {
				t.Fatal(err)
			}
			fleet := offline.New(tc.policy, list)
			for who, in := range map[string]rules.Input{"controller": state.Input, "command line": fleet.Input("n")} {
				var publishers []string
				for _, p := range in.Publishers {
					publishers = append(publishers, p.Name)
				}
				if diff := cmp.Diff(tc.publishers, publishers); diff != "" {
					t.Errorf("%s: which NodeFeatures count (-want +got):\n%s", who, diff)
				}
				if got := in.Labels["from"]; got != tc.from {
					t.Errorf("%s: the label is of %q, want %q", who, got, tc.from)
				}
				if diff := cmp.Diff(nodeLabels[tc.policy.Record.Instance], slices.Sorted(maps.Keys(in.Node.Labels))); diff != "" {
					t.Errorf("%s: what rules read of the Node (-want +got):\n%s", who, diff)
				}
			}
			if notes := strings.Join(fleet.Notes(), "; "); !strings.Contains(notes, tc.noted) || (notes == "") != (tc.noted == "") {
				t.Errorf("the command line notes %q, want %q", notes, tc.noted)
			}
		})
	}
}

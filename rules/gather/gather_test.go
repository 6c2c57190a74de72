package gather_test

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/plan"
)

func input(p gather.Policy, node gather.Node, published ...gather.Published) rules.Input {
	selected, _ := gather.Select(p, node, nil, published) // without namespaces there is no error
	return selected.Input(node, nil)
}

// Go iterates over a map in random order; the label must not depend on it.
func TestGatherGivesOneResultForALabelInBothSpellings(t *testing.T) {
	const key = "feature.node.kubernetes.io/plain"
	published := []gather.Published{{Name: "vendor", Facts: facts.Merge(nil), Labels: map[string]string{"plain": "bare", key: "spelled"}}}
	for range 100 {
		if got := input(gather.Policy{}, gather.Node{}, published...).Labels[key]; got != "spelled" {
			t.Fatalf("%s is %q, want the value of the key that is spelled out", key, got)
		}
	}
}

// A rule that reads an extended resource of a rule would be circular.
func TestResourcesThatRulesWroteAreNoFeatures(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		nfdv1alpha1.ExtendedResourcesAnnotation: "example.com/licenses,sgx", "two." + nfdv1alpha1.ExtendedResourcesAnnotation: "example.com/seats",
	}}}
	node.Status.Allocatable = corev1.ResourceList{
		"example.com/licenses": resource.MustParse("3"), "feature.node.kubernetes.io/sgx": resource.MustParse("1"),
		"example.com/seats": resource.MustParse("2"), "nvidia.com/gpu": resource.MustParse("8"),
	}
	for instance, want := range map[string]string{
		"":    "example.com/seats nvidia.com/gpu",
		"two": "example.com/licenses feature.node.kubernetes.io/sgx nvidia.com/gpu",
	} {
		policy := gather.Policy{Record: plan.Record{Instance: instance}}
		in := input(policy, gather.Stored(node))
		if got := strings.Join(in.Facts.Feature("kubernetes.allocatable").Attributes.Names(), " "); got != want {
			t.Errorf("instance %q reads the resources %s, want %s", instance, got, want)
		}
	}
}

// A client that may write NodeFeatures must not be able to invent devices, also for rules that read one publisher.
func TestPublishedDevicesAreIgnoredInACluster(t *testing.T) {
	published := []gather.Published{{Namespace: "ours", Name: "n", Facts: facts.New(&nfdv1alpha1.Features{
		Instances: map[string]nfdv1alpha1.InstanceFeatureSet{
			"dra.device": {Elements: []nfdv1alpha1.InstanceFeature{{Attributes: map[string]string{"driver.name": "invented"}}}},
		},
	}, nil)}}
	known := facts.FromPools([]facts.Pool{{Driver: "real", Name: "p", Complete: true}}, nil, nil)
	stored := gather.Stored(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	withDevices := stored
	withDevices.Devices = known
	for name, tt := range map[string]struct {
		node    gather.Node
		devices string
		drivers string
	}{
		"unknown devices":          {stored, "none", "none"},
		"known devices":            {withDevices, "0", "1"},
		"a file without a cluster": {gather.Node{Name: "n"}, "1", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(gather.Policy{}, tt.node, published...)
			count := func(feature string) string {
				if f := in.Facts.Feature(feature); f != nil {
					return strconv.Itoa(f.Instances.Len())
				}
				return "none"
			}
			if got, drivers := count("dra.device"), count("dra.driver"); got != tt.devices || drivers != tt.drivers {
				t.Errorf("%s devices, %s drivers, want %s and %s", got, drivers, tt.devices, tt.drivers)
			}
			if of := in.Publishers[0].Facts.Feature("dra.device"); (of != nil) != (tt.devices == "1") {
				t.Errorf("rules with featureSources read %v", of)
			}
		})
	}
}

// A NodeFeature of another publisher must not say which sources of the worker are unread, nor which boot it has examined: the node would keep
// its labels without a time limit.
func TestOnlyTheWorkerSaysWhatItHasRead(t *testing.T) {
	says := func(namespace, name, boot, unread string) gather.Published {
		return gather.Published{Namespace: namespace, Name: name, Node: "n", Facts: facts.New(&nfdv1alpha1.Features{
			Flags:      map[string]nfdv1alpha1.FlagFeatureSet{"source.unread": {Elements: map[string]nfdv1alpha1.Nil{unread: {}}}},
			Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"system.boot": {Elements: map[string]string{"id": boot}}, namespace + "." + name: {}},
		}, nil)}
	}
	worker, beside, same := says("ours", "n", "b1", "pci"), says("ours", "vendor", "b0", "usb"), says("theirs", "n", "b0", "cpu")
	for name, tt := range map[string]struct {
		published    []gather.Published
		boot, unread string
	}{
		"the worker":            {[]gather.Published{worker}, "b1", "pci"},
		"others":                {[]gather.Published{beside, same}, "", ""},
		"the worker and others": {[]gather.Published{same, worker, beside}, "b1", "pci"},
		"a file":                {[]gather.Published{says("", "n", "b1", "pci"), beside}, "b1", "pci"},
		"without an object":     {[]gather.Published{says("", "", "b1", "pci"), beside}, "b1", "pci"},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(gather.Policy{Namespace: "ours"}, gather.Stored(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}), tt.published...)
			for of, got := range map[string]*facts.Facts{"all": in.Facts, "worker": in.Worker} {
				if boot, unread := got.Boot(), strings.Join(got.Unread(), " "); boot != tt.boot || unread != tt.unread {
					t.Errorf("%s: boot %q, unread %q, want %q and %q", of, boot, unread, tt.boot, tt.unread)
				}
			}
			for _, p := range in.Publishers {
				if unread := p.Facts.Unread(); len(unread) > 0 && tt.unread != unread[0] {
					t.Errorf("rules with featureSources read %s of %s", unread, p.Name)
				}
			}
			for _, p := range tt.published {
				if feature := p.Namespace + "." + p.Name; in.Facts.Feature(feature) == nil || (in.Worker.Feature(feature) != nil) != (gather.Policy{Namespace: "ours"}).Own(p) {
					t.Errorf("%s: facts %v, of the worker %v", feature, in.Facts.Names(), in.Worker.Names())
				}
			}
		})
	}
}

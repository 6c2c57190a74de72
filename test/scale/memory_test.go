//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/flap"
	nodecontroller "github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/controller/rulestats"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/inputs/inputstest"
	"github.com/assay-project/assay/internal/fleet/nodecache"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/plan"
	"github.com/assay-project/assay/test/bench"
	"github.com/assay-project/assay/test/scale/fleet"
)

// maxNodeBytes is, by the number of rules, the maximum memory of one more node in a controller: its Node with 150 or 670 labels, of which 20
// have values that no other node has, its NodeFeature with the facts that no other node has, and what the controllers remember of it. Facts that
// other nodes have too are not counted. 15,000 nodes with 100 rules take 250 MB, half of what a controller may use.
var maxNodeBytes = map[int]int{100: 17 << 10, 500: 28 << 10}

// TestMemoryOfANode measures the live heap, which does not depend on the time of garbage collections.
func TestMemoryOfANode(t *testing.T) {
	if testing.Short() {
		t.Skip("evaluates a hundred rules on hundreds of nodes")
	}
	const first, more = 64, 500 // the first nodes also bring what all nodes share
	for _, count := range []int{100, 500} {
		t.Run(fmt.Sprint(count, "Rules"), func(t *testing.T) {
			f := newRemembered(t, count)
			f.add(t, first)
			before := liveHeap()
			f.add(t, more)
			got, keys := (liveHeap()-before)/more, f.keys/(first+more)
			goruntime.KeepAlive(f)
			t.Logf("%d bytes for each node, which has %d labels", got, keys)
			if limit := maxNodeBytes[count]; got > limit {
				t.Errorf("%d bytes for each node, want at most %d: see which of them a heap profile shows", got, limit)
			}
		})
	}
}

func liveHeap() int {
	var m goruntime.MemStats
	goruntime.GC()
	goruntime.GC() // finalizers and weak pointers of the first
	goruntime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// remembered is what a controller keeps of its nodes.
type remembered struct {
	hosts   hosts
	kinds   map[int][]string // the names of their sets
	cache   *inputstest.Cache
	stored  stored // Nodes
	sets    *featuresets.Store
	nodes   *inputs.Nodes
	program *rules.Program
	edition *record.Edition
	stats   *rulestats.Stats
	changes *flap.Changes
	given   []*record.Given
	keys    int // labels of all nodes
}

func newRemembered(t *testing.T, count int) *remembered {
	t.Helper()
	var list nfdv1alpha1.NodeFeatureRuleList
	bench.Read(t, fmt.Sprintf("rules-%d", count), &list)
	list.Items = append(list.Items, *ownRule())
	var compiled []*rules.RuleSet
	for i := range list.Items {
		set, _ := rules.Compile(&list.Items[i], rules.Options{})
		compiled = append(compiled, set)
	}
	h, err := newHosts(0)
	if err != nil {
		t.Fatal(err)
	}
	f := &remembered{
		hosts: h, kinds: map[int][]string{}, cache: inputstest.New(), stored: newStored(t), sets: featuresets.New(namespace), program: rules.Link(rules.Options{}, compiled...),
		nodes:   inputs.New(inputs.Options{Policy: gather.Policy{Namespace: namespace}}),
		changes: flap.NewChanges(clock.RealClock{}), stats: rulestats.New(func(string) {}),
	}
	f.edition = record.NewEdition(record.Objects(f.program, ""))
	if err := f.nodes.Watch(t.Context(), f.cache); err != nil {
		t.Fatal(err)
	}
	return f
}

// add adds nodes as the caches of a controller receive them, and evaluates the rules on each, before and after it has their labels.
func (f *remembered) add(t *testing.T, count int) {
	t.Helper()
	for range count {
		number := len(f.given)
		name := fmt.Sprintf("node-%05d", number)
		f.cache.Put(f.published(t, number, name))
		outcome := f.pass(t, f.received(t, name, nil))
		f.keys += len(outcome.Labels())
		n := f.received(t, name, outcome.Labels())
		f.changes.Add(name, slices.Sorted(maps.Keys(outcome.Labels())))
		f.given = append(f.given, record.GivenBy(f.pass(t, n), f.edition))
	}
}

func (f *remembered) pass(t *testing.T, n *corev1.Node) *rules.Outcome {
	t.Helper()
	state, err := f.nodes.Of(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	outcome := f.program.Eval(state.Input)
	f.stats.Report(n.Name, outcome, nil, nil)
	return outcome
}

// published returns a NodeFeature, decoded, with the features of its sets.
func (f *remembered) published(t *testing.T, number int, name string) *nodefeature.NodeFeature {
	t.Helper()
	features := f.hosts.content(fleet.Node{Number: number, Name: name}, firstValue).Features
	kind := f.kind(t, number, &features)
	inline := map[string]nfdv1alpha1.AttributeFeatureSet{}
	for _, name := range ownFeatures {
		inline[name] = features.Attributes[name]
	}
	text, err := json.Marshal(&nfdv1alpha1.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("nodefeature-" + name), Labels: map[string]string{nfdv1alpha1.NodeNameLabel: name},
			Annotations: map[string]string{nfdv1alpha1.WorkerVersionAnnotation: "scale", nfdv1alpha1.WorkerPodUIDAnnotation: "pod-" + name},
		},
		Spec: nfdv1alpha1.NodeFeatureSpec{
			FeatureSets: kind,
			Features: nfdv1alpha1.Features{
				Attributes: inline,
				Instances:  map[string]nfdv1alpha1.InstanceFeatureSet{"network.virtual": features.Instances["network.virtual"]},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	decoded := &nodefeature.NodeFeature{}
	if err := json.Unmarshal(text, decoded); err != nil {
		t.Fatal(err)
	}
	decoded.Spec.FeatureSets = nodefeature.ShareNames(decoded.Spec.FeatureSets)
	if _, err := nodefeature.Slim(decoded); err != nil {
		t.Fatal(err)
	}
	resolved, missing := f.sets.Resolve(decoded)
	if missing != nil {
		t.Fatalf("missing sets: %q", missing)
	}
	return resolved
}

// ownFeatures are the attributes that are in the NodeFeature, and not in a set.
var ownFeatures = append([]string{"system.name", ownFeature}, mixed...)

// kind returns the sets with what the hosts of one kind have in common, and stores them the first time.
func (f *remembered) kind(t *testing.T, number int, features *nfdv1alpha1.Features) []string {
	t.Helper()
	number %= len(f.hosts.kinds)
	if names, ok := f.kinds[number]; ok {
		return names
	}
	var names []string
	share := func(one nfdv1alpha1.Features) {
		name, err := featureset.Name(&one)
		if err != nil {
			t.Fatal(err)
		}
		f.sets.Put(&assayv1alpha1.NodeFeatureSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: assayv1alpha1.NodeFeatureSetSpec{Features: one},
		})
		names = append(names, name)
	}
	for feature, set := range features.Flags {
		share(nfdv1alpha1.Features{Flags: map[string]nfdv1alpha1.FlagFeatureSet{feature: set}})
	}
	for feature, set := range features.Attributes {
		if !slices.Contains(ownFeatures, feature) {
			share(nfdv1alpha1.Features{Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{feature: set}})
		}
	}
	for feature, set := range features.Instances {
		if feature != "network.virtual" {
			share(nfdv1alpha1.Features{Instances: map[string]nfdv1alpha1.InstanceFeatureSet{feature: set}})
		}
	}
	slices.Sort(names)
	f.kinds[number] = names
	return names
}

// received returns a Node as a cache returns it that has received it, with labels of rules.
func (f *remembered) received(t *testing.T, name string, labels map[string]string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("node-" + name), Labels: map[string]string{corev1.LabelHostname: name}, Annotations: map[string]string{},
	}}
	if labels != nil {
		maps.Copy(n.Labels, labels)
		n.Annotations[plan.Record{}.Labels()] = plan.Record{}.Format(slices.Collect(maps.Keys(labels)))
	}
	text, err := n.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	decoded := &corev1.Node{}
	if err := decoded.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	return f.stored.put(t, decoded)
}

// stored is the cache of Nodes of a controller, without its connection.
type stored struct {
	toolscache.SharedIndexInformer // other methods are not called
	indexer                        toolscache.Indexer
	transform                      *toolscache.TransformFunc
	outer                          toolscache.SharedIndexInformer
}

func newStored(t *testing.T) stored {
	t.Helper()
	s := stored{indexer: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil), transform: new(toolscache.TransformFunc)}
	construct := nodecache.Informers(func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
		return s
	})
	s.outer = construct(nil, &corev1.Node{}, 0, nil)
	if err := s.outer.SetTransform(nodecontroller.Slim); err != nil {
		t.Fatal(err)
	}
	return s
}

// SetTransform implements SharedInformer.
func (s stored) SetTransform(f toolscache.TransformFunc) error {
	*s.transform = f
	return nil
}

// GetIndexer implements SharedIndexInformer.
func (s stored) GetIndexer() toolscache.Indexer { return s.indexer }

func (s stored) put(t *testing.T, n *corev1.Node) *corev1.Node {
	t.Helper()
	kept, err := (*s.transform)(n)
	if err == nil {
		err = s.indexer.Add(kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := s.outer.GetIndexer().GetByKey(n.Name)
	if err != nil {
		t.Fatal(err)
	}
	return got.(*corev1.Node)
}

package baseline

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/inputs/inputstest"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/review"
)

const namespace = "assay-system"

// declared returns a NodeBaseline that requires a number of devices.
func declared(generation int64, count string) *assayv1alpha1.NodeBaseline {
	o := &assayv1alpha1.NodeBaseline{ObjectMeta: metav1.ObjectMeta{Name: "devices", UID: "uid", Generation: generation}}
	o.Spec.Require = []assayv1alpha1.BaselineRequirement{{Name: "devices"}}
	o.Spec.Require[0].Conditions = []nfdv1alpha1.Condition{{
		Op: "eq", Args: nfdv1alpha1.JSON{Raw: []byte(`{"values": ["{@dra.device.len()}", ` + count + `]}`)},
	}}
	return o
}

// TestControllerAndCommandLineJudgeTheSame: over a pool of devices that is incomplete, the controller reported nodes that deviate, and the
// command line that they are unknown.
func TestControllerAndCommandLineJudgeTheSame(t *testing.T) {
	const grace = time.Minute
	pool := func(total int64) []resourcev1.ResourceSlice {
		return []resourcev1.ResourceSlice{{
			ObjectMeta: metav1.ObjectMeta{Name: "s"},
			Spec: resourcev1.ResourceSliceSpec{
				Driver: "gpu.example.com", NodeName: new("n"), Devices: []resourcev1.Device{{Name: "gpu-0"}},
				Pool: resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: total},
			},
		}}
	}
	feature := &nodefeature.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "n", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n"}},
		Spec: nodefeature.Spec{Features: nodefeature.Features{
			Facts: facts.FromMap(map[string]facts.Feature{"cpu.cpuid": {Flags: facts.NewFlags("AVX")}}, nil),
		}},
	}
	for name, tc := range map[string]struct {
		slices  []resourcev1.ResourceSlice
		require string // devices
		silent  bool   // its worker has published nothing
		want    string
	}{
		"Conforms":       {pool(1), "1", false, "1 conforms, 0 deviate, 0 unknown"},
		"Deviates":       {pool(1), "8", false, "0 conforms, 1 deviate, 0 unknown"},
		"NoDevices":      {[]resourcev1.ResourceSlice{}, "8", false, "0 conforms, 1 deviate, 0 unknown"},
		"IncompletePool": {pool(2), "8", false, "0 conforms, 0 deviate, 1 unknown"},
		// The baseline reads devices alone, which no worker publishes.
		"NoWorker":         {pool(1), "1", true, "1 conforms, 0 deviate, 0 unknown"},
		"NoWorkerDeviates": {pool(1), "8", true, "0 conforms, 1 deviate, 0 unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			policy := gather.Policy{Namespace: namespace}
			objects := offline.Objects{Nodes: map[string]*corev1.Node{"n": node}, Slices: tc.slices}
			cache := inputstest.New(node)
			if !tc.silent {
				cache.Put(feature)
				objects.Published = []offline.Published{feature.Published()}
			}
			clock := clocktesting.NewFakeClock(time.Now())
			d := devices.New(devices.Options{Grace: grace, Clock: clock})
			nodes := inputs.New(inputs.Options{Policy: policy, Grace: grace, Clock: clock, Devices: d})
			if err := nodes.Watch(t.Context(), cache); err != nil {
				t.Fatal(err)
			}
			b := review.Review(declared(1, tc.require), review.Known{}).Baseline
			nodes.Need(b.Reads())
			var list []any
			for i := range tc.slices {
				list = append(list, &tc.slices[i])
			}
			if err := d.Replace(list, ""); err != nil {
				t.Fatal(err)
			}
			clock.Step(2 * grace)
			go func() { _ = nodes.Start(t.Context()) }()
			if err := nodes.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{opt: Options{Nodes: nodes, Clock: clock}, fleet: &(&changes{}).nodes}
			controller, commandLine := b.Fleet(r.nodes(t.Context(), b)), offline.New(policy, objects).Baseline(b)
			for who, got := range map[string]string{
				"controller":   fmt.Sprintf("%d conforms, %d deviate, %d unknown", len(controller.Conforming), len(controller.Deviating), len(controller.Unknown)),
				"command line": fmt.Sprintf("%d conforms, %d deviate, %d unknown", len(commandLine.Conforming), len(commandLine.Deviating), len(commandLine.Unknown)),
			} {
				if got != tc.want {
					t.Errorf("%s: %s, want %s", who, got, tc.want)
				}
			}
		})
	}
}

// TestANodeWhoseFeaturesAreHeldIsUnknown: what a deleted object said may not be so any more.
func TestANodeWhoseFeaturesAreHeldIsUnknown(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	feature := &nodefeature.NodeFeature{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "n", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n"}},
		Spec: nodefeature.Spec{Features: nodefeature.Features{
			Facts: facts.FromMap(map[string]facts.Feature{"cpu.cpuid": {Flags: facts.NewFlags("AVX")}}, nil),
		}},
	}
	cache, clock := inputstest.New(node, feature), clocktesting.NewFakeClock(time.Now())
	nodes := inputs.New(inputs.Options{Policy: gather.Policy{Namespace: namespace}, Grace: time.Minute, Clock: clock})
	if err := nodes.Watch(t.Context(), cache); err != nil {
		t.Fatal(err)
	}
	o := declared(1, "1")
	o.Spec.Require[0].Conditions = nil
	o.Spec.Require[0].MatchFeatures = nfdv1alpha1.FeatureMatcher{{
		Feature: "cpu.cpuid", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"AVX": {Op: nfdv1alpha1.MatchExists}},
	}}
	b := review.Review(o, review.Known{}).Baseline
	go func() { _ = nodes.Start(t.Context()) }()
	if err := nodes.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{opt: Options{Nodes: nodes, Clock: clock}, fleet: &(&changes{}).nodes}
	if got := b.Fleet(r.nodes(t.Context(), b)); len(got.Conforming) != 1 {
		t.Fatalf("before: %+v", got)
	}
	cache.Remove(feature)
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		return len(b.Fleet(r.nodes(ctx, b)).Unknown) == 1, nil
	}); err != nil {
		t.Errorf("while its features are held: %+v", b.Fleet(r.nodes(t.Context(), b)))
	}
}

// TestAnEditedBaselineIsCompiledAgain: also one that was deleted and created again has another program.
func TestAnEditedBaselineIsCompiledAgain(t *testing.T) {
	r := &Reconciler{compiled: map[string]*compiled{}}
	first := r.compile(declared(1, "1")).Baseline
	if again := r.compile(declared(1, "1")).Baseline; again != first {
		t.Error("a baseline that has not changed was compiled again")
	}
	if edited := r.compile(declared(2, "8")).Baseline; edited == first || edited == nil {
		t.Error("an edited baseline has its old program")
	}
	created := declared(2, "8")
	created.UID = "other"
	if other := r.compile(created).Baseline; other == nil || other == r.compile(declared(2, "8")).Baseline {
		t.Error("a baseline that was created again has the program of the deleted one")
	}
}

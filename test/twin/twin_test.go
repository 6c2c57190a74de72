//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// shortRun is the duration of each form in CI.
const shortRun = 20 * time.Second

// shortPatience is the timeout of each comparison: a machine can be ten times slower than a developer's.
const shortPatience = 5 * time.Minute

// TestNodesAreWhatIsStored is the short form of `make twin`.
func TestNodesAreWhatIsStored(t *testing.T) {
	for _, form := range []string{"A", "B"} {
		t.Run(form, func(t *testing.T) {
			c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, Core: true})
			var out strings.Builder
			o := options{
				nodeCount: defaultNodes, ruleCount: defaultRules, seed: 1, form: form, duration: shortRun, patience: shortPatience,
				manager: testkit.Program(t, "assay-manager"), assay: testkit.Program(t, "assay"), out: stage.Locked(&out),
			}
			err := o.run(t.Context(), c)
			t.Log(out.String())
			if err != nil {
				t.Fatalf("%v\n%s", err, c.Log(stage.Controller))
			}
		})
	}
}

func newDrawer(seed uint64) *drawer { return &drawer{Rand: rand.New(rand.NewPCG(seed, 1))} }

func TestASeedDrawsTheSameContents(t *testing.T) {
	draw := func(seed uint64) string {
		d := newDrawer(seed)
		var all []string
		for i := range 20 {
			all = append(all, d.name(i), fmt.Sprint(d.content(i)), fmt.Sprint(d.vendor(&node{number: i})))
		}
		return strings.Join(all, "\n")
	}
	if first := draw(1); first != draw(1) || first == draw(2) {
		t.Error("one seed must draw the same contents twice, and another seed others")
	}
}

// TestEachFormOfRuleGivesKeys: a rule that is rejected, or matches no node, compares nothing.
func TestEachFormOfRuleGivesKeys(t *testing.T) {
	d := newDrawer(1)
	s := state{features: map[string]*nfdv1alpha1.NodeFeature{}, rules: map[string]*nfdv1alpha1.NodeFeatureRule{}, namespaces: map[string]*corev1.Namespace{}}
	s.namespaces["/vendor-a"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{trustLabel: "true"}}}
	var serials []string
	for i := range 40 {
		n := &node{number: i, name: fmt.Sprintf("n%d", i)}
		c := d.content(i)
		serials = append(serials, c.Features.Attributes["twin.attr"].Elements["serial"])
		for where, spec := range map[string]nfdv1alpha1.NodeFeatureSpec{namespace: {Features: c.Features, Labels: c.Labels}, "vendor-a": d.vendor(n)} {
			f := &nfdv1alpha1.NodeFeature{Spec: spec}
			f.Namespace, f.Name, f.Labels = where, n.name, map[string]string{nfdv1alpha1.NodeNameLabel: n.name}
			s.features[where+"/"+n.name] = f
		}
	}
	for i, f := range ruleForms {
		for range 3 { // values differ
			name := fmt.Sprintf("r%d", i)
			rule, err := d.rule(name, f, serials)
			if err != nil {
				t.Fatal(err)
			}
			if _, report := rules.Compile(rule, rules.Options{}); !report.OK() {
				t.Errorf("rule %d: %v", i, report.Errors.ToAggregate())
			}
			s.rules[name] = rule
		}
	}
	given := map[string]bool{}
	for i := range 40 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"pool": []string{"red", "green", "blue"}[i%3]}}}
		n.Status.NodeInfo.KubeletVersion = "v1.34.1"
		values, owners := evaluate(program(s.rules), s.input(n, nil))
		for key := range values {
			given[owners[key]] = true
		}
		for _, secret := range d.secrets {
			if text := fmt.Sprint(values); strings.Contains(text, secret) {
				t.Errorf("%s: masked value %s in %s", n.Name, secret, text)
			}
		}
	}
	for i, f := range ruleForms {
		if name := fmt.Sprintf("r%d", i); !given[name] && !strings.Contains(f.spec, "set-feature") {
			t.Errorf("rule %s gives no key: %s", name, f.spec)
		}
	}
}

// The comparison expected of a controller the outputs of a deleted object for a rule that was edited after the controller had been started again
// (found by seeds 4 and 7 of form B).
func TestAControllerDoesNotKnowWhatWasDeletedBeforeItStarted(t *testing.T) {
	object := func(level string) *nfdv1alpha1.NodeFeature {
		f := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "n", Labels: map[string]string{nfdv1alpha1.NodeNameLabel: "n"}}}
		f.Spec.Features.Attributes = map[string]nfdv1alpha1.AttributeFeatureSet{"twin.attr": {Elements: map[string]string{"level": level}}}
		return f
	}
	rule := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{
		{Name: "deleted", Labels: map[string]string{"from-worker": "1"}, MatchFeatures: nfdv1alpha1.FeatureMatcher{{Feature: "twin.attr", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{"level": {Op: nfdv1alpha1.MatchExists}}}}},
		{Name: "always", Labels: map[string]string{"always": "1"}},
	}}}
	s := state{
		nodes: map[string]*corev1.Node{"/n": {ObjectMeta: metav1.ObjectMeta{Name: "n"}}}, features: map[string]*nfdv1alpha1.NodeFeature{},
		rules: map[string]*nfdv1alpha1.NodeFeatureRule{"r": rule}, namespaces: map[string]*corev1.Namespace{},
	}
	n := &node{name: "n", deleted: object("1"), at: time.Now()}
	w := &world{options: options{form: "B"}}
	if want := w.wanted(s, program(s.rules), n); len(want) != 2 {
		t.Errorf("the controller runs since before the deletion, and the Node must have %v", want)
	}
	w.controlled = n.at.Add(time.Second)
	if want := w.wanted(s, program(s.rules), n); len(want) != 1 {
		t.Errorf("the controller was started after the deletion, and the Node must have %v", want)
	}
}

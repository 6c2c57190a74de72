package podadmission_test

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/podadmission"
	"github.com/assay-project/assay/rules/requirements"
)

const amx = "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}}}]"

// object returns the active rules of a NodeFeatureRule in YAML.
func object(t *testing.T, text string) podadmission.Rules {
	t.Helper()
	var out nfdv1alpha1.NodeFeatureRule
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	set, _ := rules.Compile(&out, rules.Options{})
	return podadmission.Rules{Set: set, Spec: &out.Spec}
}

func reqs(t *testing.T, required string) *requirements.Requirements {
	t.Helper()
	out, report := requirements.Annotations(map[string]string{assayv1alpha1.RequiredFeaturesAnnotation: required}, field.NewPath("metadata"), rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors.ToAggregate())
	}
	return out
}

func labels(t *testing.T) podadmission.Labels {
	return podadmission.LabelsOf([]podadmission.Rules{object(t, `
spec: {rules: [{name: amx, labels: {amx: "true"}, matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}}}]}]}
`)}, rules.Options{})
}

const label = "feature.node.kubernetes.io/amx"

// apply applies the decision, and checks that a second decision changes nothing.
func apply(t *testing.T, in podadmission.Input) *corev1.Pod {
	t.Helper()
	patch := podadmission.Decide(in)
	out := in.Pod.DeepCopy()
	if len(patch) > 0 {
		steps, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := jsonpatch.DecodePatch(steps)
		if err != nil {
			t.Fatal(err)
		}
		before, err := json.Marshal(in.Pod)
		if err != nil {
			t.Fatal(err)
		}
		after, err := decoded.Apply(before)
		if err != nil {
			t.Fatalf("%v: %s", err, steps)
		}
		out = &corev1.Pod{}
		if err := json.Unmarshal(after, out); err != nil {
			t.Fatal(err)
		}
	}
	in.Pod = out
	if again := podadmission.Decide(in); len(again) > 0 {
		t.Errorf("the result is changed again: %v", again)
	}
	return out
}

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "default-scheduler", Containers: []corev1.Container{{Name: "c"}}}}
	for _, c := range change {
		c(p)
	}
	return p
}

func TestPodThatAsksForNothingIsLeftAlone(t *testing.T) {
	in := podadmission.Input{Pod: pod(), Namespace: map[string]string{assayv1alpha1.SchedulerLabel: "assay"}}
	if patch := podadmission.Decide(in); len(patch) > 0 {
		t.Errorf("got %v", patch)
	}
}

// TestSelectorGetsTheLabel: the affinity of a pod stays as it is, because a node must match the selector and the affinity.
func TestSelectorGetsTheLabel(t *testing.T) {
	type M = map[string]string
	for name, test := range map[string]struct{ have, want M }{
		"none":        {nil, M{label: "true"}},
		"other":       {M{"disk": "ssd"}, M{"disk": "ssd", label: "true"}},
		"there":       {M{label: "true"}, M{label: "true"}},
		"other value": {M{label: "false"}, M{label: "false", requirements.ImpossibleLabel: "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			two := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpExists}}},
					{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}},
				},
			}}}
			in := podadmission.Input{Requirements: reqs(t, amx), Labels: labels(t), Pod: pod(func(p *corev1.Pod) {
				p.Spec.NodeSelector, p.Spec.Affinity = test.have, two
			})}
			got := apply(t, in)
			if diff := cmp.Diff(test.want, got.Spec.NodeSelector); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(two, got.Spec.Affinity); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestScheduler(t *testing.T) {
	scheduler := map[string]string{assayv1alpha1.SchedulerLabel: "assay"}
	for name, test := range map[string]struct {
		reason string
		in     podadmission.Input
		want   string
	}{
		"namespace": {"the namespace names a scheduler", podadmission.Input{Pod: pod(), Namespace: scheduler}, "assay"},
		"chosen":    {"a scheduler that the pod names stays", podadmission.Input{Pod: pod(func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }), Namespace: scheduler}, "mine"},
		"placed":    {"a bound pod needs no scheduler", podadmission.Input{Pod: pod(func(p *corev1.Pod) { p.Spec.NodeName = "n" }), Namespace: scheduler}, "default-scheduler"},
		"policy":    {"a policy wins over the namespace", podadmission.Input{Pod: pod(), Namespace: scheduler, Policies: []*requirements.Policy{{}, {SchedulerName: "batch"}}}, "batch"},
		"neither":   {"nothing names a scheduler", podadmission.Input{Pod: pod()}, "default-scheduler"},
	} {
		t.Run(name, func(t *testing.T) {
			test.in.Requirements = reqs(t, amx)
			got := apply(t, test.in)
			if got.Spec.SchedulerName != test.want {
				t.Errorf("%s: scheduler %s, want %s", test.reason, got.Spec.SchedulerName, test.want)
			}
			if got.Annotations[assayv1alpha1.RequirementHashAnnotation] != test.in.Requirements.Hash() {
				t.Errorf("the pod has no hash of its requirements: %v", got.Annotations)
			}
		})
	}
}

func TestHashIsFrozen(t *testing.T) {
	p := pod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{assayv1alpha1.RequirementHashAnnotation: "before", "a/b": "c"}
	})
	got := apply(t, podadmission.Input{Pod: p, Requirements: reqs(t, amx)})
	if got.Annotations[assayv1alpha1.RequirementHashAnnotation] != "before" {
		t.Errorf("got %v", got.Annotations)
	}
}

func TestLabelsOfCountsOnlyWhatIsExact(t *testing.T) {
	key := reqs(t, amx).Required[0].Key
	const matchers = "matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AMX: {op: Exists}}}]"
	for name, test := range map[string]struct {
		rules []string
		want  bool
	}{
		"plain":         {[]string{`spec: {rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`}, true},
		"scope":         {[]string{`spec: {scope: x, rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`}, false},
		"some nodes":    {[]string{`spec: {nodeSelector: {matchLabels: {a: b}}, rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`}, false},
		"value":         {[]string{`spec: {rules: [{name: r, labels: {amx: "@cpu.model.family"}, ` + matchers + `}]}`}, false},
		"not allowed":   {[]string{`spec: {rules: [{name: r, labels: {kubernetes.io/hostname: x}, ` + matchers + `}]}`}, false},
		"more matchers": {[]string{`spec: {rules: [{name: r, labels: {amx: "true"}, conditions: [{op: is-true, args: {value: "{node.name}"}}], ` + matchers + `}]}`}, false},
		"written twice": {[]string{
			`spec: {rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`, `spec: {rules: [{name: s, labels: {amx: "no"}}]}`,
		}, false},
		"left out":  {[]string{`spec: {rules: [{name: r, labels: {amx: "true"}, extendedResources: {a: "{nobody}"}, ` + matchers + `}]}`}, false},
		"sensitive": {[]string{`spec: {sensitive: true, rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`}, false},
		"features are changed": {[]string{
			`spec: {rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`,
			`spec: {phase: preprocess, rules: [{name: s, actions: [{op: set-feature, args: {feature: cpu.derived, element: a, value: b}}]}]}`,
		}, false},
		"labels are kept": {[]string{
			`spec: {rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`, `spec: {rules: [{name: s, actions: [{op: fail, args: {msg: no}}]}]}`,
		}, false},
		"something is logged": {[]string{
			`spec: {rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`, `spec: {rules: [{name: s, actions: [{op: log, args: {msg: hello}}]}]}`,
		}, true},
		"after another object": {[]string{
			`spec: {scope: x, rules: [{name: s, labels: {b: "1"}, ` + matchers + `}]}`, `spec: {rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`,
		}, true},
		"after a label of two rules": {[]string{
			`spec: {rules: [{name: r, labels: {aaa: "1", amx: "true"}, ` + matchers + `}, {name: s, labels: {aaa: "2"}}]}`,
		}, true},
		"main":       {[]string{`spec: {phase: main, rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`}, true},
		"expression": {[]string{`spec: {rules: [{name: r, labels: {amx: "{@cpu.model.family}"}, ` + matchers + `}]}`}, false},
		"perhaps by an action": {[]string{
			`spec: {rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`, `spec: {rules: [{name: s, actions: [{op: del-attribute, args: {path: /labels/amx}}]}]}`,
		}, false},
		"perhaps by a template": {[]string{
			`spec: {rules: [{name: r, labels: {amx: "true"}, ` + matchers + `}]}`, `spec: {rules: [{name: s, labelsTemplate: "amx=no"}]}`,
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var list []podadmission.Rules
			for _, text := range test.rules {
				list = append(list, object(t, text))
			}
			if _, got := podadmission.LabelsOf(list, rules.Options{})[key]; got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// A rule reads the outputs of earlier rules, but a requirement reads the outputs of all rules, so that the same matchers have a
// different meaning.
func TestLabelsOfLeavesOutWhatReadsTheProductsOfRules(t *testing.T) {
	for name, matchers := range map[string]string{
		"rule.matched":            `matchFeatures: [{feature: rule.matched, matchExpressions: {fast: {op: Exists}}}]`,
		"rule.matched, or else":   `matchAny: [{matchFeatures: [{feature: Rule.Matched, matchExpressions: {fast: {op: Exists}}}]}]`,
		"variable in a condition": `conditions: [{op: eq, args: {values: ["{rack}", "3"]}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			list := []podadmission.Rules{object(t, `spec: {rules: [{name: v, vars: {rack: "3"}}, {name: r, labels: {late: "true"}, `+matchers+`}, {name: f, labels: {fast: "yes"}}]}`)}
			if got := podadmission.LabelsOf(list, rules.Options{}); len(got) > 0 {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestPodsOfAMaterializedRequestGetItsLabel(t *testing.T) {
	request := func(namespace, name string) podadmission.Rules {
		o := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := yaml.UnmarshalStrict([]byte(amx), &o.Spec.Required); err != nil {
			t.Fatal(err)
		}
		rule := requirements.RuleOf(o)
		set, report := rules.CompileSpec(rule.Name, &rule.Spec, rules.Options{Keys: keys.Policy{Requests: true}})
		if !report.OK() {
			t.Fatal(report.Errors)
		}
		return podadmission.Rules{Set: set, Spec: &rule.Spec}
	}
	long := strings.Repeat("x", 70)
	list := []podadmission.Rules{request("ml", "amx"), request("other", "amx")}
	labels := podadmission.LabelsOf(list, rules.Options{DefaultScope: "gpu"})
	for name, want := range map[string]string{
		"amx": "features.assay.dev/ml.amx", long: "", "unknown": "", "": "",
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Labels: map[string]string{assayv1alpha1.FeatureRequestLabel: name}}}
		if label, _ := labels.For(reqs(t, amx).Required[0].Key, pod); label.Name != want {
			t.Errorf("a pod that names %q gets %q, want %q", name, label.Name, want)
		}
	}
}

// TestNoWarning tests requirements that a node meets, and a cluster without nodes.
func TestNoWarning(t *testing.T) {
	for matching, nodes := range map[int]int{1: 3, 3: 3, 0: 0} {
		if got := podadmission.Warning(matching, nodes, "n1", "AMX", podadmission.Shape{}); got != "" {
			t.Errorf("%d of %d nodes: %s", matching, nodes, got)
		}
	}
}

// TestAWarningNamesTheShapeOfNewNodes: no node meets the requirements of a pod, but nodes that an autoscaler adds may.
func TestAWarningNamesTheShapeOfNewNodes(t *testing.T) {
	o := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "amx"}}
	if err := yaml.UnmarshalStrict([]byte(amx), &o.Spec.Required); err != nil {
		t.Fatal(err)
	}
	rule := requirements.RuleOf(o)
	set, report := rules.CompileSpec(rule.Name, &rule.Spec, rules.Options{Keys: keys.Policy{Requests: true}})
	if !report.OK() {
		t.Fatal(report.Errors)
	}
	labels := podadmission.LabelsOf([]podadmission.Rules{{Set: set, Spec: &rule.Spec}}, rules.Options{})
	shape := func(name string, has map[string]string) assayv1alpha1.NodeShape {
		return assayv1alpha1.NodeShape{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: assayv1alpha1.NodeShapeStatus{Labels: has}}
	}
	small, large := shape("small", map[string]string{"other": "true"}), shape("large", map[string]string{"features.assay.dev/ml.amx": "true"})
	changed := shape("changed", nil)
	changed.Status.Differences = []assayv1alpha1.ShapeDifference{{Output: "label", Name: "features.assay.dev/ml.amx", ContradictedBy: "n9"}}
	unlabeled := shape("unlabeled", nil)
	unlabeled.Status.Differences = []assayv1alpha1.ShapeDifference{
		{Output: "annotation", Name: "features.assay.dev/ml.amx", ContradictedBy: "n9"}, {Output: "label", Name: "features.assay.dev/ml.amx"},
	}
	for name, test := range map[string]struct {
		request string
		shapes  []assayv1alpha1.NodeShape
		want    string
	}{
		"OtherDifferences": {"amx", []assayv1alpha1.NodeShape{unlabeled, large}, "0 of 3 nodes satisfy this now; new nodes of NodeShape large do"},
		"AShapeHasIt":      {"amx", []assayv1alpha1.NodeShape{small, large}, "0 of 3 nodes satisfy this now; new nodes of NodeShape large do"},
		"NoShapeHasIt":     {"amx", []assayv1alpha1.NodeShape{small}, "0 of 3 nodes satisfy this now; closest: n1 lacks AMX; no NodeShape has it either, so autoscalers do not know which nodes to add"},
		"NoShapes":         {"amx", nil, "0 of 3 nodes satisfy this now; closest: n1 lacks AMX"},
		"AnotherShapeHadIt": {
			"amx", []assayv1alpha1.NodeShape{changed, large},
			"0 of 3 nodes satisfy this now; NodeShape changed lost it, because a new node differs; new nodes of NodeShape large do",
		},
		"AShapeHadIt": {
			"amx", []assayv1alpha1.NodeShape{small, changed},
			"0 of 3 nodes satisfy this now; NodeShape changed lost it, because a new node differs; closest: n1 lacks AMX; " +
				"no NodeShape has it either, so autoscalers do not know which nodes to add",
		},
		"IsNotALabel": {"else", []assayv1alpha1.NodeShape{small, large}, "0 of 3 nodes satisfy this now; closest: n1 lacks AMX"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Labels: map[string]string{assayv1alpha1.FeatureRequestLabel: test.request}}}
		if got := podadmission.Warning(0, 3, "n1", "AMX", labels.ShapeOf(reqs(t, amx), pod, test.shapes)); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

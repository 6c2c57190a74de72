package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/test/bench"
	"github.com/assay-project/assay/webhook"
)

func TestWhatIsNoReviewIsRefused(t *testing.T) {
	h := newServer(t, nil).Handler()
	review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1"}}`
	tests := map[string]struct {
		method, contentType, body string
		length                    int64
		want                      int
	}{
		"AReview":      {body: review, want: 200},
		"Get":          {method: "GET", want: 405},
		"Form":         {contentType: "application/x-www-form-urlencoded", body: "a=b", want: 415},
		"NoLength":     {body: review, length: -1, want: 411},
		"TooLarge":     {body: "{", length: 100 << 20, want: 413},
		"EndsEarly":    {body: "{", length: 1000, want: 400},
		"NotJSON":      {body: "hello", want: 400},
		"Array":        {body: "[]", want: 400},
		"Null":         {body: "null", want: 400},
		"Deep":         {body: strings.Repeat("[", 100_000), want: 400},
		"OtherKind":    {body: `{"apiVersion":"v1","kind":"Pod"}`, want: 400},
		"V1beta1":      {body: strings.Replace(review, "/v1\"", "/v1beta1\"", 1), want: 400},
		"NoRequest":    {body: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, want: 400},
		"RequestNoUID": {body: strings.Replace(review, "\"1\"", "\"\"", 1), want: 400},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.method == "" {
				tc.method = "POST"
			}
			r := httptest.NewRequest(tc.method, webhook.ReviewPath, strings.NewReader(tc.body))
			r.Header.Set("Content-Type", "application/json")
			if tc.contentType != "" {
				r.Header.Set("Content-Type", tc.contentType)
			}
			if tc.length != 0 {
				r.ContentLength = tc.length
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tc.want {
				t.Errorf("status %d, want %d: %s", w.Code, tc.want, w.Body)
			}
			if w.Code != 200 && tc.body != "" && strings.Contains(w.Body.String(), tc.body) {
				t.Errorf("the answer repeats what was sent: %s", w.Body)
			}
		})
	}
}

func TestReviewOfOthersKindsIsAllowed(t *testing.T) {
	req := &admissionv1.AdmissionRequest{UID: "7"}
	req.Resource.Resource = "pods"
	got := newServer(t, nil).Review(context.Background(), req)
	if !got.Allowed || got.UID != "7" {
		t.Errorf("got %+v", got)
	}
}

// update returns a request that replaces one object with another.
func update(t testing.TB, before, after string) *admissionv1.AdmissionRequest {
	req := request(t, []byte(after))
	req.Operation = admissionv1.Update
	raw, err := yaml.YAMLToJSON([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	req.OldObject = runtime.RawExtension{Raw: raw}
	return req
}

func ruleYAML(spec string) string {
	return "apiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\nmetadata: {name: r}\nspec: " + spec + "\n"
}

func TestUpdate(t *testing.T) {
	const (
		broken  = `{name: broken, labels: {a: "1"}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: InRegexp, value: ["("]}}}]}`
		broken2 = `{name: broken, labels: {a: "2"}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: InRegexp, value: ["("]}}}]}`
		good    = `{name: good, labels: {b: "1"}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}`
		good2   = `{name: good, labels: {b: "2"}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}`
		vars    = `{name: vars, vars: {v: "1"}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}`
		uses    = `{name: uses, labels: {c: "{v}"}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}`
	)
	const typed = `{name: typed, labels: {a: true}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}`
	tests := map[string]struct{ before, after, refused, warned string }{
		"AFieldOfAWrongTypeStays":   {before: `{rules: [` + typed + `,` + good + `]}`, after: `{rules: [` + typed + `,` + good2 + `]}`, warned: "spec.rules[0].labels[a]: still wrong, as before"},
		"AFieldOfAWrongTypeIsNew":   {before: `{rules: [` + good + `]}`, after: `{rules: [` + typed + `]}`, refused: "spec.rules[0].labels[a]"},
		"AnotherRuleChanges":        {before: `{rules: [` + broken + `,` + good + `]}`, after: `{rules: [` + broken + `,` + good2 + `]}`, warned: "still wrong, as before"},
		"TheBrokenRuleMoves":        {before: `{rules: [` + broken + `,` + good + `]}`, after: `{rules: [` + good + `,` + broken + `]}`, warned: "rules[1]"},
		"TheBrokenRuleChanges":      {before: `{rules: [` + broken + `]}`, after: `{rules: [` + broken2 + `]}`, refused: "spec.rules[0].matchFeatures[0].matchExpressions[full].value[0]"},
		"TheBrokenRuleIsNew":        {before: `{rules: [` + good + `]}`, after: `{rules: [` + good + `,` + broken + `]}`, refused: "spec.rules[1]"},
		"WhatARuleDependsOnIsGone":  {before: `{rules: [` + vars + `,` + uses + `]}`, after: `{rules: [` + uses + `]}`, refused: "spec.rules[0].labels[c]"},
		"SensitiveIsTakenBack":      {before: `{sensitive: true, rules: []}`, after: `{sensitive: false, rules: []}`, refused: "spec.sensitive"},
		"SensitiveIsLeftOut":        {before: `{sensitive: true, rules: []}`, after: `{rules: []}`, refused: "spec.sensitive"},
		"SensitiveIsSet":            {before: `{rules: []}`, after: `{sensitive: true, rules: []}`},
		"ABrokenSettingStays":       {before: `{priority: 20000, rules: []}`, after: `{priority: 20000, rules: [` + good + `]}`, warned: "priority"},
		"ABrokenSettingChanges":     {before: `{priority: 20000, rules: []}`, after: `{priority: 20001, rules: []}`, refused: "spec.priority"},
		"TheSameBrokenRuleIsThrice": {before: `{rules: [` + broken + `]}`, after: `{rules: [` + broken + `,` + broken + `]}`, refused: "spec.rules[1]"},
	}
	s := newServer(t, nil)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := s.Review(context.Background(), update(t, ruleYAML(tc.before), ruleYAML(tc.after)))
			if got.Allowed != (tc.refused == "") {
				t.Fatalf("allowed %v: %+v", got.Allowed, got.Result)
			}
			if !got.Allowed && !strings.Contains(got.Result.Message, tc.refused) {
				t.Errorf("want %q in %s", tc.refused, got.Result.Message)
			}
			if all := strings.Join(got.Warnings, "\n"); !strings.Contains(all, tc.warned) {
				t.Errorf("want a warning with %q in %q", tc.warned, all)
			}
		})
	}
}

func TestBases(t *testing.T) {
	templates := map[string]string{
		"site":   `{rules: [{name: site, vars: {site: "a"}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}]}`,
		"loop":   `{basedOn: [{name: r}], rules: []}`,
		"broken": `{rules: [{name: bad, labels: {a: "{"}}]}`,
	}
	lookup := func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
		text, ok := templates[name]
		if !ok {
			return nil, nil
		}
		spec := &nfdv1alpha1.NodeFeatureRuleSpec{}
		return spec, yaml.Unmarshal([]byte(text), spec)
	}
	uses := `rules: [{name: uses, labels: {c: "{site}"}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}]`
	tests := map[string]struct{ below, spec, kind, refused, warned string }{
		"AVariableBelowAllIsKnown": {below: "site", spec: `{` + uses + `}`},
		"NothingIsBelowTemplates":  {below: "broken", spec: `{rules: [{name: r, labels: {a: b}}]}`, kind: "NodeFeatureRuleTemplate"},
		"AMistakeBelowIsWarned":    {below: "broken", spec: `{rules: [{name: r, labels: {a: b}}]}`, warned: "basedOn"},
		"NothingBelowIsWarned":     {below: "later", spec: `{` + uses + `}`, warned: "the default template later does not exist"},
		"AVariableOfABaseIsKnown":  {spec: `{basedOn: [{name: site}], ` + uses + `}`},
		"WithoutTheBaseItIsNot":    {spec: `{` + uses + `}`, refused: "spec.rules[0].labels[c]"},
		"AMissingBaseIsWarned":     {spec: `{basedOn: [{name: later}], ` + uses + `}`, warned: "missing base later"},
		"APinThatDoesNotFit":       {spec: `{basedOn: [{name: site, digest: "sha256:` + strings.Repeat("0", 64) + `"}], ` + uses + `}`, warned: "digest"},
		"ACircleIsRefused":         {spec: `{basedOn: [{name: loop}], rules: []}`, kind: "NodeFeatureRuleTemplate", refused: "cycle"},
		"AMistakeOfABaseIsWarned":  {spec: `{basedOn: [{name: broken}], rules: []}`, warned: "basedOn"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			manifest := ruleYAML(tc.spec)
			if tc.kind != "" {
				manifest = strings.Replace(strings.Replace(manifest, "NodeFeatureRule", tc.kind, 1), "nfd.k8s-sigs.io", "assay.dev", 1)
			}
			s := newServer(t, func(o *webhook.Options) { o.Known.Templates, o.Known.DefaultTemplate = lookup, tc.below })
			got := s.Review(context.Background(), request(t, []byte(manifest)))
			if got.Allowed != (tc.refused == "") {
				t.Fatalf("allowed %v: %+v, %v", got.Allowed, got.Result, got.Warnings)
			}
			if !got.Allowed && !strings.Contains(got.Result.Message, tc.refused) {
				t.Errorf("want %q in %s", tc.refused, got.Result.Message)
			}
			if all := strings.Join(got.Warnings, "\n"); tc.warned == "" && len(tc.below) > 0 && all != "" || !strings.Contains(all, tc.warned) {
				t.Errorf("want a warning with %q in %q", tc.warned, all)
			}
		})
	}
}

// nodes is a Cluster with a fixed response.
type nodes struct {
	preview   webhook.Preview
	published map[string]bool
}

func (c nodes) Preview(context.Context, *rules.RuleSet) (webhook.Preview, bool) {
	return c.preview, c.preview.Nodes > 0
}
func (c nodes) Published(feature string) (bool, bool) {
	return c.published[feature], c.published != nil
}

func TestWarningsAboutNodes(t *testing.T) {
	manifest := ruleYAML(`{rules: [
		{name: a, taints: [{key: example.com/a, effect: NoSchedule}], matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]},
		{name: b, labels: {b: "1"}, matchFeatures: [{feature: vendor.gadget, matchExpressions: {x: {op: Exists}}}]}]}`)
	tests := map[string]struct {
		nodes nodes
		want  []string
	}{
		"NothingKnown":     {},
		"WouldTaintAll":    {nodes: nodes{preview: webhook.Preview{Nodes: 40, All: 40, Matched: map[int]int{0: 40, 1: 1}}}, want: []string{"spec.rules[0].taints: would taint all 40 nodes now"}},
		"WouldTaintAFleet": {nodes: nodes{preview: webhook.Preview{Nodes: 2000, All: 9000, Matched: map[int]int{0: 2000, 1: 1}}}, want: []string{"spec.rules[0].taints: would taint all 2000 nodes (of 9000) now"}},
		"MatchesNone":      {nodes: nodes{preview: webhook.Preview{Nodes: 37, All: 37}}, want: []string{"spec.rules: matches 0 of 37 nodes now"}},
		"OneMatchesNone":   {nodes: nodes{preview: webhook.Preview{Nodes: 37, All: 37, Matched: map[int]int{0: 3}}}, want: []string{`spec.rules: match 0 of 37 nodes now: "b"`}},
		"NeverPublished":   {nodes: nodes{published: map[string]bool{"kernel.version": true}}, want: []string{"spec.rules[1].matchFeatures[0].feature: no node of this cluster publishes vendor.gadget"}},
		"ASingleNodeIsOK":  {nodes: nodes{preview: webhook.Preview{Nodes: 1, All: 1, Matched: map[int]int{0: 1, 1: 1}}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(o *webhook.Options) { o.Cluster, o.Known.Published = tc.nodes, tc.nodes.Published })
			got := s.Review(context.Background(), request(t, []byte(manifest)))
			if fmt.Sprint(got.Warnings) != fmt.Sprint(tc.want) {
				t.Errorf("got %q, want %q", got.Warnings, tc.want)
			}
		})
	}
}

// TestWarnsOfResourcesThatADeviceClassClaims: the scheduler does not allocate devices of the class on nodes with the resource.
func TestWarnsOfResourcesThatADeviceClassClaims(t *testing.T) {
	s := newServer(t, func(o *webhook.Options) {
		o.Known.Claimed = func(resource string) string {
			return map[string]string{"example.com/gpu": "gpu", "feature.node.kubernetes.io/npu": "npu"}[resource]
		}
	})
	got := s.Review(t.Context(), request(t, []byte(ruleYAML(`{rules: [{name: a, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}],
		extendedResources: {example.com/gpu: "1", npu: "1", example.com/fpga: "1"}}]}`))))
	const why = "claims this resource: on nodes that have it from the rule, pods that request it get no device of the class; use another name"
	want := []string{
		"spec.rules[0].extendedResources[example.com/gpu]: DeviceClass gpu " + why, "spec.rules[0].extendedResources[npu]: DeviceClass npu " + why,
	}
	if fmt.Sprint(got.Warnings) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got.Warnings, want)
	}
}

// TestWarnsOfDevicesThatTheClusterCannotHave: the warning also comes without warnings that depend on nodes.
func TestWarnsOfDevicesThatTheClusterCannotHave(t *testing.T) {
	why := ""
	s := newServer(t, func(o *webhook.Options) { o.Known.NoDevices = func() string { return why } })
	rule := []byte(ruleYAML(`{rules: [{name: a, labels: {gpu: "true"}, matchFeatures: [
		{feature: DRA.device, matchExpressions: {driver.name: {op: Exists}}}, {feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}]}`))
	if got := s.Review(t.Context(), request(t, rule)); len(got.Warnings) > 0 {
		t.Errorf("warnings %q in a cluster that can have devices", got.Warnings)
	}
	why = "it is too old"
	want := []string{"spec.rules[0].matchFeatures[0].feature: no node has dra.device: it is too old"}
	if got := s.Review(t.Context(), request(t, rule)); fmt.Sprint(got.Warnings) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got.Warnings, want)
	}
}

func TestPublishing(t *testing.T) {
	const (
		worker, manager = "system:serviceaccount:assay-system:assay-worker", "system:serviceaccount:assay-system:assay-manager"
		topograph       = "system:serviceaccount:topograph:topograph"
	)
	feature := func(namespace, name, node, told string) string {
		return fmt.Sprintf("apiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeature\nmetadata: {name: %s, namespace: %s, labels: {nfd.node.kubernetes.io/node-name: %s}}\n"+
			"spec: {features: {attributes: {system.name: {elements: {nodename: %s}}}}, labels: {vendor.io/a: \"1\", b: \"2\"}}", name, namespace, node, told)
	}
	own := feature("assay-system", "n1", "n1", "n1")
	ownedBy := func(object, uid string) string {
		return strings.Replace(object, "metadata: {", "metadata: {ownerReferences: [{apiVersion: v1, kind: Node, name: n1, uid: "+uid+"}], ", 1)
	}
	tests := map[string]struct {
		user, node    string
		op            admissionv1.Operation
		before, after string
		hardened      bool
		refused       string
	}{
		"WorkerForItself":           {user: worker, node: "n1", after: own},
		"WorkerForAnother":          {user: worker, node: "n1", after: feature("assay-system", "n2", "n2", "n2"), refused: "a node publishes only for itself"},
		"WorkerInAnotherNamespace":  {user: worker, node: "n1", after: feature("x", "n2", "n2", "n2"), refused: "a node publishes only for itself"},
		"WorkerLies":                {user: worker, node: "n1", after: feature("assay-system", "n1", "n1", "n2"), refused: "elements[nodename]"},
		"WorkerUnderAnotherName":    {user: worker, node: "n1", after: feature("assay-system", "x", "n1", "n1"), refused: "metadata.name"},
		"WorkerTakesAnothersObject": {user: worker, node: "n1", op: admissionv1.Update, before: feature("assay-system", "n1", "n2", "n2"), after: own, refused: "is not: the token"},
		"WorkerDeletesAnothers":     {user: worker, node: "n1", op: admissionv1.Delete, before: feature("assay-system", "n2", "n2", "n2"), refused: "changes only what is its own"},
		"WorkerDeletesItsOwn":       {user: worker, node: "n1", op: admissionv1.Delete, before: own},
		"WorkerOwnedByItsNode":      {user: worker, node: "n1", after: ownedBy(own, "uid-of-n1")},
		"WorkerOwnedByAnotherNode":  {user: worker, node: "n1", after: ownedBy(own, "uid-of-another"), refused: "metadata.ownerReferences[0].uid"},
		"WorkerWithoutAClaim":       {user: worker, after: own, refused: "this token names none"},
		"PublisherInOurNamespace":   {user: topograph, node: "n1", after: feature("assay-system", "v", "n2", "n2")},
		"HardenedPublisher":         {user: topograph, node: "n1", after: feature("assay-system", "v", "n2", "n2"), hardened: true},
		"HardenedOtherPod":          {user: "system:serviceaccount:assay-system:x", node: "n1", after: feature("assay-system", "v", "n2", "n2"), hardened: true, refused: "a node publishes only for itself"},
		"HardenedOwnNode":           {user: "system:serviceaccount:assay-system:x", node: "n1", after: feature("assay-system", "v", "n1", "n1"), hardened: true},
		"HardenedWithoutAClaim":     {user: "system:serviceaccount:assay-system:x", after: feature("assay-system", "v", "n2", "n2"), hardened: true, refused: "this token names none"},
		"HardenedCollector":         {user: "system:serviceaccount:kube-system:generic-garbage-collector", op: admissionv1.Delete, before: feature("assay-system", "n2", "n2", "n2"), hardened: true},
		"HardenedAdministrator":     {user: "admin", after: feature("assay-system", "n2", "n2", "n2"), hardened: true},
		"ManagerCleansUp":           {user: manager, node: "n1", op: admissionv1.Delete, before: feature("assay-system", "n2", "n2", "n2")},
		"ThirdPartyElsewhere":       {user: "system:serviceaccount:gpu:operator", node: "n1", after: feature("gpu", "vendor-n2", "n2", "n2")},
		"ThirdPartyBound":           {user: "system:serviceaccount:gpu:operator", node: "n1", after: feature("gpu", "vendor-n2", "n2", "n2"), hardened: true, refused: "a node publishes only for itself"},
		"Administrator":             {user: "admin", after: feature("assay-system", "n2", "n2", "n2")},
		"NamespaceWithPrefixes":     {user: "admin", after: feature("restricted", "v", "n2", "n2"), refused: "spec.labels[b]"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(o *webhook.Options) {
				o.Publishing = webhook.Publishing{
					Namespace: "assay-system", Workers: []string{worker}, Managers: []string{manager}, Hardened: tc.hardened, Publishers: []string{topograph},
					LabelPrefixes: func(ns string) ([]string, bool) {
						if ns != "restricted" {
							return nil, false
						}
						return webhook.ParseLabelPrefixes(map[string]string{webhook.LabelPrefixesAnnotation: "vendor.io/, other.io/"})
					},
				}
			})
			var req *admissionv1.AdmissionRequest
			switch tc.op {
			case admissionv1.Update:
				req = update(t, tc.before, tc.after)
			case admissionv1.Delete:
				req = request(t, []byte(tc.before))
				req.Operation, req.OldObject, req.Object = tc.op, req.Object, runtime.RawExtension{}
			default:
				req = request(t, []byte(tc.after))
			}
			req.UserInfo.Username = tc.user
			if tc.node != "" {
				req.UserInfo.Extra = map[string]authenticationv1.ExtraValue{
					"authentication.kubernetes.io/node-name": {tc.node}, "authentication.kubernetes.io/node-uid": {"uid-of-" + tc.node},
				}
			}
			got := s.Review(context.Background(), req)
			if got.Allowed != (tc.refused == "") {
				t.Fatalf("allowed %v: %+v", got.Allowed, got.Result)
			}
			if !got.Allowed && !strings.Contains(got.Result.Message, tc.refused) {
				t.Errorf("want %q in %s", tc.refused, got.Result.Message)
			}
		})
	}
}

func TestTheSameObjectGivesTheSameText(t *testing.T) {
	s := newServer(t, nil)
	for _, file := range list(t, "testdata/wrong/*.yaml") {
		req := request(t, read(t, file))
		first, err := json.Marshal(s.Review(context.Background(), req))
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			again, err := json.Marshal(s.Review(context.Background(), req))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first, again) {
				t.Errorf("%s: %s\nand then %s", name(file), first, again)
			}
		}
	}
}

// Strict admission rejects what is otherwise a warning.
func TestStrict(t *testing.T) {
	manifest := read(t, "testdata/wrong/label-value-slash.yaml")
	if got := newServer(t, nil).Review(context.Background(), request(t, manifest)); !got.Allowed {
		t.Errorf("refused: %s", got.Result.Message)
	}
	strict := newServer(t, func(o *webhook.Options) { o.Known.Strict = true })
	if got := strict.Review(context.Background(), request(t, manifest)); got.Allowed {
		t.Error("allowed")
	}
}

// TestWithheldOutputsDrawAWarning: an output that the controller is configured not to write causes a warning with the path of its
// field.
func TestWithheldOutputsDrawAWarning(t *testing.T) {
	manifest := ruleYAML(`{rules: [{name: a, labels: {a: "1"}, matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]},
		{name: b, taints: [{key: example.com/a, effect: NoSchedule}], matchFeatures: [{feature: kernel.version, matchExpressions: {full: {op: Exists}}}]}]}`)
	s := newServer(t, func(o *webhook.Options) { o.Known.Withholding = rules.Withholding{Taints: true} })
	got := s.Review(context.Background(), request(t, []byte(manifest)))
	want := []string{"spec.rules[1].taints: not written on nodes: taints are disabled; set enableTaints in the controller's configuration"}
	if !got.Allowed || fmt.Sprint(got.Warnings) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got.Warnings, want)
	}
}

// TestConditionsOfKubernetesAreRefused: rules may set conditions of Nodes, but none that Kubernetes, its SIGs or Assay itself set.
func TestConditionsOfKubernetesAreRefused(t *testing.T) {
	s := newServer(t, nil)
	for kind, refused := range map[string]string{
		"example.com/DriverReady":    "",
		"Ready":                      `the condition type "Ready" has no namespace; write a namespace of your own, such as example.com/Ready`,
		"NetworkUnavailable":         "has no namespace",
		"MemoryPressure":             "has no namespace",
		"readiness.k8s.io/CNI":       "Kubernetes and its SIGs define the conditions of k8s.io",
		"cluster.x-k8s.io/Available": "Kubernetes and its SIGs define the conditions of x-k8s.io",
		"assay.dev/FeaturesReady":    "Assay writes it itself",
	} {
		got := s.Review(context.Background(), request(t, []byte(ruleYAML(`{rules: [{name: a, nodeConditions: [{type: `+kind+`, status: "True"}]}]}`))))
		if got.Allowed != (refused == "") {
			t.Errorf("%s: allowed %v", kind, got.Allowed)
		}
		if !got.Allowed && (!strings.Contains(got.Result.Message, "spec.rules[0].nodeConditions[0].type") || !strings.Contains(got.Result.Message, refused)) {
			t.Errorf("%s: want %q in %s", kind, refused, got.Result.Message)
		}
	}
}

func FuzzReview(f *testing.F) {
	for _, file := range list(f, "testdata/wrong/*.yaml") {
		req := request(f, read(f, file))
		raw, err := json.Marshal(&admissionv1.AdmissionReview{Request: req})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Replace(raw, []byte(`{`), []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",`), 1))
	}
	h := newServer(f, nil).Handler()
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, webhook.ReviewPath, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK && w.Code/100 != 4 {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	})
}

// BenchmarkReview reviews an object with a hundred rules in both phases of admission, from the bodies to the responses. In a catalog
// of devices most patterns and templates are the same in every rule; in the worst case all are different. Fleet has typical rules.
func BenchmarkReview(b *testing.B) {
	for name, rule := range map[string]string{
		"Catalog": `{name: r%[1]d, labels: {a%[1]d: "1"}, labelsTemplate: "{{ range .pci.device }}d-{{ .device }}=true\n{{ end }}", ` +
			`matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["10de"]}, class: {op: InRegexp, value: ["^03"]}}}, ` +
			`{feature: kernel.version, matchExpressions: {major: {op: Gt, value: ["5"]}}}]}`,
		"AllDifferent": `{name: r%[1]d, labels: {a%[1]d: "1"}, labelsTemplate: "{{ range .pci.device }}d%[1]d-{{ .device }}=true\n{{ end }}", ` +
			`matchFeatures: [{feature: pci.device, matchExpressions: {vendor: {op: In, value: ["10de"]}, class: {op: InRegexp, value: ["^03[0-9]+%[1]d"]}}}, ` +
			`{feature: kernel.version, matchExpressions: {major: {op: Gt, value: ["5"]}}}]}`,
	} {
		var rules []string
		for i := range 100 {
			rules = append(rules, fmt.Sprintf(rule, i))
		}
		b.Run(name, func(b *testing.B) { benchmarkReview(b, ruleYAML(`{rules: [`+strings.Join(rules, ",")+`]}`)) })
	}
	var list nfdv1alpha1.NodeFeatureRuleList
	bench.Read(b, "rules-100", &list)
	one := list.Items[0]
	for _, o := range list.Items[1:] {
		one.Spec.Rules = append(one.Spec.Rules, o.Spec.Rules...)
	}
	text, err := yaml.Marshal(one)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Fleet", func(b *testing.B) { benchmarkReview(b, string(text)) })
}

// BenchmarkReviewFeature reviews an update of the NodeFeature of a large server with one change.
func BenchmarkReviewFeature(b *testing.B) {
	manifest := read(b, "../test/hosts/server/nodefeature.yaml")
	req := update(b, string(manifest), string(manifest))
	s := newServer(b, nil)
	if got := s.Review(context.Background(), req); !got.Allowed {
		b.Fatal(got.Result)
	}
	b.SetBytes(int64(len(req.Object.Raw)))
	b.ReportAllocs()
	for b.Loop() {
		s.Review(context.Background(), req)
	}
}

func benchmarkReview(b *testing.B, manifest string) {
	req := request(b, []byte(manifest))
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Request: req,
	})
	if err != nil {
		b.Fatal(err)
	}
	s := newServer(b, nil)
	if got := s.Review(context.Background(), req); !got.Allowed || len(got.Warnings) > 0 {
		b.Fatal(got)
	}
	h := s.Handler()
	var took []time.Duration
	used := userTime(b)
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		for _, path := range []string{webhook.EarlyReviewPath, webhook.ReviewPath} {
			r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				b.Fatal(w.Body)
			}
		}
		took = append(took, time.Since(start))
	}
	b.ReportMetric(float64((userTime(b)-used).Microseconds())/1000/float64(len(took)), "user-ms/op")
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
}

// userTime returns the CPU time of the process in user mode, which other load on the machine changes less than the time on the clock.
func userTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}

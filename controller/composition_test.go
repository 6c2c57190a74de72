package controller_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/template"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules/compose"
)

// template creates a NodeFeatureRuleTemplate from the YAML of its spec.
func (w *world) template(name, spec string) *assayv1alpha1.NodeFeatureRuleTemplate {
	w.Helper()
	o := &assayv1alpha1.NodeFeatureRuleTemplate{}
	w.apply(o, fmt.Sprintf("{metadata: {name: %s}, spec: %s}", name, spec))
	return o
}

// delete deletes an object without a grace period.
func (w *world) delete(object client.Object) {
	w.Helper()
	if err := w.Delete(w.Context(), object); err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
}

func TestATemplateSharedByManyIsOneEvaluation(t *testing.T) {
	const objects, nodes = 100, 10
	w := newWorld(t)
	site := w.template("site", `{rules: [{name: base, labels: {example.com/site: hq}, vars: {unused: "1"}}]}`)
	for i := range objects {
		w.rule(fmt.Sprintf("r%03d", i), fmt.Sprintf(`{basedOn: [{name: site}], rules: [{name: own, labels: {example.com/l%03d: "1"}}]}`, i))
	}
	bystander := w.rule("bystander", `{rules: [{name: own, labels: {example.com/bystander: "1"}}]}`)
	for i := range nodes {
		w.node(fmt.Sprintf("n%d", i))
	}
	m := w.start()
	for i := range nodes {
		w.labels(fmt.Sprintf("n%d", i), M{"example.com/site": "hq", "example.com/l099": "1", "example.com/bystander": "1"})
	}
	settled := func(name string) *nfdv1alpha1.NodeFeatureRule {
		return becomes(w, &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}}, fmt.Sprintf("%d matched nodes", nodes),
			func(r *nfdv1alpha1.NodeFeatureRule) bool {
				return r.Status.MatchedNodes != nil && *r.Status.MatchedNodes == nodes && r.Status.EffectiveHash != ""
			})
	}
	hashes := map[string]string{}
	for i := range objects {
		r := settled(fmt.Sprintf("r%03d", i))
		hashes[r.Name] = r.Status.EffectiveHash
	}
	version := settled(bystander.Name).ResourceVersion

	m.reset()
	before := passes()
	change(w, site, func(o *assayv1alpha1.NodeFeatureRuleTemplate) { o.Spec.Rules[0].Vars["unused"] = "2" })
	w.waitForPasses(before, nodes)
	for name, hash := range hashes {
		becomes(w, &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}}, "another hash",
			func(r *nfdv1alpha1.NodeFeatureRule) bool { return r.Status.EffectiveHash != hash })
	}
	if n := passes() - before; n != nodes {
		t.Errorf("%d passes over %d nodes", n, nodes)
	}
	if list := m.requests("/api/v1/nodes/"); len(list) > 0 {
		t.Errorf("nodes were written although nothing changed on them: %q", list)
	}
	if n := len(m.requests("PATCH", "/nodefeaturerules/")); n != objects {
		t.Errorf("%d writes of the status of %d objects", n, objects)
	}
	if got := settled(bystander.Name).ResourceVersion; got != version {
		t.Error("an object that is not based on the template was written")
	}
}

func TestAPinKeepsTheOldResult(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	deep := w.template("deep", `{rules: [{name: deep, labels: {example.com/deep: one}}]}`)
	site := w.template("site", `{basedOn: [{name: deep}], rules: [{name: base, labels: {example.com/base: one}}]}`)
	own := compose.Digest(&site.Spec)
	tree, err := compose.Assemble(compose.Document{Name: "site", Template: true, Spec: &site.Spec},
		func(string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) { return &deep.Spec, nil })
	if err != nil {
		t.Fatal(err)
	}
	free := w.rule("free", `{basedOn: [{name: site}], rules: [{name: base, labels: {example.com/free: "1"}}]}`)
	pinned := w.rule("pinned", fmt.Sprintf(`{priority: 10, basedOn: [{name: site, digest: %q}], rules: [{name: base, labels: {example.com/pinned: "1"}}]}`, own))
	whole := w.rule("whole", fmt.Sprintf(`{basedOn: [{name: site, digest: %q}], rules: [{name: base, labels: {example.com/whole: "1"}}]}`, tree.Hash))
	w.start()
	w.labels("n1", M{"example.com/base": "one", "example.com/deep": "one", "example.com/pinned": "1", "example.com/whole": "1"})

	// The hash of its own spec does not cover its bases; the hash of the tree does.
	change(w, deep, func(o *assayv1alpha1.NodeFeatureRuleTemplate) { o.Spec.Rules[0].Labels["example.com/deep"] = "two" })
	w.condition(whole, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "DigestMismatch")
	w.labels("n1", M{"example.com/deep": "two", "example.com/whole": "1"})
	w.condition(pinned, nfdv1alpha1.ConditionResolved, metav1.ConditionTrue)

	change(w, site, func(o *assayv1alpha1.NodeFeatureRuleTemplate) { o.Spec.Rules[0].Labels["example.com/base"] = "two" })
	w.condition(pinned, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "DigestMismatch", "site")
	w.condition(free, nfdv1alpha1.ConditionResolved, metav1.ConditionTrue)
	w.labels("n1", M{"example.com/base": "one", "example.com/pinned": "1", "example.com/free": "1"}) // pinned has the priority

	change(w, site, func(o *assayv1alpha1.NodeFeatureRuleTemplate) { o.Spec.Rules[0].Labels["example.com/base"] = "one" })
	w.condition(pinned, nfdv1alpha1.ConditionResolved, metav1.ConditionTrue)
}

func TestABaseMayComeLater(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	r := w.rule("r", `{basedOn: [{name: near}], rules: [{name: own, labels: {example.com/own: "1"}}]}`)
	m := w.start()
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseMissing", "near")
	w.event("r", "RuleUnresolved", "near")
	near := w.template("near", `{basedOn: [{name: far}], rules: [{name: near, labels: {example.com/near: "1"}}]}`)
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseMissing", "far")
	if list := m.requests("PATCH", "/nodes/"); len(list) > 0 {
		t.Errorf("something was written although a base is missing: %q", list)
	}
	far := w.template("far", `{rules: [{name: far, labels: {example.com/far: "1"}}]}`)
	w.labels("n1", M{"example.com/own": "1", "example.com/near": "1", "example.com/far": "1"})
	becomes(w, r, "origins", func(r *nfdv1alpha1.NodeFeatureRule) bool {
		return fmt.Sprint(r.Status.Origins) == "[{far far} {near near}]"
	})

	change(w, far, func(o *assayv1alpha1.NodeFeatureRuleTemplate) { o.Spec.BasedOn = []nfdv1alpha1.Base{{Name: "near"}} })
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseCycle", "near -> far -> near")
	change(w, far, func(o *assayv1alpha1.NodeFeatureRuleTemplate) { o.Spec.BasedOn = nil })
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionTrue)

	w.delete(near)
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseMissing")
	w.labels("n1", M{"example.com/own": "1", "example.com/near": "1", "example.com/far": "1"})
}

func TestTheLastGoodResultOutlivesAManager(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	site := w.template("site", `{rules: [{name: base, labels: {example.com/base: one}}]}`)
	r := w.rule("r", `{basedOn: [{name: site}], rules: [{name: own, labels: {example.com/own: "1"}}]}`)
	m := w.start()
	w.labels("n1", M{"example.com/own": "1", "example.com/base": "one"})
	w.delete(site)
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseMissing")
	w.kept("r", true)
	m.stop()

	before := passes()
	m = w.start()
	w.waitForPasses(before, 1)
	w.rule("marker", `{rules: [{name: m, labels: {example.com/marker: "1"}}]}`)
	w.labels("n1", M{"example.com/marker": "1", "example.com/own": "1", "example.com/base": "one"})

	w.template("site", `{rules: [{name: base, labels: {example.com/base: two}}]}`)
	w.labels("n1", M{"example.com/own": "1", "example.com/base": "two"})
	w.kept("r", false)
	m.stop()
}

// kept waits until the manager has stored, or deleted, the last good result of an object.
func (w *world) kept(object string, want bool) {
	w.Helper()
	testkit.Eventually(w, fmt.Sprintf("kept result of %s: %t", object, want), func(ctx context.Context) error {
		m := &corev1.ConfigMap{}
		err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "assay-kept-rules"}, m)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if found := len(m.BinaryData[object]) > 0; found != want {
			return fmt.Errorf("%d are kept", len(m.BinaryData))
		}
		return nil
	})
}

func TestTemplatesThatSwapTheirContents(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	a := w.template("a", `{rules: [{name: x, labels: {example.com/x: one}}]}`)
	b := w.template("b", `{rules: [{name: x, labels: {example.com/x: two}}]}`)
	both := w.rule("both", `{basedOn: [{name: a}, {name: b}], rules: [{name: own, labels: {example.com/both: "1"}}]}`)
	only := w.rule("only", `{basedOn: [{name: b}], rules: [{name: "*", labels: {}}, {name: x, labels: {example.com/y: "1"}, annotations: {example.com/of-b: "1"}}], priority: 0}`)
	w.start()
	w.labels("n1", M{"example.com/both": "1", "example.com/y": "1"})
	first := becomes(w, both, "hash", func(r *nfdv1alpha1.NodeFeatureRule) bool { return r.Status.EffectiveHash != "" }).Status.EffectiveHash
	second := becomes(w, only, "hash", func(r *nfdv1alpha1.NodeFeatureRule) bool { return r.Status.EffectiveHash != "" }).Status.EffectiveHash
	w.delete(only)
	w.labels("n1", M{"example.com/x": "one"})

	for range 2 { // changed, and back again
		one, two := *a.Spec.DeepCopy(), *b.Spec.DeepCopy()
		change(w, a, func(o *assayv1alpha1.NodeFeatureRuleTemplate) { o.Spec = two })
		change(w, b, func(o *assayv1alpha1.NodeFeatureRuleTemplate) { o.Spec = one })
		w.labels("n1", M{"example.com/x": two.Rules[0].Labels["example.com/x"]})
	}
	becomes(w, both, "the first hash again", func(r *nfdv1alpha1.NodeFeatureRule) bool { return r.Status.EffectiveHash == first })
	if first == second {
		t.Error("different objects have the same hash")
	}
}

func TestAnEmbeddedCopyGivesTheSameLabelsWithoutTemplates(t *testing.T) {
	w := newWorld(t)
	w.node("ait-gpu-07")
	w.publish(w.namespace, "ait-gpu-07", "ait-gpu-07", M{"gpus": "8"}, nil)
	site := w.template("site-defaults", `{rules: [{name: site, vars: {site: "{host[0:3]}"}, labels: {example.com/site: "{site}"}},
	  {name: legacy-kernel, labels: {example.com/old: "true"}}, {name: "*", annotations: {example.com/owner: platform}}]}`)
	text := `{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule, metadata: {name: gpu-pool}, spec: {basedOn: [{name: site-defaults, exclude: ["legacy-*"]}],
	  rules: [{name: site, labels: {example.com/site: "{site}-gpu"}}, {name: gpus, labels: {example.com/gpus: "@test.attr.gpus"}}]}}`
	live := &nfdv1alpha1.NodeFeatureRule{}
	w.apply(live, text)
	m := w.start()
	want := M{"example.com/site": "ait-gpu", "example.com/gpus": "8", "example.com/old": ""}
	annotated := func(n *corev1.Node) bool {
		return n.Annotations["example.com/owner"] == "platform" && holds(n.Labels, want)
	}
	node := becomes(w, w.labels("ait-gpu-07", want), "annotation", annotated)

	file := filepath.Join(t.TempDir(), "gpu-pool.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := template.NewCommandWith(template.Deps{Template: func(ctx context.Context, name string) (*assayv1alpha1.NodeFeatureRuleTemplate, error) {
		o := &assayv1alpha1.NodeFeatureRuleTemplate{}
		return o, w.Get(ctx, client.ObjectKey{Name: name}, o)
	}})
	cmd.SetArgs([]string{"copy", "--embed-all", file})
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.delete(live)
	w.labels("ait-gpu-07", M{"example.com/site": "", "example.com/gpus": ""})
	w.delete(site)

	copied := &nfdv1alpha1.NodeFeatureRule{}
	w.apply(copied, out.String())
	again := becomes(w, w.labels("ait-gpu-07", want), "annotation", annotated)
	if fmt.Sprint(again.Labels, again.Annotations) != fmt.Sprint(node.Labels, node.Annotations) {
		t.Errorf("labels and annotations are\n%v\n%v\nnot\n%v\n%v", again.Labels, again.Annotations, node.Labels, node.Annotations)
	}
	if len(copied.Spec.BasedOn) > 0 {
		t.Error("the copy is based on something")
	}
	m.stop()
}

func TestATemplateInUseMayGo(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	site := w.template("site", `{rules: [{name: base, labels: {example.com/base: one}}]}`)
	r := w.rule("r", `{basedOn: [{name: site}]}`)
	w.start()
	w.labels("n1", M{"example.com/base": "one"})
	// No finalizer blocks it: neither when a whole directory is deleted, nor when Assay is uninstalled.
	w.delete(site)
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(site), site); !apierrors.IsNotFound(err) {
		t.Errorf("the template is still there: %v", err)
	}
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseMissing")
	w.event("r", "RuleUnresolved")
	// Deleting the object removes its labels, whatever it is based on.
	w.delete(r)
	w.labels("n1", M{"example.com/base": ""})
}

func TestEditingAnObjectWithAMissingBaseKeepsWhatItGave(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	r := w.rule("r", `{rules: [{name: own, labels: {example.com/own: one}}]}`)
	w.start()
	w.labels("n1", M{"example.com/own": "one"})
	w.setRule(r, `{basedOn: [{name: nope}], rules: [{name: own, labels: {example.com/own: two}}]}`)
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseMissing")
	w.labels("n1", M{"example.com/own": "one"})
	// A new object of that name does not inherit the old result.
	w.delete(r)
	w.labels("n1", M{"example.com/own": ""})
	w.rule("r", `{basedOn: [{name: nope}], rules: [{name: own, labels: {example.com/own: two}}]}`)
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseMissing")
	w.labels("n1", M{"example.com/own": ""})
}

func TestTheDefaultTemplateMayComeLater(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	r := w.rule("r", `{rules: [{name: r, labels: {example.com/r: "1"}}]}`)
	m := w.start(func(c *controller.Config) { c.DefaultTemplate = "defaults" })
	// The default template can restrict the rules, so they wait for it.
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionFalse, "BaseMissing", "default template defaults")
	w.condition(r, nfdv1alpha1.ConditionAccepted, metav1.ConditionUnknown)
	if list := m.requests("PATCH", "/nodes/"); len(list) > 0 {
		t.Errorf("nodes were written: %q", list)
	}
	defaults := w.template("defaults", `{rules: [{name: "*", annotations: {example.com/owner: platform}}]}`)
	w.labels("n1", M{"example.com/r": "1"})
	w.condition(r, nfdv1alpha1.ConditionResolved, metav1.ConditionTrue)
	change(w, defaults, func(o *assayv1alpha1.NodeFeatureRuleTemplate) {
		o.Spec.Rules[0].Annotations = M{"example.com/owner": "others"}
	})
	becomes(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, "annotation", func(n *corev1.Node) bool {
		return n.Annotations["example.com/owner"] == "others"
	})
}

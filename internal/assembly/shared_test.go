package assembly

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// stored is a Source whose templates are those of a cache, which all assemblies share.
type stored map[string]*nfdv1alpha1.NodeFeatureRuleSpec

func (s stored) Template(_ context.Context, name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
	if spec := s[name]; spec != nil {
		return spec, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
}

func (s stored) Secret(context.Context, string) (*corev1.Secret, error) {
	return &corev1.Secret{Data: map[string][]byte{"rules": []byte(`[{name: of-secret, labels: {example.com/secret: "1"}, matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}]}]`)}}, nil
}

func (s stored) ConfigMap(context.Context, string) (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{Data: map[string]string{"template": "example.com/t=1"}}, nil
}

// roomy gives all slices in a value room for more elements, so that an append to one of them writes to its memory.
func roomy(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			roomy(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				roomy(v.Field(i))
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			roomy(v.MapIndex(key))
		}
	case reflect.Slice:
		if v.Len() == 0 || !v.CanSet() {
			return
		}
		larger := reflect.MakeSlice(v.Type(), v.Len(), v.Len()+4)
		reflect.Copy(larger, v)
		v.Set(larger)
		for i := range v.Len() {
			roomy(v.Index(i))
		}
	}
}

// whole returns a value with all slices up to their capacity.
func whole(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "nil"
		}
		return "&" + whole(v.Elem())
	case reflect.Struct:
		out := ""
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out += v.Type().Field(i).Name + ":" + whole(v.Field(i)) + "\n"
			}
		}
		return "{" + out + "}"
	case reflect.Map:
		var out []string
		for _, key := range v.MapKeys() {
			out = append(out, whole(key)+":"+whole(v.MapIndex(key)))
		}
		slices.Sort(out)
		return fmt.Sprint(out)
	case reflect.Slice:
		out := ""
		for i, all := 0, v.Slice(0, v.Cap()); i < all.Len(); i++ {
			out += whole(all.Index(i)) + ","
		}
		return "[" + out + "]"
	}
	return fmt.Sprint(v.Interface())
}

// TestAssemblyDoesNotModifyWhatIsStored assembles, compiles and evaluates objects that are based on the same templates, which belong to
// a cache, and of which one reads a Secret.
func TestAssemblyDoesNotModifyWhatIsStored(t *testing.T) {
	read := func(text string) *nfdv1alpha1.NodeFeatureRuleSpec {
		spec := &nfdv1alpha1.NodeFeatureRuleSpec{}
		if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
			t.Fatal(err)
		}
		roomy(reflect.ValueOf(spec))
		return spec
	}
	rule := func(name, value string) string {
		return fmt.Sprintf(`
- name: %[1]s
  labels: {example.com/%[2]s: "1", "example.com/{k}": "{k}"}
  annotations: {example.com/%[2]s: "1"}
  vars: {k: %[2]s, %[2]s: "x"}
  extendedResources: {example.com/%[2]s: "1"}
  taints: [{key: example.com/%[2]s, effect: NoSchedule}, {key: example.com/all, effect: NoSchedule}]
  nodeConditions: [{type: example.com/%[2]s, status: "True"}]
  labelsTemplateFrom: {configMapKeyRef: {name: c, key: template}}
  matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: In, value: [z, y, x]}, %[2]s: {op: Exists}}}]
  matchAny: [{matchFeatures: [{feature: cpu.cpuid, matchName: {op: In, value: [b, %[2]s, a]}}]}]
  conditions: [{op: eq, args: {values: ["1", "1"]}}]
  actions: [{op: fail, args: {msg: "%[2]s"}}]
`, name, value)
	}
	source := stored{
		"base":   read("priority: 3\nbasedOn: [{name: deeper}]\nnodeSelector: {matchLabels: {a: b}}\nrulesFrom: [{secretKeyRef: {name: s, key: rules}}]\nrules:" + rule("one", "base") + rule("two", "base")),
		"deeper": read("description: d\nnodeSelector: {matchLabels: {c: d}, matchExpressions: [{key: x, operator: Exists}]}\nrulesFrom: [{secretKeyRef: {name: s, key: rules}}]\nrules:" + rule("one", "deeper") + rule("three", "deeper")),
	}
	objects := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{
		"first":  read("basedOn: [{name: base}]\nrules:" + rule("one", "first") + "- name: two\n  labels: {example.com/two: \"2\"}\n"),
		"second": read("basedOn: [{name: base}, {name: deeper}]\nrulesFrom: [{secretKeyRef: {name: s, key: rules}}]\nrules:" + rule("two", "second")),
		"alone":  read("rulesFrom: [{secretKeyRef: {name: s, key: rules}}]\nrules:" + rule("four", "alone")),
		"plain":  read("rulesFrom: [{secretKeyRef: {name: s, key: rules}}]\nrules: [{name: five, labels: {example.com/five: \"1\"}}]"),
	}
	before := map[string]string{}
	all := map[string]*nfdv1alpha1.NodeFeatureRuleSpec{}
	for _, from := range []map[string]*nfdv1alpha1.NodeFeatureRuleSpec{source, objects} {
		for name, spec := range from {
			all[name], before[name] = spec, whole(reflect.ValueOf(spec))
		}
	}
	hashes := map[string]string{}
	for range 6 {
		for name, spec := range objects { // in random order
			a := New(Options{DefaultTemplate: "deeper"}, source)
			if len(spec.BasedOn) == 0 {
				a = New(Options{}, source)
			}
			got, err := a.Assemble(t.Context(), &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *spec}, nil, rules.MaxSize)
			if err != nil || got.Refused != nil || got.Unresolved != nil || got.Set == nil {
				t.Fatalf("%s: %+v, %v", name, got, err)
			}
			rules.Link(rules.Options{}, got.Set).Eval(rules.Input{Node: rules.Node{Name: "n"}})
			text := whole(reflect.ValueOf(got.Spec)) + got.Hash + fmt.Sprint(got.Errors)
			if known, ok := hashes[name]; ok && known != text {
				t.Errorf("%s is another one after others were assembled:\n%s", name, cmp.Diff(known, text))
			}
			hashes[name] = text
		}
	}
	for name, spec := range all {
		if diff := cmp.Diff(before[name], whole(reflect.ValueOf(spec))); diff != "" {
			t.Errorf("%s was modified (-before +after):\n%s", name, diff)
		}
	}
}

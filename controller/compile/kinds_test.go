package compile

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/requirements"
)

// store is a fake API server and cache with objects of the kinds that are compiled, by name, and the definitions of these kinds.
type store struct {
	t           *testing.T
	objects     map[string]client.Object
	mu          sync.Mutex
	definitions map[string]*unstructured.Unstructured // absent: none
	forbidden   bool                                  // definitions cannot be read
	watches     []*watch.FakeWatcher
}

func (s *store) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if into.GetObjectKind().GroupVersionKind() == definition.Kind {
		s.mu.Lock()
		defer s.mu.Unlock()
		served := s.definitions[key.Name]
		switch head, ok := into.(*metav1.PartialObjectMetadata); {
		case s.forbidden:
			return apierrors.NewForbidden(schema.GroupResource{}, key.Name, nil)
		case served == nil:
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
		case ok:
			head.UID, head.Generation = served.GetUID(), served.GetGeneration()
		default:
			into.(*unstructured.Unstructured).Object = served.DeepCopy().Object
		}
		return nil
	}
	o := s.objects[fmt.Sprintf("%T %s", into, key.Name)]
	if o == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	copied, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(copied, into)
	}
	return err
}

func (s *store) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if list, ok := into.(*assayv1alpha1.NodeFeatureRequestList); ok {
		for _, o := range s.objects {
			if request, ok := o.(*assayv1alpha1.NodeFeatureRequest); ok {
				list.Items = append(list.Items, *request)
			}
		}
	}
	return nil
}

func (s *store) watch(ctx context.Context, _ string) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := watch.NewFakeWithChanSize(10, false)
	s.watches = append(s.watches, w)
	context.AfterFunc(ctx, w.Stop)
	return w, nil
}

// define changes what the API server has of a definition: this version's, or one that drops conditions.
func (s *store) define(name string, generation int64, drops bool) {
	served := &unstructured.Unstructured{}
	file := map[string]string{
		definition.Rules: "nfd.k8s-sigs.io_nodefeaturerules", definition.Requests: "assay.dev_nodefeaturerequests",
		definition.Baselines: "assay.dev_nodebaselines", definition.Templates: "assay.dev_nodefeatureruletemplates",
	}[name]
	if err := yaml.Unmarshal(charts.CRDs()[file+".yaml"], &served.Object); err != nil {
		s.t.Fatal(err)
	}
	if version := served.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any); drops {
		unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "spec", "properties")
	}
	served.SetUID("1")
	served.SetGeneration(generation)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.definitions[name] = served
}

// changed makes the watches of definitions report a change.
func (s *store) changed() {
	for _, w := range s.watches {
		w.Modify(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "changed"}})
	}
	synctest.Wait()
}

// clear deletes all objects of a kind.
func (s *store) clear(kind string) {
	maps.DeleteFunc(s.objects, func(key string, _ client.Object) bool { return strings.HasPrefix(key, "*v1alpha1."+kind+" ") })
}

func (s *store) put(o client.Object, generation int64) {
	o.SetUID(types.UID(o.GetName()))
	o.SetGeneration(generation)
	s.objects[fmt.Sprintf("%T %s", o, o.GetName())] = o
}

// compiledKind is a kind whose objects are compiled.
type compiledKind struct {
	definition string
	// put writes an object, with conditions or without, as a definition of another program makes the API server answer.
	put func(s *store, name string, generation int64, conditions bool)
	// rule is the name of the rules that follow from an object.
	rule func(name string) string
}

func compiledKinds() map[string]compiledKind {
	const namespace = "team"
	conditions := func(with bool) []nfdv1alpha1.Condition {
		if !with {
			return nil
		}
		return []nfdv1alpha1.Condition{{Op: "is-true", Args: nfdv1alpha1.JSON{Raw: []byte(`{"value":"{node}"}`)}}}
	}
	terms := nfdv1alpha1.FeatureMatcher{{Feature: "cpu.model"}}
	spec := func(with bool) nfdv1alpha1.NodeFeatureRuleSpec {
		return nfdv1alpha1.NodeFeatureRuleSpec{Rules: []nfdv1alpha1.Rule{{Name: "x", Labels: map[string]string{"a": "b"}, Conditions: conditions(with), MatchFeatures: terms}}}
	}
	itself := func(name string) string { return name }
	return map[string]compiledKind{
		"NodeFeatureRule": {definition.Rules, func(s *store, name string, generation int64, with bool) {
			s.put(&nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec(with)}, generation)
		}, itself},
		"NodeFeatureRuleTemplate": {definition.Templates, func(s *store, name string, generation int64, with bool) {
			s.put(&nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: nfdv1alpha1.NodeFeatureRuleSpec{
				BasedOn: []nfdv1alpha1.Base{{Name: name}},
			}}, 1)
			s.put(&assayv1alpha1.NodeFeatureRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec(with)}, generation)
		}, itself},
		"NodeFeatureRequest": {definition.Requests, func(s *store, name string, generation int64, with bool) {
			o := &assayv1alpha1.NodeFeatureRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			o.Spec.Required = &assayv1alpha1.Requirement{MatchFeatures: terms, Conditions: conditions(with)}
			s.put(o, generation)
		}, func(name string) string { return requirements.RuleName(namespace, name) }},
		"NodeBaseline": {definition.Baselines, func(s *store, name string, generation int64, with bool) {
			o := &assayv1alpha1.NodeBaseline{ObjectMeta: metav1.ObjectMeta{Name: name}}
			o.Spec.NodeCondition = "example.com/Conforms"
			o.Spec.Require = []assayv1alpha1.BaselineRequirement{{Name: "r", Requirement: assayv1alpha1.Requirement{MatchFeatures: terms, Conditions: conditions(with)}}}
			s.put(o, generation)
		}, baseline.RuleName},
	}
}

// TestObjectsOfEachKindUnderEachDefinition: what was accepted of an object stays while the definition of its kind is not whole, and afterwards
// if another client has written the object meanwhile, which makes the loss of its fields permanent without a new generation. Without its
// conditions it would give its outputs to more nodes. What was first read meanwhile waits for its user.
func TestObjectsOfEachKindUnderEachDefinition(t *testing.T) {
	for name, kind := range compiledKinds() {
		for state, change := range map[definition.State]func(*store){
			definition.Foreign: func(s *store) { s.define(kind.definition, 2, true) },
			definition.Absent:  func(s *store) { delete(s.definitions, kind.definition); s.clear(name) },
			definition.Unknown: func(s *store) { s.forbidden = true },
		} {
			t.Run(fmt.Sprint(name, "/", state), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { kind.test(t, name, state, change) }) })
		}
	}
}

func (k *compiledKind) test(t *testing.T, kindName string, state definition.State, change func(*store)) {
	s := &store{t: t, objects: map[string]client.Object{}, definitions: map[string]*unstructured.Unstructured{}}
	for _, other := range compiledKinds() {
		s.define(other.definition, 1, false)
	}
	opt := Options{Requests: RequestLimits{Total: 10}, Baselines: true}
	definitions := follow.New(follow.Options{Live: s, Events: s.watch}, opt.kinds()...)
	if err := definitions.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	go func() { _ = definitions.Start(t.Context()) }()
	synctest.Wait()
	r := newRules(s, s, opt, definitions)
	r.started = true
	close(r.loaded)
	look := func(name string) *assembly.Object {
		t.Helper()
		if err := r.refresh(t.Context(), k.rule(name)); err != nil {
			t.Fatal(err)
		}
		return r.Object(k.rule(name))
	}
	reason := func(o *assembly.Object) string {
		switch {
		case o.Lost != nil:
			return o.Lost.Reason
		case o.Unresolved != nil:
			return o.Unresolved.Reason
		}
		return ""
	}

	k.put(s, "known", 1, true)
	accepted := look("known")
	if accepted == nil || accepted.Set == nil || !definitions.Writable(k.definition) {
		t.Fatalf("it is not evaluated although its definition is whole: %+v", accepted)
	}
	keeps := func(when string, o *assembly.Object, why string) {
		t.Helper()
		if o == nil || o.Set == nil || o.Set.Hash() != accepted.Set.Hash() || reason(o) != why {
			t.Fatalf("%s: the accepted rules do not stay for the reason %q: %+v", when, why, o)
		}
	}

	change(s)
	s.changed()
	if now := definitions.Of(k.definition); now.State != state || definitions.Writable(k.definition) {
		t.Fatalf("the definition is %s, and its objects are written: %v", now.State, definitions.Writable(k.definition))
	}
	if k.put(s, "new", 1, false); state == definition.Absent {
		s.clear(kindName)
	} else {
		k.put(s, "known", 1, state == definition.Unknown)
		if o := look("new"); o == nil || o.Set != nil || !o.Suspended() {
			t.Errorf("an object that is first read now is evaluated: %+v", o)
		}
	}
	if o := look("known"); o == nil || o.Set == nil || o.Set.Hash() != accepted.Set.Hash() {
		t.Fatalf("the accepted rules do not stay: %+v", o)
	}
	if state == definition.Absent {
		return // a user creates all objects again
	}

	s.forbidden = false
	s.define(k.definition, 3, false)
	s.changed()
	time.Sleep(follow.DefaultEvery + follow.Settles + follow.Lists + time.Second)
	if !definitions.Writable(k.definition) {
		t.Fatalf("the definition is %v", definitions.Of(k.definition))
	}
	k.put(s, "known", 1, false)
	keeps("another client has written it", look("known"), "FieldsDropped")
	if o := look("new"); k.definition != definition.Templates && (o == nil || o.Set != nil || reason(o) != "FieldsDropped") {
		t.Errorf("an object that may have lost fields is evaluated: %+v", o)
	}
	k.put(s, "known", 1, true)
	keeps("no client has written it", look("known"), "")
	k.put(s, "known", 2, false)
	if o := look("known"); o == nil || o.Set == nil || o.Set.Hash() == accepted.Set.Hash() || reason(o) != "" {
		t.Errorf("what its user has applied again is not evaluated: %+v", o)
	}
}

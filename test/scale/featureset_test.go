//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/scale/fleet"
)

// sharing is a namespace in which a controller announces support for feature sets.
type sharing struct {
	*testing.T
	client.WithWatch
	cluster   *cluster.Cluster
	namespace string
	hosts     hosts
}

func newSharing(t *testing.T, c *cluster.Cluster) *sharing {
	k := testkit.Client(t, c.User)
	s := &sharing{T: t, WithWatch: k, cluster: c, namespace: testkit.Namespace(t, k)}
	var err error
	if s.hosts, err = newHosts(0); err != nil {
		t.Fatal(err)
	}
	testkit.Create(t, k, marker(s.namespace))
	return s
}

// publisher returns the publisher of a node, with the identity of a user, and its notices.
func (s *sharing) publisher(node string, user *cluster.User, share bool) (*publish.Publisher, *[]string) {
	s.Helper()
	config, err := publish.FromKubeconfig(user.Kubeconfig)
	if err != nil {
		s.Fatal(err)
	}
	c, err := publish.NewClient(config)
	if err != nil {
		s.Fatal(err)
	}
	notices := &[]string{}
	return publish.New(c, publish.Options{
		Namespace: s.namespace, Share: share, Owners: []publish.Owner{},
		Rand:     func() float64 { return 0 }, // changes to sets at once
		Identify: func(context.Context) (publish.Identity, error) { return publish.Identity{Node: node}, nil },
		Observe: func(e publish.Event) {
			if e.Notice != "" {
				*notices = append(*notices, e.Notice)
			}
		},
	}), notices
}

// publish publishes the features of a node's host once.
func (s *sharing) publish(node string, user *cluster.User, share bool) []string {
	s.Helper()
	p, notices := s.publisher(node, user, share)
	if _, err := p.Publish(s.Context(), s.hosts.content(fleet.Node{Name: node}, firstValue)); err != nil {
		s.Fatal(err)
	}
	return *notices
}

// stored returns the NodeFeature of a node, and its features including those of existing sets.
func (s *sharing) stored(node string) (f *nfdv1alpha1.NodeFeature, resolved *nfdv1alpha1.Features, missing []string) {
	s.Helper()
	f = &nfdv1alpha1.NodeFeature{}
	if err := s.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: node}, f); err != nil {
		s.Fatal(err)
	}
	resolved, missing = s.resolve(f)
	return f, resolved, missing
}

func (s *sharing) resolve(f *nfdv1alpha1.NodeFeature) (*nfdv1alpha1.Features, []string) {
	s.Helper()
	store := featuresets.New(s.namespace)
	for _, set := range s.sets() {
		store.Put(&set)
	}
	published := &nodefeature.NodeFeature{} // as informers decode it
	if err := json.Unmarshal(mustMarshal(s.T, f), published); err != nil {
		s.Fatal(err)
	}
	all, missing := store.Resolve(published)
	return all.Spec.Features.Facts.Features(), missing
}

func (s *sharing) sets() []assayv1alpha1.NodeFeatureSet {
	s.Helper()
	var list assayv1alpha1.NodeFeatureSetList
	if err := s.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		s.Fatal(err)
	}
	return list.Items
}

// wants checks that a node's features are those of its host, however they are stored.
func (s *sharing) wants(node string, shared bool) {
	s.Helper()
	f, resolved, missing := s.stored(node)
	if got := len(f.Spec.FeatureSets) > 0; got != shared || len(missing) > 0 {
		s.Errorf("the NodeFeature names the sets %q, of which are missing: %q; want some: %t, none missing", f.Spec.FeatureSets, missing, shared)
	}
	want := s.hosts.content(fleet.Node{Name: node}, firstValue).Features
	if !reflect.DeepEqual(resolved.Attributes, want.Attributes) || !reflect.DeepEqual(resolved.Flags, want.Flags) || !reflect.DeepEqual(resolved.Instances, want.Instances) {
		s.Error("the features are not those of the host")
	}
}

func TestNodesOfOneKindShareTheirSets(t *testing.T) {
	s := newSharing(t, testkit.Cluster(t))
	s.publish("n1", s.cluster.User, true)
	first := len(s.sets())
	s.publish("n2", s.cluster.User, true)
	s.wants("n1", true)
	s.wants("n2", true)
	if second := len(s.sets()); first == 0 || second != first {
		t.Errorf("%d sets after the first node and %d after the second, want as many", first, second)
	}
	f, _, _ := s.stored("n1")
	if size := len(mustMarshal(t, f.Spec)); size > 16<<10 {
		t.Errorf("the NodeFeature has %d bytes, want at most 16 KiB", size)
	}
}

// TestTwoWorkersCreateASetAtOnce has several workers create a missing set concurrently.
func TestTwoWorkersCreateASetAtOnce(t *testing.T) {
	s := newSharing(t, testkit.Cluster(t))
	const workers = 4
	results := make(chan error, workers)
	for i := range workers {
		node := fmt.Sprint("n", i)
		p, _ := s.publisher(node, s.cluster.User, true)
		go func() {
			_, err := p.Publish(t.Context(), s.hosts.content(fleet.Node{Name: node}, firstValue))
			results <- err
		}()
	}
	for range workers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	for i := range workers {
		s.wants(fmt.Sprint("n", i), true)
	}
}

func TestAWorkerCreatesASetThatWasDeletedAgain(t *testing.T) {
	s := newSharing(t, testkit.Cluster(t))
	p, _ := s.publisher("n1", s.cluster.User, true)
	contents, ctx := make(chan publish.Content, 1), t.Context()
	contents <- s.hosts.content(fleet.Node{Name: "n1"}, firstValue)
	go p.Run(ctx, contents)
	testkit.Eventually(t, "a NodeFeature that names sets", func(context.Context) error {
		var f nfdv1alpha1.NodeFeature
		return s.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "n1"}, &f)
	})
	deleted := s.sets()[0]
	if err := s.Delete(ctx, &deleted); err != nil {
		t.Fatal(err)
	}
	f, _, missing := s.stored("n1")
	if want := []string{deleted.Name}; !slices.Equal(missing, want) {
		t.Fatalf("missing %q, want %q", missing, want)
	}
	// As the controller does.
	annotation := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, assayv1alpha1.MissingFeatureSetsAnnotation, strings.Join(missing, ","))
	if err := s.Patch(ctx, f, client.RawPatch("application/merge-patch+json", []byte(annotation))); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the set again", func(context.Context) error {
		return s.Get(ctx, client.ObjectKeyFromObject(&deleted), &assayv1alpha1.NodeFeatureSet{})
	})
	s.wants("n1", true)
}

// TestAWorkerDiesBeforeItsNodeFeature leaves sets that no NodeFeature names: the next worker uses them.
func TestAWorkerDiesBeforeItsNodeFeature(t *testing.T) {
	s := newSharing(t, testkit.Cluster(t))
	s.publish("n1", s.cluster.User, true)
	before := s.sets()
	if err := s.Delete(t.Context(), &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the deletion in the API server's cache, which the worker reads", func(ctx context.Context) error {
		key, cached := client.ObjectKey{Namespace: s.namespace, Name: "n1"}, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}}
		if err := s.Get(ctx, key, &nfdv1alpha1.NodeFeature{}, cached); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w, want that it is not found", err)
		}
		return nil
	})
	s.publish("n1", s.cluster.User, true)
	s.wants("n1", true)
	for i, set := range s.sets() {
		if set.UID != before[i].UID {
			t.Errorf("the set %s was created again", set.Name)
		}
	}
}

// TestBetweenWholeAndSharedObjectsNoFeatureIsMissing enables and disables sharing, and checks every version of the NodeFeature.
func TestBetweenWholeAndSharedObjectsNoFeatureIsMissing(t *testing.T) {
	s := newSharing(t, testkit.Cluster(t))
	s.publish("n1", s.cluster.User, false)
	f, _, _ := s.stored("n1")
	w, err := s.Watch(t.Context(), &nfdv1alpha1.NodeFeatureList{}, client.InNamespace(s.namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: f.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	const switches = 4
	for i := range switches {
		s.publish("n1", s.cluster.User, i%2 == 0)
		s.wants("n1", i%2 == 0)
	}
	want, _ := s.resolve(f)
	for range switches {
		version := (<-w.ResultChan()).Object.(*nfdv1alpha1.NodeFeature)
		if got, missing := s.resolve(version); !reflect.DeepEqual(got, want) {
			t.Errorf("version %s has other features; missing sets: %q", version.ResourceVersion, missing)
		}
	}
}

// TestPublishesInlineWhatItMayNotCreate tests a worker before its Role is upgraded, and one in a namespace with an exhausted quota.
func TestPublishesInlineWhatItMayNotCreate(t *testing.T) {
	s := newSharing(t, testkit.Cluster(t))
	user, err := s.cluster.NewUser("worker-" + s.namespace)
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: "worker"}
	testkit.Create(t, s, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{nfdv1alpha1.GroupName}, Resources: []string{"nodefeatures"}, Verbs: []string{"create", "get", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}},
		{APIGroups: []string{assayv1alpha1.GroupName}, Resources: []string{"nodefeaturesets"}, Verbs: []string{"get"}},
	}})
	testkit.Create(t, s, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "worker-" + s.namespace}},
	})
	testkit.Eventually(t, "the Role is known", func(context.Context) error {
		p, _ := s.publisher("probe", user, false)
		_, err := p.Publish(t.Context(), publish.Content{})
		return err
	})
	notices := s.publish("n1", user, true)
	s.wants("n1", false)
	if len(notices) == 0 || !strings.Contains(notices[0], "cannot create NodeFeatureSet") {
		t.Errorf("notices %q, want that a set cannot be created", notices)
	}
}

// TestPublishesWholeObjectsWithNFDsDefinition removes the field from the CRD, as an installation of NFD does.
func TestPublishesWholeObjectsWithNFDsDefinition(t *testing.T) {
	s := newSharing(t, testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, Core: true}))
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	definition.SetName("nodefeatures." + nfdv1alpha1.GroupName)
	remove := `[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/featureSets"}]`
	if err := s.Patch(t.Context(), definition, client.RawPatch("application/json-patch+json", []byte(remove))); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the API server drops the field", func(ctx context.Context) error {
		probe := &nfdv1alpha1.NodeFeature{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, GenerateName: "probe-"}, Spec: nfdv1alpha1.NodeFeatureSpec{FeatureSets: []string{"x"}},
		}
		if err := s.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if len(probe.Spec.FeatureSets) > 0 {
			return errors.New("it keeps the field")
		}
		return nil
	})
	notices := s.publish("n1", s.cluster.User, true)
	s.wants("n1", false)
	if len(notices) != 1 || !strings.Contains(notices[0], "cannot name feature sets") {
		t.Errorf("notices %q, want one about the definition", notices)
	}
}

func TestASetIsImmutableAndHoldsOneFeature(t *testing.T) {
	s := newSharing(t, testkit.Cluster(t))
	// As many elements as a node's largest features together, because of the cost limits of CEL rules in the CRD.
	const elements = 20_000
	config := map[string]string{}
	for i := range elements {
		config[fmt.Sprintf("CONFIG_%06d", i)] = "y"
	}
	features := nfdv1alpha1.Features{
		Flags: map[string]nfdv1alpha1.FlagFeatureSet{}, Instances: map[string]nfdv1alpha1.InstanceFeatureSet{},
		Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"kernel.config": {Elements: config}},
	}
	name, err := featureset.Name(&features)
	if err != nil {
		t.Fatal(err)
	}
	set := &assayv1alpha1.NodeFeatureSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: assayv1alpha1.NodeFeatureSetSpec{Features: features},
	}
	testkit.Create(t, s, set)
	set.Labels = map[string]string{"a": "b"}
	if err := s.Update(t.Context(), set); err != nil {
		t.Errorf("changing a label: %v", err)
	}
	set.Spec.Features.Attributes["kernel.config"].Elements["CONFIG_000000"] = "n"
	if err := s.Update(t.Context(), set); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("changing a feature: %v, want it to be invalid", err)
	}
	set.ObjectMeta = metav1.ObjectMeta{Namespace: s.namespace, Name: "two"}
	set.Spec.Features.Flags["cpu.cpuid"] = nfdv1alpha1.FlagFeatureSet{Elements: map[string]nfdv1alpha1.Nil{}}
	if err := s.Create(t.Context(), set); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "exactly one feature") {
		t.Errorf("two features: %v, want it to be invalid", err)
	}
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

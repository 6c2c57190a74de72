package publish

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

const (
	collection = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/assay-system/nodefeatures"
	own        = collection + "/n1"
)

var n1 = Identity{Node: "n1", NodeUID: "node-uid", Pod: "worker-x", PodUID: "pod-uid", Namespace: "assay-system"}

func content(kernel string, flags ...string) Content {
	c := Content{
		Features: nfdv1alpha1.Features{
			Flags:      map[string]nfdv1alpha1.FlagFeatureSet{},
			Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{"kernel.version": {Elements: map[string]string{"full": kernel}}},
			Instances: map[string]nfdv1alpha1.InstanceFeatureSet{"pci.device": {Elements: []nfdv1alpha1.InstanceFeature{
				{Attributes: map[string]string{"vendor": "10de"}},
			}}},
		},
		Labels: map[string]string{"kernel-version.full": kernel},
	}
	if len(flags) > 0 {
		set := map[string]nfdv1alpha1.Nil{}
		for _, f := range flags {
			set[f] = nfdv1alpha1.Nil{}
		}
		c.Features.Flags["cpu.cpuid"] = nfdv1alpha1.FlagFeatureSet{Elements: set}
	}
	return c
}

func newPublisher(t *testing.T, s *server, id Identity, change func(*Options)) *Publisher {
	opt := Options{
		Namespace: "assay-system", Version: "v1.2.3",
		Identify: func(context.Context) (Identity, error) { return id, nil },
	}
	if change != nil {
		change(&opt)
	}
	return New(s.client(t), opt)
}

func mustPublish(t *testing.T, p *Publisher, c Content) Change {
	t.Helper()
	change, err := p.Publish(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return change
}

func TestPublishCreatesAnObjectAsNFDDoes(t *testing.T) {
	s := newServer(t)
	if got := mustPublish(t, newPublisher(t, s, n1, nil), content("6.1", "AVX")); got != Created {
		t.Errorf("change = %q", got)
	}
	want := map[string]any{
		"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
		"metadata": map[string]any{
			"name": "n1", "namespace": "assay-system", "uid": "uid-1", "resourceVersion": "1", "generation": 1.0,
			"labels": map[string]any{"nfd.node.kubernetes.io/node-name": "n1"},
			"annotations": map[string]any{
				"nfd.node.kubernetes.io/worker.version": "v1.2.3",
				"nfd.node.kubernetes.io/worker.pod.uid": "pod-uid",
			},
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"}},
		},
		"spec": map[string]any{
			"features": map[string]any{
				"flags":      map[string]any{"cpu.cpuid": map[string]any{"elements": map[string]any{"AVX": map[string]any{}}}},
				"attributes": map[string]any{"kernel.version": map[string]any{"elements": map[string]any{"full": "6.1"}}},
				"instances": map[string]any{"pci.device": map[string]any{"elements": []any{
					map[string]any{"attributes": map[string]any{"vendor": "10de"}},
				}}},
			},
			"labels": map[string]any{"kernel-version.full": "6.1"},
		},
	}
	if diff := cmp.Diff(want, s.get(own)); diff != "" {
		t.Error(diff)
	}
}

func TestPublishSendsNothingWhenNothingChanged(t *testing.T) {
	s := newServer(t)
	p := newPublisher(t, s, n1, nil)
	mustPublish(t, p, content("6.1", "AVX"))
	s.took()
	if got := mustPublish(t, p, content("6.1", "AVX")); got != Unchanged {
		t.Errorf("change = %q", got)
	}
	if got := s.took(); len(got) > 0 {
		t.Errorf("requests in steady state: %v", got)
	}
}

func TestNewWorkerPodCostsOneReadAndOneMetadataPatch(t *testing.T) {
	s := newServer(t)
	mustPublish(t, newPublisher(t, s, n1, nil), content("6.1", "AVX"))
	s.took()
	id := n1
	id.PodUID = "another"
	mustPublish(t, newPublisher(t, s, id, nil), content("6.1", "AVX"))
	if diff := cmp.Diff([]string{"GET " + own, "PATCH " + own}, s.took()); diff != "" {
		t.Error(diff)
	}
	if g := s.get(own)["metadata"].(map[string]any)["generation"]; g != 1.0 {
		t.Errorf("generation = %v: the spec was written", g)
	}
}

// TestFirstReadMayBeOld: a new worker reads the cache of an API server that is behind, and no read after that is of the cache.
func TestFirstReadMayBeOld(t *testing.T) {
	for name, tc := range map[string]struct {
		old  func(s *server) map[string]any
		want []string
	}{
		"NotThereYet": {
			func(*server) map[string]any { return nil },
			[]string{"GET " + own, "POST " + collection, "GET " + own, "PATCH " + own},
		},
		"AnOlderVersion": {
			func(s *server) map[string]any { return s.get(own) },
			[]string{"GET " + own, "PATCH " + own, "GET " + own, "PATCH " + own},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			before := newPublisher(t, s, n1, nil)
			mustPublish(t, before, content("6.0"))
			s.cache = map[string]map[string]any{own: clone(tc.old(s))}
			mustPublish(t, before, content("6.1"))
			s.took()
			p := newPublisher(t, s, n1, nil)
			mustPublish(t, p, content("6.2"))
			if diff := cmp.Diff(tc.want, s.took()); diff != "" {
				t.Errorf("requests, -want +got:\n%s", diff)
			}
			got, err := json.Marshal(s.get(own)["spec"])
			if err != nil || !strings.Contains(string(got), "6.2") {
				t.Errorf("spec: %s, %v", got, err)
			}
		})
	}
}

func TestPublishPatchesOnlyDifferences(t *testing.T) {
	cases := map[string]struct {
		from, to Content
		want     string
	}{
		"ChangedAttribute": {
			content("6.1"), content("6.2"),
			`{"metadata":{"resourceVersion":"1"},"spec":{"features":{"attributes":{"kernel.version":{"elements":{"full":"6.2"}}}},"labels":{"kernel-version.full":"6.2"}}}`,
		},
		"RemovedFlagIsAnExplicitNull": {
			content("6.1", "AVX", "SSE"), content("6.1", "SSE"),
			`{"metadata":{"resourceVersion":"1"},"spec":{"features":{"flags":{"cpu.cpuid":{"elements":{"AVX":null}}}}}}`,
		},
		"RemovedFeatureIsAnExplicitNull": {
			content("6.1", "AVX"), content("6.1"),
			`{"metadata":{"resourceVersion":"1"},"spec":{"features":{"flags":{"cpu.cpuid":null}}}}`,
		},
		"AddedFeature": {
			content("6.1"), content("6.1", "AVX"),
			`{"metadata":{"resourceVersion":"1"},"spec":{"features":{"flags":{"cpu.cpuid":{"elements":{"AVX":{}}}}}}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			from, to := &object{spec: canonical(tc.from)}, &object{spec: canonical(tc.to)}
			from.resourceVersion = "1"
			got, err := mergePatch(from, to)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Error(diff)
			}
			s := newServer(t)
			p := newPublisher(t, s, n1, nil)
			mustPublish(t, p, tc.from)
			mustPublish(t, p, tc.to)
			wanted := newServer(t)
			mustPublish(t, newPublisher(t, wanted, n1, nil), tc.to)
			if diff := cmp.Diff(wanted.get(own)["spec"], s.get(own)["spec"]); diff != "" {
				t.Errorf("patched spec differs from a fresh one: %s", diff)
			}
		})
	}
}

func TestPublishTakesOverFromNFD(t *testing.T) {
	s := newServer(t)
	s.set(own, map[string]any{
		"metadata": map[string]any{
			"name": "n1", "namespace": "assay-system",
			"labels":          map[string]any{"nfd.node.kubernetes.io/node-name": "n1", "app": "kept"},
			"annotations":     map[string]any{"nfd.node.kubernetes.io/worker.version": "v0.17.0", "other": "kept"},
			"ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nfd-worker", "uid": "x"}},
		},
		"spec": map[string]any{"features": map[string]any{"flags": map[string]any{"old.flag": map[string]any{"elements": map[string]any{}}}}},
	})
	mustPublish(t, newPublisher(t, s, n1, nil), content("6.1"))
	meta := s.get(own)["metadata"].(map[string]any)
	want := map[string]any{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"}
	if diff := cmp.Diff([]any{want}, meta["ownerReferences"]); diff != "" {
		t.Errorf("owners: %s", diff)
	}
	if meta["labels"].(map[string]any)["app"] != "kept" || meta["annotations"].(map[string]any)["other"] != "kept" {
		t.Errorf("foreign metadata was touched: %v", meta)
	}
	if flags := s.get(own)["spec"].(map[string]any)["features"].(map[string]any)["flags"]; len(flags.(map[string]any)) > 0 {
		t.Errorf("features that are gone are still there: %v", flags)
	}
}

func TestPublishStartsOverAfterAConcurrentWrite(t *testing.T) {
	s := newServer(t)
	p := newPublisher(t, s, n1, nil)
	mustPublish(t, p, content("6.1"))
	foreign := clone(s.get(own))
	foreign["spec"].(map[string]any)["labels"] = map[string]any{"forged": "true"}
	s.set(own, foreign)
	mustPublish(t, p, content("6.2"))
	if diff := cmp.Diff(map[string]any{"kernel-version.full": "6.2"}, s.get(own)["spec"].(map[string]any)["labels"]); diff != "" {
		t.Error(diff)
	}
}

func TestPublishIsCreatedAnewWhenDeletedMeanwhile(t *testing.T) {
	s := newServer(t)
	p := newPublisher(t, s, n1, nil)
	mustPublish(t, p, content("6.1"))
	s.remove(own)
	if got := mustPublish(t, p, content("6.2")); got != Created {
		t.Errorf("change = %q", got)
	}
}

func TestPublishFailsOnceForAMissingNamespace(t *testing.T) {
	s := newServer(t)
	s.setRefuse(http.StatusNotFound)
	if _, err := newPublisher(t, s, n1, nil).Publish(context.Background(), content("6.1")); err == nil {
		t.Error("no error")
	}
	if got := s.took(); len(got) > 2 {
		t.Errorf("requests: %v", got)
	}
}

func TestUnknownNodeUIDKeepsTheOwnerOfTheLastWorker(t *testing.T) {
	s := newServer(t)
	mustPublish(t, newPublisher(t, s, n1, nil), content("6.1"))
	mustPublish(t, newPublisher(t, s, Identity{Node: "n1", PodUID: "pod-uid"}, nil), content("6.2"))
	owners := s.get(own)["metadata"].(map[string]any)["ownerReferences"].([]any)
	if len(owners) != 1 || owners[0].(map[string]any)["uid"] != "node-uid" {
		t.Errorf("owners = %v", owners)
	}
}

func TestOwnersAsNFDWritesThem(t *testing.T) {
	s := newServer(t)
	s.set("/api/v1/namespaces/assay-system/pods/worker-x", map[string]any{"metadata": map[string]any{
		"ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "w", "uid": "ds-uid", "controller": true}},
	}})
	owners, err := ParseOwners("pod,ds")
	if err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, s, n1, func(o *Options) { o.Owners = owners })
	mustPublish(t, p, content("6.1"))
	want := []any{
		map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "worker-x", "uid": "pod-uid"},
		map[string]any{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "w", "uid": "ds-uid"},
	}
	if diff := cmp.Diff(want, s.get(own)["metadata"].(map[string]any)["ownerReferences"]); diff != "" {
		t.Error(diff)
	}
	s.took()
	mustPublish(t, p, content("6.1"))
	if got := s.took(); len(got) > 0 {
		t.Errorf("requests in steady state: %v", got)
	}
}

func TestBudgetGivesUpWhatIsRarelyAskedFor(t *testing.T) {
	c := content("6.1", "AVX")
	options := map[string]string{}
	for i := range 20000 {
		options[fmt.Sprintf("OPTION_%d", i)] = "y"
	}
	c.Features.Attributes["kernel.config"] = nfdv1alpha1.AttributeFeatureSet{Elements: options}
	s := newServer(t)
	var events []Event
	p := newPublisher(t, s, n1, func(o *Options) { o.Observe = func(e Event) { events = append(events, e) } })
	mustPublish(t, p, c)
	if diff := cmp.Diff([]string{"kernel.config"}, events[0].Dropped); diff != "" {
		t.Errorf("dropped: %s", diff)
	}
	object := s.get(own)
	if got := object["metadata"].(map[string]any)["annotations"].(map[string]any)[DroppedFeaturesAnnotation]; got != "kernel.config" {
		t.Errorf("annotation = %v", got)
	}
	if _, ok := object["spec"].(map[string]any)["features"].(map[string]any)["flags"].(map[string]any)["cpu.cpuid"]; !ok {
		t.Error("the core was given up too")
	}
	mustPublish(t, p, content("6.1", "AVX"))
	if got, ok := s.get(own)["metadata"].(map[string]any)["annotations"].(map[string]any)[DroppedFeaturesAnnotation]; ok {
		t.Errorf("annotation stays: %v", got)
	}
}

// TestCoreIsPublishedWhateverElseThereIs covers hosts that exceed a limit in one feature.
func TestCoreIsPublishedWhateverElseThereIs(t *testing.T) {
	devices := func(n int, attributes func(i int) map[string]string) nfdv1alpha1.InstanceFeatureSet {
		list := make([]nfdv1alpha1.InstanceFeature, n)
		for i := range list {
			list[i].Attributes = attributes(i)
		}
		return nfdv1alpha1.InstanceFeatureSet{Elements: list}
	}
	functions := devices(10_000, func(i int) map[string]string {
		return map[string]string{"class": "0200", "vendor": "8086", "device": "1889", "address": fmt.Sprintf("0000:%04x:00.0", i)}
	})
	interfaces := devices(5_000, func(i int) map[string]string {
		return map[string]string{"name": fmt.Sprintf("veth%d", i), "operstate": "up", "speed": "10000"}
	})
	options := nfdv1alpha1.AttributeFeatureSet{Elements: map[string]string{}}
	for i := range 100_000 {
		options.Elements[fmt.Sprintf("OPTION_%d", i)] = "y"
	}
	for name, tc := range map[string]struct {
		add     func(*nfdv1alpha1.Features)
		dropped []string
		labels  int
	}{
		"Functions":  {func(f *nfdv1alpha1.Features) { f.Instances["pci.device"] = functions }, []string{"pci.device"}, 0},
		"Interfaces": {func(f *nfdv1alpha1.Features) { f.Instances["network.virtual"] = interfaces }, []string{"network.virtual"}, 0},
		"Options":    {func(f *nfdv1alpha1.Features) { f.Attributes["kernel.config"] = options }, []string{"kernel.config"}, 0},
		"All": {func(f *nfdv1alpha1.Features) {
			f.Instances["pci.device"], f.Instances["network.virtual"], f.Attributes["kernel.config"] = functions, interfaces, options
		}, []string{"kernel.config", "network.virtual", "pci.device"}, 0},
		"Labels":    {func(*nfdv1alpha1.Features) {}, []string{"labels"}, 100_000},
		"LabelsToo": {func(f *nfdv1alpha1.Features) { f.Attributes["kernel.config"] = options }, []string{"kernel.config", "labels"}, 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			c := content("6.1", "AVX")
			if c.Features.Instances == nil {
				c.Features.Instances = map[string]nfdv1alpha1.InstanceFeatureSet{}
			}
			tc.add(&c.Features)
			for i := range tc.labels {
				c.Labels[fmt.Sprintf("label-%d", i)] = "true"
			}
			s := newServer(t)
			mustPublish(t, newPublisher(t, s, n1, nil), c)
			object := s.get(own)
			if data, err := json.Marshal(object); err != nil || len(data) > DefaultMaxBytes+4096 { // including the metadata
				t.Errorf("the object has %d bytes (%v)", len(data), err)
			}
			if got := object["metadata"].(map[string]any)["annotations"].(map[string]any)[DroppedFeaturesAnnotation]; got != strings.Join(tc.dropped, ",") {
				t.Errorf("it says that %v is left out, want %v", got, tc.dropped)
			}
			if _, ok := object["spec"].(map[string]any)["features"].(map[string]any)["flags"].(map[string]any)["cpu.cpuid"]; !ok {
				t.Error("the core was given up too")
			}
			if labels := object["spec"].(map[string]any)["labels"].(map[string]any); tc.labels > 0 && len(labels) < 1000 {
				t.Errorf("only %d labels are left", len(labels))
			}
		})
	}
}

func TestBudgetMeasuresWhatIsSent(t *testing.T) {
	c := content("6.1 <\"\\\x01>", "AVX")
	spec := canonical(c)
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, dropped := fit(spec, len(data)+64); len(dropped) > 0 {
		t.Errorf("dropped %v from a spec of %d bytes that fits", dropped, len(data))
	}
	if _, dropped := fit(spec, len(data)/2); len(dropped) == 0 {
		t.Error("nothing dropped from a spec twice as large as the budget")
	}
}

func TestTextThatIsNotUTF8IsPublishedOnce(t *testing.T) {
	s := newServer(t)
	c := content("6.1\xff")
	p := newPublisher(t, s, n1, nil)
	mustPublish(t, p, c)
	if got := mustPublish(t, newPublisher(t, s, n1, nil), c); got != Unchanged {
		t.Errorf("a second worker finds it %q", got)
	}
}

func jwt(claims string) []byte {
	return []byte("e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln")
}

func TestFromToken(t *testing.T) {
	cases := map[string]struct {
		token []byte
		want  Identity
		err   string
	}{
		"BoundToNodeAndPod": {
			token: jwt(`{"kubernetes.io":{"namespace":"assay-system","node":{"name":"n1","uid":"node-uid"},"pod":{"name":"worker-x","uid":"pod-uid"}}}`),
			want:  n1,
		},
		"WithoutNode": {token: jwt(`{"kubernetes.io":{"namespace":"a"}}`), want: Identity{Namespace: "a"}},
		"Legacy":      {token: jwt(`{"kubernetes.io/serviceaccount/namespace":"a"}`), want: Identity{}},
		"NoToken":     {token: []byte("opaque"), err: "not a JSON Web Token"},
		"NoBase64":    {token: []byte("a.!.c"), err: "payload"},
		"NoJSON":      {token: jwt(`[`), err: "claims"},
		"Huge":        {token: []byte(strings.Repeat("a", maxTokenBytes+1)), err: "more than"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := FromToken(tc.token)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error = %v, want one with %q", err, tc.err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func FuzzFromToken(f *testing.F) {
	f.Add(jwt(`{"kubernetes.io":{"node":{"name":"n1"}}}`))
	f.Add([]byte("a.b.c"))
	f.Fuzz(func(t *testing.T, token []byte) {
		if id, err := FromToken(token); err != nil && id != (Identity{}) {
			t.Errorf("an error and an identity: %v", id)
		}
	})
}

// TestNoBytesAreNoFeatures: 0 is a limit; only a negative value disables it.
func TestNoBytesAreNoFeatures(t *testing.T) {
	c := content("6.1", "AVX")
	spec := nfdv1alpha1.NodeFeatureSpec{Features: c.Features, Labels: c.Labels}
	for max, want := range map[int][]string{-1: nil, 0: {"cpu.cpuid", "kernel.version", "labels", "pci.device"}, 1 << 20: nil} {
		if _, dropped := fit(spec, max); !slices.Equal(dropped, want) {
			t.Errorf("with %d bytes %v are dropped, want %v", max, dropped, want)
		}
	}
}

// TestLargerUnknownFeaturesGoFirst: among unlisted features, the largest is dropped first, then by name. What describes the publication stays.
func TestLargerUnknownFeaturesGoFirst(t *testing.T) {
	got := candidates(map[string]int{"site.small": 1, "site.large": 9, "site.also-large": 9, "kernel.config": 2, "system.boot": 5, "source.unread": 3})
	want := []string{"kernel.config", "site.also-large", "site.large", "site.small"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestOwnerIsTheDaemonSetOfApps(t *testing.T) {
	for ref, want := range map[metav1.OwnerReference]bool{
		{APIVersion: "apps/v1", Kind: "DaemonSet"}: true, {APIVersion: "apps/v1", Kind: "ReplicaSet"}: false,
		{APIVersion: "apps.example.com/v1", Kind: "DaemonSet"}: false,
	} {
		if got := isDaemonSet(ref); got != want {
			t.Errorf("%s %s: %t, want %t", ref.APIVersion, ref.Kind, got, want)
		}
	}
}

// TestErrorsOfAConfigurationArePublished as long as the worker rejects it, and at most so much that they fit into an Event.
func TestErrorsOfAConfigurationArePublished(t *testing.T) {
	s := newServer(t)
	p := newPublisher(t, s, n1, nil)
	const annotation = "assay.dev/invalid-configuration"
	get := func() string {
		text, _ := s.get(own)["metadata"].(map[string]any)["annotations"].(map[string]any)[annotation].(string)
		return text
	}
	c := content("6.1", "AVX")
	mustPublish(t, p, c)
	for _, text := range []string{"worker.conf:1:2: unknown key", strings.Repeat("é", 5000), ""} {
		c.Rejected = text
		mustPublish(t, p, c)
		if got := get(); !strings.HasPrefix(text, got) || got == "" && text != "" || len(got) > maxRejectedBytes {
			t.Errorf("published %d bytes of %.40q", len(got), text)
		}
	}
	if g := s.get(own)["metadata"].(map[string]any)["generation"]; g != 1.0 {
		t.Errorf("generation = %v: the spec was written", g)
	}
}

package publish

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

const (
	sets   = "/apis/assay.dev/v1alpha1/namespaces/assay-system/nodefeaturesets"
	marker = "/api/v1/namespaces/assay-system/configmaps/" + assayv1alpha1.FeatureSetMarker
)

// sharing returns a server with a controller that supports feature sets.
func sharing(t *testing.T) *server {
	s := newServer(t)
	s.set(marker, map[string]any{"metadata": map[string]any{
		"name": assayv1alpha1.FeatureSetMarker, "annotations": map[string]any{assayv1alpha1.FeatureSetFormatAnnotation: featureset.Version},
	}})
	return s
}

// large returns content with a feature that is large enough to be shared, and small ones.
func large(kernel string) Content {
	c := content(kernel)
	config, virtual := map[string]string{}, []nfdv1alpha1.InstanceFeature{}
	for i := range 200 {
		config[fmt.Sprint("OPTION_", i)] = "y"
		virtual = append(virtual, nfdv1alpha1.InstanceFeature{Attributes: map[string]string{"name": fmt.Sprint("veth", i)}})
	}
	c.Features.Attributes["kernel.config"] = nfdv1alpha1.AttributeFeatureSet{Elements: config}
	c.Features.Attributes["local.feature"] = nfdv1alpha1.AttributeFeatureSet{Elements: config}
	c.Features.Instances["network.virtual"] = nfdv1alpha1.InstanceFeatureSet{Elements: virtual}
	return c
}

func share(o *Options) { o.Share = true }

// published returns the names of the sets in the stored NodeFeature, and of its features.
func published(s *server) (names, features []string) {
	spec := s.get(own)["spec"].(map[string]any)
	list, _ := spec["featureSets"].([]any)
	for _, name := range list {
		names = append(names, name.(string))
	}
	for _, kind := range spec["features"].(map[string]any) {
		features = append(features, slices.Collect(maps.Keys(kind.(map[string]any)))...)
	}
	slices.Sort(features)
	return names, features
}

func TestSharesLargeFeatures(t *testing.T) {
	s := sharing(t)
	p := newPublisher(t, s, n1, share)
	mustPublish(t, p, large("6.1"))
	names, features := published(s)
	if len(names) != 1 || !strings.HasPrefix(names[0], "kernel-config-v1-") {
		t.Fatalf("the NodeFeature names %q, want the kernel's configuration", names)
	}
	if want := []string{"kernel.version", "local.feature", "network.virtual", "pci.device"}; !slices.Equal(features, want) {
		t.Errorf("features of the NodeFeature: %q, want %q", features, want)
	}
	set := s.get(sets + "/" + names[0])
	if by := set["metadata"].(map[string]any)["labels"].(map[string]any)[assayv1alpha1.CreatedByNodeLabel]; by != "n1" {
		t.Errorf("created by node %v, want n1", by)
	}
	want := []string{"GET " + own, "GET " + marker, "GET " + sets + "/" + names[0], "POST " + sets, "POST " + collection}
	if diff := cmp.Diff(want, s.took()); diff != "" {
		t.Errorf("requests, -want +got:\n%s", diff)
	}

	t.Run("SendsNothingWithoutAChange", func(t *testing.T) {
		mustPublish(t, p, large("6.1"))
		if got := s.took(); got != nil {
			t.Errorf("requests: %q", got)
		}
	})
	t.Run("TrustsWhatIsStoredAfterARestart", func(t *testing.T) {
		again := newPublisher(t, s, n1, share)
		if got := mustPublish(t, again, large("6.1")); got != Unchanged {
			t.Errorf("change %q, want none", got)
		}
		if diff := cmp.Diff([]string{"GET " + own, "GET " + marker}, s.took()); diff != "" {
			t.Errorf("requests, -want +got:\n%s", diff)
		}
	})
	t.Run("WritesASmallChangeAlone", func(t *testing.T) {
		mustPublish(t, p, large("6.2"))
		if diff := cmp.Diff([]string{"PATCH " + own}, s.took()); diff != "" {
			t.Errorf("requests, -want +got:\n%s", diff)
		}
	})
	t.Run("FindsTheSetOfAnotherNode", func(t *testing.T) {
		n2 := n1
		n2.Node, n2.NodeUID = "n2", "other-uid"
		mustPublish(t, newPublisher(t, s, n2, share), large("6.1"))
		if diff := cmp.Diff([]string{"GET " + collection + "/n2", "GET " + marker, "GET " + sets + "/" + names[0], "POST " + collection}, s.took()); diff != "" {
			t.Errorf("requests, -want +got:\n%s", diff)
		}
	})
	t.Run("NamesASetThatTheControllerListsWithoutReadingIt", func(t *testing.T) {
		announced := clone(s.get(marker))
		announced["metadata"].(map[string]any)["annotations"].(map[string]any)[assayv1alpha1.KnownFeatureSetsAnnotation] = "another," + names[0]
		s.set(marker, announced)
		n3 := n1
		n3.Node, n3.NodeUID = "n3", "third-uid"
		p := newPublisher(t, s, n3, share)
		mustPublish(t, p, large("6.1"))
		if diff := cmp.Diff([]string{"GET " + collection + "/n3", "GET " + marker, "POST " + collection}, s.took()); diff != "" {
			t.Errorf("requests, -want +got:\n%s", diff)
		}
		// It is deleted at that moment.
		s.remove(sets + "/" + names[0])
		p.live.annotations = map[string]string{assayv1alpha1.MissingFeatureSetsAnnotation: names[0]}
		mustPublish(t, p, large("6.1"))
		if s.get(sets+"/"+names[0]) == nil {
			t.Error("the set is missing")
		}
		s.took()
	})
	t.Run("CreatesAgainWhatTheControllerMisses", func(t *testing.T) {
		s.remove(sets + "/" + names[0])
		p.live.annotations = map[string]string{assayv1alpha1.MissingFeatureSetsAnnotation: names[0]}
		mustPublish(t, p, large("6.2"))
		if s.get(sets+"/"+names[0]) == nil {
			t.Error("the set is still missing")
		}
	})
	t.Run("PublishesInFullWhenSwitchedOff", func(t *testing.T) {
		mustPublish(t, newPublisher(t, s, n1, nil), large("6.2"))
		names, features := published(s)
		if names != nil || !slices.Contains(features, "kernel.config") {
			t.Errorf("names %q, features %q, want all features and no name", names, features)
		}
	})
}

// TestEncodesInstances tests that instances outside of sets are encoded once the controller has announced that it reads them.
func TestEncodesInstances(t *testing.T) {
	s := sharing(t)
	mustPublish(t, newPublisher(t, s, n1, share), large("6.1"))
	announced := clone(s.get(marker))
	announced["metadata"].(map[string]any)["annotations"].(map[string]any)[assayv1alpha1.EncodedInstancesAnnotation] = assayv1alpha1.EncodedInstancesEnabled
	s.set(marker, announced)
	encoded := func() (out map[string]nfdv1alpha1.InstanceFeatureSet) {
		if text, ok := s.get(own)["spec"].(map[string]any)["encodedInstances"].(string); ok {
			var lists map[string][]map[string]string
			if err := json.Unmarshal([]byte(text), &lists); err != nil {
				t.Errorf("encoded instances %q: %v", text, err)
			}
			out = map[string]nfdv1alpha1.InstanceFeatureSet{}
			for name, list := range lists {
				var set nfdv1alpha1.InstanceFeatureSet
				for _, attributes := range list {
					set.Elements = append(set.Elements, nfdv1alpha1.InstanceFeature{Attributes: attributes})
				}
				out[name] = set
			}
		}
		return out
	}
	if got := encoded(); got != nil {
		t.Errorf("encoded instances before the controller announced that it reads them: %v", got)
	}
	p, c := newPublisher(t, s, n1, share), large("6.1")
	mustPublish(t, p, c)
	if diff := cmp.Diff(c.Features.Instances, encoded()); diff != "" {
		t.Errorf("encoded instances, -want +got:\n%s", diff)
	}
	if _, features := published(s); !slices.Equal(features, []string{"kernel.version", "local.feature"}) {
		t.Errorf("features of the NodeFeature: %q", features)
	}
	s.took()

	if got := mustPublish(t, newPublisher(t, s, n1, share), large("6.1")); got != Unchanged {
		t.Errorf("change after a restart: %q, want none", got)
	}
	s.took()
	c = large("6.1")
	c.Features.Instances["network.virtual"].Elements[0].Attributes["name"] = "cali0"
	mustPublish(t, p, c)
	if diff := cmp.Diff(c.Features.Instances, encoded()); diff != "" {
		t.Errorf("encoded instances after a change, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"PATCH " + own}, s.took()); diff != "" {
		t.Errorf("requests, -want +got:\n%s", diff)
	}
	mustPublish(t, newPublisher(t, s, n1, nil), c)
	if _, features := published(s); encoded() != nil || !slices.Contains(features, "network.virtual") {
		t.Errorf("without sharing, encoded instances are %v, and the features %q", encoded(), features)
	}
}

func TestPublishesInFullWithoutAControllerThatReadsSets(t *testing.T) {
	for name, s := range map[string]*server{"NoMarker": newServer(t), "NewerFormat": sharing(t)} {
		t.Run(name, func(t *testing.T) {
			if name == "NewerFormat" {
				s.set(marker, map[string]any{"metadata": map[string]any{"annotations": map[string]any{assayv1alpha1.FeatureSetFormatAnnotation: "v2"}}})
			}
			p := newPublisher(t, s, n1, share)
			mustPublish(t, p, large("6.1"))
			if names, features := published(s); names != nil || !slices.Contains(features, "kernel.config") {
				t.Errorf("names %q, features %q, want all features and no name", names, features)
			}
			s.took()
			mustPublish(t, p, large("6.1"))
			if got := s.took(); got != nil {
				t.Errorf("requests: %q, want the marker to be read again later", got)
			}
		})
	}
}

// TestAnAnnouncementIsBelievedWhileItsControllerRuns: after a rollback the ConfigMap of the newer controller is still there, and the older
// one does not read sets: 21 labels of a node went away.
func TestAnAnnouncementIsBelievedWhileItsControllerRuns(t *testing.T) {
	const lease = "/apis/coordination.k8s.io/v1/namespaces/assay-system/leases/nfd-master.nfd.kubernetes.io"
	s, clock := sharing(t), clocktesting.NewFakeClock(time.Now())
	announced := clone(s.get(marker))
	announced["metadata"].(map[string]any)["annotations"].(map[string]any)[assayv1alpha1.AnnouncedByAnnotation] = "nfd-master.nfd.kubernetes.io/new"
	s.set(marker, announced)
	hold := func(holder string) {
		s.set(lease, map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"holderIdentity": holder}})
	}
	start := func() *Publisher {
		return newPublisher(t, s, n1, func(o *Options) {
			o.Share, o.Clock, o.Rand = true, clock, func() float64 { return 0.5 }
		})
	}
	check := func(when string, sets int) {
		t.Helper()
		if names, features := published(s); len(names) != sets || slices.Contains(features, "kernel.config") != (sets == 0) {
			t.Errorf("%s: sets %q, features %q, want %d sets", when, names, features, sets)
		}
	}

	hold("old")
	p := start()
	mustPublish(t, p, large("6.1"))
	check("an older controller runs", 0)
	hold("new")
	clock.Step(p.again())
	mustPublish(t, p, large("6.1"))
	check("the controller that announced runs", 1)

	hold("")
	p = start()
	mustPublish(t, p, large("6.1"))
	check("the leader changes", 1)
	hold("old")
	clock.Step(p.again())
	mustPublish(t, p, large("6.1"))
	check("an older controller is the leader", 0)
}

// TestFindsTheControllerSoon: Helm starts workers before the controller, and a fleet should not stay with whole NodeFeatures.
func TestFindsTheControllerSoon(t *testing.T) {
	s, clock := newServer(t), clocktesting.NewFakeClock(time.Now())
	p := newPublisher(t, s, n1, func(o *Options) {
		o.Share, o.Clock, o.Rand = true, clock, func() float64 { return 0.5 } // the mean delays
	})
	mustPublish(t, p, large("6.1"))
	for range 2 { // the controller takes some time to start
		clock.Step(p.again())
		mustPublish(t, p, large("6.1"))
	}
	s.set(marker, sharing(t).get(marker))
	wait := p.again()
	clock.Step(wait)
	mustPublish(t, p, large("6.1"))
	if names, _ := published(s); len(names) != 1 {
		t.Errorf("the NodeFeature names the sets %q %s after the controller announced that it reads them, want one", names, wait)
	}
	if wait != 4*firstMarkerInterval {
		t.Errorf("read the marker again after %s, want %s", wait, 4*firstMarkerInterval)
	}
}

// TestDoesNotKeepReadingTheMarker: an older controller never announces that it reads sets.
func TestDoesNotKeepReadingTheMarker(t *testing.T) {
	s, clock := newServer(t), clocktesting.NewFakeClock(time.Now())
	p := newPublisher(t, s, n1, func(o *Options) {
		o.Share, o.Clock, o.Rand = true, clock, func() float64 { return 0.5 }
	})
	start, reads := clock.Now(), 0
	for clock.Since(start) < 24*time.Hour {
		mustPublish(t, p, large("6.1"))
		clock.Step(p.again())
		reads++
	}
	if reads > 40 { // ten in the first two hours, then one an hour
		t.Errorf("read the marker %d times within a day", reads)
	}
	if names, features := published(s); names != nil || !slices.Contains(features, "kernel.config") {
		t.Errorf("names %q, features %q, want all features and no name", names, features)
	}
}

package publish

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
)

// denying lets requests fail for which deny returns a status code.
type denying struct {
	next http.RoundTripper
	deny func(*http.Request) int
}

func (d *denying) RoundTrip(r *http.Request) (*http.Response, error) {
	if code := d.deny(r); code != 0 {
		return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("{}")), Header: http.Header{}, Request: r}, nil
	}
	return d.next.RoundTrip(r)
}

// denied returns a publisher of sets, some of whose requests fail, and its events.
func denied(t *testing.T, s *server, clock *clocktesting.FakeClock, deny func(*http.Request) int) (*Publisher, *[]Event) {
	t.Helper()
	c, err := NewClient(&Config{Server: s.URL, Transport: &denying{http.DefaultTransport, deny}})
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	return New(c, Options{
		Namespace: "assay-system", Version: "v1.2.3", Share: true, Clock: clock, Rand: func() float64 { return 0.5 },
		Identify: func(context.Context) (Identity, error) { return n1, nil }, Observe: func(e Event) { events = append(events, e) },
	}), &events
}

func creates(collection string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, collection)
	}
}

// TestAFeatureWhoseSetIsRejectedIsPublishedInFull creates no set while the API server rejects it, and tries again after ten minutes.
func TestAFeatureWhoseSetIsRejectedIsPublishedInFull(t *testing.T) {
	set := creates("/nodefeaturesets")
	for _, code := range []int{400, 403, 404, 413, 422, 429} {
		s, clock, rejects := sharing(t), clocktesting.NewFakeClock(time.Now()), code
		p, events := denied(t, s, clock, func(r *http.Request) int {
			if set(r) {
				return rejects
			}
			return 0
		})
		mustPublish(t, p, large("6.1"))
		if names, features := published(s); names != nil || !slices.Contains(features, "kernel.config") {
			t.Errorf("%d: names %q, features %q, want all features and no name", code, names, features)
		}
		if !slices.ContainsFunc(*events, func(e Event) bool { return strings.HasPrefix(e.Notice, "cannot create NodeFeatureSet kernel-config-") }) {
			t.Errorf("%d: the events are %+v", code, *events)
		}
		rejects = 0
		if again := p.again(); again != inlineInterval {
			t.Errorf("%d: again after %s, want %s", code, again, inlineInterval)
		}
		clock.Step(inlineInterval - time.Second)
		mustPublish(t, p, large("6.1"))
		if names, _ := published(s); names != nil {
			t.Errorf("%d: names %q before the interval has passed", code, names)
		}
		clock.Step(time.Second)
		mustPublish(t, p, large("6.1"))
		if names, features := published(s); len(names) != 1 || slices.Contains(features, "kernel.config") {
			t.Errorf("%d: names %q, features %q, want the set", code, names, features)
		}
		if again := p.again(); again != 0 {
			t.Errorf("%d: again after %s although nothing is left to do", code, again)
		}
	}
}

// TestARejectedSetThatIsNoLongerPublishedIsForgotten changes the feature whose set was rejected.
func TestARejectedSetThatIsNoLongerPublishedIsForgotten(t *testing.T) {
	s, clock, code := sharing(t), clocktesting.NewFakeClock(time.Now()), 403
	set := creates("/nodefeaturesets")
	p, _ := denied(t, s, clock, func(r *http.Request) int {
		if set(r) {
			return code
		}
		return 0
	})
	mustPublish(t, p, large("6.1"))
	code = 0
	changed := large("6.1")
	changed.Features.Attributes["kernel.config"].Elements["OPTION_0"] = "m"
	mustPublish(t, p, changed)
	if names, _ := published(s); len(names) != 1 {
		t.Errorf("names %q, want the changed set", names)
	}
	if again := p.again(); again != 0 || len(p.shared.inline) != 0 {
		t.Errorf("again after %s for %v", again, p.shared.inline)
	}
}

// TestAnUnavailableServerFailsThePublish: what cannot be known is not published in another form.
func TestAnUnavailableServerFailsThePublish(t *testing.T) {
	for name, tc := range map[string]struct {
		fails func(*http.Request) bool
		err   string
	}{
		"Marker":  {func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, assayv1alpha1.FeatureSetMarker) }, "read the marker for feature sets"},
		"Sets":    {creates("/nodefeaturesets"), "create NodeFeatureSet assay-system/kernel-config-"},
		"LookUp":  {func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/nodefeaturesets/") }, "create NodeFeatureSet assay-system/kernel-config-"},
		"Feature": {creates("/nodefeatures"), "publish NodeFeature assay-system/n1"},
	} {
		s, code := sharing(t), 503
		p, _ := denied(t, s, clocktesting.NewFakeClock(time.Now()), func(r *http.Request) int {
			if tc.fails(r) {
				return code
			}
			return 0
		})
		if _, err := p.Publish(t.Context(), large("6.1")); err == nil || !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: the error is %v, want %q", name, err, tc.err)
		}
		if s.get(own) != nil {
			t.Errorf("%s: the NodeFeature is published", name)
		}
		code = 0
		mustPublish(t, p, large("6.1"))
		if names, _ := published(s); len(names) != 1 {
			t.Errorf("%s: names %q after the outage, want the set", name, names)
		}
	}
}

// TestANodeFeatureThatCannotNameSetsHasAllFeatures: NFD's definition has no field for the names of sets.
func TestANodeFeatureThatCannotNameSetsHasAllFeatures(t *testing.T) {
	for code, want := range map[int]bool{400: true, 422: true, 403: false} {
		s, clock, rejects := sharing(t), clocktesting.NewFakeClock(time.Now()), true
		feature := creates("/nodefeatures")
		p, events := denied(t, s, clock, func(r *http.Request) int {
			if feature(r) && rejects && r.URL.Query().Get("fieldValidation") == "Strict" {
				return code
			}
			return 0
		})
		_, err := p.Publish(t.Context(), large("6.1"))
		if (err == nil) != want {
			t.Errorf("%d: the error is %v", code, err)
		}
		if !want {
			continue
		}
		if names, features := published(s); names != nil || !slices.Contains(features, "kernel.config") {
			t.Errorf("%d: names %q, features %q, want all features and no name", code, names, features)
		}
		if !slices.ContainsFunc(*events, func(e Event) bool { return strings.HasPrefix(e.Notice, "NodeFeatures cannot name feature sets") }) {
			t.Errorf("%d: the events are %+v", code, *events)
		}
		rejects = false
		clock.Step(checkInterval)
		mustPublish(t, p, large("6.1"))
		if names, _ := published(s); len(names) != 1 {
			t.Errorf("%d: names %q an hour later, want the set", code, names)
		}
	}
}

// TestSetsThatTheControllerMissesAreCreatedAgain reads their names from the annotation of the object.
func TestSetsThatTheControllerMissesAreCreatedAgain(t *testing.T) {
	s := sharing(t)
	p := newPublisher(t, s, n1, share)
	if got := p.missing(); got != nil {
		t.Errorf("missing before the first write: %q", got)
	}
	mustPublish(t, p, large("6.1"))
	if got := p.missing(); got != nil {
		t.Errorf("missing after the first write: %q", got)
	}
	names, _ := published(s)
	s.remove(sets + "/" + names[0])
	told := clone(s.get(own))
	told["metadata"].(map[string]any)["annotations"].(map[string]any)[assayv1alpha1.MissingFeatureSetsAnnotation] = names[0]
	s.set(own, told)
	p.forget()
	mustPublish(t, p, large("6.1"))
	if s.get(sets+"/"+names[0]) == nil {
		t.Error("the set is still missing")
	}
}

// TestAFeatureWhoseSetIsTakenIsPublishedInFull: another client creates a set of the name with wrong content each time the controller deletes
// it, and the controller asks the worker to publish the feature in its NodeFeature.
func TestAFeatureWhoseSetIsTakenIsPublishedInFull(t *testing.T) {
	s, clock := sharing(t), clocktesting.NewFakeClock(time.Now())
	p, _ := denied(t, s, clock, func(*http.Request) int { return 0 })
	mustPublish(t, p, large("6.1"))
	names, _ := published(s)
	if len(names) != 1 {
		t.Fatalf("names %q", names)
	}
	p.live.annotations = map[string]string{assayv1alpha1.MissingFeatureSetsAnnotation: "!" + names[0]}
	mustPublish(t, p, large("6.1"))
	if got, features := published(s); got != nil || !slices.Contains(features, "kernel.config") {
		t.Errorf("names %q, features %q", got, features)
	}
	p.live.annotations = nil // the controller is content
	clock.Step(inlineInterval - time.Second)
	mustPublish(t, p, large("6.1"))
	if got, _ := published(s); got != nil {
		t.Errorf("names %q before the interval has passed", got)
	}
	clock.Step(time.Second)
	mustPublish(t, p, large("6.1"))
	if got, _ := published(s); len(got) != 1 {
		t.Errorf("names %q afterwards, want the set", got)
	}
}

// TestAWatchThatIsForbiddenIsReplacedByReads changes the object while its watch is forbidden: it is repaired at the next check.
func TestAWatchThatIsForbiddenIsReplacedByReads(t *testing.T) {
	s, clock := newServer(t), clocktesting.NewFakeClock(time.Now())
	c, err := NewClient(&Config{Server: s.URL, Transport: &denying{http.DefaultTransport, func(r *http.Request) int {
		if r.URL.Query().Get("watch") == "true" {
			return http.StatusForbidden
		}
		return 0
	}}})
	if err != nil {
		t.Fatal(err)
	}
	events, contents := make(chan Event, 64), make(chan Content)
	p := New(c, Options{
		Namespace: "assay-system", Version: "v1.2.3", Clock: clock, Rand: func() float64 { return 0.5 },
		Identify: func(context.Context) (Identity, error) { return n1, nil }, Observe: func(e Event) { events <- e },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx, contents); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	contents <- content("6.1")
	expect(t, events, "created", is(Created))
	expect(t, events, "a notice about the watch", func(e Event) bool { return strings.HasPrefix(e.Notice, "The watch of the NodeFeature ended") })
	s.remove(own)
	clock.Step(checkInterval)
	expect(t, events, "created again", is(Created))
	forged := clone(s.get(own))
	forged["spec"].(map[string]any)["labels"] = map[string]any{"forged": "true"}
	s.set(own, forged)
	clock.Step(checkInterval)
	expect(t, events, "repaired", is(Patched))
}

// TestAConfigurationThatCannotConnect names what is wrong.
func TestAConfigurationThatCannotConnect(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		err    string
	}{
		"NoHost":      {Config{Server: "api"}, "not a URL with a host"},
		"Authority":   {Config{Server: "https://api", CA: []byte("x")}, "contains no PEM certificate"},
		"Certificate": {Config{Server: "https://api", Cert: []byte("x")}, "client certificate"},
		"Proxy":       {Config{Server: "https://api", Proxy: "http://a b"}, "proxy"},
	} {
		if _, err := NewClient(&tc.config); err == nil || !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: the error is %v, want %q", name, err, tc.err)
		}
	}
	for _, env := range [][2]string{{"", ""}, {"10.0.0.1", ""}, {"", "443"}} {
		t.Setenv("KUBERNETES_SERVICE_HOST", env[0])
		t.Setenv("KUBERNETES_SERVICE_PORT", env[1])
		if _, err := InCluster(); !errors.Is(err, ErrNoCluster) {
			t.Errorf("host %q and port %q: the error is %v", env[0], env[1], err)
		}
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	if _, err := InCluster(); err == nil || errors.Is(err, ErrNoCluster) {
		t.Errorf("without a ServiceAccount the error is %v", err)
	}
}

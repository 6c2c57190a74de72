package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/api/featureset"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/hosts"
)

// gated is a source that does not answer until its gate is open.
type gated struct {
	discovery.Source
	gate <-chan struct{}
}

func (g gated) Discover(ctx context.Context, h host.Host) (discovery.Result, error) {
	<-g.gate
	return g.Source.Discover(ctx, h)
}

func (g gated) LabelPriority() int {
	if p, ok := g.Source.(discovery.Prioritized); ok {
		return p.LabelPriority()
	}
	return discovery.BuiltinPriority
}

type gatedDeriver struct{ gated }

func (g gatedDeriver) Derive(ctx context.Context, h host.Host, found *nfdv1alpha1.Features) (discovery.Result, error) {
	<-g.gate
	return g.Source.(discovery.Deriver).Derive(ctx, h, found)
}

// broken is a source that fails.
type broken struct{ discovery.Source }

func (broken) Discover(context.Context, host.Host) (discovery.Result, error) {
	return discovery.Result{}, errors.New("input/output error")
}

// machine is a node on which workers run one after the other.
type machine struct {
	t         *testing.T
	c         client.WithWatch
	opt       Options
	namespace string
	boot      string
}

const startConfig = `
core: {sleepInterval: 1h}
sources:
  custom:
  - name: by rule
    labels: {by-rule: "true"}
    matchFeatures:
    - feature: pci.device
      matchExpressions: {vendor: {op: In, value: ["10de"]}}
`

func newMachine(t *testing.T, annotations map[string]string) *machine {
	user := testkit.Cluster(t)
	c := testkit.Client(t, user.User)
	m := &machine{t: t, c: c, namespace: testkit.Namespace(t, c), boot: "boot-1"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "start-"}}
	testkit.Create(t, c, node)
	if annotations != nil {
		testkit.Create(t, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: assayv1alpha1.FeatureSetMarker, Annotations: annotations}})
	}
	dir := t.TempDir()
	m.opt = Options{
		Kubeconfig: user.Kubeconfig, Namespace: m.namespace, NodeName: node.Name, LogLevel: &slog.LevelVar{},
		ConfigDir: dir, ConfigFile: filepath.Join(dir, "worker.conf"), Sandbox: "off",
	}
	m.configure(startConfig)
	m.write(filepath.Join(featuresDir, "f"), "from-file=yes\npci-noted=yes\n")
	return m
}

func (m *machine) configure(text string) { m.write("worker.conf", text) }

func (m *machine) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.opt.ConfigDir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		m.t.Fatal(err)
	}
}

// worker returns a worker of the node. Wrap changes its sources by name.
func (m *machine) worker(log io.Writer, wrap func(discovery.Source) discovery.Source) *Worker {
	m.t.Helper()
	opt := m.opt
	opt.wrap = func(list []discovery.Source) []discovery.Source {
		for i := range list {
			list[i] = wrap(list[i])
		}
		return list
	}
	w, err := New(opt, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		m.t.Fatal(err)
	}
	if w.host, err = hosts.Open("server"); err != nil {
		m.t.Fatal(err)
	}
	w.host.FS.(*host.Tree).AddFile("proc/sys/kernel/random/boot_id", []byte(m.boot+"\n"))
	w.use(w.config, nil)
	return w
}

// start runs a worker until the test ends.
func (m *machine) start(w *Worker) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx, io.Discard); err != nil {
			m.t.Error(err)
		}
	})
	m.t.Cleanup(func() { cancel(); running.Wait() })
}

// once publishes with a worker whose sources all answer.
func (m *machine) once() {
	m.t.Helper()
	w := m.worker(io.Discard, func(s discovery.Source) discovery.Source { return s })
	w.opt.Oneshot = true
	if err := w.Run(m.t.Context(), io.Discard); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) nodeFeature() *nfdv1alpha1.NodeFeature {
	m.t.Helper()
	var nf nfdv1alpha1.NodeFeature
	if err := m.c.Get(m.t.Context(), client.ObjectKey{Namespace: m.namespace, Name: m.opt.NodeName}, &nf); err != nil {
		m.t.Fatal(err)
	}
	return &nf
}

// same compares the NodeFeature with an earlier one, which nothing has written since, except to name sources that have not been read.
func (m *machine) same(before *nfdv1alpha1.NodeFeature, when string, unread ...string) {
	m.t.Helper()
	now, want := m.nodeFeature(), before.DeepCopy()
	if len(unread) > 0 {
		flags := map[string]nfdv1alpha1.Nil{}
		for _, source := range unread {
			flags[source] = nfdv1alpha1.Nil{}
		}
		want.Spec.Features.Flags["source.unread"] = nfdv1alpha1.FlagFeatureSet{Elements: flags}
	}
	if diff := cmp.Diff(want.Spec, now.Spec); diff != "" {
		m.t.Fatalf("%s, the NodeFeature has changed (-before +now):\n%s", when, diff)
	}
	if len(unread) == 0 && now.ResourceVersion != before.ResourceVersion {
		m.t.Errorf("%s, the NodeFeature was written", when)
	}
}

// published waits until a worker has found out what to publish, and has done so.
func published(t *testing.T, w *Worker) {
	testkit.Eventually(t, "the worker to publish", func(context.Context) error {
		w.metrics.mu.Lock()
		defer w.metrics.mu.Unlock()
		if w.metrics.pending {
			return errors.New("not yet")
		}
		return nil
	})
}

// missing waits until exactly these sources of a worker have no result.
func missing(t *testing.T, w *Worker, want ...string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("missing sources to be %q", want), func(context.Context) error {
		w.metrics.mu.Lock()
		defer w.metrics.mu.Unlock()
		var got []string
		for _, name := range slices.Sorted(maps.Keys(w.metrics.sources)) {
			if w.metrics.sources[name] {
				got = append(got, name)
			}
		}
		if w.metrics.sources == nil || !slices.Equal(got, want) {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

// slow returns a function that makes a source wait, and one that lets it go on.
func slow(name string) (wrap func(discovery.Source) discovery.Source, open func()) {
	gate := make(chan struct{})
	return func(s discovery.Source) discovery.Source {
		g := gated{s, gate}
		if _, derives := s.(discovery.Deriver); derives && s.Name() == name {
			return gatedDeriver{g}
		}
		if s.Name() == name {
			return g
		}
		return s
	}, sync.OnceFunc(func() { close(gate) })
}

// forms are the forms of a NodeFeature, by the annotations of the announcement.
func forms() map[string]map[string]string {
	encoded := featureset.Announcement()
	sets := maps.Clone(encoded)
	delete(sets, assayv1alpha1.EncodedInstancesAnnotation)
	return map[string]map[string]string{"Whole": nil, "Sets": sets, "Encoded": encoded}
}

// TestSlowSourceTakesNothingAway restarts a worker on a node where one source does not answer: nothing of its NodeFeature goes, neither
// while the worker waits nor after it has waited long enough nor when the source answers at last.
func TestSlowSourceTakesNothingAway(t *testing.T) {
	for form, annotations := range forms() {
		for _, name := range []string{"pci", "kernel", "system", "local", "custom"} {
			t.Run(form+"/"+name, func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, annotations)
				m.once()
				before := m.nodeFeature()
				if (annotations != nil) != (len(before.Spec.FeatureSets) > 0) || (form == "Encoded") != (before.Spec.EncodedInstances != "") {
					t.Fatalf("not of this form: sets %q", before.Spec.FeatureSets)
				}
				for _, label := range []string{"by-rule", "from-file", "pci-noted", "pci-0302_10de.present", "system-os_release.ID"} {
					if before.Spec.Labels[label] == "" {
						t.Fatalf("no label %s to begin with: %v", label, before.Spec.Labels)
					}
				}

				wrap, open := slow(name)
				defer open()
				var log testLog
				w := m.worker(&log, wrap)
				w.start.WaitAtMost(4 * time.Second)
				m.start(w)
				missing(t, w, name)
				m.same(before, "while the worker waits")
				if code, body := get(w, "/readyz"); code != 503 || body != "waiting for sources: "+name+"\n" {
					t.Errorf("/readyz returned %d %q", code, body)
				}
				published(t, w)
				var unread []string
				if name == "custom" { // it finds no features, so the NodeFeature does not tell whether the earlier worker has run it
					unread = []string{name}
				}
				m.same(before, "after the worker has waited", unread...)
				if code, body := get(w, "/readyz"); code != 200 {
					t.Errorf("/readyz returned %d %q", code, body)
				}
				open()
				missing(t, w)
				m.write(filepath.Join(featuresDir, "f"), "from-file=again\npci-noted=yes\n")
				testkit.Eventually(t, "the worker to publish a change", func(context.Context) error {
					if m.nodeFeature().Spec.Labels["from-file"] != "again" {
						return errors.New("not yet")
					}
					return nil
				})
				m.write(filepath.Join(featuresDir, "f"), "from-file=yes\npci-noted=yes\n")
				testkit.Eventually(t, "the NodeFeature to be as before", func(context.Context) error {
					if diff := cmp.Diff(before.Spec, m.nodeFeature().Spec); diff != "" {
						return errors.New(diff)
					}
					return nil
				})
			})
		}
	}
}

// TestSlowSourceThatAnswersInTimeWritesNothing is the common case: a machine is busy for a few seconds.
func TestSlowSourceThatAnswersInTimeWritesNothing(t *testing.T) {
	m := newMachine(t, nil)
	m.once()
	before := m.nodeFeature()
	wrap, open := slow("pci")
	defer open()
	w := m.worker(io.Discard, wrap)
	m.start(w)
	missing(t, w, "pci")
	open()
	published(t, w)
	m.same(before, "after the source has answered")
	missing(t, w)
}

// TestFailingSourceKeepsWhatAnEarlierWorkerFound restarts a worker on a node where a source now fails.
func TestFailingSourceKeepsWhatAnEarlierWorkerFound(t *testing.T) {
	for form, annotations := range forms() {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, annotations)
			m.once()
			before := m.nodeFeature()
			w := m.worker(io.Discard, func(s discovery.Source) discovery.Source {
				if s.Name() == "pci" {
					return broken{s}
				}
				return s
			})
			m.start(w)
			published(t, w)
			missing(t, w, "pci")
			m.same(before, "with a source that fails")
		})
	}
}

// TestSwitchedOffGoesWhileASourceIsSlow disables sources and features, before a worker starts and while it waits.
func TestSwitchedOffGoesWhileASourceIsSlow(t *testing.T) {
	const less = `
core:
  sleepInterval: 1h
  noPublishFeatures: [kernel.*]
  featureSources: [all, -memory]
  labelSources: [all, -memory, -custom]
  labelWhiteList: "^([^p]|pci)"
`
	for form, annotations := range forms() {
		for when, restart := range map[string]bool{"BeforeTheStart": true, "WhileItWaits": false} {
			t.Run(form+"/"+when, func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, annotations)
				m.once()
				before := m.nodeFeature()
				if restart {
					m.configure(less)
				}
				wrap, open := slow("pci")
				defer open()
				w := m.worker(io.Discard, wrap)
				if restart {
					w.start.WaitAtMost(0)
				}
				m.start(w)
				if !restart {
					missing(t, w, "pci")
					m.same(before, "while the worker waits")
					m.configure(less)
				}
				published(t, w)
				now := content(t, w)
				if len(now.Features.Instances["pci.device"].Elements) == 0 || now.Labels["pci-0302_10de.present"] == "" || now.Labels["from-file"] == "" {
					t.Errorf("features of the slow source or labels are missing: %v", now.Labels)
				}
				for _, label := range []string{"memory-numa", "by-rule"} {
					if now.Labels[label] != "" {
						t.Errorf("label %s is still there", label)
					}
				}
				if now.Features.Attributes["kernel.version"].Elements != nil || now.Features.Attributes["memory.numa"].Elements != nil {
					t.Errorf("features that are disabled are still there")
				}
				if now.Labels["kernel-version.full"] == "" {
					t.Error("a label went whose features only are disabled")
				}
			})
		}
	}
}

// TestReloadTakesNothingAway reloads the configuration on a node where a source has become slow.
func TestReloadTakesNothingAway(t *testing.T) {
	m := newMachine(t, nil)
	gate := make(chan struct{})
	close(gate)
	var mu sync.Mutex
	w := m.worker(io.Discard, func(s discovery.Source) discovery.Source {
		mu.Lock()
		defer mu.Unlock()
		if s.Name() == "pci" {
			return gated{s, gate}
		}
		return s
	})
	m.start(w)
	published(t, w)
	before := m.nodeFeature()
	mu.Lock()
	gate = make(chan struct{})
	defer close(gate)
	mu.Unlock()
	m.configure(startConfig + "  pci: {deviceClassWhitelist: [\"03\", \"0b40\"]}\n")
	missing(t, w, "pci")
	testkit.Eventually(t, "the worker to publish again", func(context.Context) error {
		w.metrics.mu.Lock()
		defer w.metrics.mu.Unlock()
		if w.metrics.changes[publish.Unchanged]+w.metrics.changes[publish.Patched] == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	m.same(before, "after the reload")
}

// TestWithheldFeatureTakesNoLabelAway restarts a worker where a rule's feature is slow, and not published either: the NodeFeature does not
// tell whether the earlier worker has read it.
func TestWithheldFeatureTakesNoLabelAway(t *testing.T) {
	m := newMachine(t, nil)
	m.configure("core: {sleepInterval: 1h, noPublishFeatures: [pci.device]}" + startConfig[len("\ncore: {sleepInterval: 1h}"):])
	m.once()
	before := m.nodeFeature()
	if before.Spec.Labels["by-rule"] == "" || before.Spec.Features.Instances["pci.device"].Elements != nil {
		t.Fatal("not as configured")
	}
	wrap, open := slow("pci")
	defer open()
	w := m.worker(io.Discard, wrap)
	w.start.WaitAtMost(0)
	m.start(w)
	published(t, w)
	m.same(before, "with a slow source", "custom", "pci")
}

// TestFeaturesOfAnotherBootAreNotKept restarts a node: its devices may have changed.
func TestFeaturesOfAnotherBootAreNotKept(t *testing.T) {
	m := newMachine(t, nil)
	m.once()
	m.boot = "boot-2"
	wrap, open := slow("pci")
	defer open()
	w := m.worker(io.Discard, wrap)
	w.start.WaitAtMost(0)
	m.start(w)
	published(t, w)
	now := m.nodeFeature()
	if now.Spec.Features.Instances["pci.device"].Elements != nil || now.Spec.Labels["pci-0302_10de.present"] != "" || now.Spec.Labels["by-rule"] != "" {
		t.Errorf("features of the last boot are still there: %v", now.Spec.Labels)
	}
	if now.Spec.Labels["system-os_release.ID"] == "" {
		t.Error("nothing of the other sources is there")
	}
	open()
	testkit.Eventually(t, "the slow source to be published", func(context.Context) error {
		if now := m.nodeFeature(); now.Spec.Labels["by-rule"] == "" || now.Spec.Labels["pci-0302_10de.present"] == "" {
			return fmt.Errorf("%v", now.Spec.Labels)
		}
		return nil
	})
}

// content returns what the NodeFeature and its sets contain.
func content(t *testing.T, w *Worker) *publish.Stored {
	t.Helper()
	p, err := w.publisher()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Stored(t.Context())
	if err != nil || out == nil || len(out.Unread) > 0 {
		t.Fatalf("%v, %v", out, err)
	}
	return out
}

type testLog struct {
	mu   sync.Mutex
	text []byte
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

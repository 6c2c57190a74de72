package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/podres"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/discovery/topology"
)

// kubeletModel is a kubelet with CPUs 0 to 3, of which pods hold some. Pods may hold a device, too.
type kubeletModel struct {
	mu      sync.Mutex
	held    []int64
	fail    error
	calls   []string
	device  []podres.Devices // that the pod holds
	devices []podres.Devices // that are allocatable
}

func (k *kubeletModel) set(fail error, held ...int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail, k.held = fail, held
}

func (k *kubeletModel) took() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := strings.Join(k.calls, "")
	k.calls = nil
	return all
}

func (k *kubeletModel) List(context.Context) ([]podres.Pod, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, "L")
	return []podres.Pod{{Name: "p", Containers: []podres.Container{{CPUs: k.held, Devices: k.device}}}}, k.fail
}

func (k *kubeletModel) Allocatable(context.Context) (*podres.Allocatable, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, "A")
	return &podres.Allocatable{CPUs: []int64{0, 1, 2, 3}, Devices: k.devices}, k.fail
}

// looped is a running loop.
type looped struct {
	*Topology
	model  *kubeletModel
	events chan []string

	mu     sync.Mutex
	handed []string // available CPUs
}

func (l *looped) took() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Join(l.handed, " ")
	l.handed = nil
	return all
}

// newLoop returns a loop that does not run yet.
func newLoop(t *testing.T, interval time.Duration) *looped {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("cpuManagerPolicy: static\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := host.FromArchive([]byte("-- sys/devices/ --\n-- proc/meminfo --\nMemTotal: 1 kB\n-- proc/version --\nx\n-- sys/devices/system/cpu/online --\n0-3\n"))
	if err != nil {
		t.Fatal(err)
	}
	l := &looped{model: &kubeletModel{}, events: make(chan []string)}
	l.Topology = &Topology{
		opt: TopologyOptions{KubeletConfig: config, Interval: interval, Socket: filepath.Join(dir, "kubelet.sock")},
		log: slog.New(slog.NewTextHandler(io.Discard, nil)), host: h, kubelet: l.model, clock: clock.RealClock{},
		metrics: newTopologyMetrics("n1"), problems: map[string]bool{},
		hand: func(c topology.Content) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.handed = append(l.handed, c.Zones[0].Resources[0].Available.String())
		},
	}
	return l
}

// runLoop runs the loop until the test ends, in a bubble of synctest.
func runLoop(t *testing.T, interval time.Duration) *looped {
	t.Helper()
	l := newLoop(t, interval)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { l.loop(ctx, l.events); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return l
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (l *looped) expect(t *testing.T, what, want string) {
	t.Helper()
	if got := l.took(); got != want {
		t.Errorf("%s: handed over %q, want %q", what, got, want)
	}
}

func TestTopologyIsHandedOverWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLoop(t, 30*time.Second)
		l.expect(t, "at the start", "4")
		if got := l.model.took(); got != "ALA" {
			t.Errorf("calls at the start: %s", got)
		}
		after(time.Minute)
		l.expect(t, "while idle", "")
		if got := strings.Count(l.model.took(), "A"); got != 4 {
			t.Errorf("%d reads of what is allocatable within a minute, want 4", got)
		}
		l.model.set(nil, 0, 1)
		after(listInterval)
		l.expect(t, "after a pod started", "2")
		l.model.set(nil)
		after(listInterval)
		l.expect(t, "after it ended", "4")
	})
}

// TestWithoutAnInterval: an event causes the only reads of what is allocatable.
func TestWithoutAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLoop(t, 0)
		l.model.took()
		after(time.Hour)
		if got := l.model.took(); strings.Contains(got, "A") {
			t.Errorf("calls: %s", got)
		}
		l.events <- []string{socketSource}
		synctest.Wait()
		if got := l.model.took(); got != "ALA" {
			t.Errorf("calls after an event: %s", got)
		}
	})
}

// TestSocketWithTheNumberOfTheOldOne: a file system gives the new socket of a restarted kubelet the number of the deleted one.
func TestSocketWithTheNumberOfTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t, 0)
		if err := os.WriteFile(l.opt.Socket, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l.step(t.Context(), true)
		l.model.took()
		if l.step(t.Context(), false); l.model.took() != "L" {
			t.Error("everything is read although nothing has changed")
		}
		created := time.Now().Add(time.Hour)
		if err := os.Chtimes(l.opt.Socket, created, created); err != nil {
			t.Fatal(err)
		}
		if l.step(t.Context(), false); l.model.took() != "ALA" {
			t.Error("not everything is read after the kubelet has created its socket again")
		}
	})
}

// TestChangesOfTheKubeletsDirectoriesAreEvents: a socket of the kubelet, one of a device plugin, and the state of a manager.
func TestChangesOfTheKubeletsDirectoriesAreEvents(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("files are watched on Linux only")
	}
	l := newLoop(t, 0)
	l.opt.DevicePlugins, l.opt.StateDir = t.TempDir(), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	events := l.Topology.events(ctx, &running)
	for _, tt := range []struct{ file, source string }{
		{l.opt.Socket, socketSource}, {filepath.Join(l.opt.DevicePlugins, "nic.sock"), pluginsSource}, {filepath.Join(l.opt.StateDir, "cpu_manager_state"), stateSource},
	} {
		file := tt.file
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		select {
		case names := <-events:
			if !slices.Contains(names, tt.source) {
				t.Errorf("%s: events %v, want %s", file, names, tt.source)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event after %s was created", file)
		}
	}
}

// TestEndpointIsReadOnceInTheLifeOfAKubelet: each request of the endpoint can cost the API server two.
func TestEndpointIsReadOnceInTheLifeOfAKubelet(t *testing.T) {
	requests, policy := 0, "restricted"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		fmt.Fprintf(w, `{"kubeletconfig": {"cpuManagerPolicy": "static", "topologyManagerPolicy": %q}}`, policy)
	}))
	defer server.Close()
	l := newLoop(t, time.Nanosecond) // everything is read each time
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.opt.Configz = &topology.Configz{URL: server.URL, TokenFile: token, Insecure: true}
	step := func(wantRequests int, wantPolicy string) {
		t.Helper()
		l.step(t.Context(), false)
		if requests != wantRequests || l.in != nil && l.in.Kubelet.TopologyManagerPolicy != wantPolicy {
			t.Errorf("%d requests, want %d; settings %+v, want policy %s", requests, wantRequests, l.in.Kubelet, wantPolicy)
		}
	}
	step(1, "restricted")
	policy = "best-effort"
	step(1, "restricted")
	l.model.set(errors.New("away"))
	step(1, "")
	l.model.set(nil)
	step(2, "best-effort") // it may have another configuration
	if err := os.WriteFile(l.opt.Socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	step(2, "best-effort")
	created := time.Now().Add(time.Hour)
	if err := os.Chtimes(l.opt.Socket, created, created); err != nil {
		t.Fatal(err)
	}
	step(3, "best-effort")
}

// TestMissingDefinitionIsLoggedOnce: the publisher tries again and again, and an administrator has to act.
func TestMissingDefinitionIsLoggedOnce(t *testing.T) {
	var log strings.Builder
	l := newLoop(t, 0)
	l.log = slog.New(slog.NewTextHandler(&log, nil))
	missing := publish.Event{Err: &publish.StatusError{Code: http.StatusNotFound}}
	for range 3 {
		l.observe(missing)
	}
	const line = "until its CustomResourceDefinition is installed; set topology.createCRD"
	if n := strings.Count(log.String(), line); n != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("log of three attempts:\n%s", &log)
	}
	if l.metrics.readyz() == "" {
		t.Error("ready without the definition")
	}
	l.observe(publish.Event{Change: publish.Created})
	l.observe(missing)
	if n := strings.Count(log.String(), line); n != 2 || !strings.Contains(log.String(), "Published the NodeResourceTopology again") {
		t.Errorf("log after it was installed and removed again:\n%s", &log)
	}
}

// TestStormOfEvents sends 100 events a second while pods start and stop.
func TestStormOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLoop(t, 30*time.Second)
		l.took()
		l.model.took()
		for i := range 1000 {
			l.model.set(nil, []int64{0, 1, 2}[:i%3]...)
			select {
			case l.events <- []string{socketSource}:
			default: // the loop waits
			}
			after(10 * time.Millisecond)
		}
		if n := len(strings.Fields(l.took())); n < 2 || n > 11 {
			t.Errorf("%d topologies handed over within ten seconds, want at most one a second", n)
		}
		if n := len(l.model.took()); n > 80 {
			t.Errorf("%d calls of the kubelet within ten seconds", n)
		}
		l.model.set(nil, 0)
		after(2 * listInterval)
		if got := strings.Fields(l.took()); len(got) > 0 && got[len(got)-1] != "3" {
			t.Errorf("the last one has %s CPUs available, want 3", got[len(got)-1])
		}
	})
}

// TestKubeletIsAway: the published object stays, and the first answer is read completely.
func TestKubeletIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLoop(t, 30*time.Second)
		l.took()
		l.metrics.published(publish.Event{Change: publish.Created})
		l.model.set(errors.New("connection refused"), 0)
		l.model.took()
		after(10 * time.Minute)
		l.expect(t, "while the kubelet is away", "")
		if n := len(l.model.took()); n < 10 || n > 40 {
			t.Errorf("%d calls within ten minutes, want about one in 30 seconds", n)
		}
		scrape(t, l, "assay_topology_kubelet_up 0\n")
		if problem := l.metrics.readyz(); problem != "" {
			t.Errorf("not ready while the kubelet is away: %s", problem)
		}
		l.model.set(nil, 0)
		after(maxKubeletBackoff)
		l.expect(t, "when the kubelet is back", "3")
		scrape(t, l, "assay_topology_kubelet_up 1\n")
	})
}

// TestKubeletIsBusy: another client has exhausted the kubelet's rate limit, which is not an error.
func TestKubeletIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLoop(t, 30*time.Second)
		l.model.set(&podres.StatusError{Code: 8})
		after(listInterval)
		scrape(t, l, "nfd_topology_updater_scan_errors_total 0\n", "assay_topology_rate_limited_total 1\n", "assay_topology_kubelet_up 1\n")
	})
}

// TestABusyKubeletIsReadCompletelyLater: an event came while another client had exhausted the rate limit.
func TestABusyKubeletIsReadCompletelyLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := runLoop(t, 0)
		after(listInterval)
		l.model.set(&podres.StatusError{Code: 8})
		l.events <- []string{pluginsSource}
		synctest.Wait()
		l.model.took()
		l.model.set(nil)
		after(listInterval)
		if got := l.model.took(); got != "ALA" {
			t.Errorf("calls after the kubelet was busy: %s, want ALA", got)
		}
		scrape(t, l, `assay_topology_events_total{source="device-plugins"} 1`+"\n", `assay_topology_events_total{source="state"} 0`+"\n")
	})
}

// TestAHeldDeviceThatWasNotAllocatable: a device plugin added a device, and a pod holds it. Neither an event nor a published number shows that.
func TestAHeldDeviceThatWasNotAllocatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t, 0)
		l.opt.NoFingerprint = true // which changes with each pod
		l.step(t.Context(), true)
		l.model.took()
		device := []podres.Devices{{Resource: "v/x", IDs: []string{"1"}, Topology: podres.Topology{0}}}
		l.model.device, l.model.devices = device, device
		time.Sleep(listInterval)
		l.step(t.Context(), false)
		if got := l.model.took(); got != "LALA" {
			t.Errorf("calls: %s, want LALA", got)
		}
		l.expect(t, "after the pod started", "4 4")
		// One that stays unhealthy is read once more, not each time.
		l.model.devices = nil
		time.Sleep(listInterval)
		l.step(t.Context(), true)
		l.model.took()
		l.step(t.Context(), false)
		if got := l.model.took(); got != "L" {
			t.Errorf("calls with an unhealthy device: %s, want L", got)
		}
		scrape(t, l, "assay_topology_unknown_devices 1\n")
	})
}

// TestInvalidExcludesKeepThePreviousOnes: the numbers stay up to date, and a metric reports the configuration.
func TestInvalidExcludesKeepThePreviousOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t, time.Nanosecond) // everything is read each time
		l.opt.ConfigFile = filepath.Join(t.TempDir(), "conf")
		write := func(file, text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(l.opt.KubeletConfig, "cpuManagerPolicy: static\ntopologyManagerPolicy: single-numa-node\n")
		write(l.opt.ConfigFile, "excludeList: {'*': [cpu]}\n")
		l.step(t.Context(), true)
		l.expect(t, "with an invalid configuration at the start", "")
		scrape(t, l, "assay_configuration_valid 0\n", "assay_topology_kubelet_up 0\n")
		write(l.opt.ConfigFile, "excludeList: {'*': [memory-x]}\n")
		l.step(t.Context(), true)
		l.expect(t, "with a valid one", "4")
		write(l.opt.ConfigFile, "excludeList: {'*': [cpu]}\n")
		l.model.set(nil, 0)
		time.Sleep(publishInterval)
		l.step(t.Context(), true)
		l.expect(t, "with an invalid one later", "3")
		scrape(t, l, "assay_configuration_valid 0\n", "assay_topology_kubelet_up 1\n")
	})
}

func scrape(t *testing.T, l *looped, lines ...string) {
	t.Helper()
	r := httptest.NewRecorder()
	l.metrics.handler().ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range lines {
		if !strings.Contains(r.Body.String(), "\n"+line) {
			t.Errorf("no line %q in\n%s", line, r.Body.String())
		}
	}
}

func TestTopologyReadiness(t *testing.T) {
	m := newTopologyMetrics("n1")
	for _, step := range []struct {
		event publish.Event
		want  string
	}{
		{publish.Event{Notice: "x"}, "nothing published yet"},
		{publish.Event{Err: errors.New("no such kind")}, "not published: no such kind"},
		{publish.Event{Change: publish.Created}, ""},
		{publish.Event{Err: errors.New("away")}, "not published: away"},
		{publish.Event{Change: publish.Unchanged}, ""},
	} {
		m.published(step.event)
		if got := m.readyz(); got != step.want {
			t.Errorf("after %+v: %q, want %q", step.event, got, step.want)
		}
	}
	m = newTopologyMetrics("n1")
	m.failed(errors.New("no socket"))
	if got := m.readyz(); got != "no socket" {
		t.Errorf("before the first answer: %q", got)
	}
}

func TestExcludeListOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "conf")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := readExcludes(file); got != nil || err != nil {
		t.Errorf("without a file: %v, %v", got, err)
	}
	write("# nothing\n")
	if got, err := readExcludes(file); got != nil || err != nil {
		t.Errorf("an empty file: %v, %v", got, err)
	}
	write("excludeList:\n  '*': [memory]\n  n1: ['vendor/*']\n")
	if got, err := readExcludes(file); err != nil || len(got["*"]) != 1 || len(got["n1"]) != 1 {
		t.Errorf("excludes %v, error %v", got, err)
	}
	write("excludelist: {}\n")
	if _, err := readExcludes(file); err == nil || !strings.Contains(err.Error(), "the only key is excludeList") {
		t.Errorf("error %v", err)
	}
}

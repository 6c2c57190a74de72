package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/utils/clock"

	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/podres"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/discovery/topology"
	"github.com/assay-project/assay/discovery/watch"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/worker/memory"
)

const (
	// listInterval is the interval between reads of what pods hold. They are local: a call takes the kubelet less than a millisecond,
	// and it allows 100 a second. The kubelet announces no changes, and the files in which it keeps them change up to ten seconds later,
	// or not at all.
	listInterval = 2 * time.Second
	// DefaultTopologyInterval is the default interval between reads of everything: what is allocatable, sysfs and the configuration.
	DefaultTopologyInterval = 30 * time.Second
	// publishInterval is the minimum interval between two topologies that are handed to the publisher: on a node where pods start and
	// stop all the time, the newest counts.
	publishInterval = time.Second
	// maxKubeletBackoff is the maximum delay between attempts to reach a kubelet that does not answer.
	maxKubeletBackoff = 30 * time.Second
	// topologyCheckInterval is the mean interval between reads of the published object without a watch.
	topologyCheckInterval = 15 * time.Minute
)

// Names in events: the kubelet has created its socket, a device plugin has started or ended, or a manager of the kubelet has written its
// state.
const (
	socketSource  = "socket"
	pluginsSource = "device-plugins"
	stateSource   = "state"
)

// topologySources are the names in events after which everything is read again.
var topologySources = []string{socketSource, pluginsSource, stateSource, "cpu", "memory", watch.Everything}

// TopologyOptions are the parsed flags of assay-worker topology.
type TopologyOptions struct {
	// Kubeconfig, NodeName, Port, HostPaths and HostRoot are those of Options.
	Kubeconfig, NodeName, HostPaths, HostRoot string
	Port                                      int
	// ConfigFile is a YAML file with the excludeList; it need not exist.
	ConfigFile string
	// Socket is the kubelet's pod resources socket, and DevicePlugins the directory of the sockets of device plugins.
	Socket, DevicePlugins string
	// StateDir is the kubelet's directory with the state of its managers: changes of it are events. Empty: it is not watched.
	StateDir string
	// KubeletConfig is the kubelet's configuration file, and KubeletConfigDir the directory of its drop-ins, if it has one.
	KubeletConfig, KubeletConfigDir string
	// Configz is the kubelet's endpoint of its settings, in place of the files; nil: the files.
	Configz *topology.Configz
	// NoFingerprint leaves the fingerprint of the pods out.
	NoFingerprint bool
	// Interval is the interval between reads of everything; 0: only what pods hold is read again, and everything after an event.
	Interval time.Duration
	// NoWatch reads the published object from time to time instead of watching it.
	NoWatch bool
	// Oneshot reads and publishes once. NoPublish prints the object instead of publishing it.
	Oneshot, NoPublish bool
	// Sandbox is auto or off.
	Sandbox string
}

// Topology keeps the NodeResourceTopology of the node equal to what the kubelet gave to pods. One goroutine reads, one publishes, and one
// runs the HTTP server.
type Topology struct {
	opt     TopologyOptions
	log     *slog.Logger
	host    host.Host
	node    string
	kubelet topology.Lister
	clock   clock.WithTicker
	metrics *topologyMetrics
	hand    func(topology.Content) // passes new content to the publisher

	in       *topology.Input   // of the last complete read; nil: none
	unknown  []string          // devices that pods held then, and that were not allocatable
	last     []byte            // the content that was handed over last
	handed   time.Time         // when
	full     time.Time         // when everything was read
	socket   os.FileInfo       // of the socket that was read last
	settings *topology.Kubelet // of the endpoint, since the kubelet has started; nil: not read
	backoff  time.Duration     // after a failed read
	excludes topology.Excludes
	problems map[string]bool // that were logged

	undefined bool // the definition is missing, which was logged; of the publisher
}

// NewTopology returns a Topology. It does not connect yet.
func NewTopology(opt TopologyOptions, log *slog.Logger) (*Topology, error) {
	o := &Options{HostPaths: opt.HostPaths, HostRoot: opt.HostRoot, NodeName: opt.NodeName}
	paths := hostPaths(o)
	paths.NodeName = nodeName(o)
	h := host.Real(paths)
	t := &Topology{
		opt: opt, log: log, host: h, node: h.System.NodeName(), kubelet: podres.New(opt.Socket), clock: clock.RealClock{}, problems: map[string]bool{},
	}
	t.metrics = newTopologyMetrics(t.node)
	var err error
	if t.excludes, err = readExcludes(opt.ConfigFile); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return t, nil
}

// readExcludes reads the excludeList of a configuration file.
func readExcludes(file string) (topology.Excludes, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) || file == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var c struct {
		ExcludeList topology.Excludes `yaml:"excludeList"`
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w; the only key is excludeList", file, err)
	}
	return c.ExcludeList, nil
}

// Run reads and publishes until ctx is done. With Oneshot it does so once. With NoPublish it prints to stdout.
func (t *Topology) Run(ctx context.Context, stdout io.Writer) error {
	t.log.Info("Starting assay-worker topology", "version", build.Version(), "node", t.node)
	if t.opt.Oneshot {
		return t.once(ctx, stdout)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	if t.opt.Port != 0 {
		serve, err := listen(ctx, t.opt.Port, t.metrics.handler())
		if err != nil {
			return err
		}
		running.Go(func() { serve(ctx) })
	}
	if t.opt.NoPublish {
		t.hand = func(c topology.Content) { t.print(stdout, &c) }
	} else {
		p, err := t.publisher()
		if err != nil {
			return err
		}
		contents := make(chan topology.Content, 1)
		t.hand = func(c topology.Content) {
			select {
			case <-contents: // the publisher has not received it yet
			default:
			}
			contents <- c
		}
		running.Go(func() { p.Run(ctx, contents) })
	}
	events := t.events(ctx, &running)
	if t.opt.Sandbox != "off" {
		enterSandbox(t.log, t.ports())
	}
	t.loop(ctx, events)
	t.log.Info("Stopping assay-worker topology")
	return nil
}

// ports returns the TCP ports to which the program connects, or none if they are unknown.
func (t *Topology) ports() []uint16 {
	ports := serverPorts(&Options{Kubeconfig: t.opt.Kubeconfig})
	if ports == nil || t.opt.Configz == nil {
		return ports
	}
	u, err := url.Parse(t.opt.Configz.URL)
	if err != nil {
		return nil
	}
	port, ok := tcpPort(u)
	if !ok {
		return nil
	}
	return append(ports, port)
}

// once reads and publishes once.
func (t *Topology) once(ctx context.Context, stdout io.Writer) error {
	r, err := t.read(ctx)
	if err != nil {
		return err
	}
	if t.opt.NoPublish {
		t.print(stdout, &r.Content)
		return nil
	}
	p, err := t.publisher()
	if err != nil {
		return err
	}
	_, err = p.Publish(ctx, r.Content)
	return err
}

// print prints the object that would be published.
func (t *Topology) print(w io.Writer, c *topology.Content) {
	data, err := json.Marshal(publish.TopologyObject(t.node, c))
	if err == nil {
		data, err = toYAML(data)
	}
	if err != nil {
		t.log.Error("Cannot print the NodeResourceTopology", "error", err)
		return
	}
	_, _ = w.Write(append([]byte("---\n"), data...))
}

// publisher returns a publisher. It does not connect yet.
func (t *Topology) publisher() (*publish.TopologyPublisher, error) {
	var c connection
	client, token, err := c.to(&Options{Kubeconfig: t.opt.Kubeconfig})
	if errors.Is(err, publish.ErrNoCluster) {
		return nil, fmt.Errorf("%w; pass -kubeconfig, or -no-publish", err)
	}
	if err != nil {
		return nil, err
	}
	id := &identity{client: client, token: token, log: t.log, fallback: t.node}
	opt := publish.TopologyOptions{Identify: id.identify, Observe: t.observe}
	if t.opt.NoWatch {
		opt.Poll = topologyCheckInterval
	}
	return publish.NewTopology(client, opt), nil
}

// observe logs and counts an event of the publisher.
func (t *Topology) observe(e publish.Event) {
	t.metrics.published(e)
	switch {
	case errors.Is(e.Err, context.Canceled):
	case publish.NotServed(e.Err):
		if !t.undefined {
			t.log.Warn("Cannot publish the NodeResourceTopology until its CustomResourceDefinition is installed; set topology.createCRD of the chart")
		}
		t.undefined = true
	case e.Err != nil:
		t.log.Warn("Cannot publish the NodeResourceTopology; retrying", "in", e.Retry.Round(time.Millisecond), "error", e.Err)
	case e.Notice != "":
		t.log.Warn("Publishing has a problem", "problem", e.Notice, "in", e.Retry.Round(time.Millisecond))
	case t.undefined && e.Change != "":
		t.undefined = false
		t.log.Info("Published the NodeResourceTopology again", "change", string(e.Change))
	case e.Change != publish.Unchanged:
		t.log.Debug("Published the NodeResourceTopology", "change", string(e.Change), "bytes", e.Bytes)
	}
	if e.Change != "" {
		memory.GiveBack()
	}
}

// events returns a channel with an event when the kubelet's sockets, device plugins, CPUs or memory may have changed.
func (t *Topology) events(ctx context.Context, running *sync.WaitGroup) <-chan []string {
	targets := []watch.Target{{Path: filepath.Dir(t.opt.Socket), Source: socketSource}, {Path: t.opt.DevicePlugins, Source: pluginsSource}}
	if t.opt.StateDir != "" {
		targets = append(targets, watch.Target{Path: t.opt.StateDir, Source: stateSource})
	}
	h, errs := watch.Open(targets)
	for _, err := range errs {
		t.log.Debug("Cannot watch some event sources; falling back to polling", "error", err)
	}
	names, events := make(chan string), make(chan []string)
	running.Go(func() { watch.Debounce(ctx, t.clock, names, events) })
	running.Go(func() {
		h.Run(ctx, func(name string) {
			if !slices.Contains(topologySources, name) {
				return
			}
			select {
			case names <- name:
			case <-ctx.Done():
			}
		})
	})
	return events
}

// loop reads what changes, and hands over what has changed.
func (t *Topology) loop(ctx context.Context, events <-chan []string) {
	for everything := true; ; {
		t.metrics.reading(true)
		wait := t.step(ctx, everything)
		t.metrics.reading(false)
		timer := t.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
			everything = false
		case names := <-events:
			t.metrics.heard(names)
			timer.Stop()
			everything = true
			// A storm of events must not become a storm of reads.
			if early := publishInterval - t.clock.Since(t.full); early > 0 {
				t.pause(ctx, early)
			}
		}
	}
}

func (t *Topology) pause(ctx context.Context, d time.Duration) {
	timer := t.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// step reads once and returns the delay until the next time. It reads everything if that is due, and if something has changed: both
// answers of the kubelet have to be of the same time.
func (t *Topology) step(ctx context.Context, everything bool) time.Duration {
	restarted := t.restarted()
	if restarted {
		t.settings = nil
	}
	if t.opt.Interval > 0 && t.clock.Since(t.full) >= t.opt.Interval || t.in == nil || restarted {
		everything = true
	}
	if !everything {
		pods, err := t.kubelet.List(ctx)
		if err != nil {
			return t.failed(ctx, err)
		}
		in := *t.in
		in.Pods = pods
		r := topology.Build(&in)
		if bytes.Equal(r.Canonical(), t.last) && slices.Equal(r.Unknown, t.unknown) {
			t.answered()
			return listInterval
		}
	}
	r, err := t.read(ctx)
	if err != nil {
		t.in = nil // what was due is due again
		return t.failed(ctx, err)
	}
	t.answered()
	t.notes(r)
	now := r.Canonical()
	if bytes.Equal(now, t.last) {
		return listInterval
	}
	if early := publishInterval - t.clock.Since(t.handed); t.last != nil && early > 0 {
		t.in = nil // read again then: the newest counts
		return early
	}
	t.last, t.handed = now, t.clock.Now()
	t.hand(r.Content)
	return listInterval
}

// read reads everything.
func (t *Topology) read(ctx context.Context) (*topology.Result, error) {
	machine, unread, err := topology.ReadMachine(t.host)
	if err != nil {
		return nil, fmt.Errorf("read NUMA nodes: %w", err)
	}
	kubelet, err := t.readSettings(ctx)
	if err != nil {
		return nil, err
	}
	excludes, err := readExcludes(t.opt.ConfigFile)
	if err == nil {
		err = excludes.Check(t.node, kubelet)
	}
	t.metrics.configured(err == nil)
	if err != nil {
		if t.last == nil || t.excludes.Check(t.node, kubelet) != nil { // no previous one is valid
			return nil, fmt.Errorf("invalid configuration: %w", err)
		}
		unread = append(unread, fmt.Errorf("invalid configuration; keeping the previous one: %w", err))
	} else {
		t.excludes = excludes
	}
	in := &topology.Input{Node: t.node, Machine: machine, Kubelet: kubelet, Excludes: t.excludes, NoFingerprint: t.opt.NoFingerprint}
	r, reads, err := topology.Read(ctx, t.kubelet, in)
	t.metrics.read(reads)
	if err != nil {
		return nil, err
	}
	t.in, t.unknown, t.full = in, r.Unknown, t.clock.Now()
	t.report(unread)
	return r, nil
}

// readSettings reads the kubelet's settings. Those of the endpoint are read once in the life of a kubelet, which reads its configuration
// when it starts: for each request it may ask the API server about the token and the right.
func (t *Topology) readSettings(ctx context.Context) (*topology.Kubelet, error) {
	if t.opt.Configz == nil {
		return topology.ReadKubelet(t.opt.KubeletConfig, t.opt.KubeletConfigDir)
	}
	if t.settings == nil {
		settings, err := t.opt.Configz.Read(ctx)
		if err != nil {
			return nil, err
		}
		t.settings = settings
	}
	return t.settings, nil
}

// restarted reports whether the kubelet has created its socket again. File systems use the number of a deleted file again, so that the
// time of its creation counts, too.
func (t *Topology) restarted() bool {
	info, err := os.Stat(t.opt.Socket)
	if err != nil {
		return false
	}
	before := t.socket
	t.socket = info
	return before != nil && (!os.SameFile(before, info) || !before.ModTime().Equal(info.ModTime()))
}

// failed logs an error once, and returns the delay until the next attempt. A kubelet that is busy with other clients is not an error.
func (t *Topology) failed(ctx context.Context, err error) time.Duration {
	if podres.Busy(err) {
		t.metrics.busy()
		return listInterval
	}
	if ctx.Err() != nil {
		return listInterval
	}
	t.metrics.failed(err)
	t.in, t.settings = nil, nil // everything may have changed when it answers again
	if t.backoff == 0 {
		t.log.Warn("Cannot read the resources of this node; keeping the published ones", "error", err)
	}
	t.backoff = min(max(2*t.backoff, time.Second), maxKubeletBackoff)
	return t.backoff
}

func (t *Topology) answered() {
	if t.backoff > 0 {
		t.log.Info("Read the resources of this node again")
	}
	t.backoff = 0
	t.metrics.answered(t.clock.Now())
}

// notes logs what the topology does not show.
func (t *Topology) notes(r *topology.Result) {
	t.metrics.found(r)
	if len(r.Unknown) > 0 {
		t.log.Debug("Pods hold devices that the kubelet does not list as allocatable", "devices", r.Unknown)
	}
}

// report logs what could not be read, once.
func (t *Topology) report(unread []error) {
	now := map[string]bool{}
	for _, err := range unread {
		now[err.Error()] = true
		if !t.problems[err.Error()] {
			t.log.Warn("The topology is incomplete", "error", err)
		}
	}
	t.problems = now
}

package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	discoveryhost "github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/internal/worker/start"
)

// worker is a running worker of a node: its sources, the start and the publisher. The other nodes publish at once and without errors (see
// world.publish).
type worker struct {
	*program
	contents chan publish.Content
	examined chan bool // a fact of the host has changed
	late     []string  // the sources that are slow at the start

	mu  sync.Mutex
	now nfdv1alpha1.Features // of the host
}

// host is what is true of a node, and what its worker has published, by source.
type host struct {
	past map[string][]string // all facts of this host, oldest first
	seen map[string]int      // index of those that were published last
	// foreign is what other clients made of the published facts. A worker whose source is slow cannot know that they are not its own.
	foreign map[string]bool
	// wrote is what the worker of this host has written last, by source. What it then finds there of another client it may take away.
	wrote map[string]string
}

func newHost() *host {
	return &host{past: map[string][]string{}, seen: map[string]int{}, foreign: map[string]bool{}, wrote: map[string]string{}}
}

// sources are the domains of the facts that a worker finds.
var sources = []string{"test", "id", "system"}

// employs reports whether a node has a publisher.
func (w *world) employs(node string) bool { return slices.Index(w.names(), node) < w.employed }

func (w *world) names() (out []string) {
	for i := range w.nodes {
		out = append(out, nodeName(i))
	}
	return out
}

// hire starts the worker of a node. Some of its sources may be slow.
func (w *world) hire(node string) {
	if w.server.Get("nodes", "", node) != nil && w.workers[node] == nil {
		w.hireWith(node, w.delays())
	}
}

// delays chooses how long sources take the first time, each another duration.
func (w *world) delays() map[string]time.Duration {
	out := map[string]time.Duration{}
	some := w.n(3) == 2
	for i, name := range sources {
		if some && w.n(2) == 1 {
			out[name] = one(w.tape, 3*time.Second, 40*time.Second, 2*time.Minute) + time.Duration(i+1)*odd
		}
	}
	return out
}

// hireWith starts the worker of a node that has none, with sources that take these durations the first time.
func (w *world) hireWith(node string, delays map[string]time.Duration) {
	o := w.server.Get("nodes", "", node)
	w.hired++
	name := fmt.Sprintf("worker-%d", w.hired)
	k := &worker{
		program:  &program{name: name, client: w.server.NewClient(name), queues: &gates{}, done: make(chan error, 1), synced: true},
		contents: make(chan publish.Content, 1), examined: make(chan bool, 1),
	}
	client, err := publish.NewClient(&publish.Config{Server: "http://model", Transport: k.client})
	if err != nil {
		w.violate("start: %v", err)
		return
	}
	id := publish.Identity{Node: node, NodeUID: o["metadata"].(object)["uid"].(string)}
	p := publish.New(client, publish.Options{
		Namespace: namespace, Version: "v1", Share: w.sharing, Rand: rand.New(rand.NewPCG(uint64(w.hired), 1)).Float64,
		Identify: func(context.Context) (publish.Identity, error) { return id, nil },
	})
	ctx, cancel := context.WithCancel(context.Background())
	k.stop = cancel
	w.workers[node] = k
	var all []discovery.Source
	slow := ""
	for _, name := range sources {
		delay := delays[name]
		all = append(all, &source{worker: k, name: name, delay: delay, process: ctx})
		if delay > 0 {
			k.late = append(k.late, name)
			slow += fmt.Sprintf(", %s takes %s", name, delay)
		}
	}
	w.tell("%s of %s starts%s", name, node, slow)
	w.report(node)
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx, k.contents) })
	running.Go(func() { k.discover(ctx, all, p.Stored) })
	go func() { running.Wait(); k.done <- nil }()
}

// source is a source of a worker: it returns the facts of its domain, the first time after a delay.
type source struct {
	*worker
	name    string
	delay   time.Duration
	process context.Context
}

func (s *source) Name() string { return s.name }

// Discover ignores the deadline, as a read from a device that hangs.
func (s *source) Discover(context.Context, discoveryhost.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	for name, set := range s.facts().Attributes {
		if strings.HasPrefix(name, s.name+".") {
			r.Features.Attributes[name] = set
		}
	}
	for name, set := range s.facts().Flags {
		if strings.HasPrefix(name, s.name+".") {
			r.Features.Flags[name] = set
		}
	}
	for name, set := range s.facts().Instances {
		if strings.HasPrefix(name, s.name+".") {
			r.Features.Instances[name] = set
		}
	}
	delay := s.delay
	if s.delay = 0; delay > 0 {
		select {
		case <-time.After(delay):
		case <-s.process.Done():
		}
	}
	return r, nil
}

// facts returns what is true of the host now.
func (k *worker) facts() nfdv1alpha1.Features {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// rediscovery is the interval in which sources that have failed are tried again.
const rediscovery = time.Minute

// host returns the machine on which the worker runs, of which no more is known than its boot. Its file systems are mounted.
func (k *worker) host() discoveryhost.Host {
	tree := discoveryhost.NewTree()
	tree.AddFile("proc/version", nil)
	tree.AddDir("sys/devices")
	tree.AddFile(discoveryhost.BootID, []byte(k.facts().Attributes[nfdv1alpha1.BootFeature].Elements[nfdv1alpha1.BootElement]))
	return discoveryhost.Host{FS: tree}
}

// discover runs the sources when the host has changed, and hands what they find to the publisher, as the worker does.
func (k *worker) discover(ctx context.Context, all []discovery.Source, stored start.Stored) {
	runner := discovery.NewRunner(k.host(), all, discovery.Everything)
	first := start.New(slog.New(slog.DiscardHandler))
	var names []string
	for found := false; ctx.Err() == nil; {
		report, complete := first.Settle(ctx, runner, runner.Run(ctx, names...), stored)
		if complete && (report.Changed || !found) {
			found = true
			select {
			case <-k.contents:
			default:
			}
			k.contents <- publish.Content{Features: report.Features}
		}
		names = start.Nothing
		var again, quiet <-chan time.Time
		if len(report.Unfound) > 0 {
			again = time.After(rediscovery)
		}
		if wait := first.Wait(); wait > 0 {
			quiet = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-quiet:
		case <-runner.Returned():
		case <-again:
			names = nil
		case <-k.examined:
			names = nil
		}
	}
}

// dismiss ends the publisher of a node as a crash does.
func (w *world) dismiss(node string) {
	if k := w.workers[node]; k != nil {
		w.tell("%s of %s crashes", k.name, node)
		k.crash()
		delete(w.workers, node)
	}
}

// report has the worker of a node find what is true of its host.
func (w *world) report(node string) {
	h, facts := w.hosts[node], w.bySource(node)
	for name, now := range facts {
		if past := h.past[name]; past == nil || past[len(past)-1] != now {
			h.past[name] = append(past, now)
		}
	}
	k := w.workers[node]
	if k == nil {
		return
	}
	features := typed(w.own(node))
	if facts := features.Attributes["test.attr"].Elements; w.sharing {
		maps.Copy(facts, padding)
		w.expectSet(facts)
	}
	k.mu.Lock()
	k.now = features
	k.mu.Unlock()
	select {
	case k.examined <- true:
	default:
	}
}

// bySource returns the facts of a host as text, by the source that finds them.
func (w *world) bySource(node string) map[string]string { return textOf(w.facts[node], w.bootOf(node)) }

// textOf returns facts as text, by the source that finds them; those that are missing are empty.
func textOf(facts map[string]string, boot string) map[string]string {
	rest := maps.Clone(facts)
	delete(rest, serial)
	out := map[string]string{"id": facts[serial], "system": boot, "test": ""}
	if len(rest) > 0 {
		out["test"] = fmt.Sprint(rest)
	}
	return out
}

// tamper changes what a publisher has published.
func (w *world) tamper(node string) {
	if w.workers[node] == nil || w.server.Get("nodefeatures", namespace, node) == nil {
		return
	}
	w.tell("another client changes NodeFeature %s", node)
	w.do("other", http.MethodPatch, featuresPath+"/"+node, object{"spec": object{"features": object{"attributes": object{"test.attr": object{"elements": object{"a0": "9"}}}}}})
}

// elementsOf returns the facts in a NodeFeature.
func (w *world) elementsOf(feature object) map[string]string {
	out := map[string]string{}
	attributes := below(w.resolved(feature), "attributes")
	for _, name := range []string{"test.attr", "id.host"} {
		for k, v := range below(below(attributes, name), "elements") {
			if _, is := padding[k]; !is {
				out[k] = fmt.Sprint(v)
			}
		}
	}
	return out
}

// published checks a write to the NodeFeature of a worker. The worker must not publish facts that are older than those it has published
// before, and must not take away those of a source that has not answered since it started, unless the host has booted.
func (c *checker) published(change apiserver.Change) {
	if change.Resource.Name != "nodefeatures" || change.Type == apiserver.Deleted && !strings.HasPrefix(change.By, "worker-") {
		return
	}
	node := nodeOf(change.New)
	h := c.w.hosts[node]
	if !strings.HasPrefix(change.By, "worker-") {
		if h != nil && change.By == "other" {
			for name, value := range c.textOf(change.New) {
				h.foreign[name+" "+value] = true
			}
		}
		return
	}
	switch {
	case change.Type == apiserver.Deleted:
		c.w.violate("%s deletes NodeFeature %s", change.By, change.Key)
		return
	case change.Key != namespace+"/"+node || h == nil:
		c.w.violate("%s writes NodeFeature %s for node %q", change.By, change.Key, node)
		return
	}
	k, before, after := c.w.workers[node], map[string]string{}, c.textOf(change.New)
	if change.Old != nil {
		before = c.textOf(change.Old)
	}
	for _, name := range sources {
		now := after[name]
		late := k != nil && k.name == change.By && slices.Contains(k.late, name)
		wrote, has := h.wrote[name]
		h.wrote[name] = now
		switch i := slices.Index(h.past[name][h.seen[name]:], now); {
		case i >= 0:
			h.seen[name] += i
		case late && now == "" && has && wrote == "":
		case late && now == "" && (before[name] == "" || before["system"] != c.w.bootOf(node)):
		case late && now != "" && h.foreign[name+" "+now]:
		case now == "":
			c.w.violate("%s takes away the features of the source %s of %s, which were %s", change.By, name, node, before[name])
		default:
			c.w.violate("%s publishes %s, which %s was not since %s", change.By, now, node, h.past[name][h.seen[name]])
		}
	}
}

// textOf returns the facts in a NodeFeature as text, by the source that finds them.
func (c *checker) textOf(feature object) map[string]string {
	boot, _ := below(below(below(c.w.resolved(feature), "attributes"), "system.boot"), "elements")["id"].(string)
	return textOf(c.w.elementsOf(feature), boot)
}

// upToDate checks that the publishers have published what is true.
func (c *checker) upToDate() {
	for _, node := range slices.Sorted(maps.Keys(c.w.workers)) {
		o := c.w.server.Get("nodefeatures", namespace, node)
		if o == nil {
			c.w.violate("%s has no NodeFeature at the end", node)
			continue
		}
		if have := c.w.elementsOf(o); !maps.Equal(have, c.w.facts[node]) {
			c.w.violate("%s has published %v at the end, and its facts are %v", node, have, c.w.facts[node])
		}
	}
	c.owned()
}

// owned checks that what the publishers have published belongs to the present nodes.
func (c *checker) owned() {
	for _, node := range slices.Sorted(maps.Keys(c.w.workers)) {
		o, owner := c.w.server.Get("nodefeatures", namespace, node), c.w.server.Get("nodes", "", node)
		if o == nil || owner == nil {
			continue
		}
		owners, _ := below(o, "metadata")["ownerReferences"].([]any)
		if len(owners) != 1 || owners[0].(object)["uid"] != below(owner, "metadata")["uid"] {
			c.w.violate("NodeFeature %s has the owners %v at the end", node, owners)
		}
	}
}

// counted counts the requests of a client.
type counted struct {
	http.RoundTripper
	requests atomic.Int64
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// A publisher whose watch had broken read its object every hour although it watched it again (found by seed 12).
func TestAPublisherIsQuietAfterItsWatchWasCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New(apiserver.Resources()...)
		connection := server.NewClient("worker").Direct()
		all := &counted{RoundTripper: connection}
		client, err := publish.NewClient(&publish.Config{Server: "http://model", Transport: all})
		if err != nil {
			t.Fatal(err)
		}
		p := publish.New(client, publish.Options{Namespace: namespace, Identify: func(context.Context) (publish.Identity, error) {
			return publish.Identity{Node: "n0", NodeUID: "1"}, nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		contents, done := make(chan publish.Content), make(chan bool)
		go func() { p.Run(ctx, contents); close(done) }()
		contents <- publish.Content{Labels: map[string]string{"a": "b"}}
		synctest.Wait()
		for _, watch := range connection.Watches() {
			watch.End(errors.New("connection reset by peer"))
		}
		time.Sleep(time.Minute)
		if open := len(connection.Watches()); open != 1 {
			t.Fatalf("%d open watches, want 1", open)
		}
		before := all.requests.Load()
		time.Sleep(24 * time.Hour)
		if after := all.requests.Load(); after != before {
			t.Errorf("%d requests within a day in which nothing changed", after-before)
		}
		connection.Close()
		cancel()
		<-done
	})
}

// A worker whose source had not answered within the time that it waits published without the features that were in a deleted NodeFeatureSet,
// which took them away (found by seed 6794).
func TestASlowSourceKeepsTheFeaturesOfADeletedSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&tape{}, logr.Discard())
		defer w.end()
		w.employed = 1
		set := w.bootWithSet(t)
		labeled := func() bool { return w.keysOf(w.server.Get("nodes", "", "n0"))["label "+prefix+"r0"] != "" }
		if !labeled() {
			t.Fatalf("the label is missing: %s", strings.Join(w.story, "\n"))
		}
		w.do("user", http.MethodDelete, setsPath+"/"+set, nil)
		w.facts["n0"]["a0"] = "1"
		w.hireWith("n0", map[string]time.Duration{"test": 3 * time.Minute})
		w.drain(2 * time.Minute)
		if !labeled() || len(w.violations) > 0 {
			t.Errorf("the label is there: %t; %v", labeled(), w.violations)
		}
		w.drain(quiet)
		if !labeled() || len(w.violations) > 0 {
			t.Errorf("at the end the label is there: %t; %v", labeled(), w.violations)
		}
	})
}

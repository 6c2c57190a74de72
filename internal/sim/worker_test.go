package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/sim/apiserver"
)

// worker is a running publisher of a node. The other nodes publish at once and without errors (see world.publish).
type worker struct {
	*program
	contents chan publish.Content
}

// host is what is true of a node, and what its worker has published.
type host struct {
	past []string // all facts of this host, oldest first
	seen int      // index of those that were published last
}

// employs reports whether a node has a publisher.
func (w *world) employs(node string) bool { return slices.Index(w.names(), node) < w.employed }

func (w *world) names() (out []string) {
	for i := range w.nodes {
		out = append(out, nodeName(i))
	}
	return out
}

// hire starts the publisher of a node.
func (w *world) hire(node string) {
	o := w.server.Get("nodes", "", node)
	if o == nil || w.workers[node] != nil {
		return
	}
	w.hired++
	name := fmt.Sprintf("worker-%d", w.hired)
	k := &worker{
		program:  &program{name: name, client: w.server.NewClient(name), queues: &gates{}, done: make(chan error, 1), synced: true},
		contents: make(chan publish.Content, 1),
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
	w.tell("%s of %s starts", name, node)
	w.report(node)
	go func() { p.Run(ctx, k.contents); k.done <- nil }()
}

// dismiss ends the publisher of a node as a crash does.
func (w *world) dismiss(node string) {
	if k := w.workers[node]; k != nil {
		w.tell("%s of %s crashes", k.name, node)
		k.crash()
		delete(w.workers, node)
	}
}

// report hands the facts of a node to its publisher.
func (w *world) report(node string) {
	h := w.hosts[node]
	if now := fmt.Sprint(w.facts[node]); h.past == nil || h.past[len(h.past)-1] != now {
		h.past = append(h.past, now)
	}
	k := w.workers[node]
	if k == nil {
		return
	}
	select {
	case <-k.contents:
	default:
	}
	features := typed(w.own(node))
	if facts := features.Attributes["test.attr"].Elements; w.sharing {
		maps.Copy(facts, padding)
		w.expectSet(facts)
	}
	k.contents <- publish.Content{Features: features}
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
	for _, name := range []string{"test.attr", "test.id"} {
		for k, v := range below(below(attributes, name), "elements") {
			if _, is := padding[k]; !is {
				out[k] = fmt.Sprint(v)
			}
		}
	}
	return out
}

// published checks a write of a publisher: it must not publish facts that are older than those it has published before.
func (c *checker) published(change apiserver.Change) {
	if change.Resource.Name != "nodefeatures" || !strings.HasPrefix(change.By, "worker-") {
		return
	}
	node := nodeOf(change.New)
	h := c.w.hosts[node]
	switch now := fmt.Sprint(c.w.elementsOf(change.New)); {
	case change.Type == apiserver.Deleted:
		c.w.violate("%s deletes NodeFeature %s", change.By, change.Key)
	case change.Key != namespace+"/"+node || h == nil:
		c.w.violate("%s writes NodeFeature %s for node %q", change.By, change.Key, node)
	default:
		i := slices.Index(h.past[h.seen:], now)
		if i < 0 {
			c.w.violate("%s publishes %s, which %s was not since %s", change.By, now, node, h.past[h.seen])
			return
		}
		h.seen += i
	}
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

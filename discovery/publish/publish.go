// Package publish keeps one NodeFeature in the cluster equal to what was discovered on a node.
//
// It is the only package under discovery that talks to a Kubernetes API server. In steady state it sends nothing: it
// remembers what it wrote last, writes differences only, and holds one watch open on its own object, by name, so that
// tampering and deletion are noticed without polling.
package publish

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Content is what a worker has to say about its node. It is shared with the Publisher: do not modify its maps after
// handing it over.
type Content struct {
	Features nfdv1alpha1.Features
	Labels   map[string]string
}

// Options say how a Publisher behaves. The zero value of each field is a sensible default, but for Namespace and Identify.
type Options struct {
	// Namespace of the NodeFeature.
	Namespace string
	// Identify says which node and pod this is. It is asked again before each write that follows a loss, because a bound
	// token changes with the node that it is bound to.
	Identify func(context.Context) (Identity, error)
	// Version of the worker, for an annotation.
	Version string
	// Owners of the NodeFeature; nil is the Node, an empty list nobody.
	Owners []Owner
	// MaxBytes bounds the JSON of spec; 0 is DefaultMaxBytes, negative is no bound.
	MaxBytes int
	// Share publishes large features as NodeFeatureSets, if the cluster has a controller that reads them.
	Share bool
	// Observe is told what happened, from the goroutine of Run or Publish; may be nil.
	Observe func(Event)
	// Clock and Rand are for tests.
	Clock clock.WithTicker
	Rand  func() float64
}

// Publisher keeps one NodeFeature equal to the latest Content. It is not safe for concurrent use: either Run owns it, or
// its caller calls Publish.
type Publisher struct {
	client *Client
	opt    Options

	identity Identity
	live     *object // what the cluster has, as far as is known; nil is unknown
	absent   bool    // the cluster is known to have none; live is nil
	dropped  string  // what the last write left out, to say it once
	shared   shared
}

// New returns a Publisher that has not looked at the cluster yet.
func New(client *Client, opt Options) *Publisher {
	if opt.Owners == nil {
		opt.Owners = []Owner{OwnerNode}
	}
	if opt.MaxBytes == 0 {
		opt.MaxBytes = DefaultMaxBytes
	}
	if opt.Observe == nil {
		opt.Observe = func(Event) {}
	}
	if opt.Clock == nil {
		opt.Clock = clock.RealClock{}
	}
	if opt.Rand == nil {
		opt.Rand = rand.Float64
	}
	return &Publisher{client: client, opt: opt}
}

// Change says what one call of Publish did to the cluster.
type Change string

// The changes.
const (
	Unchanged Change = "unchanged"
	Created   Change = "created"
	Patched   Change = "patched"
)

// Event tells an observer what happened. Exactly one of Change and Err is set.
type Event struct {
	Change Change
	// Bytes is the size of the request that was sent.
	Bytes int
	// Dropped are the features that did not fit into the size budget, set when they change.
	Dropped []string
	// Notice is something worth a log line that is no failure.
	Notice string
	Err    error
	// Retry is how long Run will wait before it tries again.
	Retry time.Duration
}

// maxConflicts bounds how often one Publish starts over because somebody else wrote in between. A second round nearly
// always wins; after the third it is a fight, which back-off has to calm.
const maxConflicts = 3

// Publish makes the cluster's object equal to c, with no request at all if it is known to be so already. An error leaves
// the Publisher usable: the next call starts from what the cluster then has.
func (p *Publisher) Publish(ctx context.Context, c Content) (Change, error) {
	id, err := p.identify(ctx)
	if err != nil {
		return "", err
	}
	for try := 1; ; try++ {
		change, err := p.converge(ctx, id, c)
		if err == nil {
			return change, nil
		}
		// The object changed under our hands, or went away; a namespace that does not exist says "not found" as well.
		stale := hasCode(err, http.StatusConflict) || hasCode(err, http.StatusNotFound) && !p.absent
		p.forget()
		if try == maxConflicts || !stale {
			return "", fmt.Errorf("publish NodeFeature %s/%s: %w", p.opt.Namespace, id.Node, err)
		}
	}
}

// converge does at most one write, and one read if it does not know what the cluster has.
func (p *Publisher) converge(ctx context.Context, id Identity, c Content) (Change, error) {
	if err := p.load(ctx, id); err != nil {
		return "", err
	}
	want, err := p.build(ctx, id, c)
	if err != nil {
		return "", err
	}
	change, sent, err := p.write(ctx, id, want)
	if err != nil && p.unnamed(want, err) {
		if want, err = p.build(ctx, id, c); err != nil {
			return "", err
		}
		change, sent, err = p.write(ctx, id, want)
	}
	if err != nil {
		return "", err
	}
	p.say(change, sent, want.dropped)
	return change, nil
}

// load reads the object, unless it is known.
func (p *Publisher) load(ctx context.Context, id Identity) error {
	if p.live != nil || p.absent {
		return nil
	}
	live, err := p.client.get(ctx, p.opt.Namespace, id.Node)
	if hasCode(err, http.StatusNotFound) {
		p.absent = true
		return nil
	}
	p.live = live
	return err
}

// write creates or patches the object, if it has to.
func (p *Publisher) write(ctx context.Context, id Identity, want *object) (Change, int, error) {
	if p.absent {
		body, err := want.create(p.opt.Namespace, id.Node)
		if err != nil {
			return "", 0, err
		}
		meta, err := p.client.create(ctx, p.opt.Namespace, want.strict(), body)
		if err != nil {
			return "", 0, err
		}
		p.remember(want, meta)
		return Created, len(body), nil
	}
	body, err := mergePatch(p.live, want)
	if err != nil {
		return "", 0, err
	}
	if body == nil {
		p.live.spec = want.spec // equal; share the discovered maps and let go of the decoded ones
		return Unchanged, 0, nil
	}
	meta, err := p.client.patch(ctx, p.opt.Namespace, id.Node, want.strict(), body)
	if err != nil {
		return "", 0, err
	}
	p.remember(want, meta)
	return Patched, len(body), nil
}

// identify asks who this is, and forgets what it knows of the object if the answer is another node.
func (p *Publisher) identify(ctx context.Context) (Identity, error) {
	if p.identity.complete(p.opt.Owners) && (p.live != nil) {
		return p.identity, nil
	}
	id, err := p.opt.Identify(ctx)
	if err != nil {
		return Identity{}, fmt.Errorf("determine the node: %w", err)
	}
	if id.Node == "" {
		return Identity{}, errors.New("determine the node: neither the service account token nor the configuration names it")
	}
	if id.Node != p.identity.Node {
		p.forget()
	}
	p.identity = id
	return id, nil
}

func (p *Publisher) remember(want *object, meta metadata) {
	p.live, p.absent = &object{metadata: meta, spec: want.spec}, false
}

func (p *Publisher) forget() { p.live, p.absent = nil, false }

func (p *Publisher) say(change Change, sent int, dropped []string) {
	e := Event{Change: change, Bytes: sent}
	if now := join(dropped); now != p.dropped {
		p.dropped = now
		e.Dropped = dropped
	}
	p.opt.Observe(e)
}

// observe takes note of what a watch or a look at the metadata showed, and reports whether the object may differ from
// what was written. Echoes of own writes, and events older than the last of them, change nothing.
func (p *Publisher) observe(meta metadata) bool {
	if p.live == nil || !newer(meta.resourceVersion, p.live.resourceVersion) {
		return false
	}
	if meta.generation != p.live.generation || meta.uid != p.live.uid {
		p.forget()
		return true
	}
	p.live.metadata = meta // the spec is still ours: only metadata was touched
	return true
}

// observeDeleted takes note of a deletion and reports whether it is news.
func (p *Publisher) observeDeleted(meta metadata) bool {
	if p.live == nil || !newer(meta.resourceVersion, p.live.resourceVersion) {
		return false
	}
	p.live, p.absent = nil, true
	return true
}

// newer reports whether resource version a is later than b. Versions are comparable numbers (KEP-5504); a server whose
// versions are not gets the careful answer, which costs a read.
func newer(a, b string) bool {
	cmp, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return cmp > 0
}

// Package publish keeps one NodeFeature in the cluster up to date with the discovered features of a node.
//
// It is the only package under discovery that sends requests to a Kubernetes API server. In steady state it sends none: it keeps
// what it wrote last, writes differences only, and has one watch on its own object, by name, to detect changes by other clients and
// deletion without polling.
package publish

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Content is the features and labels to publish. The Publisher shares it: do not modify its maps after passing it on.
type Content struct {
	Features nfdv1alpha1.Features
	Labels   map[string]string
}

// Options configure a Publisher. The zero value of each field is a useful default, except for Namespace and Identify.
type Options struct {
	// Namespace of the NodeFeature.
	Namespace string
	// Identify returns the node and the pod of the worker. It is called again before each write that follows a lost object, because
	// a bound token changes with its node.
	Identify func(context.Context) (Identity, error)
	// Version is the version of the worker, for an annotation.
	Version string
	// Owners of the NodeFeature; nil: the Node, an empty list: no owner.
	Owners []Owner
	// MaxBytes is the maximum size of the JSON of spec; 0: DefaultMaxBytes, negative: no limit.
	MaxBytes int
	// Share publishes large features as NodeFeatureSets, if the cluster has a controller that reads them.
	Share bool
	// Observe is called with each event, from the goroutine of Run or Publish; can be nil.
	Observe func(Event)
	// Clock and Rand are for tests.
	Clock clock.WithTicker
	Rand  func() float64
}

// Publisher keeps one NodeFeature up to date with the latest Content. It is not safe for concurrent use: either Run uses it, or its
// caller calls Publish.
type Publisher struct {
	client *Client
	opt    Options

	identity Identity
	live     *object // the last known state in the cluster; nil: unknown
	absent   bool    // the object is known not to exist; live is nil
	unsure   bool    // the object may have changed since live was read or written: by an attempt that failed, or without an event
	read     bool    // the object, or that there is none, was read before
	dropped  string  // features that the last write dropped, to report them once
	shared   shared
}

// New returns a Publisher that has not read its object yet.
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

// Change is the effect of one call of Publish.
type Change string

// Values of Change.
const (
	Unchanged Change = "unchanged"
	Created   Change = "created"
	Patched   Change = "patched"
)

// Event is passed to Observe. Exactly one of Change and Err is set.
type Event struct {
	Change Change
	// Bytes is the size of the request that was sent.
	Bytes int
	// Dropped lists the features that exceed the size budget, set when the list changes.
	Dropped []string
	// Notice is a message for the log that is not an error.
	Notice string
	Err    error
	// Retry is the delay before the next attempt of Run.
	Retry time.Duration
}

// maxConflicts is the maximum number of retries of one Publish after concurrent writes. The second attempt nearly always succeeds;
// after the third, Run retries with back-off.
const maxConflicts = 3

// Publish updates the object in the cluster to c. It sends no request if the object is known to be up to date. After an error the
// Publisher can still be used: the next call sends the write again, and reads the object only if it has changed.
func (p *Publisher) Publish(ctx context.Context, c Content) (Change, error) {
	for try := 1; ; try++ {
		id, err := p.identify(ctx)
		if err != nil {
			return "", err
		}
		change, err := p.converge(ctx, id, c)
		if err == nil {
			return change, nil
		}
		p.unsure = true
		// The object was changed or deleted concurrently; a missing namespace is also "not found".
		stale := errors.Is(err, errUnsure) || hasCode(err, http.StatusConflict) || hasCode(err, http.StatusNotFound) && !p.absent
		if stale {
			p.forget()
		}
		if try == maxConflicts || !stale {
			return "", fmt.Errorf("publish NodeFeature %s/%s: %w", p.opt.Namespace, id.Node, err)
		}
	}
}

// errUnsure means that a write would not change the last known object, but that an earlier one may have: it has to be read.
var errUnsure = errors.New("the object may have changed")

// converge sends at most one write, and one read if the state of the object is unknown.
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

// load reads the object, unless its state is known.
func (p *Publisher) load(ctx context.Context, id Identity) error {
	if p.shared.on && slices.Contains(p.missing(), assayv1alpha1.PrunedFeatureSets) {
		p.live = nil // what is stored differs from what was written
	}
	if p.live != nil || p.absent {
		return nil
	}
	// The first read need not be of etcd: the API server rejects a write that is based on an old version, and the watch continues from
	// that version. Later ones must be at least as new as what was observed.
	live, err := p.client.get(ctx, p.opt.Namespace, id.Node, !p.read)
	switch {
	case err == nil:
		p.live = live
	case hasCode(err, http.StatusNotFound):
		p.absent = true
	default:
		return err
	}
	p.read, p.unsure = true, false
	return nil
}

// write creates or patches the object if necessary.
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
	if body == nil && p.unsure {
		return "", 0, errUnsure
	}
	if body == nil {
		p.live.spec = want.spec // equal; share the discovered maps and release the decoded ones
		return Unchanged, 0, nil
	}
	meta, err := p.client.patch(ctx, p.opt.Namespace, id.Node, want.strict(), body)
	if err != nil {
		return "", 0, err
	}
	p.remember(want, meta)
	return Patched, len(body), nil
}

// identify determines the identity of the worker, and discards the known object if the node has changed.
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
	p.live, p.absent, p.unsure = &object{metadata: meta, spec: want.spec}, false, false
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

// observe processes metadata from a watch or a read, and reports whether the object may differ from the last write. It ignores
// events of the worker's own writes, and older ones.
func (p *Publisher) observe(meta metadata) bool {
	if p.live == nil || !newer(meta.resourceVersion, p.live.resourceVersion) {
		return false
	}
	if meta.generation != p.live.generation || meta.uid != p.live.uid {
		p.forget()
		return true
	}
	p.live.metadata = meta // the spec is unchanged: only metadata was modified
	return true
}

// observeDeleted processes a deletion and reports whether it is new.
func (p *Publisher) observeDeleted(meta metadata) bool {
	if p.live == nil || !newer(meta.resourceVersion, p.live.resourceVersion) {
		return false
	}
	p.live, p.absent = nil, true
	return true
}

// newer reports whether resource version a is later than b. Versions are comparable numbers (KEP-5504); if they are not, it returns
// true, which causes an additional read.
func newer(a, b string) bool {
	cmp, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return cmp > 0
}

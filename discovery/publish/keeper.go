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
)

// common are the options of all publishers.
type common struct {
	identify func(context.Context) (Identity, error)
	owners   []Owner
	observe  func(Event)
	clock    clock.WithTicker
	rand     func() float64
	// poll is the mean interval between reads of the object's metadata, instead of a watch; 0: a watch.
	poll time.Duration
}

// kind is what a keeper has to know of its kind of objects. C is what the caller publishes, S what the object contains of it.
type kind[C, S any] interface {
	// name returns the name of the kind, and title that of an object in messages.
	name() string
	title(name string) string
	// path returns the path of an object in the API; without a name, that of all objects.
	path(name string) string
	// get reads an object; the API server may answer from its cache.
	get(ctx context.Context, name string, cached bool) (*stored[S], error)
	// build returns the desired object.
	build(ctx context.Context, id Identity, c C) (*stored[S], error)
	// create returns the JSON of a new object, and patch the smallest merge patch, or nil if the objects are equal.
	create(want *stored[S], name string) ([]byte, error)
	patch(have, want *stored[S]) ([]byte, error)
	// strict reports whether the API server must reject unknown fields.
	strict(want *stored[S]) bool
	// pruned reports whether what is stored differs from what was written.
	pruned() bool
	// unnamed reports whether a rejected object has to be built again, because it will be different.
	unnamed(want *stored[S], err error) bool
	// complete adds to an event what the kind reports.
	complete(e *Event)
	// again returns the delay until the object has to be published again in any case; 0: it has not.
	again() time.Duration
	// missing returns what other controllers report as missing for the object.
	missing() []string
}

// stored is an observed or desired object. In a desired one, labels and annotations only contain the keys that the publisher owns, with
// an empty value if the key must be absent.
type stored[S any] struct {
	metadata
	spec S
}

// keeper keeps one object, which has the name of the node, equal to the latest content. It is not safe for concurrent use: either Run uses
// it, or its caller calls Publish.
type keeper[C, S any] struct {
	client *Client
	kind   kind[C, S]
	common common

	identity Identity
	live     *stored[S] // the last known state in the cluster; nil: unknown
	absent   bool       // the object is known not to exist; live is nil
	unsure   bool       // the object may have changed since live was read or written: by an attempt that failed, or without an event
	read     bool       // the object, or that there is none, was read before
}

func newKeeper[C, S any](client *Client, kind kind[C, S], c common) keeper[C, S] {
	if c.observe == nil {
		c.observe = func(Event) {}
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	if c.rand == nil {
		c.rand = rand.Float64
	}
	return keeper[C, S]{client: client, kind: kind, common: c}
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
func (k *keeper[C, S]) Publish(ctx context.Context, c C) (Change, error) {
	for try := 1; ; try++ {
		id, err := k.identify(ctx)
		if err != nil {
			return "", err
		}
		change, err := k.converge(ctx, id, c)
		if err == nil {
			return change, nil
		}
		k.unsure = true
		// The object was changed or deleted concurrently; a missing namespace is also "not found".
		stale := errors.Is(err, errUnsure) || hasCode(err, http.StatusConflict) || hasCode(err, http.StatusNotFound) && !k.absent
		if stale {
			k.forget()
		}
		if try == maxConflicts || !stale {
			return "", fmt.Errorf("publish %s %s: %w", k.kind.name(), k.kind.title(id.Node), err)
		}
	}
}

// errUnsure means that a write would not change the last known object, but that an earlier one may have: it has to be read.
var errUnsure = errors.New("the object may have changed")

// converge sends at most one write, and one read if the state of the object is unknown.
func (k *keeper[C, S]) converge(ctx context.Context, id Identity, c C) (Change, error) {
	if err := k.load(ctx, id); err != nil {
		return "", err
	}
	want, err := k.kind.build(ctx, id, c)
	if err != nil {
		return "", err
	}
	change, sent, err := k.write(ctx, id, want)
	if err != nil && k.kind.unnamed(want, err) {
		if want, err = k.kind.build(ctx, id, c); err != nil {
			return "", err
		}
		change, sent, err = k.write(ctx, id, want)
	}
	if err != nil {
		return "", err
	}
	e := Event{Change: change, Bytes: sent}
	k.kind.complete(&e)
	k.common.observe(e)
	return change, nil
}

// load reads the object, unless its state is known.
func (k *keeper[C, S]) load(ctx context.Context, id Identity) error {
	if k.kind.pruned() {
		k.live = nil
	}
	if k.live != nil || k.absent {
		return nil
	}
	// The first read need not be of etcd: the API server rejects a write that is based on an old version, and the watch continues from
	// that version. Later ones must be at least as new as what was observed.
	live, err := k.kind.get(ctx, id.Node, !k.read)
	switch {
	case err == nil:
		k.live = live
	case hasCode(err, http.StatusNotFound):
		k.absent = true
	default:
		return err
	}
	k.read, k.unsure = true, false
	return nil
}

// write creates or patches the object if necessary.
func (k *keeper[C, S]) write(ctx context.Context, id Identity, want *stored[S]) (Change, int, error) {
	if k.absent {
		body, err := k.kind.create(want, id.Node)
		if err != nil {
			return "", 0, err
		}
		meta, err := k.client.create(ctx, k.kind.path(""), k.kind.strict(want), body)
		if err != nil {
			return "", 0, err
		}
		k.remember(want, meta)
		return Created, len(body), nil
	}
	body, err := k.kind.patch(k.live, want)
	if err != nil {
		return "", 0, err
	}
	if body == nil && k.unsure {
		return "", 0, errUnsure
	}
	if body == nil {
		k.live.spec = want.spec // equal; share the discovered maps and release the decoded ones
		return Unchanged, 0, nil
	}
	meta, err := k.client.patch(ctx, k.kind.path(id.Node), k.kind.strict(want), body)
	if err != nil {
		return "", 0, err
	}
	k.remember(want, meta)
	return Patched, len(body), nil
}

// identify determines the identity of the worker, and discards the known object if the node has changed.
func (k *keeper[C, S]) identify(ctx context.Context) (Identity, error) {
	if k.identity.complete(k.common.owners) && (k.live != nil) {
		return k.identity, nil
	}
	id, err := k.common.identify(ctx)
	if err != nil {
		return Identity{}, fmt.Errorf("determine the node: %w", err)
	}
	if id.Node == "" {
		return Identity{}, errors.New("determine the node: neither the service account token nor the configuration names it")
	}
	if id.Node != k.identity.Node {
		k.forget()
	}
	k.identity = id
	return id, nil
}

func (k *keeper[C, S]) remember(want *stored[S], meta metadata) {
	k.live, k.absent, k.unsure = &stored[S]{metadata: meta, spec: want.spec}, false, false
}

func (k *keeper[C, S]) forget() { k.live, k.absent = nil, false }

// observe processes metadata from a watch or a read, and reports whether the object may differ from the last write. It ignores
// events of the worker's own writes, and older ones.
func (k *keeper[C, S]) observe(meta metadata) bool {
	if k.live == nil || !newer(meta.resourceVersion, k.live.resourceVersion) {
		return false
	}
	if meta.generation != k.live.generation || meta.uid != k.live.uid {
		k.forget()
		return true
	}
	k.live.metadata = meta // the spec is unchanged: only metadata was modified
	return true
}

// observeDeleted processes a deletion and reports whether it is new.
func (k *keeper[C, S]) observeDeleted(meta metadata) bool {
	if k.live == nil || !newer(meta.resourceVersion, k.live.resourceVersion) {
		return false
	}
	k.live, k.absent = nil, true
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

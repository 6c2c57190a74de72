package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/internal/turn"
)

const (
	// maxPublished is the maximum number of nodes whose holds are published, so that a fleet that is held costs etcd a few MB. The others are
	// counted.
	maxPublished = 500
	// publishAgain is how often holds that last are published again: the API server deletes Events after an hour.
	publishAgain = 30 * time.Minute
	// retryPublish is the delay after an error, during which nothing is published: an error must not cost each pass a request.
	retryPublish = time.Minute
	// eventsPerPage is the page size when the Events of an earlier process are listed.
	eventsPerPage = 500
)

// holds publishes what the controller leaves as it is on Nodes, as one Event for each Node and reason, which is deleted when it ends. It is
// safe for concurrent use.
type holds struct {
	client    client.Client
	live      client.Reader
	clock     clock.PassiveClock
	instance  string
	namespace string // of the manager

	listing turn.Lock // guards listed: the Events of an earlier process are known
	listed  bool

	mu        sync.Mutex
	published map[string]map[string]publishedHolds
	omitted   map[string]bool // nodes with holds that are not published
	counted   int             // that the Event about omitted nodes says
	countedAt time.Time
	retry     time.Time // after an error
}

// publishedHolds are the holds of an Event, and when it was written.
type publishedHolds struct {
	list []hold.Hold
	at   time.Time
}

func newHolds(c client.Client, live client.Reader, clock clock.PassiveClock, instance, namespace string) *holds {
	return &holds{
		client: c, live: live, clock: clock, instance: instance, namespace: namespace, listing: turn.New(),
		published: map[string]map[string]publishedHolds{}, omitted: map[string]bool{},
	}
}

// publish publishes the holds of a Node. It returns when to call it again; 0: not before they change. Errors are logged: a pass does not fail
// because users cannot read why it has left something.
func (h *holds) publish(ctx context.Context, node *corev1.Node, list []hold.Hold) (again time.Duration) {
	now := h.clock.Now()
	if wait := h.waits(now); wait > 0 {
		return wait
	}
	again, err := h.update(ctx, node, list, now)
	if err == nil {
		err = h.count(ctx, now)
	}
	if err == nil {
		return again
	}
	logf.FromContext(ctx).Error(err, "Cannot publish why keys stay as they are", "node", node.Name)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retry = now.Add(retryPublish)
	return retryPublish
}

// waits returns how long nothing is published after an error.
func (h *holds) waits(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.retry.Sub(now)
}

// of returns a copy of what is published of a node, nil if it must not be.
func (h *holds) of(node string, holds bool) map[string]publishedHolds {
	h.mu.Lock()
	defer h.mu.Unlock()
	has := h.published[node]
	if holds && has == nil && len(h.published) >= maxPublished {
		h.omitted[node] = true
		return nil
	}
	if delete(h.omitted, node); has == nil {
		has = map[string]publishedHolds{}
		if holds {
			h.published[node] = has // its place
		}
	}
	return maps.Clone(has)
}

// update writes and deletes the Events of a node. Only one pass over a node runs at a time.
func (h *holds) update(ctx context.Context, node *corev1.Node, list []hold.Hold, now time.Time) (again time.Duration, err error) {
	if err := h.list(ctx); err != nil {
		return 0, err
	}
	byReason := map[string][]hold.Hold{}
	for _, one := range list {
		byReason[one.Reason] = append(byReason[one.Reason], one)
	}
	has := h.of(node.Name, len(list) > 0)
	if has == nil {
		return publishAgain, nil
	}
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.published[node.Name] = has; len(has) == 0 {
			delete(h.published, node.Name)
		}
	}()
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		before, same := has[reason], byReason[reason]
		again = publishAgain
		if slices.EqualFunc(before.list, same, hold.Hold.Same) && now.Sub(before.at) < publishAgain {
			continue
		}
		for _, one := range same {
			if !slices.ContainsFunc(before.list, one.Same) {
				logf.FromContext(ctx).Info("Leaving keys as they are",
					"node", node.Name, "reason", reason, "until", one.Until.UTC(), "why", one.Why, "keys", hold.Some(one.Keys))
			}
		}
		if err := h.write(ctx, hold.Event(h.instance, node, same, now)); err != nil {
			return 0, err
		}
		has[reason] = publishedHolds{same, now}
	}
	for _, reason := range slices.Sorted(maps.Keys(has)) {
		if byReason[reason] != nil {
			continue
		}
		if err := h.delete(ctx, hold.EventName(h.instance, node.Name, reason)); err != nil {
			return 0, err
		}
		delete(has, reason)
	}
	return again, nil
}

// list reads the Events that an earlier process has published, so that this one deletes those that have ended.
func (h *holds) list(ctx context.Context) error {
	release, err := h.listing.Take(ctx)
	if err != nil || h.listed {
		if err == nil {
			release()
		}
		return err
	}
	defer release()
	found := map[string]map[string]publishedHolds{}
	for next := ""; ; {
		var page corev1.EventList
		err := h.live.List(ctx, &page, client.InNamespace(hold.Namespace), client.MatchingLabels{hold.Label: h.instance}, client.Limit(eventsPerPage), client.Continue(next))
		if err != nil {
			return fmt.Errorf("list Events with holds: %w", err)
		}
		for i := range page.Items {
			e := &page.Items[i]
			node := e.InvolvedObject.Name
			if list := hold.Read(e); len(list) > 0 && e.Name == hold.EventName(h.instance, node, e.Reason) {
				if found[node] == nil {
					found[node] = map[string]publishedHolds{}
				}
				found[node][e.Reason] = publishedHolds{list, e.LastTimestamp.Time}
			}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.published, h.listed = found, true
	return nil
}

// write replaces an Event, or creates it.
func (h *holds) write(ctx context.Context, e *corev1.Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode Event %s: %w", e.Name, err)
	}
	key := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}}
	if err = h.client.Patch(ctx, key, client.RawPatch(types.MergePatchType, body)); apierrors.IsNotFound(err) {
		err = h.client.Create(ctx, e)
	}
	if err != nil {
		return fmt.Errorf("write Event %s: %w", e.Name, err)
	}
	return nil
}

func (h *holds) delete(ctx context.Context, name string) error {
	err := h.client.Delete(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: hold.Namespace, Name: name}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Event %s: %w", name, err)
	}
	return nil
}

// count publishes the number of nodes whose holds are not published, at most once a minute unless there are none.
func (h *holds) count(ctx context.Context, now time.Time) error {
	n, due := h.due(now)
	if !due {
		return nil
	}
	e := hold.OmittedEvent(h.instance, h.namespace, n, maxPublished, now)
	if n == 0 {
		return h.delete(ctx, e.Name)
	}
	return h.write(ctx, e)
}

// due returns the number of nodes whose holds are not published, and whether this call has to publish it.
func (h *holds) due(now time.Time) (n int, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = len(h.omitted)
	age := now.Sub(h.countedAt)
	switch {
	case n == h.counted && (n == 0 || age < publishAgain), n > 0 && h.counted > 0 && age < retryPublish:
		return n, false
	}
	h.counted, h.countedAt = n, now
	return n, true
}

// forget deletes the Events about a deleted Node. What cannot be deleted now ends with the lifetime of Events.
func (h *holds) forget(ctx context.Context, name string) {
	h.mu.Lock()
	had := h.published[name]
	delete(h.published, name)
	delete(h.omitted, name)
	h.mu.Unlock()
	for reason := range had {
		if err := h.delete(ctx, hold.EventName(h.instance, name, reason)); err != nil {
			logf.FromContext(ctx).Info("Cannot delete an Event of a deleted node", "node", name, "error", err.Error())
		}
	}
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/worker/memory"
)

// publishing is a running Publisher. The zero value is none.
type publishing struct {
	contents chan publish.Content
	cancel   context.CancelFunc
	done     chan struct{}
}

func (p *publishing) stop() {
	if p.cancel != nil {
		p.cancel()
		<-p.done
	}
}

// hand passes the latest content to the Publisher and replaces content that it has not received yet.
func (p *publishing) hand(c publish.Content) {
	if p.contents == nil {
		memory.GiveBack()
		return
	}
	select {
	case <-p.contents:
	default:
	}
	p.contents <- c
}

// republish stops the running Publisher and starts one with the current configuration, unless publishing is disabled.
func (w *Worker) republish(ctx context.Context) error {
	w.publishing.stop()
	w.publishing = publishing{}
	w.found = false // publish the next result even if it has not changed
	if w.config.NoPublish {
		w.metrics.nothingToPublish()
		return nil
	}
	p, err := w.publisher()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	now := publishing{contents: make(chan publish.Content, 1), cancel: cancel, done: make(chan struct{})}
	go func() { p.Run(ctx, now.contents); close(now.done) }()
	w.publishing = now
	return nil
}

// publisher returns a Publisher. It does not connect to the cluster yet.
func (w *Worker) publisher() (*publish.Publisher, error) {
	client, token, err := w.connection.to(&w.opt)
	if errors.Is(err, publish.ErrNoCluster) {
		return nil, fmt.Errorf("%w; pass -kubeconfig, or -no-publish", err)
	}
	if err != nil {
		return nil, err
	}
	id := &identity{client: client, token: token, log: w.log, fallback: w.node}
	return publish.New(client, publish.Options{
		Namespace: namespace(&w.opt),
		Identify:  id.identify,
		Version:   build.Version(),
		Owners:    w.config.Owners,
		MaxBytes:  w.config.MaxFeatureBytes,
		Share:     w.config.ShareFeatures,
		Observe:   w.observe,
	}), nil
}

// observe logs and counts an event of the publisher.
func (w *Worker) observe(e publish.Event) {
	w.metrics.published(e)
	if e.Change != "" && e.Err == nil {
		w.trim(time.Now())
	}
	switch {
	case errors.Is(e.Err, context.Canceled):
	case e.Err != nil:
		w.log.Warn("Cannot publish the NodeFeature; retrying", "in", e.Retry.Round(time.Millisecond), "error", e.Err)
	case e.Notice != "":
		w.log.Warn("Publishing has a problem", "problem", e.Notice, "in", e.Retry.Round(time.Millisecond))
	case e.Change != publish.Unchanged:
		w.log.Info("Published the NodeFeature", "change", string(e.Change), "bytes", e.Bytes)
	}
	if len(e.Dropped) > 0 {
		w.log.Warn("Omitted features that exceed core.maxFeatureBytes", "features", e.Dropped)
	}
}

// trimInterval is the minimum time between two trims: on a node where pods often start and stop, they must not cost more than the
// discoveries.
const trimInterval = 250 * time.Millisecond

// trim returns unused memory to the system when the worker has no work. If it has just done so, it postpones the trim.
func (w *Worker) trim(now time.Time) {
	if now.Sub(w.trimmed) < trimInterval {
		if !w.untrimmed.Swap(true) {
			time.AfterFunc(trimInterval, func() { w.untrimmed.Store(false); memory.GiveBack() })
		}
		return
	}
	w.trimmed = now
	memory.GiveBack()
}

package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watchTimeout is how long the server is asked to keep a watch open. Liveness of the connection is checked below us, by
// HTTP/2 pings, so a long watch costs nothing and a short one costs a request.
const watchTimeout = time.Hour

// sighting is what a watch saw of the object.
type sighting struct {
	meta    metadata
	deleted bool
	// lost says that events may have been missed, and that the watch has just been opened anew: whatever happens from now
	// on will be seen, so a look at the object now leaves no gap.
	lost bool
	// err says that there is no watch at present.
	err error
}

// watcher follows one object by name, metadata only.
type watcher struct {
	client          *Client
	namespace, name string
	version         string // resource version to continue from; empty is now
	wait            *backoff
	out             chan<- sighting
}

// run follows the object until ctx is done. Each interruption is followed by back-off and a new watch.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.stream(ctx)
		if hasCode(err, http.StatusGone) {
			w.version = "" // what we knew is too long ago for the server
		} else if err != nil {
			w.send(ctx, sighting{err: err})
		}
		if hasCode(err, http.StatusForbidden) {
			w.wait.bound = checkInterval // only an administrator can change that
		}
		w.wait.sleep(ctx, err)
	}
}

// stream opens one watch and forwards what it sees until the server ends it. A nil error is the usual end.
func (w *watcher) stream(ctx context.Context) error {
	q := url.Values{
		"watch":               {"true"},
		"fieldSelector":       {"metadata.name=" + w.name},
		"allowWatchBookmarks": {"true"},
		"timeoutSeconds":      {strconv.Itoa(int(watchTimeout.Seconds()))},
	}
	lost := w.version == ""
	if !lost {
		q.Set("resourceVersion", w.version)
	}
	// Without an explicit resource version the server first sends what there is, and nothing if there is nothing.
	res, err := w.client.send(ctx, http.MethodGet, nodeFeature(w.namespace, "")+"?"+q.Encode(), metadataOnly, "", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if lost {
		w.send(ctx, sighting{lost: true})
	}
	decoder := json.NewDecoder(res.Body)
	for {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&event); err != nil {
			return w.ended(ctx, err)
		}
		if event.Type == "ERROR" {
			return errorEvent(event.Object)
		}
		var m metav1.PartialObjectMetadata
		if err := json.Unmarshal(event.Object, &m); err != nil {
			return fmt.Errorf("decode watch event: %w", err)
		}
		w.version = m.ResourceVersion
		w.wait.reset()
		if event.Type != "BOOKMARK" {
			w.send(ctx, sighting{meta: metadataOf(&m.ObjectMeta), deleted: event.Type == "DELETED"})
		}
	}
}

// ended tells the usual end of a watch from an interruption.
func (w *watcher) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || isEOF(err) {
		return nil //nolint:nilerr // the usual end
	}
	return fmt.Errorf("watch NodeFeature: %w", err)
}

func (w *watcher) send(ctx context.Context, s sighting) {
	select {
	case w.out <- s:
	case <-ctx.Done():
	}
}

func errorEvent(object []byte) error {
	var s metav1.Status
	if err := json.Unmarshal(object, &s); err != nil {
		return errors.New("watch NodeFeature: the server ended the watch with an error that cannot be read")
	}
	return &StatusError{Code: int(s.Code), Reason: string(s.Reason), Message: s.Message}
}

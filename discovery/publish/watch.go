package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watchTimeout is the maximum timeout of a watch, and half of it the minimum, so that the watches of workers that started together do not end
// together. HTTP/2 pings check the connection, so a long watch costs nothing and a short one costs a request.
const watchTimeout = time.Hour

// sighting is an event of a watcher.
type sighting struct {
	meta    metadata
	deleted bool
	// open means that a watch has just been opened. If lost is set too, events may have been missed before: reading the object now
	// leaves no gap.
	open, lost bool
	// err means that there is no watch at present.
	err error
}

// watcher watches the metadata of one object by name.
type watcher struct {
	client     *Client
	kind       string // for messages
	collection string // the path of all objects
	name       string
	version    string // resource version to continue from; empty: now
	wait       *backoff
	out        chan<- sighting
}

// run watches the object until ctx is done. After each interruption it backs off and opens a new watch; if the server says that the last
// version is too old for it, at once.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.stream(ctx)
		if hasCode(err, http.StatusGone) {
			known := w.version != ""
			if w.version = ""; known {
				continue
			}
		} else if err != nil {
			w.send(ctx, sighting{err: err})
		}
		if hasCode(err, http.StatusForbidden) {
			w.wait.bound = checkInterval // only an administrator can change that
		}
		w.wait.sleep(ctx, err)
	}
}

// stream opens one watch and forwards its events until the server ends it. The error is nil if it ends normally.
func (w *watcher) stream(ctx context.Context) error {
	q := url.Values{
		"watch":               {"true"},
		"fieldSelector":       {"metadata.name=" + w.name},
		"allowWatchBookmarks": {"true"},
		"timeoutSeconds":      {strconv.Itoa(int((1 + w.wait.rand()) / 2 * watchTimeout.Seconds()))},
	}
	lost := w.version == ""
	if !lost {
		q.Set("resourceVersion", w.version)
	}
	// Without an explicit resource version the server first sends the existing object, if any.
	res, err := w.client.send(ctx, http.MethodGet, w.collection+"?"+q.Encode(), metadataOnly, "", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	w.send(ctx, sighting{open: true, lost: lost})
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
			return w.failed(event.Object)
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

// ended distinguishes the normal end of a watch from an interruption.
func (w *watcher) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || isEOF(err) {
		return nil //nolint:nilerr // normal end
	}
	return fmt.Errorf("watch %s: %w", w.kind, err)
}

func (w *watcher) send(ctx context.Context, s sighting) {
	select {
	case w.out <- s:
	case <-ctx.Done():
	}
}

// failed returns the error in an event.
func (w *watcher) failed(object []byte) error {
	var s metav1.Status
	if err := json.Unmarshal(object, &s); err != nil {
		return fmt.Errorf("watch %s: the server ended the watch with an unknown error", w.kind)
	}
	return &StatusError{Code: int(s.Code), Reason: string(s.Reason), Message: s.Message}
}

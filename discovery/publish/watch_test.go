package publish

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// answers is an API server that answers requests for a watch in this order, and then no more.
type answers struct {
	list []answer
	note func(string)
}

// answer is a response. Its body ends, unless it is open.
type answer struct {
	code int
	body string
	open bool
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	from := "now"
	if v := r.URL.Query().Get("resourceVersion"); v != "" {
		from = v
	}
	synctest.Wait() // until earlier events are noted
	a.note("watch from " + from)
	if len(a.list) == 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	next := a.list[0]
	a.list = a.list[1:]
	body := io.Reader(strings.NewReader(next.body))
	if next.open {
		body = io.MultiReader(body, blocked{r.Context()})
	}
	return &http.Response{StatusCode: next.code, Body: io.NopCloser(body), Header: http.Header{}, Request: r}, nil
}

// blocked is a connection on which nothing arrives.
type blocked struct{ context.Context }

func (b blocked) Read([]byte) (int, error) {
	<-b.Done()
	return 0, b.Err()
}

func watched(kind, version string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"resourceVersion":%q}}}`, kind, version)
}

// TestAWatchIsOpenedAgain follows a watch from version 5 over an interruption.
func TestAWatchIsOpenedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		answers []answer
		want    []string
	}{
		"AfterItsNormalEnd": {
			[]answer{{code: 200, body: watched("MODIFIED", "6") + watched("BOOKMARK", "7")}, {code: 200, open: true}},
			[]string{"0s watch from 5", "0s open", "0s changed 6", "30s watch from 7", "30s open"},
		},
		"AfterADeletion": {
			[]answer{{code: 200, body: watched("DELETED", "6")}, {code: 200, open: true}},
			[]string{"0s watch from 5", "0s open", "0s deleted 6", "30s watch from 6", "30s open"},
		},
		"AfterFailures": {
			[]answer{{code: 503}, {code: 503}, {code: 503}, {code: 200, open: true}},
			[]string{
				"0s watch from 5", "0s API server answered 503 Service Unavailable", "30s watch from 5", "30s API server answered 503 Service Unavailable",
				"1m30s watch from 5", "1m30s API server answered 503 Service Unavailable", "3m30s watch from 5", "3m30s open",
			},
		},
		"SoonAfterAnEvent": {
			[]answer{{code: 503}, {code: 503}, {code: 200, body: watched("BOOKMARK", "6")}, {code: 503}, {code: 200, open: true}},
			[]string{
				"0s watch from 5", "0s API server answered 503 Service Unavailable", "30s watch from 5", "30s API server answered 503 Service Unavailable",
				"1m30s watch from 5", "1m30s open", "2m0s watch from 6", "2m0s API server answered 503 Service Unavailable", "3m0s watch from 6", "3m0s open",
			},
		},
		// Events may have been missed, but the watch has not failed.
		"FromNowIfItsVersionIsTooOld": {
			[]answer{{code: 410}, {code: 200, open: true}},
			[]string{"0s watch from 5", "0s watch from now", "0s open, events may be lost"},
		},
		"LaterIfEveryVersionIsTooOld": {
			[]answer{{code: 410}, {code: 410}, {code: 200, open: true}},
			[]string{"0s watch from 5", "0s watch from now", "30s watch from now", "30s open, events may be lost"},
		},
		"FromNowIfItsVersionIsTooOldMeanwhile": {
			[]answer{{code: 200, body: `{"type":"ERROR","object":{"code":410,"message":"too old"}}`}, {code: 200, open: true}},
			[]string{"0s watch from 5", "0s open", "0s watch from now", "0s open, events may be lost"},
		},
		"RarelyIfItIsForbidden": {
			[]answer{{code: 403}, {code: 200, open: true}},
			[]string{"0s watch from 5", "0s API server answered 403 Forbidden", "5m0s watch from 5", "5m0s open"},
		},
		"AfterNonsense": {
			[]answer{{code: 200, body: `{"type":"MODIFIED","object":7}`}, {code: 200, body: `{"type":"ERROR","object":7}`}, {code: 200, open: true}},
			[]string{
				"0s watch from 5", "0s open", "0s decode watch event", "30s watch from 5", "30s open", "30s watch NodeFeature", "1m30s watch from 5", "1m30s open",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var (
					mu  sync.Mutex
					got []string
				)
				start := time.Now()
				note := func(text string) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, time.Since(start).String()+" "+text)
				}
				ctx, cancel := context.WithCancel(t.Context())
				out := make(chan sighting)
				w := &watcher{
					client: &Client{base: "http://server", http: &http.Client{Transport: &answers{tc.answers, note}}}, kind: "NodeFeature", collection: collection, name: "n",
					version: "5", wait: &backoff{clock: clock.RealClock{}, rand: func() float64 { return 1 }, min: minReopen, max: maxBackoff}, out: out,
				}
				var running sync.WaitGroup
				running.Go(func() { w.run(ctx) })
				running.Go(func() {
					for {
						select {
						case s := <-out:
							note(describe(s))
						case <-ctx.Done():
							return
						}
					}
				})
				time.Sleep(time.Hour)
				cancel()
				running.Wait()
				if len(got) < len(tc.want) || !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
					t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
				}
			})
		})
	}
}

func describe(s sighting) string {
	switch {
	case s.err != nil:
		return s.err.Error()
	case s.lost:
		return "open, events may be lost"
	case s.open:
		return "open"
	case s.deleted:
		return "deleted " + s.meta.resourceVersion
	}
	return "changed " + s.meta.resourceVersion
}

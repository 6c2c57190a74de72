package servertime

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestAgeIsTheLesserOfTwoClocks reads the Date of a real server's responses.
func TestAgeIsTheLesserOfTwoClocks(t *testing.T) {
	const age = 20 * time.Minute
	start := time.Now().Truncate(time.Second)
	for name, tc := range map[string]struct{ own, server, want time.Duration }{
		"equal":             {0, 0, age},
		"program is ahead":  {time.Hour, 0, age},
		"server is ahead":   {0, time.Hour, age},
		"program is behind": {-time.Hour, 0, 0},
		"server is behind":  {0, -time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", start.Add(tc.server).UTC().Format(http.TimeFormat))
			}))
			defer server.Close()
			own := clocktesting.NewFakePassiveClock(start.Add(tc.own))
			c := New(own)
			if got := c.Age(start.Add(tc.own - time.Minute)); got != time.Minute {
				t.Errorf("before the first response: %s, want the age by the program's clock", got)
			}
			response, err := c.RoundTripper(server.Client().Transport).RoundTrip(httptest.NewRequest(http.MethodGet, server.URL, nil))
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			own.SetTime(start.Add(tc.own + 5*time.Second)) // the time since the response counts
			if got, want := c.Age(start.Add(5*time.Second-age)), tc.want; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

package refusals

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"
)

// The log must contain the reason why a scheduler was rejected, once per interval, and unknown clients must not be able to fill the
// log.
func TestRefusalsAreLoggedOnceForAWhile(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	r := New(log, clk)
	why := errors.New("TLS handshake: certificate has expired")
	for range 3 {
		r.Report("10.0.0.1", why)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "10.0.0.1") || !strings.Contains(lines[0], why.Error()) {
		t.Errorf("three refusals of one: %q", lines)
	}
	clk.SetTime(time.Unix(0, 0).Add(every))
	if r.Report("10.0.0.1", why); len(lines) != 2 {
		t.Errorf("after a while: %q", lines)
	}
	for i := range 1000 {
		r.Report(fmt.Sprintf("10.0.%d.%d", i/250, i%250), why)
	}
	if last := lines[len(lines)-1]; len(lines) != 2+maximum || !strings.Contains(last, "without logging") {
		t.Errorf("1,000 strangers make %d lines, of which the last is %q", len(lines), last)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.Count)
	found, err := registry.Gather()
	if err != nil || len(found) != 1 || found[0].GetMetric()[0].GetCounter().GetValue() != 1004 {
		t.Errorf("the count is %v (%v)", found, err)
	}
}

package inputs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/inputs/inputstest"
	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/rules/facts"
)

// TestReadersOfInputs asks before the nodes are known, and when Wait has returned.
func TestReadersOfInputs(t *testing.T) {
	const many = 50
	objects := []client.Object{published("own", "n"), node("")}
	for i := range many {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)}})
	}
	cache := inputstest.New(objects...)
	nodes := watched(t, inputs.Options{}, cache)
	if nodes.Synced() || nodes.NeedLeaderElection() {
		t.Error("it is synced before it starts, or waits for an election")
	}
	if _, err := nodes.Of(t.Context(), node("")); err != nil {
		t.Fatal(err)
	}
	if _, ok := nodes.Get("n"); ok || len(nodes.All()) != 0 {
		t.Error("a node is known before it was processed")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := nodes.Wait(ended); err == nil {
		t.Error("Wait returns without an error before the nodes are known")
	}

	nodes = running(t, inputs.Options{}, cache)
	if all := nodes.All(); !nodes.Synced() || len(all) != many+1 {
		t.Errorf("synced %t with %d nodes", nodes.Synced(), len(all))
	}
	if got := nodes.Node(t.Context(), "n"); got == nil || got.Name != "n" {
		t.Errorf("the Node is %v", got)
	}
	if got := nodes.Node(t.Context(), "other"); got != nil {
		t.Errorf("a Node that does not exist is %v", got)
	}
	if !nodes.Publishes("n") || nodes.Publishes("node-1") {
		t.Error("not n alone has features of its worker")
	}
}

// TestANodeThatCannotBeReadDelaysTheStartForAWhile: it is retried, the error is logged, and all else starts after a minute.
func TestANodeThatCannotBeReadDelaysTheStartForAWhile(t *testing.T) {
	for name, tc := range map[string]struct {
		server server
		logged string
	}{
		"Error": {server{away: errors.New("away")}, "away"},
		"Stale": {server{features: map[string]bool{"own/n": true}}, ""}, // the next event corrects it
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Now())
			nodes := watched(t, inputs.Options{Live: &tc.server, Clock: clock}, inputstest.New(node(""), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}}))
			var mu sync.Mutex
			var lines []string
			log := funcr.New(func(_, args string) {
				mu.Lock()
				defer mu.Unlock()
				lines = append(lines, args)
			}, funcr.Options{})
			ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), log))
			done := make(chan error, 1)
			go func() { done <- nodes.Start(ctx) }()
			testkit.Eventually(t, "a retry is waited for", func(context.Context) error {
				if !clock.HasWaiters() {
					return errors.New("nothing waits")
				}
				return nil
			})
			if nodes.Synced() {
				t.Error("it is synced")
			}
			clock.Step(time.Minute)
			if err := nodes.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if (len(lines) > 0) != (tc.logged != "") {
				t.Errorf("logged %q", lines)
			}
			for _, line := range lines {
				if !strings.Contains(line, tc.logged) {
					t.Errorf("logged %q", line)
				}
			}
		})
	}
}

// TestAStoppedStartIsNoError: the manager ends before the caches are filled.
func TestAStoppedStartIsNoError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	nodes := watched(t, inputs.Options{Live: &server{away: errors.New("away")}}, inputstest.New(node("")))
	if err := nodes.Start(ctx); err != nil || nodes.Synced() {
		t.Errorf("synced %t, %v", nodes.Synced(), err)
	}
}

// TestAStateIsRenewedWhenItsTimeEnds: no event says that a grace period is over.
func TestAStateIsRenewedWhenItsTimeEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		need  []string
		holds func(*inputs.State, time.Time) bool
	}{
		"TheWorkersObjectIsGone": {nil, func(s *inputs.State, _ time.Time) bool { return s.Held() }},
		"DevicesMayBeAway":       {[]string{facts.DeviceFeature}, func(s *inputs.State, now time.Time) bool { return s.Devices.Unseen(now) }},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Now())
			d := devices.New(devices.Options{Grace: time.Minute, Clock: clock})
			cache := inputstest.New(node(""))
			if tc.need != nil {
				cache.Put(published("own", "n"))
			}
			nodes := watched(t, inputs.Options{Grace: time.Minute, Clock: clock, Devices: d}, cache)
			nodes.Need(tc.need)
			if err := d.Replace(nil, ""); err != nil {
				t.Fatal(err)
			}
			changes := make(chan inputs.Change, 100)
			nodes.OnChange(func(c inputs.Change) { changes <- c })
			start(t, nodes)
			s, _ := nodes.Get("n")
			if !tc.holds(&s, clock.Now()) || !s.Next(clock.Now()).Equal(clock.Now().Add(time.Minute)) {
				t.Fatalf("the state does not end in a minute: %+v", s)
			}
			for len(changes) > 0 {
				<-changes
			}
			testkit.Eventually(t, "the wait for the end has begun", func(context.Context) error {
				if !clock.HasWaiters() {
					return errors.New("no timer runs")
				}
				return nil
			})
			clock.Step(time.Minute)
			<-changes
			if s, _ := nodes.Get("n"); tc.holds(&s, clock.Now()) || !s.Next(clock.Now()).IsZero() {
				t.Errorf("after the end: %+v", s)
			}
		})
	}
}

//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/test/scale/fleet"
	"github.com/assay-project/assay/test/stage"
)

// scenario is a sequence of faults that is the same in each run, on a control plane of its own.
type scenario struct {
	name  string
	adapt func(*options)
	run   func(*world, context.Context) error
}

// scenarios lists the scenarios in the order in which they run.
var scenarios = []scenario{
	{"takeover", func(o *options) { o.nodeCount = fewNodes }, (*world).takeovers},
	{"servers", func(o *options) { o.nodeCount = fewNodes }, (*world).withoutServers},
	{"certificates", func(o *options) {
		o.nodeCount, o.webhookArgs = fewNodes, []string{"--failure-policy=Fail", "--cert-life=" + certLife.String()}
	}, (*world).rotations},
	{"full", func(o *options) { o.nodeCount, o.etcdQuota = fewNodes, smallQuota }, (*world).fullEtcd},
	{"away", func(o *options) { o.nodeCount = o.awayNodes }, (*world).withoutAPI},
}

// fewNodes is the number of nodes of scenarios for which it does not matter.
const fewNodes = 20

// choose returns the scenarios of a list of names, "all" or "none".
func choose(names string) (chosen []scenario, err error) {
	switch names {
	case "all":
		return scenarios, nil
	case "none", "":
		return nil, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown scenario %q: use all, none, or some of takeover,servers,certificates,full,away", name)
		}
		chosen = append(chosen, scenarios[i])
	}
	return chosen, nil
}

// runScenario runs a scenario, and checks that nothing was violated.
func (w *world) runScenario(ctx context.Context, s scenario) error {
	w.say("scenario %s", s.name)
	err := s.run(w, ctx)
	if err == nil {
		err = w.settle(ctx)
	}
	violations, _ := w.checker.Violations()
	if len(violations) > 0 {
		err = errors.Join(violated(violations), err)
	}
	if err != nil {
		return fmt.Errorf("scenario %s: %w", s.name, err)
	}
	w.say("scenario %s: all Nodes as wanted, 0 violations", s.name)
	return nil
}

// takeoverRounds is how often each kind of takeover is measured.
const takeoverRounds = 5

// takeovers measures the time from the end of the leader until a change of a fact is on the Node.
func (w *world) takeovers(ctx context.Context) error {
	for _, kind := range []struct {
		name string
		end  func(*program) error
	}{
		{"clean (SIGTERM)", func(p *program) error { return w.Terminate(ctx, p.name) }},
		{"of a dead leader (SIGKILL)", func(p *program) error { return w.Kill(p.name) }},
	} {
		var all []time.Duration
		for range takeoverRounds {
			leader, err := w.waitLeader(ctx)
			if err != nil {
				return err
			}
			p, begin := w.programs[leader], time.Now()
			if err := p.end(func() error { return kind.end(p) }); err != nil {
				return err
			}
			n := w.nodes[len(all)]
			w.fleet.Set(n, w.model.fact(n.Name))
			if err := w.converge(ctx); err != nil {
				return err
			}
			all = append(all, time.Since(begin))
			if err := errors.Join(p.start(ctx), p.ready(ctx)); err != nil {
				return err
			}
		}
		slices.Sort(all)
		w.say("  takeover %s, until a change of a fact is on the Node: median %.1f s, longest %.1f s of %d",
			kind.name, all[len(all)/2].Seconds(), all[len(all)-1].Seconds(), len(all))
	}
	return nil
}

// objectsEach is the number of objects of each kind that are created.
const objectsEach = 50

// withoutServers kills webhook and extender, and creates pods, Nodes, Leases and rules.
func (w *world) withoutServers(ctx context.Context) error {
	for _, name := range []string{webhookName, extender} {
		if err := w.programs[name].end(func() error { return w.Kill(name) }); err != nil {
			return err
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}} // no controller manager creates it
	if err := w.client.Create(ctx, account); err != nil {
		return err
	}
	kinds := map[string]func(metav1.ObjectMeta) client.Object{
		"pods": func(m metav1.ObjectMeta) client.Object {
			return &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
		},
		"nodes":  func(m metav1.ObjectMeta) client.Object { m.Namespace = ""; return &corev1.Node{ObjectMeta: m} },
		"leases": func(m metav1.ObjectMeta) client.Object { return &coordinationv1.Lease{ObjectMeta: m} },
		"rules": func(m metav1.ObjectMeta) client.Object {
			rule := labelRule(m.Name, prefix+"never", "true")
			rule.Spec.Rules[0].MatchFeatures = exists(ownFeature, "never")
			return rule
		},
	}
	for _, kind := range []string{"pods", "nodes", "leases", "rules"} {
		var longest time.Duration
		for i := range objectsEach {
			object := kinds[kind](metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("without-servers-%d", i)})
			begin := time.Now()
			if err := errors.Join(w.client.Create(ctx, object), w.client.Delete(ctx, object)); err != nil {
				return fmt.Errorf("without webhook and extender: %s: %w", kind, err)
			}
			longest = max(longest, time.Since(begin))
		}
		w.say("  without webhook and extender: %d %s created and deleted, the slowest in %d ms", objectsEach, kind, longest.Milliseconds())
	}
	for _, name := range []string{webhookName, extender} {
		if err := w.programs[name].start(ctx); err != nil {
			return err
		}
	}
	return nil
}

const (
	// certLife is the validity of certificates; they are replaced after two thirds of it.
	certLife = 12 * time.Second
	// wantedRotations is the number of certificates to wait for.
	wantedRotations = 30
	// reviewers is the number of clients that apply rules meanwhile.
	reviewers = 4
)

// rotations applies rules while the certificate of the webhook is replaced. Its failure policy is Fail.
func (w *world) rotations(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var failed []error
	calls := 0
	var clients sync.WaitGroup
	for i := range reviewers {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				err := w.review(ctx, i, n%2 == 1)
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				calls++
				if err != nil {
					failed = append(failed, err)
				}
				mu.Unlock()
			}
		})
	}
	serials := map[string]bool{}
	for len(serials) <= wantedRotations {
		serial, err := w.serial(ctx)
		if err != nil {
			return err
		}
		serials[serial] = true
		if err := stage.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	stop()
	clients.Wait()
	w.say("  %d rotations of the certificate: %d of %d calls failed", len(serials)-1, len(failed), calls)
	if len(failed) > 0 {
		return failed[0]
	}
	return nil
}

// review creates a rule in a dry run: an invalid one must be rejected.
func (w *world) review(ctx context.Context, number int, invalid bool) error {
	rule := labelRule(fmt.Sprint("review-", number), prefix+"review", "true")
	if invalid {
		rule.Spec.Rules[0].Labels[prefix+"review"] = "{nope}"
	}
	err := w.client.Create(ctx, rule, client.DryRunAll)
	if invalid && !apierrors.IsInvalid(err) || !invalid && err != nil {
		return fmt.Errorf("invalid is %t, and the response is %w", invalid, err)
	}
	return nil
}

// serial returns the serial number of the webhook's certificate.
func (w *world) serial(ctx context.Context) (string, error) {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}} //nolint:gosec // it is only read
	conn, err := dialer.DialContext(ctx, "tcp", w.programs[webhookName].Serve)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return "", fmt.Errorf("a connection is a %T", conn)
	}
	return secure.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

const (
	// changesPerSecond is the normal load of a fleet.
	changesPerSecond = 5
	// normalTime is the duration for which the normal load is measured.
	normalTime = 30 * time.Second
	// returnTime is the duration after the return of the API servers within which all Nodes must be as wanted.
	returnTime = time.Minute
)

// withoutAPI takes all API servers away, while facts change, and measures how the workers come back.
func (w *world) withoutAPI(ctx context.Context) error {
	begin, link := time.Now(), w.links[workersLink]
	before, _ := link.Requests()
	if err := w.changes(ctx, normalTime); err != nil {
		return err
	}
	normal, _ := link.Requests()
	w.say("  normal: %d changes a second, %.1f requests of workers a second, at most %d",
		changesPerSecond, float64(normal-before)/normalTime.Seconds(), link.Peak(begin))
	for _, name := range []string{secondServer, kube.APIServer} {
		if err := w.Kill(name); err != nil {
			return err
		}
	}
	for _, p := range w.links {
		p.Refuse(true)
		p.Cut()
	}
	if err := w.changes(ctx, w.away); err != nil {
		return err
	}
	for _, name := range []string{kube.APIServer, secondServer} {
		if err := w.Restart(ctx, name); err != nil {
			return err
		}
	}
	for _, p := range w.links {
		p.Refuse(false)
	}
	back := time.Now()
	gone, _ := link.Requests()
	throttled := link.Throttled()
	if err := w.converge(ctx); err != nil {
		return err
	}
	took := time.Since(back)
	all, _ := link.Requests()
	w.say("  API servers away for %s, %d workers: %d ended; at most %d requests a second after the return, %d in all, %d rejected with 429; all Nodes as wanted after %.1f s",
		w.away, len(w.nodes), w.fleet.Exits(), link.Peak(back), all-gone, link.Throttled()-throttled, took.Seconds())
	if exits := w.fleet.Exits(); exits > 0 || took > returnTime {
		return fmt.Errorf("%d workers ended, and the Nodes were as wanted %s after the return, want 0 and at most %s", exits, took.Round(time.Second), returnTime)
	}
	return nil
}

// changes changes facts of one node after another for some time.
func (w *world) changes(ctx context.Context, d time.Duration) error {
	ticker := time.NewTicker(time.Second / changesPerSecond)
	defer ticker.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); {
		n := w.nextNode()
		w.fleet.Set(n, w.model.fact(n.Name))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// nextNode returns the nodes in turn.
func (w *world) nextNode() fleet.Node {
	n := w.nodes[w.turn%len(w.nodes)]
	w.turn++
	return n
}

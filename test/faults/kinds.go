//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/test/faults/proxy"
	"github.com/assay-project/assay/test/scale/fleet"
	"github.com/assay-project/assay/test/stage"
)

// kind is a kind of fault.
type kind struct {
	name string
	// weight is the relative frequency.
	weight int
	// slow kinds take up to the duration of a Lease to recover from, and are not part of the short form.
	slow bool
	// targets are what the fault can hit. Faults of one round have different targets; all parts of the control plane are one.
	targets []string
	// strike begins the fault.
	strike func(ctx context.Context, w *world, target string, r *rand.Rand) (*fault, error)
}

// fault is a fault that has begun.
type fault struct {
	kind, target string
	// what describes it.
	what string
	// heal ends it; nil if it ended by itself.
	heal func(ctx context.Context) error
	// after follows when the Nodes have converged, which they must do once more; can be nil.
	after func() error
	// effect describes what it did, after it was healed; can be nil.
	effect func() string
}

// controlPlane is the target of faults in the API servers and etcd. There is one at a time: one API server is always there to show
// the checker each version of a Node, and Assay does not promise to work without any.
const controlPlane = "the control plane"

// allLinks are the proxies: one in front of the workers, and one of each program.
var allLinks = append([]string{workersLink}, programNames...)

// kinds lists all kinds of faults.
var kinds = slices.Concat(linkKinds, programKinds, serverKinds, dataKinds)

// linkKinds are faults between a program and the API servers.
var linkKinds = []kind{
	{name: "delay", weight: 3, targets: allLinks, strike: func(_ context.Context, w *world, target string, r *rand.Rand) (*fault, error) {
		d := time.Duration(20+r.IntN(400)) * time.Millisecond
		return w.onLink(target, fmt.Sprintf("delay of %s", d), func(p *proxy.Proxy) { p.Delay(d) }, func(p *proxy.Proxy) { p.Delay(0) }), nil
	}},
	{name: "cut", weight: 4, targets: allLinks, strike: func(_ context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		return &fault{what: fmt.Sprintf("%d connections are cut", w.links[target].Cut())}, nil
	}},
	{name: "refuse", weight: 3, targets: allLinks, strike: func(_ context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		return w.onLink(target, "connections are cut and refused", func(p *proxy.Proxy) { p.Refuse(true); p.Cut() }, func(p *proxy.Proxy) { p.Refuse(false) }), nil
	}},
	{name: "half-open", weight: 4, targets: allLinks, strike: func(_ context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		return w.onLink(target, "connections stay open, and nothing arrives", (*proxy.Proxy).Freeze, (*proxy.Proxy).Thaw), nil
	}},
	{name: "truncate", weight: 3, targets: allLinks, strike: func(_ context.Context, w *world, target string, r *rand.Rand) (*fault, error) {
		n := 1 + r.IntN(20000)
		return w.onRequests(target, fmt.Sprintf("responses end after %d bytes", n), proxy.Fault{Share: 0.5, Truncate: n}), nil
	}},
	{name: "error", weight: 6, targets: allLinks, strike: func(_ context.Context, w *world, target string, r *rand.Rand) (*fault, error) {
		codes := []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
		f := proxy.Fault{Status: codes[r.IntN(len(codes))], Share: []float64{0.3, 1}[r.IntN(2)]}
		return w.onRequests(target, fmt.Sprintf("%.0f %% of requests fail with %d", 100*f.Share, f.Status), f), nil
	}},
	{name: "lose", weight: 4, targets: allLinks, strike: func(_ context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		return w.onRequests(target, "writes are carried out, and half of their responses are lost", proxy.Fault{Share: 0.5, Lose: true}), nil
	}},
	{name: "late", weight: 6, targets: controllers, strike: late},
	{name: "expire", weight: 3, targets: allLinks, strike: func(_ context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		return w.onRequests(target, "watches are cut, and cannot be continued (410)", proxy.Fault{Share: 1, Expired: true}), nil
	}},
	{name: "switch", weight: 3, targets: allLinks, strike: func(_ context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		return w.onLink(target, "connections move to the second API server", func(p *proxy.Proxy) { p.Prefer(1); p.Cut() }, func(p *proxy.Proxy) { p.Prefer(0); p.Cut() }), nil
	}},
}

// onLink returns a fault that has begun in a proxy. Both ends of it leave requests undisturbed.
func (w *world) onLink(target, what string, begin, end func(*proxy.Proxy)) *fault {
	p := w.links[target]
	before, disturbed := p.Requests()
	begin(p)
	return &fault{
		what: what,
		heal: func(context.Context) error { end(p); return nil },
		effect: func() string {
			all, hit := p.Requests()
			if hit > disturbed {
				return fmt.Sprintf("%d of %d requests disturbed", hit-disturbed, all-before)
			}
			return fmt.Sprintf("%d requests meanwhile", all-before)
		},
	}
}

// onRequests returns a fault of requests. Watches that are open would not be disturbed, and are cut.
func (w *world) onRequests(target, what string, f proxy.Fault) *fault {
	return w.onLink(target, what, func(p *proxy.Proxy) {
		p.Disturb(f)
		if f.Expired || f.Truncate > 0 {
			p.Cut()
		}
	}, func(p *proxy.Proxy) { p.Disturb(proxy.Fault{}) })
}

// late makes writes to Nodes arrive after later ones of the same facts.
func late(_ context.Context, w *world, target string, r *rand.Rand) (*fault, error) {
	some, p := pick(r, w.calm(2), changesPerRound), w.links[target]
	f := w.onRequests(target, "writes to Nodes seem to fail, and arrive after later ones", proxy.Fault{Share: 1, Late: true})
	w.changing = append(append(w.changing, some...), some...)
	w.touch(some)
	end := f.heal
	f.heal = func(ctx context.Context) error {
		err := end(ctx)
		w.touch(some)
		return err
	}
	f.after = func() error {
		done, rejected, err := p.Deliver()
		if done+rejected > 0 {
			w.say("  late writes of %s: %d carried out, %d rejected", target, done, rejected)
		}
		return err
	}
	return f, nil
}

// programKinds are faults of programs.
var programKinds = []kind{
	{name: "kill", weight: 5, targets: []string{webhookName, extender}, strike: killed},
	{name: "kill", weight: 3, slow: true, targets: controllers, strike: killed},
	{name: "terminate", weight: 5, targets: programNames, strike: func(ctx context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		p := w.programs[target]
		what := "SIGTERM" + w.role(ctx, target)
		err := p.end(func() error {
			ctx, cancel := context.WithTimeout(ctx, gracePeriod)
			defer cancel()
			if w.Terminate(ctx, target) == nil {
				return nil
			}
			what += fmt.Sprintf("; it still runs after %s: SIGKILL", gracePeriod)
			return w.Kill(target)
		})
		return &fault{what: what, heal: p.start}, err
	}},
	{name: "stop", weight: 5, targets: programNames, strike: func(ctx context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		what := "SIGSTOP, then SIGCONT" + w.role(ctx, target)
		return &fault{what: what, heal: func(context.Context) error { return w.Resume(target) }}, w.Pause(target)
	}},
	{name: "stop past the Lease", weight: 2, slow: true, targets: controllers, strike: stoppedPastLease},
}

// gracePeriod is the default time of a kubelet between SIGTERM and SIGKILL.
const gracePeriod = 30 * time.Second

func killed(ctx context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
	p := w.programs[target]
	what := "SIGKILL" + w.role(ctx, target)
	err := p.end(func() error { return w.Kill(target) })
	return &fault{what: what, heal: p.start}, err
}

// role returns " of the leader" if the program is.
func (w *world) role(ctx context.Context, name string) string {
	switch {
	case !slices.Contains(controllers, name):
		return ""
	case w.leader(ctx) == name:
		return ", of the leader"
	}
	return ", of the standby"
}

// stoppedPastLease stops a controller until another one must have taken over, and has written facts that the first one does not know.
func stoppedPastLease(ctx context.Context, w *world, target string, r *rand.Rand) (*fault, error) {
	what := "SIGSTOP until the Lease has expired, then SIGCONT" + w.role(ctx, target)
	if err := w.Pause(target); err != nil {
		return nil, err
	}
	some := pick(r, w.calm(1), changesPerRound)
	w.changing = append(w.changing, some...)
	return &fault{what: what, heal: func(ctx context.Context) error {
		err := stage.Sleep(ctx, leaseDuration)
		w.touch(some)
		return errors.Join(err, stage.Sleep(ctx, writeTime), w.Resume(target))
	}}, nil
}

// writeTime is usually enough for a changed fact to be on its Node.
const writeTime = time.Second

// leaseDuration is longer than the default duration of the leader's Lease.
const leaseDuration = 17 * time.Second

// serverKinds are faults of the control plane.
var serverKinds = []kind{
	{name: "stop", weight: 4, targets: servers, strike: func(_ context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		return &fault{what: "SIGSTOP, then SIGCONT", heal: func(context.Context) error { return w.Resume(target) }}, w.Pause(target)
	}},
	{name: "kill", weight: 3, targets: servers, strike: func(_ context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		return &fault{what: "SIGKILL", heal: func(ctx context.Context) error { return w.Restart(ctx, target) }}, w.Kill(target)
	}},
	{name: "no space", weight: 2, targets: []string{kube.Etcd}, strike: func(ctx context.Context, w *world, _ string, _ *rand.Rand) (*fault, error) {
		return &fault{what: "etcd has no space left, and accepts no write", heal: func(ctx context.Context) error { return w.alarm(ctx, false) }}, w.alarm(ctx, true)
	}},
	{name: "stale", weight: 4, targets: controllers, strike: func(_ context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		w.etcd.Freeze()
		p := w.links[target]
		p.Prefer(1)
		p.Cut()
		return &fault{what: "reads from an API server that hears nothing from etcd", heal: func(context.Context) error {
			w.etcd.Thaw()
			p.Prefer(0)
			return nil
		}}, nil
	}},
}

// dataKinds are faults that clients and workers cause.
var dataKinds = []kind{
	{name: "workers end", weight: 4, targets: []string{workersLink}, strike: func(ctx context.Context, w *world, _ string, r *rand.Rand) (*fault, error) {
		some := pick(r, w.nodes, 1+len(w.nodes)/10)
		w.fleet.End(some)
		generation := r.IntN(1 << 30)
		return &fault{what: fmt.Sprintf("%d workers end, and are replaced", len(some)), heal: func(ctx context.Context) error {
			return w.launch(ctx, some, generation)
		}}, nil
	}},
	{name: "delete NodeFeatures", weight: 3, targets: []string{workersLink}, strike: func(ctx context.Context, w *world, _ string, r *rand.Rand) (*fault, error) {
		some := pick(r, w.deletable(), 1+len(w.nodes)/10)
		for _, n := range some {
			w.deletions[n.Name]++
		}
		return &fault{what: fmt.Sprintf("another client deletes the NodeFeatures of %d workers", len(some)), heal: w.deleteFeatures(ctx, some)}, nil
	}},
	{name: "delete NodeFeatures", weight: 4, targets: []string{workersLink}, strike: func(ctx context.Context, w *world, _ string, r *rand.Rand) (*fault, error) {
		some := pick(r, w.nodes, 1+len(w.nodes)/10)
		w.fleet.End(some)
		deleted := w.deleteFeatures(ctx, some)
		return &fault{what: fmt.Sprintf("%d workers end, and another client deletes their NodeFeatures", len(some)), heal: func(ctx context.Context) error {
			return errors.Join(deleted(ctx), w.launch(ctx, some, 0))
		}}, nil
	}},
	{name: "take the Lease", weight: 2, slow: true, targets: controllers, strike: func(ctx context.Context, w *world, target string, _ *rand.Rand) (*fault, error) {
		return &fault{what: "another client takes the Lease"}, w.persist(ctx, func(ctx context.Context) error { // the leader renews it
			lease := &coordinationv1.Lease{}
			if err := w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: nfdv1alpha1.LeaseName("")}, lease); err != nil {
				return err
			}
			lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("another client"), ptr.To[int32](5)
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
			return w.client.Update(ctx, lease)
		})
	}},
	{name: "empty the certificate", weight: 2, targets: []string{webhookName}, strike: func(ctx context.Context, w *world, _ string, _ *rand.Rand) (*fault, error) {
		emptied := w.inBackground(ctx, func(ctx context.Context) error {
			secret := &corev1.Secret{}
			if err := w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: stage.CertSecret}, secret); err != nil {
				return err
			}
			secret.Data = nil
			return w.client.Update(ctx, secret)
		})
		return &fault{what: "another client empties the Secret of the certificate", heal: emptied}, nil
	}},
}

// deleteFeatures deletes the NodeFeatures of workers. The returned function waits until they are deleted.
func (w *world) deleteFeatures(ctx context.Context, nodes []fleet.Node) func(context.Context) error {
	return w.inBackground(ctx, func(ctx context.Context) error {
		for ; len(nodes) > 0; nodes = nodes[1:] { // not once more in another attempt: a running worker has published it again
			object := &nfdv1alpha1.NodeFeature{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nodes[0].Name}}
			if err := w.client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	})
}

// launch starts the workers of nodes again. They do not know of earlier repairs.
func (w *world) launch(ctx context.Context, nodes []fleet.Node, generation int) error {
	for _, n := range nodes {
		delete(w.deletions, n.Name)
		if err := w.fleet.Launch(ctx, n, generation); err != nil {
			return err
		}
	}
	return nil
}

// freeRepairs is how often within an hour a worker publishes a deleted NodeFeature again at once. Later repairs take minutes.
const freeRepairs = 3

// deletable returns the nodes whose worker publishes a deleted NodeFeature at once.
func (w *world) deletable() []fleet.Node {
	return slices.DeleteFunc(slices.Clone(w.nodes), func(n fleet.Node) bool { return w.deletions[n.Name] == freeRepairs })
}

// pick returns n elements, or all.
func pick(r *rand.Rand, from []fleet.Node, n int) []fleet.Node {
	out := make([]fleet.Node, 0, n)
	for _, i := range r.Perm(len(from))[:min(n, len(from))] {
		out = append(out, from[i])
	}
	return out
}

// inBackground runs a function that the faults may delay, and retries it until it succeeds. The returned function waits for that.
func (w *world) inBackground(ctx context.Context, do func(context.Context) error) func(context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- w.persist(ctx, do) }()
	return func(context.Context) error { return <-ended }
}

// persist retries a function until it succeeds.
func (w *world) persist(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.patience, fmt.Errorf("waited %s", w.patience))
	defer cancel()
	for {
		once, done := context.WithTimeout(ctx, attemptTimeout)
		err := do(once)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		case <-time.After(reconnect):
		}
	}
}

// attemptTimeout is the timeout of one attempt of persist: a paused server answers nothing.
const attemptTimeout = 10 * time.Second

// group returns what a fault of a target excludes in the same round.
func group(k *kind, target string) string {
	if slices.Contains(servers, target) || k.name == "stale" || strings.HasPrefix(k.name, "take") {
		return controlPlane
	}
	return target
}

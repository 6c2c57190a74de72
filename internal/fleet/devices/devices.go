// Package devices follows the devices of DRA drivers in ResourceSlices, for the inputs of rules.
package devices

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/internal/fleet/resourceslice"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/facts"
)

// recheck is the time until a cluster is asked again for ResourceSlices that it does not serve, or that this process may not read.
const recheck = time.Minute

// Options configure which devices count, and for how long.
type Options struct {
	// Client lists and watches ResourceSlices.
	Client client.WithWatch
	// Counts reports whether the devices of a driver count.
	Counts func(driver string) bool
	// Grace is how long the devices of a pool count after its slices were deleted or became incomplete.
	Grace time.Duration
	// Clock measures Grace; nil: the real one.
	Clock clock.Clock
}

// Devices follows the devices of all nodes, once something needs them. It is safe for concurrent use.
type Devices struct {
	opt     Options
	changed []func(node string)
	failed  []func()
	needed  chan struct{} // closed by Need
	once    sync.Once

	mu     sync.Mutex
	since  time.Time              // of Need
	absent bool                   // the cluster does not serve ResourceSlices
	why    string                 // see Problem
	ignore map[string]string      // by name of a slice that no rule reads: why
	synced bool                   // every slice and every DeviceTaintRule has been read once
	slices map[string]stored      // by name
	nodes  map[string]*remembered // by name
	// spread are the pools with slices that are not of one node, and spreads counts the slices of each of them.
	spread  map[resourceslice.PoolKey]spread
	spreads resourceslice.Spreads
	listed  bool // ResourceSlices were read once
	taints  taints
	left    []emptied // nodes without slices that were not evaluated, by time
}

// State is what is known of the devices of a node.
type State struct {
	// Facts are the features; nil: they are unknown, because nothing needs them or they could not be read yet.
	Facts *facts.Facts
	// HeldUntil is the end of the grace period of a pool that is incomplete or gone; zero: none is.
	HeldUntil time.Time
	// UnseenUntil is the time until which this process may lack pools of the node that an earlier one has seen. Unread is set while
	// ResourceSlices cannot be read: the end is then unknown, and UnseenUntil is the earliest possible one.
	UnseenUntil time.Time
	Unread      bool
	// Incomplete are the drivers of the pools that are held, sorted.
	Incomplete []string
}

// Unseen reports whether this process may lack pools of the node that an earlier one has seen.
func (s *State) Unseen(now time.Time) bool { return s.Unread || now.Before(s.UnseenUntil) }

// New returns Devices that read nothing yet.
func New(opt Options) *Devices {
	if opt.Clock == nil {
		opt.Clock = clock.RealClock{}
	}
	if opt.Counts == nil {
		opt.Counts = func(string) bool { return true }
	}
	return &Devices{
		opt: opt, needed: make(chan struct{}), slices: map[string]stored{}, nodes: map[string]*remembered{}, ignore: map[string]string{},
		spread: map[resourceslice.PoolKey]spread{}, spreads: resourceslice.Spreads{},
	}
}

// OnProblem registers f, which is called after Problem has changed. It must return quickly.
func (d *Devices) OnProblem(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = append(d.failed, f)
}

// Problem returns why the devices that one of the features comes from cannot be read; empty: they can, or none does.
func (d *Devices) Problem(features []string) string {
	if d == nil || !slices.ContainsFunc(features, facts.IsDevices) {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(d.why, d.taints.why)
}

// setProblem stores the result of Served.
func (d *Devices) setProblem(err error, absent bool) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	d.mu.Lock()
	changed, failed := d.why != why, d.failed
	d.why, d.absent = why, absent
	d.mu.Unlock()
	if changed {
		for _, f := range failed {
			f()
		}
	}
}

// OnChange registers f, which is called with a node after each change of its slices. It must return quickly.
func (d *Devices) OnChange(f func(node string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = append(d.changed, f)
}

// Need starts reading if one of the features comes from ResourceSlices. Without such a call, Devices sends no request. It reports whether this
// call was the first one that did: every State of before is outdated.
func (d *Devices) Need(features []string) (began bool) {
	if d == nil || !slices.ContainsFunc(features, facts.IsDevices) {
		return false
	}
	d.once.Do(func() {
		d.mu.Lock()
		d.since = d.opt.Clock.Now()
		d.mu.Unlock()
		close(d.needed)
		began = true
	})
	return began
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica evaluates rules.
func (d *Devices) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable: once Need was called, it follows the ResourceSlices until the context ends.
func (d *Devices) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.needed:
	}
	log := logf.FromContext(ctx).WithName("devices")
	for logged := ""; ; {
		err, absent := Served(ctx, d.opt.Client)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was stopped
		}
		if d.setProblem(err, absent); err == nil {
			break
		}
		if err.Error() != logged {
			logged = err.Error()
			log.Info("Cannot read ResourceSlices: the features dra.device and dra.driver are absent", "error", logged)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.opt.Clock.After(recheck):
		}
	}
	d.mu.Lock()
	d.taints.pending = true
	d.mu.Unlock()
	go d.followTaints(ctx)
	log.Info("Reading ResourceSlices, because a rule or requirement reads the devices of DRA drivers")
	toolscache.NewReflectorWithOptions(d.source(), &resourcev1.ResourceSlice{}, d, toolscache.ReflectorOptions{Name: "resourceslices"}).
		RunWithContext(ctx)
	return nil
}

// Served returns an error if the cluster does not serve ResourceSlices, which is then absent, or if this process may not read them. Other
// errors mean nothing: a later request may succeed.
func Served(ctx context.Context, c client.Reader) (err error, absent bool) {
	err = c.List(ctx, &resourcev1.ResourceSliceList{}, client.Limit(1))
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return resourceslice.ErrNotServed, true
	case apierrors.IsForbidden(err):
		return fmt.Errorf("ResourceSlices cannot be read: %w", err), false
	}
	return nil, false
}

func (d *Devices) source() toolscache.ListerWatcher {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &resourcev1.ResourceSliceList{}
			return list, d.opt.Client.List(ctx, list, &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return d.opt.Client.Watch(ctx, &resourcev1.ResourceSliceList{}, &client.ListOptions{Raw: &o})
		},
	}
}

func (d *Devices) notify(nodes ...string) {
	d.mu.Lock()
	changed := d.changed
	d.mu.Unlock()
	for _, node := range nodes {
		for _, f := range changed {
			f(node)
		}
	}
}

// Forget drops what is remembered of a deleted Node. Pools that a Node owns stay for the grace period: a list may have lacked that Node, or
// they are those of the next one of this name.
func (d *Devices) Forget(node string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.nodes[node]; m != nil {
		m.uid = ""
		maps.DeleteFunc(m.pools, func(_ resourceslice.PoolKey, p *pool) bool { return p.owner == "" })
		if len(m.slices) == 0 && len(m.pools) == 0 {
			delete(d.nodes, node)
		}
		d.remember(node)
	}
}

// Of returns the state of the devices of a Node. A pool that is incomplete or gone keeps its last complete content for Options.Grace, so
// that a driver can restart; a complete pool with fewer devices counts at once.
func (d *Devices) Of(node string, uid types.UID) State {
	if d == nil {
		return State{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		return State{}
	}
	now := d.opt.Clock.Now()
	s := State{UnseenUntil: d.since.Add(d.opt.Grace)}
	if !d.synced && !d.absent {
		s.Unread, s.UnseenUntil = true, now.Add(d.opt.Grace)
	}
	m := d.of(node)
	if m.uid != uid {
		m.uid = uid
		maps.DeleteFunc(m.pools, func(_ resourceslice.PoolKey, p *pool) bool { return p.owner != uid }) // those of another machine with this name
	}
	if !d.synced {
		return s
	}
	list := d.observe(m)
	m.begin(now)
	for key, p := range m.pools {
		i := slices.IndexFunc(list, func(l facts.Pool) bool { return l.Driver == key.Driver && l.Name == key.Name })
		if i >= 0 && list[i].Complete {
			continue
		}
		until := p.since.Add(d.opt.Grace)
		if !now.Before(until) {
			delete(m.pools, key)
			continue
		}
		held := facts.Pool{Driver: key.Driver, Name: key.Name, Devices: p.Devices}
		if i >= 0 {
			held.TooMany = list[i].TooMany
			list[i] = held
		} else {
			list = append(list, held)
		}
		if s.HeldUntil.IsZero() || until.Before(s.HeldUntil) {
			s.HeldUntil = until
		}
		s.Incomplete = append(s.Incomplete, key.Driver)
	}
	slices.Sort(s.Incomplete)
	s.Incomplete = slices.Compact(s.Incomplete)
	slices.SortFunc(list, compare)
	if m.facts == nil || !slices.EqualFunc(list, m.listed, same) {
		m.facts, m.listed = facts.FromPools(list, d.taints.list, nodefeature.Interner()), list
	}
	s.Facts = m.facts
	return s
}

// Read reports whether the ResourceSlices were read.
func (d *Devices) Read() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.synced
}

// Package devices follows the devices of DRA drivers in ResourceSlices, for the inputs of rules.
package devices

import (
	"cmp"
	"context"
	"errors"
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
	synced bool                   // every slice has been read once
	slices map[string]placed      // by name
	nodes  map[string]*remembered // by name
	left   []departed             // nodes without slices that were not evaluated, by time
}

// departed is a node that lost its last slice before it was evaluated.
type departed struct {
	node string
	at   time.Time
}

// placed is a slice of a node.
type placed struct {
	node, version string    // the resourceVersion of the object
	owner         types.UID // of the Node that owns it; empty: none does
	slice         facts.Slice
}

// remembered is what is known of a node.
type remembered struct {
	uid    types.UID // of the Node that the pools were seen on; empty: none was evaluated yet
	slices map[string]facts.Slice
	pools  map[poolKey]*pool
	facts  *facts.Facts // of listed
	listed []facts.Pool
}

type poolKey struct{ driver, name string }

// pool is the last complete content of a pool, whether it is complete now, and since when it was seen not to be; zero: it is, or was.
type pool struct {
	facts.Pool
	since time.Time
	owner types.UID // of the Node that owns its slices; empty: not all have the same one
}

// State is what is known of the devices of a node.
type State struct {
	// Facts are the features; nil: they are unknown, because nothing needs them or they could not be read yet.
	Facts *facts.Facts
	// Held is the rest of the grace period of a pool that is incomplete or gone; 0: none is.
	Held time.Duration
	// Unseen is the time for which this process may lack pools of the node that an earlier one has seen; 0: it has waited long enough. It
	// does not end while ResourceSlices cannot be read.
	Unseen time.Duration
	// Incomplete are the drivers of the pools that are held, sorted.
	Incomplete []string
}

// New returns Devices that read nothing yet.
func New(opt Options) *Devices {
	if opt.Clock == nil {
		opt.Clock = clock.RealClock{}
	}
	if opt.Counts == nil {
		opt.Counts = func(string) bool { return true }
	}
	return &Devices{opt: opt, needed: make(chan struct{}), slices: map[string]placed{}, nodes: map[string]*remembered{}, ignore: map[string]string{}}
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
	return d.why
}

// setProblem stores the result of served.
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

// Need starts reading if one of the features comes from ResourceSlices. Without such a call, Devices sends no request.
func (d *Devices) Need(features []string) {
	if d == nil || !slices.ContainsFunc(features, facts.IsDevices) {
		return
	}
	d.once.Do(func() {
		d.mu.Lock()
		d.since = d.opt.Clock.Now()
		d.mu.Unlock()
		close(d.needed)
	})
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
		err, absent := d.served(ctx)
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
	log.Info("Reading ResourceSlices, because a rule or requirement reads the devices of DRA drivers")
	toolscache.NewReflectorWithOptions(d.source(), &resourcev1.ResourceSlice{}, d, toolscache.ReflectorOptions{Name: "resourceslices"}).
		RunWithContext(ctx)
	return nil
}

// served returns an error if the cluster does not serve ResourceSlices, or if this process may not read them. Other errors are left to
// the reflector, which tries again.
func (d *Devices) served(ctx context.Context) (err error, absent bool) {
	err = d.opt.Client.List(ctx, &resourcev1.ResourceSliceList{}, client.Limit(1))
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return fmt.Errorf("the cluster does not serve ResourceSlices of %s, which Kubernetes 1.34 and newer have", resourcev1.SchemeGroupVersion), true
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

// Add implements cache.ReflectorStore.
func (d *Devices) Add(object any) error { return d.Update(object) }

// Update implements cache.ReflectorStore. It keeps the parts that rules read, not the object.
func (d *Devices) Update(object any) error {
	s, ok := object.(*resourcev1.ResourceSlice)
	if !ok {
		return fmt.Errorf("expected a ResourceSlice, found %T", object)
	}
	d.mu.Lock()
	changed := d.put(s)
	d.remember(changed...)
	d.mu.Unlock()
	d.notify(changed...)
	return nil
}

// Delete implements cache.ReflectorStore.
func (d *Devices) Delete(object any) error {
	s, ok := object.(*resourcev1.ResourceSlice)
	if !ok {
		return fmt.Errorf("expected a ResourceSlice, found %T", object)
	}
	d.mu.Lock()
	changed := d.drop(s.Name)
	d.remember(changed...)
	d.mu.Unlock()
	d.notify(changed...)
	return nil
}

// Replace implements cache.ReflectorStore.
func (d *Devices) Replace(objects []any, _ string) error {
	d.mu.Lock()
	changed, listed := map[string]bool{}, map[string]bool{}
	for _, object := range objects {
		if s, ok := object.(*resourcev1.ResourceSlice); ok {
			listed[s.Name] = true
			for _, node := range d.put(s) {
				changed[node] = true
			}
		}
	}
	for name := range d.ignore {
		if !listed[name] {
			delete(d.ignore, name)
		}
	}
	for name := range d.slices {
		if !listed[name] {
			for _, node := range d.drop(name) {
				changed[node] = true
			}
		}
	}
	d.remember(slices.Sorted(maps.Keys(changed))...)
	if !d.synced { // what no slice describes has no devices, and this was unknown
		d.synced = true
		for node := range d.nodes {
			changed[node] = true
		}
	}
	d.mu.Unlock()
	d.notify(slices.Sorted(maps.Keys(changed))...)
	return nil
}

// Resync implements cache.ReflectorStore.
func (d *Devices) Resync() error { return nil }

// put stores a slice and returns the nodes that it described and describes.
func (d *Devices) put(s *resourcev1.ResourceSlice) (changed []string) {
	slice, node := resourceslice.Of(s, nodefeature.Interner())
	switch {
	case node == "":
		d.ignore[s.Name] = IgnoredShared
		return d.remove(s.Name)
	case !d.opt.Counts(slice.Driver):
		d.ignore[s.Name] = IgnoredDriver
		return d.remove(s.Name)
	}
	delete(d.ignore, s.Name)
	if before, ok := d.slices[s.Name]; ok {
		if before.node == node && before.slice == slice {
			d.slices[s.Name] = placed{node, s.ResourceVersion, ownerOf(s), slice}
			return nil
		}
		changed = d.remove(s.Name)
	}
	d.slices[s.Name] = placed{node, s.ResourceVersion, ownerOf(s), slice}
	d.of(node).slices[s.Name] = slice
	return append(changed, node)
}

// drop forgets a slice that was deleted, and returns the node that it described.
func (d *Devices) drop(name string) []string {
	delete(d.ignore, name)
	return d.remove(name)
}

func (d *Devices) remove(name string) []string {
	before, ok := d.slices[name]
	if !ok {
		return nil
	}
	delete(d.slices, name)
	m := d.nodes[before.node]
	delete(m.slices, name)
	if m.uid == "" && len(m.slices) == 0 && len(m.pools) == 0 {
		delete(d.nodes, before.node) // the Node was deleted, or has never existed
	}
	return []string{before.node}
}

// ownerOf returns the UID of the Node that owns a slice.
func ownerOf(s *resourcev1.ResourceSlice) types.UID {
	for _, o := range s.OwnerReferences {
		if o.APIVersion == "v1" && o.Kind == "Node" {
			return o.UID
		}
	}
	return ""
}

// remember stores the complete pools of nodes whose slices have changed, and since when the others have not been complete. It does not wait
// until the nodes are evaluated: that may fail for hours, and a standby does not.
func (d *Devices) remember(nodes ...string) {
	now := d.opt.Clock.Now()
	for _, node := range nodes {
		m := d.nodes[node]
		if m == nil {
			continue
		}
		d.observe(m)
		if m.uid == "" { // otherwise the grace period begins with the next look
			m.begin(now)
		}
		if m.uid == "" && len(m.slices) == 0 && len(m.pools) > 0 {
			d.left = append(d.left, departed{node, now})
		}
	}
	for ; len(d.left) > 0 && now.Sub(d.left[0].at) >= d.opt.Grace; d.left = d.left[1:] {
		m := d.nodes[d.left[0].node]
		if m == nil || m.uid != "" || len(m.slices) > 0 {
			continue
		}
		maps.DeleteFunc(m.pools, func(_ poolKey, p *pool) bool { return now.Sub(p.since) >= d.opt.Grace })
		if len(m.pools) == 0 {
			delete(d.nodes, d.left[0].node)
		}
	}
}

// observe stores the complete pools of a node, and returns all that its slices describe.
func (d *Devices) observe(m *remembered) []facts.Pool {
	list := facts.Pools(m.sorted())
	for _, p := range m.pools {
		p.Complete = false
	}
	for _, l := range list {
		key := poolKey{l.Driver, l.Name}
		if !l.Complete {
			continue
		}
		if before := m.pools[key]; before == nil || !slices.Equal(before.Devices, l.Devices) {
			m.facts = nil // for Prove: what was evaluated is older
		}
		m.pools[key] = &pool{Pool: l, owner: d.ownerOf(m, key)}
	}
	return list
}

// begin starts the grace period of the pools that are not complete.
func (m *remembered) begin(now time.Time) {
	for _, p := range m.pools {
		if !p.Complete && p.since.IsZero() {
			p.since = now
		}
	}
}

// ownerOf returns the UID of the Node that owns all slices of a pool.
func (d *Devices) ownerOf(m *remembered, key poolKey) (owner types.UID) {
	first := true
	for name, s := range m.slices {
		if s.Driver != key.driver || s.Pool != key.name {
			continue
		}
		if o := d.slices[name].owner; first {
			owner, first = o, false
		} else if o != owner {
			return ""
		}
	}
	return owner
}

func (d *Devices) of(node string) *remembered {
	m := d.nodes[node]
	if m == nil {
		m = &remembered{slices: map[string]facts.Slice{}, pools: map[poolKey]*pool{}}
		d.nodes[node] = m
	}
	return m
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
		maps.DeleteFunc(m.pools, func(_ poolKey, p *pool) bool { return p.owner == "" })
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
	s := State{Unseen: max(0, d.opt.Grace-now.Sub(d.since))}
	if !d.synced && !d.absent {
		s.Unseen = d.opt.Grace
	}
	m := d.of(node)
	if m.uid != uid {
		m.uid = uid
		maps.DeleteFunc(m.pools, func(_ poolKey, p *pool) bool { return p.owner != uid }) // those of another machine with this name
	}
	if !d.synced {
		return s
	}
	list := d.observe(m)
	m.begin(now)
	for key, p := range m.pools {
		i := slices.IndexFunc(list, func(l facts.Pool) bool { return l.Driver == key.driver && l.Name == key.name })
		if i >= 0 && list[i].Complete {
			continue
		}
		left := d.opt.Grace - now.Sub(p.since)
		if left <= 0 {
			delete(m.pools, key)
			continue
		}
		held := facts.Pool{Driver: key.driver, Name: key.name, Devices: p.Devices}
		if i >= 0 {
			list[i] = held
		} else {
			list = append(list, held)
		}
		if s.Held == 0 || left < s.Held {
			s.Held = left
		}
		s.Incomplete = append(s.Incomplete, key.driver)
	}
	slices.Sort(s.Incomplete)
	s.Incomplete = slices.Compact(s.Incomplete)
	slices.SortFunc(list, compare)
	if m.facts == nil || !slices.EqualFunc(list, m.listed, same) {
		m.facts, m.listed = facts.FromPools(list, nodefeature.Interner()), list
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

// Reasons why no rule reads a ResourceSlice.
const (
	IgnoredShared     = "SeveralNodes"  // it describes devices that several nodes reach
	IgnoredDriver     = "Driver"        // the settings exclude its driver
	IgnoredGeneration = "OldGeneration" // there are slices of a newer generation of its pool
	IgnoredLimit      = "TooMany"       // its pool is complete, and the node would have more than facts.MaxDevices
)

// Ignored returns the number of ResourceSlices that no rule reads, by reason.
func (d *Devices) Ignored() map[string]int {
	out := map[string]int{IgnoredShared: 0, IgnoredDriver: 0, IgnoredGeneration: 0, IgnoredLimit: 0}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, why := range d.ignore {
		out[why]++
	}
	for _, m := range d.nodes {
		list := m.sorted()
		for _, p := range facts.Pools(list) {
			newest, have, total := int64(0), 0, int64(0)
			for _, s := range list {
				if s.Driver != p.Driver || s.Pool != p.Name {
					continue
				}
				switch {
				case s.Generation > newest || have == 0:
					out[IgnoredGeneration] += have
					newest, have, total = s.Generation, 1, s.Total
				case s.Generation < newest:
					out[IgnoredGeneration]++
				default:
					have++
				}
			}
			if !p.Complete && int64(have) == total {
				out[IgnoredLimit] += have
			}
		}
	}
	return out
}

// ErrStale is returned if the API server has other slices than those in memory.
var ErrStale = errors.New("the ResourceSlices in memory are not those of the API server; retrying")

// Prove lists the slices of a node in the API server, and returns the features of a State that they give, without anything that the cache
// and the interner hold. A pool that is held counts as it was last complete, if the API server does not have all of it either. The error is
// ErrStale if the API server has other versions of the slices than this process has now, or if the State is older than those.
func (d *Devices) Prove(ctx context.Context, node string, s State) (*facts.Facts, error) {
	if d == nil || s.Facts == nil || d.opt.Client == nil {
		return s.Facts, nil
	}
	live := &resourcev1.ResourceSliceList{}
	if err := d.opt.Client.List(ctx, live, client.MatchingFields{resourcev1.ResourceSliceSelectorNodeName: node}); err != nil {
		return nil, err
	}
	versions, stored := map[string]string{}, map[string]facts.Slice{}
	for i := range live.Items {
		if slice, of := resourceslice.Of(&live.Items[i], nil); of == node && d.opt.Counts(slice.Driver) {
			versions[live.Items[i].Name], stored[live.Items[i].Name] = live.Items[i].ResourceVersion, slice
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.nodes[node]
	if m == nil || m.facts != s.Facts || !maps.EqualFunc(versions, m.slices, func(version string, _ facts.Slice) bool { return version != "" }) {
		return nil, ErrStale
	}
	for name, version := range versions {
		if d.slices[name].version != version {
			return nil, ErrStale
		}
	}
	pools := facts.Pools((&remembered{slices: stored}).sorted())
	for _, held := range m.listed {
		i := slices.IndexFunc(pools, func(p facts.Pool) bool { return compare(p, held) == 0 })
		switch {
		case held.Complete || i >= 0 && pools[i].Complete:
		case i >= 0:
			pools[i] = held
		default:
			pools = append(pools, held)
		}
	}
	slices.SortFunc(pools, compare)
	return facts.FromPools(pools, nil), nil
}

// sorted returns the slices in the order of their names.
func (m *remembered) sorted() (out []facts.Slice) {
	for _, name := range slices.Sorted(maps.Keys(m.slices)) {
		out = append(out, m.slices[name])
	}
	return out
}

func compare(a, b facts.Pool) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Name, b.Name))
}

func same(a, b facts.Pool) bool {
	return a.Driver == b.Driver && a.Name == b.Name && a.Complete == b.Complete && slices.Equal(a.Devices, b.Devices)
}

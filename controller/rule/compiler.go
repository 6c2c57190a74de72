package rule

import (
	"context"
	"errors"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/rules"
)

// compiler puts rules into the registry. It is safe for concurrent use: one object is compiled at a time, from what the
// cache holds at that moment, so that an older state can never replace a newer one, and no change of something that it refers
// to gets lost between the look at it and the note that it is referred to.
type compiler struct {
	client   client.Client
	live     client.Reader
	registry *assembly.Registry
	opt      Options
	compiled func(name string)

	mu      sync.Mutex // held while an object is compiled
	reports sync.Map   // name of an object -> *report
}

// report is what is known about an object without any node.
type report struct {
	uid        types.UID
	generation int64
	sensitive  bool

	refused    *problem // why nothing of it is used
	unresolved *problem // what it refers to and cannot be had
	suspicion  string   // what may be wrong with it, although nobody can know
	errors     field.ErrorList
	warnings   []rules.Warning

	// standing is whether something of it is in force; hash and origins are of that.
	standing bool
	hash     string
	origins  []nfdv1alpha1.RuleOrigin
	good     *kept // what to keep of it should something that it refers to go; nil if it refers to nothing
	refs     []ref
}

// problem is a reason and a message of a condition.
type problem struct{ reason, message string }

func (p *problem) Error() string { return p.message }

func newCompiler(c client.Client, live client.Reader, opt Options, compiled func(string)) *compiler {
	return &compiler{client: c, live: live, registry: opt.Registry, opt: opt, compiled: compiled}
}

// Reconcile implements reconcile.Reconciler.
func (c *compiler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, c.refresh(ctx, req.Name)
}

// ReconcileReference compiles all objects that refer to something, as one change.
func (c *compiler) ReconcileReference(ctx context.Context, to ref) (ctrl.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ctrl.Result{}, c.refreshLocked(ctx, c.referringTo(to))
}

// refresh compiles objects, or takes out what they had if they are gone.
func (c *compiler) refresh(ctx context.Context, names ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refreshLocked(ctx, names)
}

// refreshLocked compiles objects, and puts what comes out into the registry as one change. One that fails does not keep the
// others.
func (c *compiler) refreshLocked(ctx context.Context, names []string) error {
	var (
		put    []*rules.RuleSet
		remove []string
		done   []string
		faults []error
	)
	for _, name := range names {
		next, set, err := c.look(ctx, name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		switch {
		case set != nil:
			put = append(put, set)
		case next == nil || !next.standing:
			remove = append(remove, name)
		}
		if next == nil {
			c.reports.Delete(name)
		} else {
			c.reports.Store(name, next)
		}
		done = append(done, name)
	}
	c.registry.Replace(put, remove)
	for _, name := range done {
		c.compiled(name)
	}
	return errors.Join(faults...)
}

// errBehind is returned when the cache lacks an object that exists.
var errBehind = errors.New("the cache is behind; trying again")

// look finds out what an object is now. Without a report it is gone: not only missing in a cache that may be behind. Without
// a set there is nothing new to put into the registry.
func (c *compiler) look(ctx context.Context, name string) (*report, *rules.RuleSet, error) {
	var obj nfdv1alpha1.NodeFeatureRule
	err := c.client.Get(ctx, client.ObjectKey{Name: name}, &obj)
	if err == nil {
		return c.compile(ctx, &obj)
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, err
	}
	err = c.live.Get(ctx, client.ObjectKey{Name: name}, &obj)
	if err == nil && obj.DeletionTimestamp == nil {
		return nil, nil, errBehind
	}
	return nil, nil, client.IgnoreNotFound(err)
}

// compile resolves what the object refers to, and compiles the whole. If something cannot be resolved, what was in force
// last stays: that of this very object, not of another one of its name.
func (c *compiler) compile(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule) (*report, *rules.RuleSet, error) {
	log := logf.FromContext(ctx).WithValues("object", obj.Name)
	r := &report{
		uid: obj.UID, generation: obj.Generation, sensitive: ptr.Deref(obj.Spec.Sensitive, false), suspicion: c.suspicion(),
	}
	last := c.report(obj.Name)
	if last != nil && last.uid != obj.UID {
		last = nil
	}
	if r.refused = c.refuses(obj, last); r.refused != nil {
		log.Info("rules are refused", "reason", r.refused.reason)
		return r, nil, nil //nolint:nilerr // what is wrong with the rules goes into their status
	}
	// Before anything else: what a newer version refers to may be nothing that this one knows.
	if r.refused = c.tooOld(&obj.Spec); r.refused != nil {
		return r, nil, nil //nolint:nilerr // what is wrong with the rules goes into their status
	}
	whole, err := c.resolve(ctx, obj)
	r.refs = whole.refs
	r.sensitive = r.sensitive || whole.sensitive
	if missing := (*problem)(nil); errors.As(err, &missing) {
		log.Info("rules are not resolved; the last ones that were stay in force", "reason", missing.reason)
		r.unresolved = missing
		set, err := c.stand(ctx, obj, r, last)
		return r, set, err
	}
	if err != nil {
		return nil, nil, err
	}
	if r.refused = c.tooOld(whole.spec); r.refused != nil {
		return r, nil, nil //nolint:nilerr // what is wrong with the rules goes into their status
	}
	opt := c.registry.Options()
	opt.Bases = whole.bases
	set, found := rules.CompileSpec(obj.Name, whole.spec, opt)
	r.errors, r.warnings = whole.located(found.Errors), found.Warnings
	r.hash, r.origins, r.standing = whole.hash(set), whole.origins, true
	if len(whole.refs) > 0 {
		r.good = &kept{UID: obj.UID, Spec: whole.keep, Hash: r.hash, Origins: r.origins}
	}
	if !found.OK() {
		log.Info("rules with mistakes are left out", "mistakes", len(found.Errors))
	}
	return r, set, nil
}

// stand lets what was in force last stay: what this process knows of, or what another one has kept.
func (c *compiler) stand(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule, r, last *report) (*rules.RuleSet, error) {
	if last != nil {
		r.good, r.hash, r.origins, r.standing = last.good, last.hash, last.origins, last.standing
		return nil, nil
	}
	good, err := c.restore(ctx, obj)
	if good == nil || err != nil {
		return nil, err
	}
	whole := &resolved{spec: good.Spec}
	if err := c.fetch(ctx, whole); err != nil {
		return nil, nil //nolint:nilerr // what it needs is gone as well; the condition says what the object itself lacks
	}
	set, _ := rules.CompileSpec(obj.Name, whole.spec, c.registry.Options())
	r.good, r.hash, r.origins, r.standing = good, good.Hash, good.Origins, true
	r.sensitive = r.sensitive || whole.sensitive
	return set, nil
}

// report returns what is known of an object, or nil.
func (c *compiler) report(name string) *report {
	if r, ok := c.reports.Load(name); ok {
		return r.(*report)
	}
	return nil
}

// referringTo returns the objects that refer to something, sorted. It is called with the lock held.
func (c *compiler) referringTo(to ref) []string {
	var out []string
	c.reports.Range(func(name, r any) bool {
		if slices.Contains(r.(*report).refs, to) {
			out = append(out, name.(string))
		}
		return true
	})
	slices.Sort(out)
	return out
}

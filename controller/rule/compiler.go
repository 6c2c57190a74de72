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
	"github.com/assay-project/assay/controller/registry"
	"github.com/assay-project/assay/rules"
)

// compiler puts rules into the registry. It is safe for concurrent use: one object is compiled at a time, from what the
// cache holds at that moment, so that an older state can never replace a newer one.
type compiler struct {
	client   client.Client
	live     client.Reader
	registry *registry.Registry
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
	errors     field.ErrorList
	warnings   []rules.Warning

	hash    string
	origins []nfdv1alpha1.RuleOrigin
	refs    []ref
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

// refresh compiles an object, or takes out what it had if it is gone.
func (c *compiler) refresh(ctx context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var obj nfdv1alpha1.NodeFeatureRule
	err := c.client.Get(ctx, client.ObjectKey{Name: name}, &obj)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err != nil {
		return c.remove(ctx, name)
	}
	next, err := c.compile(ctx, &obj)
	if err != nil {
		return err
	}
	c.reports.Store(name, next)
	c.compiled(name)
	return nil
}

// errBehind is returned when the cache lacks an object that exists.
var errBehind = errors.New("the cache is behind; trying again")

// remove drops the rules of an object that is gone: not only missing in a cache that may be behind.
func (c *compiler) remove(ctx context.Context, name string) error {
	var obj nfdv1alpha1.NodeFeatureRule
	err := c.live.Get(ctx, client.ObjectKey{Name: name}, &obj)
	if err == nil && obj.DeletionTimestamp == nil {
		return errBehind
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	c.registry.Remove(name)
	c.reports.Delete(name)
	return nil
}

// compile resolves what the object refers to, compiles the whole, and puts it into the registry. If something cannot be
// resolved, what was put there last stays.
func (c *compiler) compile(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule) (*report, error) {
	log := logf.FromContext(ctx).WithValues("object", obj.Name)
	r := &report{uid: obj.UID, generation: obj.Generation, sensitive: ptr.Deref(obj.Spec.Sensitive, false)}
	if r.refused = c.refuses(obj); r.refused != nil {
		c.registry.Remove(obj.Name)
		log.Info("rules are refused", "reason", r.refused.reason)
		return r, nil
	}
	whole, err := c.resolve(ctx, obj)
	r.refs = whole.refs
	r.sensitive = r.sensitive || whole.sensitive
	if missing := (*problem)(nil); errors.As(err, &missing) {
		r.unresolved = missing
		if last := c.report(obj.Name); last != nil {
			r.hash, r.origins = last.hash, last.origins
		}
		log.Info("rules are not resolved; the last ones that were stay in force", "reason", missing.reason)
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if r.refused = c.tooOld(whole.spec); r.refused != nil {
		c.registry.Remove(obj.Name)
		return r, nil
	}
	set, found := rules.CompileSpec(obj.Name, whole.spec, c.registry.Options())
	r.errors, r.warnings = whole.located(found.Errors), found.Warnings
	r.hash, r.origins = set.Hash(), whole.origins
	c.registry.Put(set)
	if !found.OK() {
		log.Info("rules with mistakes are left out", "mistakes", len(found.Errors))
	}
	return r, nil
}

// report returns what is known of an object, or nil.
func (c *compiler) report(name string) *report {
	if r, ok := c.reports.Load(name); ok {
		return r.(*report)
	}
	return nil
}

// referringTo returns the objects that refer to something, sorted.
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

// Package compile keeps the rules of a running cluster compiled.
package compile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/assembly/directory"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/internal/turn"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/requirements"
)

// Options configure which rules are compiled, and how.
type Options struct {
	// Assembly holds the options that are shared by everything that evaluates rules. Add sets Missing.
	Assembly assembly.Options
	// BuiltIn is the directory of built-in rules, which are always active; empty: none.
	BuiltIn string
	// Requests limits the NodeFeatureRequests that are materialized.
	Requests RequestLimits
	// Baselines sets the conditions of NodeBaselines on Nodes.
	Baselines bool
	// Kinds are the names of the definitions that are followed in addition to those of the kinds that are compiled.
	Kinds []string
	// DefinitionsEvery is how often definitions are read that cannot be watched; 0: follow.DefaultEvery.
	DefinitionsEvery time.Duration
	// Relist makes the caches list the objects of a resource again; nil: it cannot.
	Relist func(resource string)
}

// kinds returns the names of the definitions to follow.
func (o *Options) kinds() []string {
	out := append([]string{definition.Rules, definition.Templates}, o.Kinds...)
	if o.Requests.Total > 0 {
		out = append(out, definition.Requests)
	}
	if o.Baselines {
		out = append(out, definition.Baselines)
	}
	return out
}

// Rules holds the compiled rules of a cluster. It is safe for concurrent use. One object is compiled at a time, from the current
// content of the cache. Therefore an older state never replaces a newer one, and a change of a referenced object is never missed
// between reading it and recording the reference.
type Rules struct {
	registry  *assembly.Registry
	builtIn   *directory.Directory
	assembler *assembly.Assembler // of NodeFeatureRules
	requests  *assembly.Assembler // of rules that materialize NodeFeatureRequests
	places    *places             // which requests are materialized
	cached    client.Reader
	live      client.Reader

	definitions *follow.Definitions
	past        map[types.UID]assembly.Accepted // what an earlier process accepted; never modified after the start
	vanished    sync.Map                        // name -> UID of an object that was deleted with its definition
	loaded      chan struct{}                   // closed once definitions and past are known, before which nothing is compiled

	turn    turn.Lock       // held while an object is assembled
	started bool            // the objects that existed at the start were compiled
	lacking map[string]bool // objects that the API server has and the cache lacks
	lacks   chan struct{}   // holds an element if some are lacking
	all     assembly.Sum    // all objects
	objects sync.Map        // the same: name -> *assembly.Object

	listening sync.Mutex
	listeners []func(name string)
}

// Registry holds the active rules.
func (r *Rules) Registry() *assembly.Registry { return r.registry }

// BuiltIn is the directory of built-in rules; nil if there is none.
func (r *Rules) BuiltIn() *directory.Directory { return r.builtIn }

// Definitions are those of the kinds that are compiled, and of the others that were asked for.
func (r *Rules) Definitions() *follow.Definitions {
	if r == nil {
		return nil
	}
	return r.definitions
}

// Object returns the assembled state of an object, or nil if there is none yet.
func (r *Rules) Object(name string) *assembly.Object {
	if o, ok := r.objects.Load(name); ok {
		return o.(*assembly.Object)
	}
	if strings.HasPrefix(name, directory.Prefix) && r.builtIn != nil {
		return r.builtIn.Lost(name)
	}
	return nil
}

// without returns the sorted names of the objects that are not among those given.
func (r *Rules) without(names []string) (out []string) {
	r.objects.Range(func(name, _ any) bool {
		if !slices.Contains(names, name.(string)) {
			out = append(out, name.(string))
		}
		return true
	})
	slices.Sort(out)
	return out
}

// Template checks a template. See assembly.Assembler.
func (r *Rules) Template(ctx context.Context, t *assayv1alpha1.NodeFeatureRuleTemplate) (*assembly.Object, error) {
	return r.assembler.Template(ctx, t)
}

// OnObject registers f, which is called with the name of each object that was compiled or deleted. It must return quickly.
func (r *Rules) OnObject(f func(name string)) {
	r.listening.Lock()
	defer r.listening.Unlock()
	r.listeners = append(r.listeners, f)
}

func (r *Rules) tell(names []string) {
	r.listening.Lock()
	listeners := r.listeners
	r.listening.Unlock()
	for _, name := range names {
		for _, f := range listeners {
			f(name)
		}
	}
}

// object compiles an object.
func (r *Rules) object(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, r.refresh(ctx, req.Name)
}

// reference compiles all objects that refer to a changed object, as one change.
func (r *Rules) reference(ctx context.Context, to assembly.Ref) (ctrl.Result, error) {
	release, err := r.take(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer release()
	return ctrl.Result{}, r.refreshLocked(ctx, r.referringTo(to))
}

// refresh compiles objects, and removes the rules of deleted ones.
func (r *Rules) refresh(ctx context.Context, names ...string) error {
	release, err := r.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	return r.refreshLocked(ctx, names)
}

// take waits until objects can be compiled, and takes the lock.
func (r *Rules) take(ctx context.Context) (release func(), err error) {
	select {
	case <-r.loaded:
		return r.turn.Take(ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// refreshLocked compiles objects and updates the registry in one change. A failure of one object does not affect the others.
func (r *Rules) refreshLocked(ctx context.Context, names []string) error {
	var (
		done   []string
		faults []error
	)
	for i := 0; i < len(names); i++ {
		next, err := r.look(ctx, names[i])
		if err == nil {
			err = r.confirm(ctx, names[i], next)
		}
		names = append(names, r.places.drain()...) // requests whose place depends on this one
		if err != nil {
			faults = append(faults, err)
			continue
		}
		r.store(names[i], next)
		done = append(done, names[i])
	}
	changed, err := r.share(ctx)
	faults = append(faults, err)
	done = append(done, changed...)
	r.replace(done)
	r.tell(done)
	return errors.Join(faults...)
}

func (r *Rules) store(name string, o *assembly.Object) {
	if o == nil {
		delete(r.all, name)
		r.objects.Delete(name)
		return
	}
	r.all[name] = o
	r.objects.Store(name, o)
}

// replace updates the registry with the new state of objects.
func (r *Rules) replace(names []string) {
	var put []assembly.Rules
	var remove []string
	for _, name := range names {
		if o := r.Object(name); o != nil && o.Set != nil {
			put = append(put, o.Rules)
		} else {
			remove = append(remove, name)
		}
	}
	r.registry.Replace(put, remove)
}

// Room returns the memory that all other objects leave for the rules of an object, and the memory that its rules use now.
func (r *Rules) Room(name string) (room, now int) {
	room = rules.MaxClusterSize
	r.objects.Range(func(other, o any) bool {
		if other != name {
			room -= o.(*assembly.Object).Size()
		}
		return true
	})
	return room, r.Object(name).Size()
}

// share removes the rules of objects that exceed the memory budget after older objects, and adds those that fit now. It returns the
// names of both.
func (r *Rules) share(ctx context.Context) (changed []string, err error) {
	if !r.all.Tight() {
		return nil, nil
	}
	room := rules.MaxClusterSize
	for _, name := range r.all.Names() {
		was := r.all[name]
		o := was
		switch {
		case o.Size() > room:
			o = o.Exceeding(room)
		case o.Excess && room > o.Room:
			next, failed := r.look(ctx, name)
			if err = errors.Join(err, failed); failed != nil || next == nil {
				continue // its deletion is a separate event
			}
			o = next
		}
		room -= o.Size()
		if o != was {
			r.store(name, o)
			changed = append(changed, name)
		}
	}
	return changed, err
}

// look reads and compiles the current state of an object; nil means deleted. If the cache lacks an object, look reads it from the
// API server. The caller holds the lock.
func (r *Rules) look(ctx context.Context, name string) (*assembly.Object, error) {
	if namespace, request, ok := requirements.RequestOf(name); ok {
		return r.request(ctx, client.ObjectKey{Namespace: namespace, Name: request})
	}
	if name, ok := baseline.Of(name); ok {
		return r.baseline(ctx, name)
	}
	var obj nfdv1alpha1.NodeFeatureRule
	err := r.cached.Get(ctx, client.ObjectKey{Name: name}, &obj, client.UnsafeDisableDeepCopy)
	if err == nil {
		r.note(name, false)
		out, err := r.assemble(ctx, r.assembler, &obj)
		last := r.Object(name)
		doubtful := err == nil && (out.Lost != nil || last != nil && last.Lost != nil) // fields may have been lost in the cache only
		if !doubtful || !r.trusts(definition.Rules) {
			return out, err
		}
		return r.compare(ctx, name, out)
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	err = r.live.Get(ctx, client.ObjectKey{Name: name}, &obj)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	lacking := err == nil && obj.DeletionTimestamp == nil
	r.note(name, lacking)
	if !lacking {
		return r.gone(ctx, name)
	}
	return r.assemble(ctx, r.assembler, &obj)
}

// ErrStale is returned if the cache has an object that the API server has replaced by another one of the same name.
var ErrStale = errors.New("the cache has an earlier object of this name; retrying")

// Confirm checks with the API server that the object with this name and UID does not exist. If it exists and the cache lacks it, Confirm
// compiles it; if the cache has an earlier object of the same name, the error is ErrStale.
func (r *Rules) Confirm(ctx context.Context, name, uid string) error {
	if r.Object(name) == nil {
		return r.refresh(ctx, name)
	}
	kind, key := nfdv1alpha1.GroupVersion.WithKind("NodeFeatureRule"), client.ObjectKey{Name: name}
	if namespace, request, ok := requirements.RequestOf(name); ok {
		kind, key = assayv1alpha1.GroupVersion.WithKind("NodeFeatureRequest"), client.ObjectKey{Namespace: namespace, Name: request}
	} else if of, ok := baseline.Of(name); ok {
		kind, key = assayv1alpha1.GroupVersion.WithKind("NodeBaseline"), client.ObjectKey{Name: of}
	}
	var now metav1.PartialObjectMetadata
	now.SetGroupVersionKind(kind)
	if err := r.live.Get(ctx, key, &now); err != nil {
		return client.IgnoreNotFound(err)
	}
	if string(now.UID) == uid {
		return ErrStale
	}
	return nil
}

// lackingEvery is how often objects that the cache lacks are read from the API server, because no event reports their changes.
const lackingEvery = 2 * time.Second

// note records whether the API server has an object that the cache lacks.
func (r *Rules) note(name string, lacking bool) {
	if !lacking {
		delete(r.lacking, name)
		return
	}
	r.lacking[name] = true
	select {
	case r.lacks <- struct{}{}:
	default: // follow is awake
	}
}

// follow reads objects that the cache lacks until the cache has them or they are deleted.
func (r *Rules) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.lacks:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lackingEvery):
		}
		release, err := r.turn.Take(ctx)
		if err != nil {
			return nil //nolint:nilerr // stopped
		}
		names := slices.Sorted(maps.Keys(r.lacking))
		release()
		if len(names) == 0 {
			continue
		}
		if err := r.refresh(ctx, names...); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "Cannot read rules that the cache lacks", "objects", names)
		}
	}
}

func (r *Rules) assemble(ctx context.Context, by *assembly.Assembler, obj *nfdv1alpha1.NodeFeatureRule) (*assembly.Object, error) {
	room := r.all.RoomFor(obj.Name, &assembly.Object{Created: obj.CreationTimestamp.Time})
	last := r.Object(obj.Name)
	out, err := by.Assemble(ctx, obj, last, room)
	if err != nil {
		return nil, err
	}
	out.Definition = r.definitions.Of(KindOf(obj.Name)).UID
	if last != nil && last.UID == obj.UID && last.Definition != "" {
		out.Definition = last.Definition // no object outlives its definition: its deletion may just not have arrived
	}
	log := logf.FromContext(ctx).WithValues("object", obj.Name)
	r.vanished.Delete(obj.Name)
	switch {
	case out.Lost != nil:
		log.Info("Cannot trust rules; those that were accepted before stay active", "reason", out.Lost.Reason)
	case out.Refused != nil:
		log.Info("Rejected rules", "reason", out.Refused.Reason)
	case out.Unresolved != nil:
		log.Info("Cannot resolve rules; the last resolved ones stay active", "reason", out.Unresolved.Reason)
	case len(out.Errors) > 0:
		log.Info("Skipping invalid rules", "errors", len(out.Errors))
	}
	return out, nil
}

// referringTo returns the sorted names of the objects that refer to an object. The caller holds the lock.
func (r *Rules) referringTo(to assembly.Ref) []string {
	var out []string
	r.objects.Range(func(name, o any) bool {
		if slices.Contains(o.(*assembly.Object).Refs, to) {
			out = append(out, name.(string))
		}
		return true
	})
	slices.Sort(out)
	return out
}

// newRules returns empty Rules.
func newRules(cached, live client.Reader, opt Options, definitions *follow.Definitions) *Rules {
	o := opt.Assembly
	r := &Rules{
		places: newPlaces(opt.Requests), registry: assembly.NewRegistry(o.Rules), all: assembly.Sum{}, lacking: map[string]bool{}, lacks: make(chan struct{}, 1),
		cached: cached, live: live, turn: turn.New(), definitions: definitions, loaded: make(chan struct{}),
	}
	if definitions == nil {
		close(r.loaded)
	}
	from := source{cached: cached, live: live, namespace: o.Namespace, definitions: definitions, templates: &sync.Map{}}
	requests := o
	requests.DefaultTemplate, requests.Rules.DefaultScope, requests.Rules.Keys.Requests = "", "", true
	o.Definition = func() definition.Status { return definitions.Of(definition.Rules) }
	o.Accepted = func(uid types.UID) (was assembly.Accepted, known bool) {
		was, known = r.past[uid]
		return was, known
	}
	r.assembler, r.requests = assembly.New(o, from), assembly.New(requests, from)
	return r
}

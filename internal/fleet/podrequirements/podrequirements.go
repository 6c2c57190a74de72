// Package podrequirements resolves what each pod of a cluster requires and prefers of its node.
package podrequirements

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/lru"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/requirements"
)

// Resolver knows what pods require: by their annotations, by the NodeFeatureRequest that they name, and by the policies that
// select them. It is safe for concurrent use.
type Resolver struct {
	opt rules.Options

	mu         sync.RWMutex
	requests   map[string]named // by namespace/name
	policies   []*requirements.Policy
	namespaces map[string]map[string]string // labels by name
	compiled   *lru.Cache[resolved]         // requests by namespace/name

	generation atomic.Uint64
}

// resolved is what a pod or an object requires, or why that is not known.
type resolved struct {
	requirements *requirements.Requirements
	problem      string
}

// named is a NodeFeatureRequest, and since when it is unchanged. It is compiled when a pod names it.
type named struct {
	spec    *assayv1alpha1.PodRequirements
	created time.Time
	edited  bool
}

// maxCompiled is the maximum memory in bytes of compiled NodeFeatureRequests: 32 of the maximum size, or 10,000 ordinary ones. The
// number of requests is not limited; one that was evicted is compiled again when needed.
const maxCompiled = 16 << 20

// New returns a Resolver without any requests and policies.
func New(opt rules.Options) *Resolver {
	return &Resolver{
		opt: opt, requests: map[string]named{}, namespaces: map[string]map[string]string{}, compiled: lru.New[resolved](maxCompiled),
	}
}

// Generation increases with each change: results of Of are valid as long as it stays the same.
func (a *Resolver) Generation() uint64 { return a.generation.Load() }

// PutRequest adds or replaces a NodeFeatureRequest. The object is kept, and must not be modified.
func (a *Resolver) PutRequest(obj *assayv1alpha1.NodeFeatureRequest) {
	name := obj.Namespace + "/" + obj.Name
	out := named{spec: &obj.Spec.PodRequirements, created: obj.CreationTimestamp.Time, edited: obj.Generation > 1}
	a.change(func() {
		a.requests[name] = out
		a.compiled.Remove(name)
	})
}

// request returns the requirements of a NodeFeatureRequest. The caller holds the lock.
func (a *Resolver) request(name string, r named) resolved {
	if known, ok := a.compiled.Get([]byte(name)); ok {
		return known
	}
	reqs, report := requirements.Compile(r.spec, field.NewPath("spec"), "NodeFeatureRequest "+name, a.opt)
	out := resolved{requirements: reqs}
	if !report.OK() {
		out.problem = problem("NodeFeatureRequest %s is invalid: %s", name, report.Errors[0])
	}
	a.compiled.Put(name, out, reqs.Size())
	return out
}

// RemoveRequest removes a NodeFeatureRequest.
func (a *Resolver) RemoveRequest(namespace, name string) {
	a.change(func() {
		delete(a.requests, namespace+"/"+name)
		a.compiled.Remove(namespace + "/" + name)
	})
}

// PutPolicy adds or replaces a NodeFeatureSchedulingPolicy. An invalid one selects no pods, so that an error of the administrator
// does not keep pods from being scheduled.
func (a *Resolver) PutPolicy(obj *assayv1alpha1.NodeFeatureSchedulingPolicy) {
	policy, _ := requirements.CompilePolicy(obj, a.opt)
	a.change(func() {
		a.removePolicy(obj.Name)
		if policy != nil {
			a.policies = append(a.policies, policy)
			slices.SortFunc(a.policies, func(x, y *requirements.Policy) int { return cmp.Compare(x.Name, y.Name) })
		}
	})
}

// RemovePolicy removes a NodeFeatureSchedulingPolicy.
func (a *Resolver) RemovePolicy(name string) { a.change(func() { a.removePolicy(name) }) }

func (a *Resolver) removePolicy(name string) {
	a.policies = slices.DeleteFunc(a.policies, func(p *requirements.Policy) bool { return p.Name == name })
}

// PutNamespace records the labels of a namespace; nil if it was deleted.
func (a *Resolver) PutNamespace(name string, labels map[string]string) {
	a.mu.RLock()
	same := maps.Equal(a.namespaces[name], labels)
	a.mu.RUnlock()
	if !same {
		a.change(func() {
			if a.namespaces[name] = labels; labels == nil {
				delete(a.namespaces, name)
			}
		})
	}
}

func (a *Resolver) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	a.generation.Add(1)
}

// Of returns the requirements of a pod; nil if it has none. A problem that is not empty is the reason why the pod fits on no node.
func (a *Resolver) Of(namespace string, labels, annotations map[string]string) (reqs *requirements.Requirements, problem string) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	out := a.find(namespace, labels, annotations)
	return out.requirements, out.problem
}

// Since returns the requirements that a pod has certainly had since it was created, according to its own metadata; nil if none. It
// ignores requests that are younger or were edited, and policies: whether they selected the pod at that time is unknown.
func (a *Resolver) Since(created time.Time, namespace string, labels, annotations map[string]string) *requirements.Requirements {
	own, _ := requirements.Annotations(annotations, field.NewPath("metadata"), a.opt)
	a.mu.RLock()
	defer a.mu.RUnlock()
	name := namespace + "/" + labels[assayv1alpha1.FeatureRequestLabel]
	r, ok := a.requests[name]
	if !ok || r.edited || r.created.After(created) {
		return own
	}
	return requirements.Join(own, a.request(name, r).requirements)
}

// find requires the lock.
func (a *Resolver) find(namespace string, labels, annotations map[string]string) resolved {
	own, report := requirements.Annotations(annotations, field.NewPath("metadata"), a.opt)
	if !report.OK() {
		return resolved{problem: problem("%s", report.Errors[0])}
	}
	list := []*requirements.Requirements{own}
	if name := labels[assayv1alpha1.FeatureRequestLabel]; name != "" {
		r, ok := a.requests[namespace+"/"+name]
		if !ok {
			return resolved{problem: problem("NodeFeatureRequest %s/%s does not exist", namespace, name)}
		}
		named := a.request(namespace+"/"+name, r)
		if named.problem != "" {
			return named
		}
		list = append(list, named.requirements)
	}
	for _, p := range a.policies {
		if p.Selects(labels, a.namespaces[namespace]) {
			list = append(list, p.Requirements)
		}
	}
	return resolved{requirements: requirements.Join(list...)}
}

// Policies returns the policies that select a pod, by name.
func (a *Resolver) Policies(namespace string, labels map[string]string) []*requirements.Policy {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var out []*requirements.Policy
	for _, p := range a.policies {
		if p.Selects(labels, a.namespaces[namespace]) {
			out = append(out, p)
		}
	}
	return out
}

func problem(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	if len(text) > maxProblem {
		text = strings.ToValidUTF8(text[:maxProblem], "") + "…"
	}
	return text
}

// maxProblem is the maximum length of an error in an event, which can have 1,024 bytes.
const maxProblem = 600

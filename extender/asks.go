package extender

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/fleet"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/request"
)

// The limits of what is remembered of pods. Pods of one owner have the same metadata, so that there are few in practice.
const (
	maxKnownPods  = 4096
	maxKnownBytes = 16 << 20
	// maxRemembered is how much metadata of one pod is worth remembering.
	maxRemembered = 64 << 10
)

// Asks knows what pods ask for: by their annotations, by the NodeFeatureRequest that they name, and by the policies that
// select them. It is safe for concurrent use.
type Asks struct {
	opt rules.Options

	mu         sync.RWMutex
	requests   map[string]asked // by namespace/name
	policies   []*request.Policy
	namespaces map[string]map[string]string // labels by name

	known      map[string]asked // by the JSON of the metadata that matters
	knownBytes int
}

// asked is what a pod or an object asks for, or why that is not known.
type asked struct {
	ask     *request.Ask
	problem *fleet.Reason
}

// NewAsks returns an Asks without any requests and policies.
func NewAsks(opt rules.Options) *Asks {
	return &Asks{
		opt: opt, requests: map[string]asked{}, namespaces: map[string]map[string]string{}, known: map[string]asked{},
	}
}

// PutRequest adds a NodeFeatureRequest or replaces it.
func (a *Asks) PutRequest(obj *assayv1alpha1.NodeFeatureRequest) {
	name := obj.Namespace + "/" + obj.Name
	ask, report := request.Compile(&obj.Spec, field.NewPath("spec"), "NodeFeatureRequest "+name, a.opt)
	out := asked{ask: ask}
	if !report.OK() {
		out.problem = problem("NodeFeatureRequest %s is invalid: %s", name, report.Errors[0])
	}
	a.change(func() { a.requests[name] = out })
}

// RemoveRequest forgets a NodeFeatureRequest.
func (a *Asks) RemoveRequest(namespace, name string) {
	a.change(func() { delete(a.requests, namespace+"/"+name) })
}

// PutPolicy adds a NodeFeatureSchedulingPolicy or replaces it. One with mistakes selects no pods: nobody's pods shall wait for
// what the administrator has mistyped.
func (a *Asks) PutPolicy(obj *assayv1alpha1.NodeFeatureSchedulingPolicy) {
	policy, _ := request.CompilePolicy(obj, a.opt)
	a.change(func() {
		a.removePolicy(obj.Name)
		if policy != nil {
			a.policies = append(a.policies, policy)
			slices.SortFunc(a.policies, func(x, y *request.Policy) int { return cmp.Compare(x.Name, y.Name) })
		}
	})
}

// RemovePolicy forgets a NodeFeatureSchedulingPolicy.
func (a *Asks) RemovePolicy(name string) { a.change(func() { a.removePolicy(name) }) }

func (a *Asks) removePolicy(name string) {
	a.policies = slices.DeleteFunc(a.policies, func(p *request.Policy) bool { return p.Name == name })
}

// PutNamespace notes the labels of a namespace; nil if it is gone.
func (a *Asks) PutNamespace(name string, labels map[string]string) {
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

func (a *Asks) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	a.forget()
}

func (a *Asks) forget() {
	clear(a.known)
	a.knownBytes = 0
}

// Of returns what a pod asks for; nil if nothing. The problem is a reason why it fits no node at all.
func (a *Asks) Of(namespace string, labels, annotations map[string]string) (ask *request.Ask, problem *fleet.Reason) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	out := a.find(namespace, labels, annotations)
	return out.ask, out.problem
}

// of is Of for the JSON of a pod. It decodes metadata that it has not seen before.
func (a *Asks) of(p *pod) (*request.Ask, *fleet.Reason) {
	var space [1024]byte
	key := append(space[:0], p.namespace...)
	key = append(append(key, 0), p.labels...)
	key = append(append(key, 0), p.annotations...)
	a.mu.RLock()
	known, ok := a.known[string(key)]
	a.mu.RUnlock()
	if ok {
		return known.ask, known.problem
	}
	var labels, annotations map[string]string
	for _, m := range []struct {
		from span
		into *map[string]string
	}{{p.labels, &labels}, {p.annotations, &annotations}} {
		if m.from == nil {
			continue
		}
		if err := json.Unmarshal(m.from, m.into); err != nil {
			return nil, problem("the metadata of the pod cannot be read")
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.find(p.namespace.text(), labels, annotations)
	if len(key) > maxRemembered {
		return out.ask, out.problem
	}
	if len(a.known) >= maxKnownPods || a.knownBytes+len(key) > maxKnownBytes {
		a.forget()
	}
	a.known[string(key)] = out
	a.knownBytes += len(key)
	return out.ask, out.problem
}

// find needs the lock.
func (a *Asks) find(namespace string, labels, annotations map[string]string) asked {
	own, report := request.Annotations(annotations, field.NewPath("metadata"), a.opt)
	if !report.OK() {
		return asked{problem: problem("%s", report.Errors[0])}
	}
	list := []*request.Ask{own}
	if name := labels[assayv1alpha1.FeatureRequestLabel]; name != "" {
		r, ok := a.requests[namespace+"/"+name]
		switch {
		case !ok:
			return asked{problem: problem("NodeFeatureRequest %s/%s does not exist", namespace, name)}
		case r.problem != nil:
			return r
		}
		list = append(list, r.ask)
	}
	for _, p := range a.policies {
		if p.Selects(labels, a.namespaces[namespace]) {
			list = append(list, p.Ask)
		}
	}
	return asked{ask: request.Join(list...)}
}

func problem(format string, args ...any) *fleet.Reason {
	text := fmt.Sprintf(format, args...)
	if len(text) > maxProblem {
		text = strings.ToValidUTF8(text[:maxProblem], "") + "…"
	}
	r := fleet.NewReason("node feature requirement not met: " + text)
	return &r
}

// maxProblem is how much of a mistake goes into an event, which has room for 1,024 bytes.
const maxProblem = 600

package request

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/informer"
	"github.com/assay-project/assay/rules/requirements"
)

// responses are the objects that taint nodes which lose features, and the namespaces that allow it.
type responses struct {
	changed func() // called after a change

	mu         sync.Mutex
	requests   map[string]response // by namespace/name
	policies   map[string]response // by name
	namespaces map[string]bool
}

// response is the response of one object to the loss of what it requires.
type response struct {
	required requirements.Key
	value    string
	grace    time.Duration
}

func newResponses(changed func()) *responses {
	return &responses{
		changed: changed, requests: map[string]response{}, policies: map[string]response{}, namespaces: map[string]bool{},
	}
}

// watch keeps the responses up to date, and returns once all existing objects are known.
func (r *responses) watch(ctx context.Context, c cache.Cache) error {
	return informer.Watch(ctx, c,
		informer.Registration{Object: &assayv1alpha1.NodeFeatureRequest{}, Handler: informer.Handler(
			func(o *assayv1alpha1.NodeFeatureRequest) {
				put(r, r.requests, o.Namespace+"/"+o.Name, responseOf(&o.Spec.LossResponse, o.Spec.Required, o.Namespace, o.Name))
			},
			func(o *assayv1alpha1.NodeFeatureRequest) { put(r, r.requests, o.Namespace+"/"+o.Name, response{}) },
		)},
		informer.Registration{Object: &assayv1alpha1.NodeFeatureSchedulingPolicy{}, Handler: informer.Handler(
			func(o *assayv1alpha1.NodeFeatureSchedulingPolicy) {
				put(r, r.policies, o.Name, responseOf(&o.Spec.LossResponse, o.Spec.Required, "", o.Name))
			},
			func(o *assayv1alpha1.NodeFeatureSchedulingPolicy) { put(r, r.policies, o.Name, response{}) },
		)},
		informer.Registration{Object: inputs.Namespace(), Handler: informer.Handler(
			func(n *metav1.PartialObjectMetadata) {
				put(r, r.namespaces, n.Name, n.Labels[assayv1alpha1.OnLossLabel] == assayv1alpha1.OnLossLabelEnabled)
			},
			func(n *metav1.PartialObjectMetadata) { put(r, r.namespaces, n.Name, false) },
		)},
	)
}

// defaultGrace is the grace of an object without one: longer than a driver takes to be loaded again.
const defaultGrace = 5 * time.Minute

// responseOf returns the zero value for an object that taints no node.
func responseOf(in *assayv1alpha1.LossResponse, required *assayv1alpha1.Requirement, namespace, name string) response {
	if in.OnLoss != assayv1alpha1.LossTaint || required == nil {
		return response{}
	}
	grace := defaultGrace
	if in.Grace != nil {
		grace = max(in.Grace.Duration, requirements.MinLossGrace*time.Second)
	}
	return response{required: requirements.KeyOf(required), value: requirements.TaintValue(namespace, name), grace: grace}
}

// put sets an element of one of the maps. The zero value removes it.
func put[T comparable](r *responses, in map[string]T, name string, value T) {
	var none T
	r.mu.Lock()
	same := in[name] == value
	if in[name] = value; value == none {
		delete(in, name)
	}
	r.mu.Unlock()
	if !same {
		r.changed()
	}
}

// allows reports whether nodes may be tainted because of the pods of a namespace.
func (r *responses) allows(namespace string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.namespaces[namespace]
}

// of returns the losses of a pod that taint its node. Unmet are the requirements that the node does not meet, with what it lacks, had those
// that it has met since the pod is bound to it, and policies those that select the pod.
func (r *responses) of(p *corev1.Pod, unmet map[requirements.Key]string, had map[requirements.Key]bool, policies []*requirements.Policy) (out []loss.Loss) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.namespaces[p.Namespace] {
		return nil
	}
	add := func(object string, to response) {
		if lacks, ok := unmet[to.required]; ok && to.grace > 0 {
			out = append(out, loss.Loss{Object: object, Value: to.value, Grace: to.grace, Pod: p.Namespace + "/" + p.Name, Lacks: lacks, Had: had[to.required]})
		}
	}
	if name := p.Labels[assayv1alpha1.FeatureRequestLabel]; name != "" {
		add("NodeFeatureRequest "+p.Namespace+"/"+name, r.requests[p.Namespace+"/"+name])
	}
	for _, policy := range policies {
		add("NodeFeatureSchedulingPolicy "+policy.Name, r.policies[policy.Name])
	}
	return out
}

// join adds the losses of a pod to those of other pods on the node: each object is lost once, for a pod for which the node had it.
func join(all map[string]loss.Loss, more []loss.Loss) {
	for _, l := range more {
		if before, ok := all[l.Object]; !ok || l.Had && !before.Had {
			all[l.Object] = l
		}
	}
}

func sorted(all map[string]loss.Loss) []loss.Loss {
	return slices.SortedFunc(maps.Values(all), func(a, b loss.Loss) int { return strings.Compare(a.Object, b.Object) })
}

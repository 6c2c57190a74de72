package request

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/internal/informer"
	"github.com/assay-project/assay/rules/requirements"
)

// ReasonFeaturesLost is the reason of the Event on a pod whose node no longer has required features.
const ReasonFeaturesLost = "FeaturesLost"

// lostDelay is how long changes of a node are batched before its pods are checked.
const lostDelay = time.Second

// watch emits Events on running pods whose node has lost required features. It evicts no pods: only the owner of a running pod
// knows whether it still needs the feature.
type watch struct {
	index    *index.Index
	resolver *podrequirements.Resolver
	events   record.EventRecorder

	mu    sync.Mutex
	pods  map[string]map[types.UID]*corev1.Pod // by node
	lost  map[types.UID]string                 // what was already reported
	dirty map[string]bool                      // nodes; "": all
	wake  chan struct{}
}

func newWatch(view *index.Index, known *podrequirements.Resolver, events record.EventRecorder) *watch {
	return &watch{
		index: view, resolver: known, events: events, pods: map[string]map[types.UID]*corev1.Pod{}, lost: map[types.UID]string{},
		dirty: map[string]bool{}, wake: make(chan struct{}, 1),
	}
}

// add watches running pods through a separate cache that keeps little more than their names.
func (w *watch) add(mgr ctrl.Manager) error {
	running, err := fields.ParseSelector("spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
	if err != nil {
		return err
	}
	pods, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme(), ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}: {Field: running, Transform: slimPod},
	}})
	if err != nil {
		return err
	}
	if err := mgr.Add(pods); err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		err := informer.Watch(ctx, pods, informer.Registration{Object: &corev1.Pod{}, Handler: informer.Handler(w.put, w.drop)})
		if err != nil {
			return err
		}
		w.touch("")
		return w.run(ctx)
	}))
}

// slimPod keeps the fields of a pod that hold its requirements and its node.
func slimPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	out := &corev1.Pod{}
	out.Namespace, out.Name, out.UID, out.ResourceVersion = p.Namespace, p.Name, p.UID, p.ResourceVersion
	out.CreationTimestamp, out.Labels = p.CreationTimestamp, p.Labels
	out.Spec.NodeName = p.Spec.NodeName
	for _, key := range []string{
		assayv1alpha1.RequiredFeaturesAnnotation, assayv1alpha1.RequirementHashAnnotation,
	} {
		if value, ok := p.Annotations[key]; ok {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[key] = value
		}
	}
	return out, nil
}

func (w *watch) put(p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods[p.Spec.NodeName] == nil {
		w.pods[p.Spec.NodeName] = map[types.UID]*corev1.Pod{}
	}
	w.pods[p.Spec.NodeName][p.UID] = p
}

func (w *watch) drop(p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lost, p.UID)
	delete(w.pods[p.Spec.NodeName], p.UID)
	if len(w.pods[p.Spec.NodeName]) == 0 {
		delete(w.pods, p.Spec.NodeName)
	}
}

// touch marks the pods of a node for a check, or of all nodes.
func (w *watch) touch(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[node] = true
	select {
	case w.wake <- struct{}{}:
	default: // already awake
	}
}

func (w *watch) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lostDelay):
		}
		w.look()
	}
}

// look checks the pods on nodes that have changed.
func (w *watch) look() {
	if !w.index.Synced() {
		return // it is touched again when it is
	}
	w.mu.Lock()
	nodes := w.dirty
	w.dirty = map[string]bool{}
	if nodes[""] {
		for node := range w.pods {
			nodes[node] = true
		}
	}
	var pods []*corev1.Pod
	for node := range nodes {
		pods = slices.AppendSeq(pods, maps.Values(w.pods[node]))
	}
	w.mu.Unlock()
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for _, p := range pods {
		w.tell(p, w.lacks(p))
	}
}

// lacks returns the requirements of a pod that its node does not meet. Unknown requirements count as met: a request that has
// changed since the pod was created, or a deleted node. Stale features count as present.
func (w *watch) lacks(p *corev1.Pod) string {
	reqs := w.requirements(p)
	if reqs == nil {
		return ""
	}
	list, _ := w.index.Explain(&requirements.Requirements{Required: reqs.Required}, p.Spec.NodeName, 0)
	for _, f := range list {
		if !f.Met {
			return f.Lacks
		}
	}
	return ""
}

// requirements returns the requirements that a pod had when it was created, nil if it had none or they are unknown. Admission has recorded
// their hash. Without admission, only requirements that cannot have changed are known.
func (w *watch) requirements(p *corev1.Pod) *requirements.Requirements {
	hash := p.Annotations[assayv1alpha1.RequirementHashAnnotation]
	if hash == "" {
		return w.resolver.Since(p.CreationTimestamp.Time, p.Namespace, p.Labels, p.Annotations)
	}
	reqs, problem := w.resolver.Of(p.Namespace, p.Labels, p.Annotations)
	if problem != "" || hash != reqs.Hash() {
		return nil
	}
	return reqs
}

// tell emits an Event, once for each lost requirement.
func (w *watch) tell(p *corev1.Pod, lacks string) {
	w.mu.Lock()
	before := w.lost[p.UID]
	if lacks == "" {
		delete(w.lost, p.UID)
	} else {
		w.lost[p.UID] = lacks
	}
	w.mu.Unlock()
	if lacks != "" && lacks != before {
		w.events.Eventf(p, corev1.EventTypeWarning, ReasonFeaturesLost, "node %s lacks %s, which the pod asked for; the pod goes on running",
			p.Spec.NodeName, lacks)
	}
}

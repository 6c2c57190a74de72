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

// ReasonFeaturesLost is the reason of the event on a pod whose node no longer has what the pod asked for.
const ReasonFeaturesLost = "FeaturesLost"

// lostDelay is how long changes of a node are gathered before its pods are looked at.
const lostDelay = time.Second

// watch tells of running pods whose node has lost what they ask for. No pod is evicted: what a missing feature means for a
// pod that runs is for its owner to say.
type watch struct {
	index    *index.Index
	resolver *podrequirements.Resolver
	events   record.EventRecorder

	mu    sync.Mutex
	pods  map[string]map[types.UID]*corev1.Pod // by node
	lost  map[types.UID]string                 // what was told already
	dirty map[string]bool                      // nodes; "": all
	wake  chan struct{}
}

func newWatch(view *index.Index, known *podrequirements.Resolver, events record.EventRecorder) *watch {
	return &watch{
		index: view, resolver: known, events: events, pods: map[string]map[types.UID]*corev1.Pod{}, lost: map[types.UID]string{},
		dirty: map[string]bool{}, wake: make(chan struct{}, 1),
	}
}

// add has running pods watched through a cache of its own, of which little more than names is kept.
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

// slimPod keeps what says what a pod asks for and where it runs.
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

// touch has the pods of a node looked at, or of all nodes.
func (w *watch) touch(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[node] = true
	select {
	case w.wake <- struct{}{}:
	default: // it is awake
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

// look looks at the pods of nodes that have changed.
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

// lacks is what a pod asked for and its node does not have. What cannot be known counts as being there: a request that has
// changed since the pod was created, or a node that is gone. Features that are merely old count as being there as well.
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

// requirements returns what a pod required when it was created, nil if that is nothing or not known. Admission has noted the hash of it.
// Where admission was not asked, only what cannot have changed is known.
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

// tell writes an event, once for each thing that is lost.
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

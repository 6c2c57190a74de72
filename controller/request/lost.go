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
	"github.com/assay-project/assay/controller/loss"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/internal/informer"
	"github.com/assay-project/assay/rules/requirements"
)

// ReasonFeaturesLost is the reason of the Event on a pod whose node no longer has required features.
const ReasonFeaturesLost = "FeaturesLost"

// lostDelay is how long changes of a node are batched before its pods are checked.
const lostDelay = time.Second

// watch emits Events on running pods whose node has lost required features, and reports the losses that taint nodes. It evicts no
// pods: only the owner of a running pod knows whether it still needs the feature.
type watch struct {
	index     *index.Index
	nodes     *inputs.Nodes
	resolver  *podrequirements.Resolver
	events    record.EventRecorder
	losses    *loss.Tracker // nil: no node is tainted
	responses *responses

	mu    sync.Mutex
	pods  map[string]map[types.UID]*corev1.Pod    // by node
	lost  map[types.UID]string                    // what was already reported
	had   map[types.UID]map[requirements.Key]bool // what the node met while the pod was bound to it, if losses taint nodes
	dirty map[string]bool                         // nodes; "": all
	wake  chan struct{}
}

func newWatch(view *index.Index, known *podrequirements.Resolver, events record.EventRecorder, opt Options) *watch {
	return &watch{
		index: view, nodes: opt.Nodes, resolver: known, events: events, losses: opt.Losses, pods: map[string]map[types.UID]*corev1.Pod{}, lost: map[types.UID]string{},
		had: map[types.UID]map[requirements.Key]bool{}, dirty: map[string]bool{}, wake: make(chan struct{}, 1),
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
	if w.pods[p.Spec.NodeName][p.UID] == nil && (w.losses != nil || asks(p)) {
		w.mark(p.Spec.NodeName) // the node may have lost the features before this watch delivered the pod
	}
	w.pods[p.Spec.NodeName][p.UID] = p
}

// asks reports whether a pod may have requirements that lacks evaluates.
func asks(p *corev1.Pod) bool {
	return len(p.Annotations) > 0 || p.Labels[assayv1alpha1.FeatureRequestLabel] != "" // slimPod keeps the annotations of requirements only
}

func (w *watch) drop(p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, lost := w.lost[p.UID]; lost && w.losses != nil {
		w.mark(p.Spec.NodeName)
	}
	delete(w.lost, p.UID)
	delete(w.had, p.UID)
	delete(w.pods[p.Spec.NodeName], p.UID)
	if len(w.pods[p.Spec.NodeName]) == 0 {
		delete(w.pods, p.Spec.NodeName)
	}
}

// touch marks the pods of a node for a check, or of all nodes.
func (w *watch) touch(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mark(node)
}

// mark requires the lock.
func (w *watch) mark(node string) {
	w.dirty[node] = true
	select {
	case w.wake <- struct{}{}:
	default: // already awake
	}
}

func (w *watch) run(ctx context.Context) error {
	for {
		var ended <-chan time.Time
		if w.losses != nil {
			nodes, next := w.losses.Waiting()
			for _, node := range nodes {
				w.touch(node)
			}
			if next > 0 {
				ended = time.After(next)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			continue
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
	all := nodes[""]
	delete(nodes, "")
	if all {
		for node := range w.pods {
			nodes[node] = true
		}
	}
	pods := make(map[string][]*corev1.Pod, len(nodes))
	for node := range nodes {
		pods[node] = slices.SortedFunc(maps.Values(w.pods[node]), func(a, b *corev1.Pod) int {
			return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
		})
	}
	w.mu.Unlock()
	for _, node := range slices.Sorted(maps.Keys(pods)) {
		w.check(node, pods[node])
	}
	if all && w.losses != nil {
		w.losses.SetSynced()
	}
}

// check checks the pods on one node.
func (w *watch) check(node string, pods []*corev1.Pod) {
	losses := map[string]loss.Loss{}
	unknown := false
	for _, p := range pods {
		first, unmet, unread := w.lacks(p)
		unknown = unknown || unread
		taints := w.taints(p, unmet)
		w.tell(p, first, slices.ContainsFunc(taints, func(l loss.Loss) bool { return l.Had }))
		join(losses, taints)
	}
	switch {
	case w.losses == nil:
	case unknown, len(losses) > 0 && !w.nodes.Publishes(node):
		w.losses.SetUnknown(node) // without the worker's NodeFeature, or a source in it, the node seems to have lost what it lacks
	default:
		w.losses.Set(node, sorted(losses))
	}
}

// lacks returns the requirements of a pod that its node does not meet, with what the node lacks, and the first of these. Unknown
// requirements count as met: a request that has changed since the pod was created, or a deleted node. Stale features count as present.
// Unknown is set if it is unknown of a requirement whether the node meets it, because of a source that its worker has not read.
func (w *watch) lacks(p *corev1.Pod) (first string, unmet map[requirements.Key]string, unknown bool) {
	reqs := w.requirements(p)
	if reqs == nil {
		return "", nil, false
	}
	list, _ := w.index.Explain(&requirements.Requirements{Required: reqs.Required}, p.Spec.NodeName, 0)
	for i, f := range list {
		if f.Met {
			w.has(p, reqs.Required[i].Key)
			continue
		}
		if f.Unknown {
			unknown = true
			continue
		}
		if unmet == nil {
			first, unmet = f.Lacks, map[requirements.Key]string{}
		}
		unmet[reqs.Required[i].Key] = f.Lacks
	}
	return first, unmet, unknown
}

// has records that the node of a pod meets a requirement of the pod.
func (w *watch) has(p *corev1.Pod, key requirements.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.losses == nil || w.pods[p.Spec.NodeName][p.UID] == nil {
		return
	}
	if w.had[p.UID] == nil {
		w.had[p.UID] = map[requirements.Key]bool{}
	}
	w.had[p.UID][key] = true
}

// taints returns the losses of a pod that taint its node, or keep the taint that it has.
func (w *watch) taints(p *corev1.Pod, unmet map[requirements.Key]string) []loss.Loss {
	if w.losses == nil || len(unmet) == 0 {
		return nil
	}
	w.mu.Lock()
	had := maps.Clone(w.had[p.UID])
	w.mu.Unlock()
	return w.responses.of(p, unmet, had, w.resolver.Policies(p.Namespace, p.Labels))
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

// tell emits an Event, once for each lost requirement. Taints is set if the node is tainted after a grace.
func (w *watch) tell(p *corev1.Pod, lacks string, taints bool) {
	w.mu.Lock()
	before := w.lost[p.UID]
	if lacks == "" {
		delete(w.lost, p.UID)
	} else {
		w.lost[p.UID] = lacks
	}
	w.mu.Unlock()
	if lacks == "" || lacks == before {
		return
	}
	then := "the pod goes on running"
	if taints {
		then = "the node will be tainted unless it has it again in time"
	}
	w.events.Eventf(p, corev1.EventTypeWarning, ReasonFeaturesLost, "node %s lacks %s, which the pod asked for; %s", p.Spec.NodeName, lacks, then)
}

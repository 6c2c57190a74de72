package main

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/preview"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/webhook"
)

// lookUp gives the webhook what it looks up while somebody waits, from caches that are filled once the manager starts, and
// returns what says whether the webhook may be asked as far as they are concerned. Rules it evaluates as the controller does.
func (f *webhookFlags) lookUp(ctx context.Context, mgr ctrl.Manager, o *webhook.Options) (ready func() error, err error) {
	c := mgr.GetCache()
	o.Known.Templates, o.Known.AllTemplates = templates(c), true
	o.Publishing.LabelPrefixes = labelPrefixes(c)
	for _, object := range []client.Object{&assayv1alpha1.NodeFeatureRuleTemplate{}, namespaceMetadata()} {
		if _, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return nil, err
		}
	}
	if !f.nodeWarnings && !f.scheduling {
		return always, nil
	}
	settings, _, err := f.load()
	if err != nil {
		return nil, err
	}
	same := f.likeController(settings, f.namespace)
	assembled, err := compile.Add(mgr, same.Assembly())
	if err != nil {
		return nil, err
	}
	o.Room = assembled.Room
	if f.nodeWarnings {
		w := &watcher{cache: c, registry: assembled.Registry()}
		w.nodes = preview.New(same.Gather(), assembled.Registry(), w.synced)
		o.Cluster, o.Known.Published = nodes{w.nodes}, w.nodes.Published
		if err := w.watch(ctx); err != nil {
			return nil, err
		}
	}
	return f.review(mgr, same, assembled, o)
}

// always is ready.
func always() error { return nil }

// admissionCache says what the webhook keeps of the objects it watches.
func admissionCache(namespace string, budget *nodefeature.Budget, sets *featuresets.Store) cache.Options {
	own := map[string]cache.Config{namespace: {}}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		NewInformer:      sets.Informers(budget.Informers(toolscache.NewSharedIndexInformer)),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:             {Transform: node.Slim},
			&nodefeature.NodeFeature{}: {Transform: nodefeature.Slim},
			&corev1.Secret{}:           {Namespaces: own},
			&corev1.ConfigMap{}:        {Namespaces: own},

			&assayv1alpha1.NodeFeatureSet{}: {Namespaces: own},
		},
	}
}

// templates finds what rules are based on.
func templates(c client.Reader) compose.Lookup {
	return func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
		var t assayv1alpha1.NodeFeatureRuleTemplate
		err := c.Get(context.Background(), client.ObjectKey{Name: name}, &t, client.UnsafeDisableDeepCopy) // from memory
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return &t.Spec, err
	}
}

// labelPrefixes finds which labels a namespace may ask for. A namespace that is not known yet, which only a new one can be,
// restricts nothing: whoever makes namespaces decides that anyway.
func labelPrefixes(c client.Reader) func(string) ([]string, bool) {
	return func(name string) ([]string, bool) {
		namespace := namespaceMetadata()
		if err := c.Get(context.Background(), client.ObjectKey{Name: name}, namespace); err != nil {
			return nil, false
		}
		return webhook.ParseLabelPrefixes(namespace.Annotations)
	}
}

// namespaceMetadata is a Namespace of which only the metadata is read and cached.
func namespaceMetadata() *metav1.PartialObjectMetadata {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns
}

// nodes are the nodes of the cluster as the webhook wants to know them.
type nodes struct{ *preview.Nodes }

// Preview implements webhook.Cluster.
func (n nodes) Preview(ctx context.Context, set *rules.RuleSet) (p webhook.Preview, ok bool) {
	p.Matched, p.Nodes, p.All, ok = n.Count(ctx, set)
	return p, ok
}

// watcher tells preview.Nodes what changes.
type watcher struct {
	cache         cache.Cache
	nodes         *preview.Nodes
	registry      *assembly.Registry
	registrations []toolscache.ResourceEventHandlerRegistration
	done          atomic.Bool
}

// synced says whether every object that existed at the start was told, and the rules are put together.
func (w *watcher) synced() bool {
	if w.done.Load() {
		return true
	}
	if w.registry.Program() == nil {
		return false
	}
	for _, r := range w.registrations {
		if !r.HasSynced() {
			return false
		}
	}
	w.done.Store(true)
	return true
}

func (w *watcher) watch(ctx context.Context) error {
	for _, kind := range []struct {
		object client.Object
		put    func(old, object any)
		remove func(object any)
	}{
		{
			&corev1.Node{},
			func(_, object any) { w.nodes.PutNode(object.(*corev1.Node)) },
			func(object any) { w.nodes.RemoveNode(object.(*corev1.Node).Name) },
		},
		{
			&nodefeature.NodeFeature{},
			func(old, object any) {
				before, _ := old.(*nodefeature.NodeFeature)
				w.nodes.PutFeature(before, object.(*nodefeature.NodeFeature))
			},
			func(object any) { w.nodes.RemoveFeature(object.(*nodefeature.NodeFeature)) },
		},
	} {
		informer, err := w.cache.GetInformer(ctx, kind.object, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		r, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { kind.put(nil, object) },
			UpdateFunc: kind.put,
			DeleteFunc: func(object any) {
				if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
					object = last.Obj
				}
				kind.remove(object)
			},
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind.object, err)
		}
		w.registrations = append(w.registrations, r)
	}
	return nil
}

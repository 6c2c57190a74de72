package main

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/nodecache"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/preview"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/webhook"
)

// lookUp connects the lookups of the webhook to caches of the manager, and returns a function that checks whether these caches are
// synced. The webhook evaluates rules as the controller does. Relist: see compile.Options.
func (f *webhookFlags) lookUp(ctx context.Context, mgr ctrl.Manager, relist func(resource string), o *webhook.Options) (ready func() error, err error) {
	c := mgr.GetCache()
	o.Known.Templates, o.Known.AllTemplates = templates(c), true
	o.Publishing.LabelPrefixes = labelPrefixes(c)
	o.Known.Claimed, o.Known.NoDevices = claimed(mgr.GetAPIReader()), noDevices(mgr.GetAPIReader())
	watched := []client.Object{&assayv1alpha1.NodeFeatureRuleTemplate{}, inputs.Namespace()}
	if f.selectors {
		o.Request = requests(c)
		watched = append(watched, &assayv1alpha1.NodeFeatureRequest{})
	}
	for _, object := range watched {
		if _, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return nil, err
		}
	}
	if !f.nodeWarnings && !f.scheduling {
		return always, nil
	}
	settings, _, err := f.Load()
	if err != nil {
		return nil, err
	}
	same := controllerConfig(settings, f.namespace)
	same.Relist = relist
	if !f.scheduling {
		same.MaterializedRequests.Total = 0 // the webhook may not read requests
	}
	assembled, err := compile.Add(mgr, same.Assembly())
	if err != nil {
		return nil, err
	}
	o.Room = assembled.Room
	if same.Devices, err = devices.Add(mgr, same.Sources(), same.RemovalGracePeriod); err != nil {
		return nil, err
	}
	known := inputs.New(same.Inputs(nil))
	if f.nodeWarnings {
		p := preview.New(known, assembled.Registry())
		o.Cluster, o.Known.Published, o.Known.HasNode, o.Known.Labels = nodes{p}, p.Published, p.HasNode, p.Labels
	}
	if ready, err = f.review(mgr, same, assembled, known, o); err != nil {
		return nil, err
	}
	return ready, errors.Join(known.Watch(ctx, c), mgr.Add(known))
}

// always reports that a part is always ready.
func always() error { return nil }

// admissionCache configures which parts of objects the webhook caches.
func admissionCache(namespace string, budget *nodefeature.Budget, sets *featuresets.Store) cache.Options {
	own := map[string]cache.Config{namespace: {}}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		NewInformer:      sets.Informers(budget.Informers(nodecache.Informers(toolscache.NewSharedIndexInformer))),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:             {Transform: node.Slim},
			&nodefeature.NodeFeature{}: {Transform: nodefeature.Slim},
			&corev1.Secret{}:           {Namespaces: own},
			&corev1.ConfigMap{}:        {Namespaces: own},

			&assayv1alpha1.NodeFeatureSet{}: {Namespaces: own},
		},
	}
}

// direct returns the options with informers that decode watches of NodeFeatures themselves.
func direct(config *rest.Config, options cache.Options) (cache.Options, error) {
	var err error
	options.NewInformer, err = nodefeature.Direct(config, options.NewInformer)
	return options, err
}

// templates returns a lookup of templates in the cache.
func templates(c client.Reader) compose.Lookup {
	return func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error) {
		var t assayv1alpha1.NodeFeatureRuleTemplate
		err := c.Get(context.Background(), client.ObjectKey{Name: name}, &t, client.UnsafeDisableDeepCopy) // from the cache
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return &t.Spec, err
	}
}

// labelPrefixes returns a function that returns the label prefixes that a namespace may request. A namespace that is not in the
// cache is new and has no restrictions, because users who create namespaces can set the annotations themselves.
func labelPrefixes(c client.Reader) func(string) ([]string, bool) {
	return func(name string) ([]string, bool) {
		namespace := inputs.Namespace()
		if err := c.Get(context.Background(), client.ObjectKey{Name: name}, namespace); err != nil {
			return nil, false
		}
		return webhook.ParseLabelPrefixes(namespace.Annotations)
	}
}

// nodes adapts the nodes of the cluster to the webhook.
type nodes struct{ *preview.Nodes }

// Preview implements webhook.Cluster.
func (n nodes) Preview(ctx context.Context, set *rules.RuleSet) (p webhook.Preview, ok bool) {
	p.Matched, p.Nodes, p.All, ok = n.Count(ctx, set)
	return p, ok
}

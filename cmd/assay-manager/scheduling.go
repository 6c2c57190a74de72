package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/fleet/follow"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/rules/podadmission"
	"github.com/assay-project/assay/webhook"
)

// schedulingFlags are the webhook's flags for pods and workloads that require features.
type schedulingFlags struct {
	scheduling, selectors, attached bool
}

func (f *schedulingFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.attached, "extender-attached", false, "the extender may be attached to the default scheduler: do not warn about pods that rely on it")
	flags.BoolVar(&f.scheduling, "scheduling", false, "also review pods and workloads that require features; keeps the features of all nodes in memory")
	flags.BoolVar(&f.selectors, "request-selectors", false, "add the labels of NodeFeatureRequests to the node selectors of pods, DaemonSets and Jobs that name one")
}

// requests returns a lookup of NodeFeatureRequests in the cache.
func requests(c cache.Cache) func(context.Context, string, string) (*assayv1alpha1.NodeFeatureRequest, error) {
	return func(ctx context.Context, namespace, name string) (*assayv1alpha1.NodeFeatureRequest, error) {
		r := &assayv1alpha1.NodeFeatureRequest{}
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, r, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return r, err
	}
}

// review adds the lookups for pods and nodes to the webhook, and returns a function that checks whether requirements are synced.
// same is the configuration of the controller.
func (f *schedulingFlags) review(mgr ctrl.Manager, same controller.Config, assembled *compile.Rules, nodes *inputs.Nodes, o *webhook.Options) (ready func() error, err error) {
	if !f.scheduling {
		return always, nil
	}
	view, known := index.New(), podrequirements.New(o.Known.Rules)
	follower := follow.New(view, nodes, follow.Options{Rules: assembled.Registry()})
	exact := &labelCache{registry: assembled.Registry()}
	o.Scheduling = &webhook.Scheduling{
		Requirements: known, Index: view, Labels: exact.labels, Attached: f.attached,
		Namespace: func(name string) map[string]string {
			ns := inputs.Namespace()
			if err := mgr.GetCache().Get(context.Background(), client.ObjectKey{Name: name}, ns); err != nil { // from the cache
				return nil
			}
			return ns.Labels
		},
		Shapes: func() []assayv1alpha1.NodeShape {
			var list assayv1alpha1.NodeShapeList
			if err := mgr.GetCache().List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil { // from the cache
				return nil
			}
			return list.Items
		},
	}
	if _, err := mgr.GetCache().GetInformer(context.Background(), &assayv1alpha1.NodeShape{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, err
	}
	if same.Restrictions.DisableLabels || same.NoPublish || !same.Restrictions.AllowOverwrite {
		o.Scheduling.Labels = func() podadmission.Labels { return nil } // that a rule matches does not imply that the node has the label
	}
	var asked atomic.Bool
	ready = func() error {
		if !asked.Load() {
			return errors.New("NodeFeatureRequests and policies are not synced yet") // otherwise a pod with requirements would be admitted without them
		}
		return nil
	}
	return ready, mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if err := follow.Requirements(ctx, mgr.GetCache(), known); err != nil {
			return err
		}
		asked.Store(true)
		if err := follower.Sync(ctx, mgr.GetCache()); err != nil {
			return err
		}
		return follower.Run(ctx)
	}))
}

// labelCache caches the requirements that are equivalent to a label until rules change.
type labelCache struct {
	registry *assembly.Registry
	known    atomic.Pointer[knownLabels]
}

type knownLabels struct {
	generation int64
	labels     podadmission.Labels
}

func (l *labelCache) labels() podadmission.Labels {
	linked := l.registry.Program()
	if linked == nil {
		return nil // a label could seem to be written by only one rule
	}
	if known := l.known.Load(); known != nil && known.generation == linked.Generation {
		return known.labels
	}
	var list []podadmission.Rules
	for _, r := range l.registry.All() {
		list = append(list, podadmission.Rules(r))
	}
	found := podadmission.LabelsOf(list, l.registry.Options())
	l.known.Store(&knownLabels{linked.Generation, found})
	return found
}

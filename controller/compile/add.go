package compile

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/assembly/directory"
	"github.com/assay-project/assay/internal/definition/follow"
	"github.com/assay-project/assay/internal/informer"
	"github.com/assay-project/assay/internal/replicas"
)

// Add registers the compiler of the cluster's rules with a manager. It runs on every replica, so that a new leader has the rules at
// hand. It watches:
//
//   - NodeFeatureRules, to compile them.
//   - NodeFeatureRuleTemplates, and Secrets and ConfigMaps in the manager's namespace, to compile the objects again that refer
//     to one that has changed.
//   - NodeFeatureRequests, if some are materialized: their requirements are rules too.
//   - NodeBaselines, if their conditions are set on Nodes: these are rules too.
//   - the directory of built-in rules, and the definitions of these kinds.
//
// The manager's cache must be one of NewCache. The registry is ready once every object that existed at the start has been processed.
func Add(mgr ctrl.Manager, opt Options) (*Rules, error) {
	watcher, err := client.NewWithWatch(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	definitions := follow.New(follow.Options{
		Live: mgr.GetAPIReader(), Events: follow.Watch(watcher), Every: opt.DefinitionsEvery, Relist: opt.Relist,
	}, opt.kinds()...)
	r := newRules(mgr.GetClient(), mgr.GetAPIReader(), opt, definitions)
	caches, ok := mgr.GetCache().(*orderedCache)
	if !ok {
		return nil, errors.New("the manager has no cache of compile.NewCache")
	}
	caches.before = func(ctx context.Context) {
		untilDone(ctx, "definitions", func() error { return definitions.Load(ctx) })
	}
	if opt.BuiltIn != "" {
		// Load built-in rules before the registry is ready: nodes that are evaluated without them would lose their outputs.
		r.builtIn = directory.New(opt.BuiltIn, r.registry)
		if err := mgr.Add(replicas.Every(r.builtIn.Start)); err != nil {
			return nil, err
		}
	}
	everywhere := false
	err = ctrl.NewControllerManagedBy(mgr).
		Named("rule-compile").
		For(&nfdv1alpha1.NodeFeatureRule{}, builder.WithPredicates(informer.SpecChanged)).
		WithOptions(controller.Options{NeedLeaderElection: &everywhere}).
		Complete(reconcile.Func(r.object))
	if err != nil {
		return nil, err
	}
	err = builder.TypedControllerManagedBy[assembly.Ref](mgr).
		Named("rule-references").
		Watches(&assayv1alpha1.NodeFeatureRuleTemplate{}, changes(assembly.TemplateRef),
			builder.WithPredicates(informer.SpecChanged)).
		WatchesMetadata(&corev1.Secret{}, changes(assembly.SecretRef)).
		WatchesMetadata(&corev1.ConfigMap{}, changes(assembly.ConfigMapRef)).
		WithOptions(controller.TypedOptions[assembly.Ref]{NeedLeaderElection: &everywhere}).
		Complete(reconcile.TypedFunc[assembly.Ref](r.reference))
	if err != nil {
		return nil, err
	}
	if opt.Requests.Total > 0 {
		err = ctrl.NewControllerManagedBy(mgr).
			Named("request-compile").
			For(&assayv1alpha1.NodeFeatureRequest{}, builder.WithPredicates(informer.SpecChanged)).
			WithOptions(controller.Options{NeedLeaderElection: &everywhere}).
			Complete(reconcile.Func(r.materialized))
		if err != nil {
			return nil, err
		}
	}
	if opt.Baselines {
		err = ctrl.NewControllerManagedBy(mgr).
			Named("baseline-compile").
			For(&assayv1alpha1.NodeBaseline{}, builder.WithPredicates(informer.SpecChanged)).
			WithOptions(controller.Options{NeedLeaderElection: &everywhere}).
			Complete(reconcile.Func(r.condition))
		if err != nil {
			return nil, err
		}
	}
	st := &start{
		rules: r, cache: mgr.GetCache(), baselines: opt.Baselines,
		namespace: opt.Assembly.Namespace, keptName: cmp.Or(opt.Assembly.KeptName, assembly.SharedKeptName),
	}
	return r, errors.Join(mgr.Add(replicas.Every(st.run)), mgr.Add(replicas.Every(r.follow)))
}

// changes collects the names of changed objects. The objects that refer to them are looked up when they are compiled, as one
// change.
func changes(kind assembly.RefKind) handler.TypedEventHandler[client.Object, assembly.Ref] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []assembly.Ref {
		return []assembly.Ref{{Kind: kind, Name: o.GetName()}}
	})
}

// Package group keeps lists of the nodes that satisfy NodeFeatureGroups. It is the only writer of their status.
package group

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/condition"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/lru"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/review"
)

const (
	// maxNodes is how many members a status names: 5,000 names of 60 bytes are a third of what etcd takes. The count counts all.
	maxNodes = 5000
	// delay is how long changes of nodes are gathered: a fleet that is upgraded changes node by node, and each write of a
	// large group goes to everybody who watches it.
	delay = time.Second
	// maxCompiled is the maximum memory in bytes that the compiled rules of all groups take: users of namespaces create groups. One that is not
	// among those used last is compiled again.
	maxCompiled = 16 << 20
)

// Options of the controller.
type Options struct {
	// Known is what the reviews of groups depend on.
	Known review.Known
	// Nodes are what rules are given of each node.
	Nodes *inputs.Nodes
	// NodesChanged delivers an event whenever a node has other features.
	NodesChanged <-chan event.GenericEvent
}

// Reconciler writes the status of one group.
type Reconciler struct {
	client client.Client
	events record.EventRecorder
	opt    Options

	programs *lru.Cache[*program] // by namespace/name
}

// program is a group's rules, compiled.
type program struct {
	uid        types.UID
	generation int64
	rules      *rules.Program
	cache      *rules.Cache
	errors     field.ErrorList
	warnings   []rules.Warning
}

// Add registers the controller. It watches the groups of all namespaces, and what the rules are given of nodes.
func Add(mgr ctrl.Manager, opt Options) error {
	opt.Known.Rules.DefaultScope = "" // scopes are for rules
	r := &Reconciler{
		client: mgr.GetClient(), opt: opt, programs: lru.New[*program](maxCompiled),
		events: mgr.GetEventRecorderFor("assay-controller"), //nolint:staticcheck // the new API has no deduplicating recorder yet
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("group").
		For(&nfdv1alpha1.NodeFeatureGroup{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(opt.NodesChanged, gathered{r: r})).
		Complete(r)
}

// gathered puts all groups into the queue after a delay.
type gathered struct {
	handler.Funcs
	r *Reconciler
}

// Generic implements handler.EventHandler.
func (g gathered) Generic(ctx context.Context, _ event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	var list nfdv1alpha1.NodeFeatureGroupList
	if err := g.r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return // only before the cache has started, when every group is due anyway
	}
	for i := range list.Items {
		q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, delay)
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj nfdv1alpha1.NodeFeatureGroup
	if err := r.client.Get(ctx, req.NamespacedName, &obj); err != nil {
		r.programs.Remove(req.String())
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !r.opt.Nodes.Synced() {
		return ctrl.Result{RequeueAfter: delay}, nil
	}
	p := r.compiled(&obj)
	want := status(&obj, p, p.members(r.opt.Nodes.All()))
	if equality.Semantic.DeepEqual(obj.Status, want) {
		return ctrl.Result{}, nil
	}
	before := obj.DeepCopy()
	obj.Status = want
	requests.Inc()
	if err := r.client.Status().Patch(ctx, &obj, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	condition.Announce(r.events, &obj, before.Status.Conditions, obj.Status.Conditions, "GroupNotReady")
	return ctrl.Result{}, nil
}

// compiled returns the rules of a group, which are those of an object that writes nothing: variables are visible to the rules
// after them as rule.matched, as in NFD, and what NodeFeatureRules produce is not.
func (r *Reconciler) compiled(obj *nfdv1alpha1.NodeFeatureGroup) *program {
	key := client.ObjectKeyFromObject(obj).String()
	if p, ok := r.programs.Get([]byte(key)); ok && p.uid == obj.UID && p.generation == obj.Generation {
		return p
	}
	found := review.Review(obj, r.opt.Known)
	p := &program{
		uid: obj.UID, generation: obj.Generation, rules: rules.Link(r.opt.Known.Rules, found.Set), cache: rules.NewCache(),
		errors: found.Errors, warnings: found.Warnings,
	}
	r.programs.Put(key, p, found.Set.Size())
	return p
}

// members returns the names of the nodes that satisfy at least one of the rules, in the order given.
func (p *program) members(nodes []*inputs.State) []string {
	var out []string
	for _, n := range nodes {
		in := n.Input
		in.Labels = nil
		matched := false
		p.cache.Eval(p.rules, in, nil).Matched(func(string) { matched = true })
		if matched {
			out = append(out, in.Node.Name)
		}
	}
	return out
}

// status is what a group's status should be.
func status(obj *nfdv1alpha1.NodeFeatureGroup, p *program, members []string) nfdv1alpha1.NodeFeatureGroupStatus {
	s := *obj.Status.DeepCopy()
	s.ObservedGeneration = obj.Generation
	s.Count = ptr.To(int32(len(members)))
	s.Nodes = nil
	for _, name := range members[:min(len(members), maxNodes)] {
		s.Nodes = append(s.Nodes, nfdv1alpha1.FeatureGroupNode{Name: name})
	}
	message := ""
	if len(members) > maxNodes {
		message = fmt.Sprintf("the list is cut at %d names", maxNodes)
	}
	condition.Of(&s.Conditions, obj.Generation).Reviewed(p.errors, p.warnings, message)
	return s
}

var requests = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "nfd_master_node_feature_group_update_requests_total", Help: "Writes of the status of NodeFeatureGroups that were tried.",
})

func init() { ctrlmetrics.Registry.MustRegister(requests) }

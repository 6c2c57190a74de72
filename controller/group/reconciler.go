package group

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/condition"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/lru"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/rules/warning"
)

const (
	// maxNodes is the maximum number of nodes in a status: 5,000 names of 60 bytes are a third of the size limit of etcd. The count
	// includes all nodes.
	maxNodes = 5000
	// delay is how long changes of nodes are batched: an upgrade changes a fleet node by node, and each write of a large group is
	// sent to all of its watchers.
	delay = time.Second
	// maxCompiled is the maximum memory in bytes for the compiled rules of all groups, since users of namespaces create groups. The
	// least recently used ones are evicted and compiled again when needed.
	maxCompiled = 16 << 20
)

// Reconciler writes the status of one group.
type Reconciler struct {
	client client.Client
	events record.EventRecorder
	opt    Options

	programs *lru.Cache[*program] // by namespace/name
}

// program holds the compiled rules of a group.
type program struct {
	uid        types.UID
	generation int64
	rules      *rules.Program
	errors     field.ErrorList
	warnings   []warning.Warning
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
	want := status(&obj, p, p.members(r.opt.Nodes.All(), &obj.Status), r.opt.Nodes.DevicesProblem(p.rules.Reads()))
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

// compiled returns the compiled rules of a group. They are compiled as an object without outputs to nodes: as in NFD, later rules
// see variables as rule.matched, and they do not see the outputs of NodeFeatureRules.
func (r *Reconciler) compiled(obj *nfdv1alpha1.NodeFeatureGroup) *program {
	key := client.ObjectKeyFromObject(obj).String()
	if p, ok := r.programs.Get([]byte(key)); ok && p.uid == obj.UID && p.generation == obj.Generation {
		return p
	}
	found := review.Review(obj, r.opt.Known)
	p := &program{
		uid: obj.UID, generation: obj.Generation, rules: rules.Link(r.opt.Known.Rules, found.Set),
		errors: found.Errors, warnings: found.Warnings,
	}
	r.opt.Nodes.Need(p.rules.Reads())
	r.programs.Put(key, p, found.Set.Size())
	return p
}

// members returns the names of the nodes that match at least one of the rules, in the given order. A node of which this is unknown, because
// its worker has not read a source since the node booted, stays in the group if it is there.
func (p *program) members(nodes []*inputs.State, before *nfdv1alpha1.NodeFeatureGroupStatus) []string {
	var out []string
	for _, n := range nodes {
		in := n.Input
		in.Labels = nil
		matched := false
		o := p.rules.Eval(in)
		o.Matched(func(string) { matched = true })
		if matched || o.AnyUndecided() && slices.ContainsFunc(before.Nodes, func(n nfdv1alpha1.FeatureGroupNode) bool { return n.Name == in.Node.Name }) {
			out = append(out, in.Node.Name)
		}
	}
	return out
}

// status returns the desired status of a group.
func status(obj *nfdv1alpha1.NodeFeatureGroup, p *program, members []string, devices string) nfdv1alpha1.NodeFeatureGroupStatus {
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
	c := condition.Of(&s.Conditions, obj.Generation)
	c.Reviewed(p.errors, p.warnings, message)
	c.Devices(devices, false)
	return s
}

var requests = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "nfd_master_node_feature_group_update_requests_total", Help: "Attempted writes of the status of NodeFeatureGroups.",
})

func init() { ctrlmetrics.Registry.MustRegister(requests) }

// Package prune removes everything that Assay has written to a cluster.
package prune

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	topologyv1alpha2 "github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/controller/builtin"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/listing"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// parallel is the number of Nodes that are written concurrently: enough to process 5,000 in half a minute.
const parallel = 10

// Pruner removes everything that the controllers of one instance have written.
type Pruner struct {
	Client client.Client
	Record plan.Record
}

// policy returns a policy that also removes taints.
func (p Pruner) policy() plan.Policy { return plan.Policy{Record: p.Record, Taints: true} }

// Nodes prunes all Nodes and returns the number of changed Nodes. It continues if a Node fails.
func (p Pruner) Nodes(ctx context.Context) (int, error) { return p.each(ctx, p.node) }

// HandBack removes what Node Feature Discovery does not know from all Nodes: conditions, and annotations of the controller. It returns the
// number of changed Nodes, and continues if a Node fails.
func (p Pruner) HandBack(ctx context.Context) (int, error) { return p.each(ctx, p.handBack) }

// each calls do for all Nodes and returns for how many it returned true.
func (p Pruner) each(ctx context.Context, do func(context.Context, *corev1.Node) (bool, error)) (int, error) {
	var errs []error
	cleaned := 0
	err := listing.Pages(ctx, p.Client, func(list *corev1.NodeList) {
		done, failed := make([]bool, len(list.Items)), make([]error, len(list.Items))
		var group errgroup.Group
		group.SetLimit(parallel)
		for i := range list.Items {
			group.Go(func() error {
				done[i], failed[i] = do(ctx, &list.Items[i])
				return nil
			})
		}
		_ = group.Wait() // errors are in failed
		for i := range done {
			if done[i] {
				cleaned++
			}
			if failed[i] != nil {
				errs = append(errs, fmt.Errorf("node %s: %w", list.Items[i].Name, failed[i]))
			}
		}
	})
	return cleaned, errors.Join(append(errs, err)...)
}

// plan returns what removes everything that the record of a Node lists.
func (p Pruner) plan(node *corev1.Node) *plan.Plan {
	todo := plan.Compute(plan.StateOf(node), plan.Desired{}, p.policy())
	if p.Record.Instance != "" {
		return todo // the condition FeaturesReady belongs to the controller without an instance
	}
	return todo.WithReady(nil)
}

// handBack removes the conditions in the record of a Node, and the annotations that only the controller reads.
func (p Pruner) handBack(ctx context.Context, node *corev1.Node) (bool, error) {
	annotations := map[string]any{}
	for _, name := range []string{p.Record.Conditions(), assayv1alpha1.FeaturesGenerationAnnotation} {
		if _, ok := node.Annotations[name]; ok {
			annotations[name] = nil
		}
	}
	conditions := []map[string]string{}
	for _, step := range p.plan(node).Steps {
		if step.Kind == keys.Condition {
			conditions = append(conditions, map[string]string{"$patch": "delete", "type": step.Key})
		}
	}
	if len(annotations) == 0 && len(conditions) == 0 {
		return false, nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}, "status": map[string]any{"conditions": conditions}})
	if err != nil {
		return false, err
	}
	err = p.Client.Status().Patch(ctx, node, client.RawPatch(plan.PatchType, body))
	return err == nil, client.IgnoreNotFound(err)
}

// node removes the keys in the record of a Node.
func (p Pruner) node(ctx context.Context, node *corev1.Node) (wrote bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		todo := p.plan(node)
		err := p.write(ctx, node, todo)
		if apierrors.IsConflict(err) {
			if err := p.Client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
				return err
			}
		}
		wrote = wrote || err == nil && !todo.Empty()
		return err
	})
	return wrote, client.IgnoreNotFound(err)
}

// unmark removes the controller's own annotation, which is not in the record.
var unmark = fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, assayv1alpha1.FeaturesGenerationAnnotation)

func (p Pruner) write(ctx context.Context, node *corev1.Node, todo *plan.Plan) error {
	if _, marked := node.Annotations[assayv1alpha1.FeaturesGenerationAnnotation]; marked {
		if err := p.Client.Status().Patch(ctx, node, client.RawPatch(types.MergePatchType, unmark)); err != nil {
			return err
		}
		todo = p.plan(node) // the Node has a new version
	}
	if body := todo.Patch(); body != nil {
		if err := p.Client.Status().Patch(ctx, node, client.RawPatch(plan.PatchType, body)); err != nil {
			return err
		}
	}
	if body := todo.TaintPatch(node.ResourceVersion); body != nil {
		return p.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, body))
	}
	return nil
}

// Features deletes the workers' NodeFeatures, which have the names of their Nodes, and returns the number of deleted objects.
func (p Pruner) Features(ctx context.Context, namespace string) (int, error) {
	var errs []error
	deleted := 0
	err := listing.Pages(ctx, p.Client, func(list *nodefeature.NodeFeatureList) {
		for i := range list.Items {
			f := &list.Items[i]
			if f.Name != f.NodeName() {
				continue // from another publisher
			}
			if err := p.Client.Delete(ctx, f); client.IgnoreNotFound(err) != nil {
				errs = append(errs, err)
				continue
			}
			deleted++
		}
	}, client.InNamespace(namespace))
	return deleted, errors.Join(append(errs, err)...)
}

// FeatureSets deletes all NodeFeatureSets of a namespace, if the cluster has the kind.
func (p Pruner) FeatureSets(ctx context.Context, namespace string) error {
	err := p.Client.DeleteAllOf(ctx, &assayv1alpha1.NodeFeatureSet{}, client.InNamespace(namespace))
	if meta.IsNoMatchError(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// Shapes deletes all NodeShapes, if the cluster has the kind.
func (p Pruner) Shapes(ctx context.Context) error {
	err := p.Client.DeleteAllOf(ctx, &assayv1alpha1.NodeShape{})
	if meta.IsNoMatchError(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// Topologies deletes the NodeResourceTopologies that Assay published, if the cluster has the kind.
func (p Pruner) Topologies(ctx context.Context) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(topologyv1alpha2.NodeResourceTopologyGVK)
	err := p.Client.DeleteAllOf(ctx, object, client.MatchingLabels{topologyv1alpha2.ManagedByLabel: topologyv1alpha2.ManagedByAssay})
	if meta.IsNoMatchError(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// Own deletes the objects in the controller's own namespace: its records and the named Leases, by default only its own Lease.
func (p Pruner) Own(ctx context.Context, namespace string, leases []string) error {
	if leases == nil {
		leases = []string{nfdv1alpha1.LeaseName(p.Record.Instance)}
	}
	var objects []client.Object
	for _, name := range leases {
		objects = append(objects, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	for _, name := range []string{builtin.ConfigMapName, assayv1alpha1.FeatureSetMarker, assembly.KeptName(p.Record.Instance)} {
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	var errs []error
	for _, object := range objects {
		errs = append(errs, client.IgnoreNotFound(p.Client.Delete(ctx, object)))
	}
	return errors.Join(errs...)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/builtin"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/rules/plan"
)

const (
	// prunePage is how many objects are listed at once: 5,000 Nodes in one answer would be 50 MB.
	prunePage = 250
	// pruneParallel is how many Nodes are written at once: enough to be done with 5,000 in half a minute.
	pruneParallel = 10
)

// pruneFlags are the flags of prune.
type pruneFlags struct {
	ruleFlags
	kubeconfig, namespace string
	keepFeatures          bool
	leases                []string
	nodesOnly             bool // not a flag of this command; see controllerFlags.pruneNodes
}

func (f *pruneFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; without it, the service account of the pod")
	flags.StringVar(&f.namespace, "namespace", ownNamespace(), "namespace of Assay's own objects")
	f.ruleFlags.register(flags) // what the controller's are: they say how the record on a Node is read
	flags.BoolVar(&f.keepFeatures, "keep-features", false, "leave the workers' NodeFeatures")
	flags.StringSliceVar(&f.leases, "leases", nil, "Leases in --namespace to delete as well, those of the controller and of a second scheduler (default: that of the controller)")
}

func newPrune() *cobra.Command {
	f := &pruneFlags{}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove from all Nodes what was written there, and the workers' NodeFeatures",
		Long: "Remove from all Nodes the labels, annotations, extended resources and taints that their record says are Assay's or Node Feature\n" +
			"Discovery's, then the record itself, then the NodeFeatures of the workers. Nothing else is touched. Stop the controller and\n" +
			"the workers first: they would write it all again.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(ctrl.SetupSignalHandler(), cmd.OutOrStdout())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *pruneFlags) run(ctx context.Context, out io.Writer) error {
	opt, err := f.options()
	if err != nil {
		return err
	}
	config, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	scheme, err := controller.Scheme()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	p := &pruner{client: c, policy: plan.Policy{Record: plan.Record{Instance: f.instance, Bare: opt.Keys.DisableAutoPrefix}, Taints: true}}
	nodes, err := p.nodes(ctx)
	if _, err := fmt.Fprintf(out, "removed what was written on %d nodes\n", nodes); err != nil {
		return err
	}
	if err != nil || f.nodesOnly {
		return err
	}
	if err := f.own(ctx, c); err != nil {
		return err
	}
	if f.keepFeatures {
		return nil
	}
	features, err := p.features(ctx, f.namespace)
	if _, err := fmt.Fprintf(out, "removed %d NodeFeatures\n", features); err != nil {
		return err
	}
	return err
}

// own deletes what the controller keeps in its own namespace.
func (f *pruneFlags) own(ctx context.Context, c client.Client) error {
	leases := f.leases
	if leases == nil {
		leases = []string{nfdv1alpha1.LeaseName(f.instance)}
	}
	var objects []client.Object
	for _, name := range leases {
		objects = append(objects, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}})
	}
	for _, name := range []string{builtin.ConfigMapName, assembly.KeptName(f.instance)} {
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}})
	}
	var errs []error
	for _, object := range objects {
		errs = append(errs, client.IgnoreNotFound(c.Delete(ctx, object)))
	}
	return errors.Join(errs...)
}

// pruner undoes what Assay has written.
type pruner struct {
	client client.Client
	policy plan.Policy
}

// nodes cleans all Nodes and returns on how many there was something to do. One Node that fails does not keep the others.
func (p *pruner) nodes(ctx context.Context) (int, error) {
	var errs []error
	cleaned := 0
	err := pages(ctx, p.client, func(list *corev1.NodeList) {
		done, failed := make([]bool, len(list.Items)), make([]error, len(list.Items))
		var group errgroup.Group
		group.SetLimit(pruneParallel)
		for i := range list.Items {
			group.Go(func() error {
				done[i], failed[i] = p.node(ctx, &list.Items[i])
				return nil
			})
		}
		_ = group.Wait() // the errors are in failed
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

// node removes from a Node what its record says is ours.
func (p *pruner) node(ctx context.Context, node *corev1.Node) (wrote bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		todo := plan.Compute(plan.StateOf(node), plan.Desired{}, p.policy)
		err := p.write(ctx, node, todo)
		if apierrors.IsConflict(err) {
			if err := p.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
				return err
			}
		}
		wrote = wrote || err == nil && !todo.Empty()
		return err
	})
	return wrote, client.IgnoreNotFound(err)
}

// unmark removes what the controller says on a Node about itself, beside the record.
var unmark = fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, assayv1alpha1.FeaturesGenerationAnnotation)

func (p *pruner) write(ctx context.Context, node *corev1.Node, todo *plan.Plan) error {
	if _, marked := node.Annotations[assayv1alpha1.FeaturesGenerationAnnotation]; marked {
		if err := p.client.Status().Patch(ctx, node, client.RawPatch(types.MergePatchType, unmark)); err != nil {
			return err
		}
		todo = plan.Compute(plan.StateOf(node), plan.Desired{}, p.policy) // the Node has a new version
	}
	if body := todo.Patch(); body != nil {
		if err := p.client.Status().Patch(ctx, node, client.RawPatch(types.MergePatchType, body)); err != nil {
			return err
		}
	}
	if body := todo.TaintPatch(node.ResourceVersion); body != nil {
		return p.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, body))
	}
	return nil
}

// features deletes the workers' NodeFeatures, which bear the names of their Nodes, and returns how many.
func (p *pruner) features(ctx context.Context, namespace string) (int, error) {
	var errs []error
	deleted := 0
	err := pages(ctx, p.client, func(list *nodefeature.NodeFeatureList) {
		for i := range list.Items {
			f := &list.Items[i]
			if f.Name != f.NodeName() {
				continue // somebody else's
			}
			if err := p.client.Delete(ctx, f); client.IgnoreNotFound(err) != nil {
				errs = append(errs, err)
				continue
			}
			deleted++
		}
	}, client.InNamespace(namespace))
	return deleted, errors.Join(append(errs, err)...)
}

// pages lists objects page by page and hands each page to do. A page is a new list: what is decoded into an old one may keep
// parts of it.
func pages[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, c client.Reader, do func(L), opts ...client.ListOption) error {
	for next := ""; ; {
		list := L(new(T))
		if err := c.List(ctx, list, append(opts, client.Limit(prunePage), client.Continue(next))...); err != nil {
			return err
		}
		do(list)
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/cmd/assay-manager/internal/prune"
	"github.com/assay-project/assay/internal/fleet"
)

// pruneFlags are the flags of prune.
type pruneFlags struct {
	ruleFlags
	kubeconfig, namespace string
	keepFeatures          bool
	handBack              bool
	leases                []string
	nodesOnly             bool // not a flag of this command; see controllerFlags.pruneNodes
}

func (f *pruneFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")
	flags.StringVar(&f.namespace, "namespace", ownNamespace(), "namespace of Assay's own objects")
	f.ruleFlags.register(flags, forRules) // the controller's flags define how the record on a Node is read
	flags.BoolVar(&f.keepFeatures, "keep-features", false, "do not delete NodeFeatures, NodeFeatureSets and NodeResourceTopologies")
	flags.BoolVar(&f.handBack, "hand-back", false, "leave all that Node Feature Discovery knows, after it has taken over again: "+
		"remove only conditions and Assay's own annotations from Nodes, NodeShapes and ConfigMaps")
	flags.StringSliceVar(&f.leases, "leases", nil, "Leases in --namespace to delete: those of the controller and of a second scheduler (default: that of the controller)")
}

func newPrune() *cobra.Command {
	f := &pruneFlags{}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove all labels and other outputs of Assay or NFD from all Nodes, and the workers' NodeFeatures",
		Long: "Remove the labels, annotations, extended resources, taints and conditions that Assay or Node Feature Discovery recorded on all Nodes\n" +
			"as their own, and the record itself. Then delete Assay's Leases and ConfigMaps, NodeShapes, NodeResourceTopologies, and the NodeFeatures\n" +
			"of the workers with their NodeFeatureSets. Rules and keys of other owners stay. Stop the controller and the workers first; otherwise\n" +
			"they write everything again.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(ctrl.SetupSignalHandler(), cmd.OutOrStdout())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *pruneFlags) run(ctx context.Context, out io.Writer) error {
	s, _, err := f.Load()
	if err != nil {
		return err
	}
	config, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	scheme, err := fleet.Scheme()
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	p := prune.Pruner{Client: c, Record: s.Record()}
	remove := p.Nodes
	if f.handBack {
		remove, f.keepFeatures, f.leases = p.HandBack, true, []string{} // the Lease is that of NFD's master, too
	}
	nodes, err := remove(ctx)
	if _, err := fmt.Fprintf(out, "removed what was written on %d nodes\n", nodes); err != nil {
		return err
	}
	if err != nil || f.nodesOnly {
		return err
	}
	if err := p.Own(ctx, f.namespace, f.leases); err != nil {
		return err
	}
	if s.Primary() { // only the controller without an instance writes NodeShapes
		if err := p.Shapes(ctx); err != nil {
			return err
		}
	}
	if f.keepFeatures {
		return nil
	}
	if err := p.Topologies(ctx); err != nil {
		return fmt.Errorf("delete NodeResourceTopologies: %w", err)
	}
	features, err := p.Features(ctx, f.namespace)
	if _, err := fmt.Fprintf(out, "removed %d NodeFeatures\n", features); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	return p.FeatureSets(ctx, f.namespace)
}

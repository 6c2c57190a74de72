package export

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/input"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/manifest"
)

// options are the flags of assay export.
type options struct {
	cluster.Flags
	target   string
	form     string
	from     []string
	labels   []string
	topology []string
	// baseline is the name of the NodeBaseline whose levels are those of the Topology.
	baseline   string
	incomplete bool
}

// NewCommand returns assay export.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "export --for " + strings.Join(Targets, "|"),
		Short: "Print NodeShapes as configuration of an autoscaler or of Kueue",
		Long: `Print NodeShapes as configuration of an autoscaler or of Kueue, so that it knows what rules give to a node that does not exist yet.

karpenter           NodePools with labels and taints in their templates, and NodeOverlays with extended resources. The output
                    is the NodePools of the cluster with all their fields. Without them (--from) it is only a part, for
                    kubectl apply --server-side with a field manager of its own
cluster-api         annotations of MachineDeployments, to apply server-side in the management cluster. They contain what others
                    declared there if the MachineDeployments are read, from the cluster or with --from
cluster-autoscaler  with -o tags, tags of node groups: those of Azure for node pools of AKS, those of AWS for others; with
                    -o azure-tags, tags of Azure for all; with -o nodes, a List of Nodes for the providers kwok and
                    externalgrpc, made from your own templates if they are passed with --from
kueue               ResourceFlavors, and with --topology or --baseline a Topology. With --baseline, its levels are those of a
                    NodeBaseline, and nothing is printed while a node of a ResourceFlavor lacks the label of a level: Kueue
                    would leave it out

Notes about what is left out go to standard error.`,
		Example: `  assay export --for karpenter | kubectl apply -f -
  assay export --for karpenter --labels 'features.assay.dev/*,example.com/gpu'
  assay export --for cluster-api --from shapes.yaml,machinedeployments.yaml -n clusters
  assay export --for cluster-autoscaler -o nodes --from shapes.yaml,templates.yaml
  assay export --for kueue --topology example.com/block,example.com/rack | kubectl apply -f -
  assay export --for kueue --baseline fabric | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.Register(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&f.target, "for", "", "autoscaler or Kueue: "+strings.Join(Targets, ", "))
	flags.StringSliceVar(&f.labels, "labels", nil, "labels to export, by name or by a prefix that ends in *; all by default, and for kueue those of requests")
	flags.StringSliceVar(&f.from, "from", nil, "read files instead of a cluster, as kubectl get -o yaml prints them: NodeShapes, NodePools, MachineDeployments, Nodes, and what selects labels: Pods, requests, policies")
	flags.StringSliceVar(&f.topology, "topology", nil, "labels of nodes that are the levels of Kueue's Topology, the highest first; the lowest is always the node")
	flags.StringVar(&f.baseline, "baseline", "", "NodeBaseline whose levels are those of Kueue's Topology, which gets its name")
	flags.BoolVar(&f.incomplete, "incomplete", false, "with --baseline, print the Topology also while nodes lack levels, with a comment for each")
	cmd.MarkFlagsMutuallyExclusive("topology", "baseline")
	printer.OutputFlag(cmd, &f.form, Forms...)
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(Targets, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *options) run(cmd *cobra.Command) error {
	opt := Options{Labels: f.labels, Namespace: f.Namespace(), Form: f.form, Topology: f.topology}
	if f.target != ClusterAutoscaler && cmd.Flags().Changed("output") {
		return fmt.Errorf("--output is for --for %s only: all other output is YAML", ClusterAutoscaler)
	}
	if f.target != Kueue && len(f.topology) > 0 {
		return fmt.Errorf("--topology is for --for %s only", Kueue)
	}
	if f.target != Kueue && f.baseline != "" {
		return fmt.Errorf("--baseline is for --for %s only", Kueue)
	}
	if f.incomplete && f.baseline == "" {
		return errors.New("--incomplete is for --baseline only")
	}
	if _, err := Render(f.target, nil, opt); err != nil {
		return err
	}
	shapes, err := f.read(cmd, &opt)
	if err != nil {
		return err
	}
	out, err := Render(f.target, shapes, opt)
	if err != nil {
		return err
	}
	if len(shapes) == 0 {
		out.Notes = append(out.Notes, "no NodeShapes found: the controller writes them for nodes that have a node group or an instance type and the condition FeaturesReady.")
	}
	for _, note := range out.Notes {
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "note:", note); err != nil {
			return err
		}
	}
	if err := out.Error(); err != nil && f.baseline != "" && !f.incomplete {
		return cli.Found(err)
	}
	text, err := out.YAML()
	if err == nil {
		_, err = io.WriteString(cmd.OutOrStdout(), out.Comments()+string(text))
	}
	return err
}

// levels reads the levels of the Topology from the named NodeBaseline of a list.
func (f *options) levels(list []assayv1alpha1.NodeBaseline, opt *Options) error {
	b, err := world.BaselineNamed(list, f.baseline)
	if err != nil {
		return err
	}
	return opt.Levels(b)
}

// read reads shapes, and the objects that the export is merged with, from the files or the cluster.
func (f *options) read(cmd *cobra.Command, opt *Options) ([]assayv1alpha1.NodeShape, error) {
	if len(f.from) > 0 {
		return f.readFiles(cmd, opt)
	}
	c, err := f.Connect()
	if err != nil {
		return nil, err
	}
	shapes, err := c.Shapes(cmd.Context())
	if err == nil && f.target != ClusterAPI {
		err = f.selected(cmd, c, opt)
	}
	switch {
	case err != nil:
	case f.target == Karpenter:
		opt.Pools, opt.All, err = cluster.NodePools[NodePool](cmd.Context(), c)
	case f.baseline != "":
		var list []assayv1alpha1.NodeBaseline
		if list, err = c.Baselines(cmd.Context()); err == nil {
			err = f.levels(list, opt)
		}
		if err == nil {
			opt.Fleet, err = c.Nodes(cmd.Context(), "")
		}
	case f.target == ClusterAPI:
		opt.Deployments, err = cluster.MachineDeployments[MachineDeployment](cmd.Context(), c, opt.Namespace)
	}
	return shapes, err
}

// selected reads the labels that the cluster selects, as far as the user may read what selects them.
func (f *options) selected(cmd *cobra.Command, c *cluster.Client, opt *Options) error {
	pods, podErr := c.PendingPods(cmd.Context())
	requests, requestErr := c.Requests(cmd.Context())
	policies, policyErr := c.Policies(cmd.Context())
	for _, err := range []error{podErr, requestErr, policyErr} {
		switch {
		case err == nil:
		case !cluster.IsForbidden(err):
			return err
		default:
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "note: labels that only these objects select are not kept first: %s\n", clip.Printable(err.Error()))
			if err != nil {
				return err
			}
		}
	}
	for i := range pods {
		opt.Pod(&pods[i])
	}
	for i := range requests {
		opt.Requirements(&requests[i].Spec.PodRequirements)
	}
	for i := range policies {
		opt.Requirements(&policies[i].Spec.PodRequirements)
	}
	return nil
}

func (f *options) readFiles(cmd *cobra.Command, opt *Options) (shapes []assayv1alpha1.NodeShape, err error) {
	paths, err := input.Paths(f.from)
	if err != nil {
		return nil, err
	}
	var baselines []assayv1alpha1.NodeBaseline
	for _, file := range input.Manifests(paths, cmd.InOrStdin()) {
		for _, p := range file.Problems {
			return nil, fmt.Errorf("%s:%w", file.Name, p)
		}
		for _, d := range file.Documents {
			switch d.Kind {
			case assayv1alpha1.NodeShapeGVK.Kind:
				var s assayv1alpha1.NodeShape
				err = manifest.DecodeObject(d, &s)
				shapes = append(shapes, s)
			case "NodePool":
				var p NodePool
				err = manifest.DecodeObject(d, &p)
				opt.Pools = append(opt.Pools, p)
			case "MachineDeployment":
				var m MachineDeployment
				err = manifest.DecodeObject(d, &m)
				opt.Deployments = append(opt.Deployments, m)
			case "Pod":
				var p corev1.Pod
				err = manifest.DecodeObject(d, &p)
				opt.Pod(&p)
			case "NodeFeatureRequest":
				var r assayv1alpha1.NodeFeatureRequest
				err = manifest.DecodeObject(d, &r)
				opt.Requirements(&r.Spec.PodRequirements)
			case "NodeFeatureSchedulingPolicy":
				var p assayv1alpha1.NodeFeatureSchedulingPolicy
				err = manifest.DecodeObject(d, &p)
				opt.Requirements(&p.Spec.PodRequirements)
			case assayv1alpha1.NodeBaselineGVK.Kind:
				var b assayv1alpha1.NodeBaseline
				err = manifest.DecodeObject(d, &b)
				baselines = append(baselines, b)
			case "Node":
				if f.baseline != "" {
					var n corev1.Node
					err = manifest.DecodeObject(d, &n)
					opt.Fleet = append(opt.Fleet, n)
					break
				}
				var n NodeTemplate
				err = manifest.DecodeObject(d, &n)
				opt.Nodes = append(opt.Nodes, n)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file.Name, err)
			}
		}
	}
	if f.baseline != "" {
		err = f.levels(baselines, opt)
	}
	return shapes, err
}

// Package topology is the verb topology: it shows NUMA zones, and why pods do not fit them.
package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/numa"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/workload"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/podres"
	"github.com/assay-project/assay/discovery/topology"
	"github.com/assay-project/assay/rules/clip"
)

// options are the flags of assay topology and its verbs.
type options struct {
	cluster.Flags
	output string

	local            bool
	socket           string
	kubeletConfig    string
	kubeletConfigDir string
}

// NewCommand returns assay topology.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "topology [NODE]",
		Short: "Show what each NUMA node has left, as the scheduler reads it",
		Long: `Show what each NUMA node has left, as the scheduler plug-in NodeResourceTopologyMatch reads it from NodeResourceTopologies.

Without NODE it lists all nodes. With --local it asks the kubelet of this machine, and also shows who holds what; this needs root.`,
		Example: `  assay topology
  assay topology worker-7
  assay topology why train-0 -n ml
  assay topology fingerprint worker-7`,
		Annotations: map[string]string{cli.RunsAlone: "true"},
		RunE:        func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.Register(cmd.Flags())
	cmd.Flags().BoolVar(&f.local, "local", false, "ask the kubelet of this machine instead of the cluster")
	cmd.Flags().StringVar(&f.socket, "podresources-socket", podres.DefaultSocket, "the kubelet's pod resources socket (with --local)")
	cmd.Flags().StringVar(&f.kubeletConfig, "kubelet-config", "/var/lib/kubelet/config.yaml", "the kubelet's configuration file (with --local)")
	cmd.Flags().StringVar(&f.kubeletConfigDir, "kubelet-config-dir", "", "directory of drop-ins of the kubelet's configuration (with --local)")
	printer.OutputFlag(cmd, &f.output, "text", "json", "yaml")
	cmd.ValidArgsFunction = cli.CompleteNames(&f.Flags, "nodes")
	cmd.AddCommand(newTopologyWhy(), newTopologyFingerprint())
	return cmd
}

func (f *options) run(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cli.UnknownVerb(cmd, args[0])
	}
	if f.local {
		if len(args) > 0 {
			return errors.New("--local is this machine: leave out the name of the node")
		}
		return f.runLocal(cmd)
	}
	c, err := f.Connect()
	if err != nil {
		return err
	}
	if len(args) > 0 {
		name, err := cli.ObjectName(args[0], cli.NodeKinds...)
		if err != nil {
			return err
		}
		t, err := c.Topology(cmd.Context(), name)
		if err != nil {
			return noTopology(err)
		}
		if f.output != "text" {
			return printer.Object(cmd.OutOrStdout(), f.output, t)
		}
		showTopology(cmd.OutOrStdout(), t)
		return nil
	}
	all, err := c.Topologies(cmd.Context())
	if err != nil {
		return noTopology(err)
	}
	if f.output != "text" {
		return printer.Object(cmd.OutOrStdout(), f.output, all)
	}
	listTopologies(cmd.OutOrStdout(), all)
	return nil
}

// noTopology explains an absent object or kind.
func noTopology(err error) error {
	switch {
	case cluster.IsAbsentKind(err):
		return cli.Found(err)
	case cluster.IsNotFound(err):
		return cli.Found(fmt.Errorf("no NodeResourceTopology is published (%w); set topology.enabled of the chart", err))
	}
	return err
}

// listTopologies prints one line per node: per zone the available of the allocatable amount.
func listTopologies(w io.Writer, all []v1alpha2.NodeResourceTopology) {
	var names []string
	for i := range all {
		for _, z := range all[i].Zones {
			for _, r := range z.Resources {
				names = append(names, r.Name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	rows := &printer.Table{}
	rows.Add(append([]string{"NODE", "POLICY", "SCOPE", "ZONES"}, names...)...)
	for i := range all {
		t := &all[i]
		row := []string{t.Name, printer.Dash(numa.Attribute(t, topology.AttributePolicy)), printer.Dash(numa.Attribute(t, topology.AttributeScope)), strconv.Itoa(len(t.Zones))}
		for _, name := range names {
			var cells []string
			for z := range t.Zones {
				cell := "-"
				if r := numa.Find(&t.Zones[z], name); r != nil {
					cell = amount(name, r.Available.Value()) + "/" + amount(name, r.Allocatable.Value())
				}
				cells = append(cells, cell)
			}
			row = append(row, strings.Join(cells, " "))
		}
		rows.Add(row...)
	}
	rows.Print(w, "")
}

// showTopology prints one node.
func showTopology(w io.Writer, t *v1alpha2.NodeResourceTopology) {
	fmt.Fprintln(w, clip.Printable(t.Name))
	for _, a := range t.Attributes {
		fmt.Fprintln(w, "  "+clip.Printable(a.Name)+":", clip.Printable(a.Value))
	}
	rows := &printer.Table{}
	rows.Add("ZONE", "RESOURCE", "AVAILABLE", "ALLOCATABLE", "CAPACITY")
	for _, z := range t.Zones {
		name := z.Name
		for _, r := range z.Resources {
			rows.Add(name, r.Name, amount(r.Name, r.Available.Value()), amount(r.Name, r.Allocatable.Value()), amount(r.Name, r.Capacity.Value()))
			name = ""
		}
	}
	rows.Print(w, "  ")
	if len(t.Zones) < 2 {
		return
	}
	distances := &printer.Table{}
	header := []string{"DISTANCE"}
	for _, z := range t.Zones {
		header = append(header, z.Name)
	}
	distances.Add(header...)
	for _, z := range t.Zones {
		row := []string{z.Name}
		for _, other := range t.Zones {
			cell := "?"
			for _, c := range z.Costs {
				if c.Name == other.Name {
					cell = strconv.FormatInt(c.Value, 10)
				}
			}
			row = append(row, cell)
		}
		distances.Add(row...)
	}
	distances.Print(w, "  ")
}

// amount formats a number of a resource: bytes with a binary unit.
func amount(name string, n int64) string {
	if name != "memory" && !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
		return strconv.FormatInt(n, 10)
	}
	const step = 1 << 10
	units, unit, value := []string{"Ki", "Mi", "Gi", "Ti"}, "", float64(n)
	for _, u := range units {
		if value < step {
			break
		}
		value, unit = value/step, u
	}
	return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0") + unit
}

// runLocal reads this machine.
func (f *options) runLocal(cmd *cobra.Command) error {
	h := host.Real(host.Paths{})
	kubelet, err := topology.ReadKubelet(f.kubeletConfig, f.kubeletConfigDir)
	if err != nil {
		return fmt.Errorf("%w; pass --kubelet-config FILE", err)
	}
	machine, unread, err := topology.ReadMachine(h)
	if err != nil {
		return err
	}
	for _, err := range unread {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", err)
	}
	in := &topology.Input{Node: h.System.NodeName(), Machine: machine, Kubelet: kubelet}
	c := podres.New(f.socket)
	defer c.Close()
	r, _, err := topology.Read(cmd.Context(), c, in)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w; the socket belongs to root", err)
	}
	if err != nil {
		return err
	}
	t := &v1alpha2.NodeResourceTopology{TopologyPolicies: r.TopologyPolicies, Zones: r.Zones, Attributes: r.Attributes}
	t.Name = in.Node
	if f.output != "text" {
		return printer.Object(cmd.OutOrStdout(), f.output, t)
	}
	showTopology(cmd.OutOrStdout(), t)
	showHolders(cmd.OutOrStdout(), in.Pods, r)
	return nil
}

// showHolders prints what containers hold, and what the zones do not contain.
func showHolders(w io.Writer, pods []podres.Pod, r *topology.Result) {
	rows := &printer.Table{}
	rows.Add("POD", "CONTAINER", "HOLDS")
	for _, p := range pods {
		for _, c := range p.Containers {
			var holds []string
			if len(c.CPUs) > 0 {
				slices.Sort(c.CPUs)
				holds = append(holds, "CPUs "+strings.Trim(strings.ReplaceAll(fmt.Sprint(c.CPUs), " ", ","), "[]"))
			}
			for _, m := range c.Memory {
				holds = append(holds, fmt.Sprintf("%s %s of nodes %v", amount("memory", int64(m.Bytes)), m.Type, m.Topology))
			}
			for _, d := range c.Devices {
				holds = append(holds, d.Resource+" "+strings.Join(d.IDs, ","))
			}
			for _, claim := range c.Claims {
				holds = append(holds, "claim "+claim.Name)
			}
			if len(holds) > 0 {
				rows.Add(p.Namespace+"/"+p.Name, c.Name, strings.Join(holds, "; "))
			}
		}
	}
	if len(rows.Rows) > 1 {
		rows.Print(w, "  ")
	}
	if len(r.Claims) > 0 {
		fmt.Fprintf(w, "  note: no zone contains %s of DRA drivers, which the kubelet lists without a NUMA node\n", clip.Count(len(r.Claims), "device"))
	}
	if len(r.Unknown) > 0 {
		fmt.Fprintln(w, "  note: held, and not listed as allocatable, so that no zone contains them:", clip.Printable(strings.Join(r.Unknown, ", ")))
	}
	fmt.Fprintln(w, "  note: the kubelet does not list what init containers hold; it is available until the next container of the pod starts")
}

func newTopologyWhy() *cobra.Command {
	f := &options{}
	node := ""
	cmd := &cobra.Command{
		Use:   "why POD",
		Short: "Show on which nodes a pod fits a NUMA node, and what the others lack",
		Long: `Show on which nodes a pod fits a NUMA node, and for each other node what its zones lack, in the order in which the scheduler plug-in
NodeResourceTopologyMatch checks: by the scope of the kubelet's topology manager and the QoS class of the pod.

It reads the published numbers. A scheduler with a cache also counts pods that it has placed since.`,
		Example: `  assay topology why train-0 -n ml
  assay topology why ml/train-0 --node worker-7`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.Connect()
			if err != nil {
				return err
			}
			list, err := f.why(cmd.Context(), c, args[0], node)
			if err != nil {
				return err
			}
			if f.output != "text" {
				err = printer.Object(cmd.OutOrStdout(), f.output, list)
			} else {
				showVerdicts(cmd.OutOrStdout(), list)
			}
			if err == nil && !slices.ContainsFunc(list, func(v numa.Verdict) bool { return v.Fits }) {
				return cli.ErrFound
			}
			return err
		},
	}
	f.Register(cmd.Flags())
	cmd.Flags().StringVar(&node, "node", "", "the only node to show")
	cmd.ValidArgsFunction = workload.CompletePods(&f.Flags, true)
	cli.CompleteNodeFlag(cmd, &f.Flags)
	printer.OutputFlag(cmd, &f.output, "text", "json", "yaml")
	return cmd
}

func (f *options) why(ctx context.Context, c *cluster.Client, name, node string) ([]numa.Verdict, error) {
	name = strings.TrimPrefix(name, "pod/")
	namespace, name, ok := strings.Cut(name, "/")
	if !ok {
		namespace, name = f.Namespace(), namespace
	}
	pod, err := c.Pod(ctx, namespace, name)
	if cluster.IsNotFound(err) {
		return nil, cli.NotFound(corev1.Resource("pods"), name, cli.Elsewhere(namespace))
	}
	if err != nil {
		return nil, err
	}
	nodes, err := c.Nodes(ctx, "")
	if err != nil {
		return nil, err
	}
	all, err := c.Topologies(ctx)
	if err != nil {
		return nil, noTopology(err)
	}
	byName := map[string]*v1alpha2.NodeResourceTopology{}
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	var list []numa.Verdict
	var known []string
	for i := range nodes {
		known = append(known, nodes[i].Name)
		if node == "" || nodes[i].Name == node {
			list = append(list, numa.Why(pod, &nodes[i], byName[nodes[i].Name]))
		}
	}
	if len(list) == 0 {
		return nil, cli.NotFound(corev1.Resource("nodes"), node, cli.DidYouMean(node, known))
	}
	return list, nil
}

func showVerdicts(w io.Writer, list []numa.Verdict) {
	s := printer.StyleOf(w)
	for _, v := range list {
		mark := s.Good("fits")
		if !v.Fits {
			mark = s.Bad("no  ")
		}
		fmt.Fprintln(w, mark, clip.Printable(v.Node)+":", clip.Printable(v.Reason))
		for _, z := range v.Zones {
			fmt.Fprintln(w, "       "+clip.Printable(z.Zone)+":", clip.Printable(strings.Join(z.Missing, "; ")))
		}
	}
}

func newTopologyFingerprint() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "fingerprint NODE",
		Short: "Compare the fingerprint of a node's pods with those that schedulers compute",
		Long: `Compare the published fingerprint of a node's pods with those that schedulers compute from the pods in the API, in both informer modes
of the scheduler plug-in NodeResourceTopologyMatch, and name the pods that the sets do not have in common.

A scheduler with a cache uses a node's new numbers only if the fingerprints are equal.

Exit codes: 0 a scheduler in one of the modes computes the published fingerprint; 1 none does; 2 the cluster could not be read.`,
		Example: `  assay topology fingerprint worker-7`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := cli.ObjectName(args[0], cli.NodeKinds...)
			if err != nil {
				return err
			}
			c, err := f.Connect()
			if err != nil {
				return err
			}
			t, err := c.Topology(cmd.Context(), name)
			if err != nil {
				return noTopology(err)
			}
			pods, err := c.PodsOnNode(cmd.Context(), name)
			if err != nil {
				return err
			}
			found := numa.Compare(t, pods)
			if f.output != "text" {
				err = printer.Object(cmd.OutOrStdout(), f.output, found)
			} else {
				showComparison(cmd.OutOrStdout(), &found)
			}
			if err == nil && !found.Matches() {
				return cli.ErrFound
			}
			return err
		},
	}
	f.Register(cmd.Flags())
	cmd.ValidArgsFunction = cli.CompleteNames(&f.Flags, "nodes")
	printer.OutputFlag(cmd, &f.output, "text", "json", "yaml")
	return cmd
}

func showComparison(w io.Writer, c *numa.Comparison) {
	rows := &printer.Table{}
	same := func(fingerprint string) string {
		if fingerprint == c.Published {
			return "same"
		}
		return "differs"
	}
	rows.Add("published", printer.Dash(c.Published), "method "+printer.Dash(c.Method))
	rows.Add("informerMode Dedicated", c.Dedicated, same(c.Dedicated))
	rows.Add("informerMode Shared", c.Shared, same(c.Shared))
	rows.Add("pods that the kubelet lists", c.Kubelet, same(c.Kubelet))
	rows.Print(w, "")
	for _, p := range c.Pods {
		fmt.Fprintln(w, "pod", clip.Printable(p))
	}
}

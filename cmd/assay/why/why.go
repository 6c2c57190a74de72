// Package why is the verb why: it shows which nodes can run a pod, and why others cannot.
package why

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/placement"
	"github.com/assay-project/assay/cmd/assay/internal/printer"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
	"github.com/assay-project/assay/cmd/assay/internal/workload"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/rules/clip"
)

// options are the flags of assay why.
type options struct {
	world.Options
	node, output string
}

// NewCommand returns assay why.
func NewCommand() *cobra.Command {
	f := &options{}
	cmd := &cobra.Command{
		Use:   "why NAME | why KIND NAME | why KIND/NAME",
		Short: "Show which nodes can run a pod or workload by its labels, features and resources, and why others cannot",
		Long: `Show which nodes have the labels, features and resources that a pod requires, and for each other node the first requirement that it
does not meet, in the words of the scheduler's event. Labels are those of the node selector and of the required node affinity.

KIND is pod, deployment, statefulset, daemonset, replicaset, job or cronjob, or a short form of kubectl; a name alone is that of a pod. Of a
workload it explains the pods that its template makes.

For each label it shows who gives it: a rule or a NodeFeatureRequest with its expressions, the worker, the kubelet, or another client. It says
what makes the scheduler respect the requirements: a node selector, and what wrote it, the extender, or nothing.

Of resources it checks what a node can allocate, not what is free, and of DeviceClasses whether the node has devices of their driver. It does
not check taints and other filters of the scheduler. It evaluates the requirements itself; the extender need not run. It decides whether
features are current by the readiness of nodes; it does not read Leases, as an extender with --publisher-leases does.

Exit codes: 0 a node meets all requirements; 1 none does, or the pod or workload does not exist; 2 the cluster could not be read.`,
		Example: `  assay why train-0 -n ml
  assay why deployment/web
  assay why job train -n ml --node worker-7
  assay why pod ml/train-0 -o wide
  assay why pod train-0 --from pod.yaml --from cluster.yaml`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args)
		},
	}
	f.AddFlags(cmd)
	cmd.Flags().StringVar(&f.node, "node", "", "node to show in detail: each requirement and whether it is met")
	cmd.ValidArgsFunction = workload.CompletePods(&f.Flags, false)
	cli.CompleteNodeFlag(cmd, &f.Flags)
	printer.OutputFlag(cmd, &f.output, "text", "wide", "json", "yaml")
	return cmd
}

func (f *options) run(cmd *cobra.Command, args []string) error {
	t, err := workload.NewTarget(args, f.Namespace())
	if err != nil {
		return err
	}
	var c *cluster.Client
	if len(f.From) == 0 {
		if c, err = f.Connect(); err != nil {
			return err
		}
	}
	loaded, err := f.Load(cmd.Context(), world.Want{Nodes: true, Features: true, Devices: true, Rules: true})
	if err != nil {
		return err
	}
	pod, err := placement.Pod(cmd.Context(), loaded, c, t)
	if cluster.IsNotFound(err) || c == nil && err != nil {
		return cli.NotFound(schema.GroupResource{Group: t.Of.Resource.Group, Resource: t.Of.Resource.Resource}, t.Name, placement.Otherwise(cmd.Context(), loaded, c, t))
	}
	if err != nil {
		return err
	}
	d, err := placement.Decider(loaded, cmd, c)
	if err != nil {
		return err
	}
	e, err := placement.Answer(cmd.Context(), &f.Options, c, loaded, d, t, pod, f.node)
	world.Note(cmd, err)
	if f.node != "" && e.Findings == nil && len(e.Origins) > 0 {
		return cli.NotFound(corev1.Resource("nodes"), f.node, cli.DidYouMean(f.node, loaded.Fleet.Names()))
	}
	w := cmd.OutOrStdout()
	switch f.output {
	case "text", "wide":
		for _, text := range e.Warnings {
			fmt.Fprintln(w, printer.StyleOf(w).Bad(clip.Printable(text+".")))
		}
		printWhy(w, &e)
		if f.output == "wide" && e.Problem == "" && len(e.Origins) > 0 {
			printPerNode(w, d, pod, placement.Checks(loaded, e.Labels))
		}
	default:
		if err := printer.Object(w, f.output, e); err != nil {
			return err
		}
	}
	if e.Matching == 0 {
		return cli.ErrFound
	}
	return nil
}

func printWhy(w io.Writer, e *serving.Answer) {
	s, ways := printer.StyleOf(w), e.Ways
	for i := range ways {
		if !ways[i].Served() {
			fmt.Fprintln(w, s.Bad(clip.Printable(ways[i].String()+".")))
		}
	}
	printMatching(w, s, e)
	for i := range ways {
		if ways[i].Served() {
			fmt.Fprintln(w, clip.Printable(ways[i].String()+"."))
		}
	}
	if len(e.Findings) > 0 {
		fmt.Fprintf(w, "\nNode %s:\n", e.Node)
		printAsked(w, e.Findings)
	}
}

// printMatching prints the requirements of a pod and the nodes that meet them.
func printMatching(w io.Writer, s printer.Style, e *serving.Answer) {
	switch {
	case e.Problem != "":
		fmt.Fprintln(w, s.Bad(clip.Printable(e.Problem)))
		return
	case len(e.Origins) == 0:
		fmt.Fprintf(w, "%s requires no features, labels or resources: all %s can run it.\n", e.Subject, clip.Count(e.Nodes, "node"))
		return
	}
	fmt.Fprintf(w, "%s requires %s with %s.\n", e.Subject, e.Kinds(), strings.Join(e.Origins, ", "))
	printGiven(w, e)
	text := fmt.Sprintf("%d of %d nodes meet the requirements", e.Matching, e.Nodes)
	if e.Matching == 0 {
		text = s.Bad(text)
	} else {
		text = s.Good(text) + ": " + names(e.Sample, e.Matching)
	}
	fmt.Fprintln(w, text)
	for _, m := range e.Missing {
		fmt.Fprintf(w, "%s: %s\n    %s\n", clip.Count(m.Nodes, "node"), clip.Printable(m.Reason), s.Faint(names(m.Sample, m.Nodes)))
	}
	if e.Nearest != "" {
		fmt.Fprintf(w, "The closest node, %s, lacks %s.\n", e.Nearest, clip.Printable(e.Lacks))
	}
	printTerms(w, e)
}

// printGiven prints the labels and resources that a pod requires, how many nodes have them, and who gives them.
func printGiven(w io.Writer, e *serving.Answer) {
	if len(e.Labels) == 0 {
		return
	}
	t := &printer.Table{}
	t.Add("REQUIRES", "NODES", "GIVEN BY")
	for i := range e.Labels {
		r := &e.Labels[i]
		t.Add(r.Text, fmt.Sprintf("%d of %d", r.Nodes, e.Nodes), printer.Dash(r.String()))
	}
	t.Print(w, "  ")
}

// printTerms prints what a node has instead of what the pod requires: the expressions of rules and requests that do not give it.
func printTerms(w io.Writer, e *serving.Answer) {
	if e.On == "" || e.Matching > 0 && e.Node == "" {
		return
	}
	for i := range e.Labels {
		r := &e.Labels[i]
		if r.Has == "" {
			continue
		}
		t := &printer.Table{}
		for _, g := range r.Given {
			if g.Why != "" {
				t.Add(g.By, g.Why)
			}
			for _, l := range g.Terms {
				mark := "✗"
				if l.Held {
					mark = "✓"
				}
				t.Add(g.By, mark, l.Subject, l.Asked, l.Found)
			}
		}
		missing := strings.HasSuffix(r.Has, " is missing") // the line about the node says so
		switch {
		case !missing:
			fmt.Fprintf(w, "On %s, %s: %s\n", clip.Printable(e.On), clip.Printable(r.Text), clip.Printable(r.Has))
		case len(t.Rows) > 0:
			fmt.Fprintf(w, "On %s, %s:\n", clip.Printable(e.On), clip.Printable(r.Text))
		}
		t.Print(w, "  ")
	}
}

func printAsked(w io.Writer, list []index.Finding) {
	t := &printer.Table{}
	for _, f := range list {
		kind, result := "required", "met"
		if f.Weight > 0 {
			kind = fmt.Sprintf("preferred %d", f.Weight)
		}
		if !f.Met {
			result = "not met: " + f.Why
		}
		t.Add(kind, f.Origin, result)
	}
	t.Print(w, "  ")
}

// printPerNode prints the first unmet requirement of each node.
func printPerNode(w io.Writer, d *extender.Decider, pod *corev1.Pod, checks []extender.Check) {
	t := &printer.Table{}
	t.Add("NODE", "LACKS")
	for name, lacks := range d.Unmet(pod, checks...) {
		t.Add(name, printer.Dash(lacks))
	}
	fmt.Fprintln(w)
	t.Print(w, "")
}

// names formats the first names of a list of n.
func names(sample []string, n int) string {
	return clip.Printable(strings.Join(sample, ", ") + clip.More(", ", n-len(sample)))
}

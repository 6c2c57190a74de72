package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/cmd/assay/podlabels"
	"github.com/assay-project/assay/cmd/assay/serving"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/requirements"
)

// whyFlags are the flags of assay why.
type whyFlags struct {
	worldFlags
	node, output string
}

func newWhy() *cobra.Command {
	f := &whyFlags{}
	cmd := &cobra.Command{
		Use:   "why NAME | why pod NAME | why pod/NAME",
		Short: "Show which nodes have the labels and features that a pod requires, and why others do not",
		Long: `Show which nodes have the labels and features that a pod requires, and for each other node the first requirement that it does not
meet, in the words of the scheduler's event. Labels are those of the node selector and of the required node affinity.

It also says what makes the scheduler respect the requirements: a node selector, and what wrote it, the extender, or nothing.

It checks labels and features, not free resources, taints or other filters of the scheduler. It evaluates the requirements itself; the
extender need not run. It decides whether features are current by the readiness of nodes; it does not read Leases, as an extender
with --publisher-leases does.

Exit codes: 0 a node meets all requirements; 1 none does, or the pod does not exist; 2 the cluster could not be read.`,
		Example: `  assay why pod/train-0 -n ml
  assay why pod ml/train-0 --node worker-7
  assay why pod ml/train-0 -o wide
  assay why pod train-0 --from pod.yaml --from cluster.yaml`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := podName(args)
			if err != nil {
				return err
			}
			return f.run(cmd, name)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.node, "node", "", "node to show in detail: each requirement and whether it is met")
	outputFlag(cmd, &f.output, "text", "wide", "json", "yaml")
	return cmd
}

// podName returns the namespace and name of a pod from the arguments NAME, pod NAME or pod/NAME.
func podName(args []string) (string, error) {
	if len(args) == 1 {
		kind, name, ok := strings.Cut(args[0], "/")
		switch {
		case slices.Contains(podKinds, args[0]):
			return "", fmt.Errorf("no name of a pod: use assay why pod NAME")
		case !ok:
			return args[0], nil
		case !slices.Contains(podKinds, kind):
			return "", fmt.Errorf("unknown type %q: use pod NAME or pod/NAME, with -n NAMESPACE for another namespace", kind)
		}
		return name, nil
	}
	if !slices.Contains(podKinds, args[0]) {
		return "", fmt.Errorf("unknown type %q: use pod %s", args[0], args[1])
	}
	return args[1], nil
}

func (f *whyFlags) run(cmd *cobra.Command, name string) error {
	namespace, name, ok := strings.Cut(name, "/")
	if !ok {
		namespace, name = f.Namespace(), namespace
	}
	var c *cluster.Client
	var err error
	if len(f.from) == 0 {
		if c, err = f.Connect(); err != nil {
			return err
		}
	}
	world, err := f.load(cmd.Context(), want{nodes: true, features: true, devices: true, rules: true})
	if err != nil {
		return err
	}
	pod, err := world.pod(cmd.Context(), c, namespace, name)
	if cluster.IsNotFound(err) {
		return notFound(corev1.Resource("pods"), name, elsewhere(namespace))
	}
	if err != nil {
		return err
	}
	d, err := world.decider(cmd, c)
	if err != nil {
		return err
	}
	e, err := f.answer(cmd.Context(), c, world, d, pod, f.node)
	note(cmd, err)
	if f.node != "" && e.Findings == nil && len(e.Origins) > 0 {
		return notFound(corev1.Resource("nodes"), f.node, didYouMean(f.node, world.fleet.Names()))
	}
	w := cmd.OutOrStdout()
	switch f.output {
	case "text", "wide":
		for _, text := range e.Warnings {
			fmt.Fprintln(w, styleOf(w).bad(printable(text+".")))
		}
		printWhy(w, &e)
		if f.output == "wide" && e.Problem == "" && len(e.Origins) > 0 {
			printPerNode(w, d, pod, world.checks(e.Labels))
		}
	default:
		if err := printObject(w, f.output, e); err != nil {
			return err
		}
	}
	if e.Matching == 0 {
		return errFound
	}
	return nil
}

// answer says which nodes can run a pod, with the details of a node unless it is empty, and what makes the scheduler respect the pod's
// requirements. The latter is unknown without a cluster, where the client is nil; the error is about it alone.
func (f *worldFlags) answer(
	ctx context.Context, c *cluster.Client, w *world, d *extender.Decider, pod *corev1.Pod, node string,
) (out serving.Answer, err error) {
	if out.Labels, err = w.podLabels(pod); err != nil {
		out.Warnings = append(out.Warnings, err.Error())
	}
	out.Explanation = d.Explain(pod, node, w.checks(out.Labels)...)
	for _, u := range requirements.UnknownKeys(pod.Labels, pod.Annotations) {
		out.Warnings = append(out.Warnings, fmt.Sprintf("metadata.%s[%s] %s", u.Map, u.Key, u.Message))
	}
	if c != nil {
		out.Ways, err = f.ways(ctx, c, pod)
	}
	return out, err
}

// podLabels returns the labels that a pod requires of its node. The error says why nothing is known of them.
func (w *world) podLabels(pod *corev1.Pod) ([]podlabels.Requirement, error) {
	out, err := podlabels.Of(&pod.Spec)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the labels that the pod requires are unknown: %w", err)
	case len(out) > 0 && w.nodes == nil:
		return nil, fmt.Errorf("the labels that the pod requires are not checked, because %s has no Nodes", w.where)
	}
	podlabels.Count(out, maps.Values(w.nodes))
	return out, nil
}

// checks returns the requirements on labels for the extender's decider, which does not know them.
func (w *world) checks(of []podlabels.Requirement) []extender.Check {
	out := make([]extender.Check, len(of))
	for i := range of {
		out[i] = extender.Check{Origin: of[i].Origin, Text: of[i].Text, Lacks: func(name string) string {
			if node := w.nodes[name]; node != nil {
				return of[i].Lacks(node)
			}
			return "there is no such Node"
		}}
	}
	return out
}

// ways returns what makes the scheduler respect the requirements of a pod.
func (f *worldFlags) ways(ctx context.Context, c *cluster.Client, pod *corev1.Pod) ([]serving.Way, error) {
	installed, err := serving.Load(ctx, c)
	if err != nil {
		return nil, err
	}
	if pod.Spec.SchedulerName == serving.Scheduler {
		alive, err := serving.SecondScheduler(ctx, c, cmp.Or(f.AssayNamespace, cluster.DefaultNamespace))
		if err != nil {
			return nil, err
		}
		if alive {
			installed.Scheduler = serving.Scheduler
		}
	}
	requests, err := c.Requests(ctx)
	if err != nil {
		return nil, err
	}
	return installed.Of(pod, func(name string) *assayv1alpha1.NodeFeatureRequest {
		for i := range requests {
			if requests[i].Namespace == pod.Namespace && requests[i].Name == name {
				return &requests[i]
			}
		}
		return nil
	}), nil
}

// pod returns a pod of the cluster, or of the files if the client is nil.
func (w *world) pod(ctx context.Context, c *cluster.Client, namespace, name string) (*corev1.Pod, error) {
	if c != nil {
		return c.Pod(ctx, namespace, name)
	}
	for i := range w.scheduling.pods {
		if p := &w.scheduling.pods[i]; p.Name == name && p.Namespace == namespace {
			return p, nil
		}
	}
	return nil, notFound(corev1.Resource("pods"), name, elsewhere(namespace))
}

// decider creates the extender's decider from the objects of the world.
func (w *world) decider(cmd *cobra.Command, c *cluster.Client) (*extender.Decider, error) {
	program, err := w.program(cmd.Context(), w.rules)
	note(cmd, err)
	view := index.New()
	for _, name := range w.fleet.Names() {
		view.Put(index.NodeOf(w.fleet.Input(name), w.nodes[name]))
	}
	view.SetProgram(program)
	view.SetSynced()
	known, err := w.requirements(cmd.Context(), c)
	return &extender.Decider{Index: view, Requirements: known}, err
}

// requirements returns what requests, policies and namespaces of the cluster require, or those of the files if the client is nil.
func (w *world) requirements(ctx context.Context, c *cluster.Client) (*podrequirements.Resolver, error) {
	known := podrequirements.New(w.opt)
	if c == nil {
		for i := range w.scheduling.requests {
			known.PutRequest(&w.scheduling.requests[i])
		}
		for i := range w.scheduling.policies {
			known.PutPolicy(&w.scheduling.policies[i])
		}
		for name, labels := range w.objects.Namespaces {
			known.PutNamespace(name, labels)
		}
		return known, nil
	}
	requests, err := c.Requests(ctx)
	if err != nil {
		return nil, err
	}
	for i := range requests {
		known.PutRequest(&requests[i])
	}
	policies, err := c.Policies(ctx)
	if err != nil || len(policies) == 0 {
		return known, err
	}
	for i := range policies {
		known.PutPolicy(&policies[i])
	}
	namespaces, err := c.Namespaces(ctx)
	for i := range namespaces {
		known.PutNamespace(namespaces[i].Name, namespaces[i].Labels)
	}
	return known, err
}

func printWhy(w io.Writer, e *serving.Answer) {
	s, ways := styleOf(w), e.Ways
	for i := range ways {
		if !ways[i].Served() {
			fmt.Fprintln(w, s.bad(printable(ways[i].String()+".")))
		}
	}
	printMatching(w, s, e)
	for i := range ways {
		if ways[i].Served() {
			fmt.Fprintln(w, printable(ways[i].String()+"."))
		}
	}
	if len(e.Findings) > 0 {
		fmt.Fprintf(w, "\nNode %s:\n", e.Node)
		printAsked(w, e.Findings)
	}
}

// printMatching prints the requirements of a pod and the nodes that meet them.
func printMatching(w io.Writer, s style, e *serving.Answer) {
	switch {
	case e.Problem != "":
		fmt.Fprintln(w, s.bad(printable(e.Problem)))
		return
	case len(e.Origins) == 0:
		fmt.Fprintf(w, "Pod %s requires no features and no labels: all %s can run it.\n", e.Pod, clip.Count(e.Nodes, "node"))
		return
	}
	fmt.Fprintf(w, "Pod %s requires %s with %s.\n", e.Pod, e.Kinds(), strings.Join(e.Origins, ", "))
	text := fmt.Sprintf("%d of %d nodes meet the requirements", e.Matching, e.Nodes)
	if e.Matching == 0 {
		text = s.bad(text)
	} else {
		text = s.good(text) + ": " + names(e.Sample, e.Matching)
	}
	fmt.Fprintln(w, text)
	for _, m := range e.Missing {
		fmt.Fprintf(w, "%s: %s\n    %s\n", clip.Count(m.Nodes, "node"), printable(m.Reason), s.faint(names(m.Sample, m.Nodes)))
	}
	if e.Nearest != "" {
		fmt.Fprintf(w, "The closest node, %s, lacks %s.\n", e.Nearest, printable(e.Lacks))
	}
}

func printAsked(w io.Writer, list []index.Finding) {
	t := &table{}
	for _, f := range list {
		kind, result := "required", "met"
		if f.Weight > 0 {
			kind = fmt.Sprintf("preferred %d", f.Weight)
		}
		if !f.Met {
			result = "not met: " + f.Why
		}
		t.add(kind, f.Origin, result)
	}
	t.print(w, "  ")
}

// printPerNode prints the first unmet requirement of each node.
func printPerNode(w io.Writer, d *extender.Decider, pod *corev1.Pod, checks []extender.Check) {
	t := &table{}
	t.add("NODE", "LACKS")
	for name, lacks := range d.Unmet(pod, checks...) {
		t.add(name, dash(lacks))
	}
	fmt.Fprintln(w)
	t.print(w, "")
}

// names formats the first names of a list of n.
func names(sample []string, n int) string {
	return printable(strings.Join(sample, ", ") + clip.More(", ", n-len(sample)))
}

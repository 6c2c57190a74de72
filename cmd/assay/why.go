package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	f.register(cmd)
	cmd.Flags().StringVar(&f.node, "node", "", "node to show in detail: each requirement and whether it is met")
	cmd.ValidArgsFunction = completePods(&f.Flags, false)
	completeNodeFlag(cmd, &f.Flags)
	outputFlag(cmd, &f.output, "text", "wide", "json", "yaml")
	return cmd
}

func (f *whyFlags) run(cmd *cobra.Command, args []string) error {
	t, err := newPodTarget(args, f.Namespace())
	if err != nil {
		return err
	}
	var c *cluster.Client
	if len(f.from) == 0 {
		if c, err = f.Connect(); err != nil {
			return err
		}
	}
	world, err := f.load(cmd.Context(), want{nodes: true, features: true, devices: true, rules: true})
	if err != nil {
		return err
	}
	pod, err := world.pod(cmd.Context(), c, t)
	if cluster.IsNotFound(err) || c == nil && err != nil {
		return notFound(schema.GroupResource{Group: t.of.of.Group, Resource: t.of.of.Resource}, t.name, world.otherwise(cmd.Context(), c, t))
	}
	if err != nil {
		return err
	}
	d, err := world.decider(cmd, c)
	if err != nil {
		return err
	}
	e, err := f.answer(cmd.Context(), c, world, d, t, pod, f.node)
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

// answer says which nodes can run a pod, with the details of a node unless it is empty, who gives the labels and resources that it requires,
// and what makes the scheduler respect its requirements. The last is unknown without a cluster, where the client is nil; the error is about
// it alone.
func (f *worldFlags) answer(
	ctx context.Context, c *cluster.Client, w *world, d *extender.Decider, t podTarget, pod *corev1.Pod, node string,
) (out serving.Answer, err error) {
	out.Subject = fmt.Sprintf("%s %s/%s", t.of.kind, pod.Namespace, pod.Name)
	if c != nil {
		var installed *serving.Installed
		if installed, err = f.installed(ctx, c, pod); err == nil {
			if t.of.template != nil {
				pod = admitted(pod, installed)
			}
			out.Ways, err = waysOf(ctx, c, pod, installed)
		}
	}
	for _, u := range requirements.UnknownKeys(pod.Labels, pod.Annotations) {
		out.Warnings = append(out.Warnings, fmt.Sprintf("metadata.%s[%s] %s", u.Map, u.Key, u.Message))
	}
	unknown := func(err error) {
		if err != nil {
			out.Warnings = append(out.Warnings, err.Error())
		}
	}
	list, problem := w.podLabels(pod)
	unknown(problem)
	resources, problem := w.podResources(ctx, c, pod)
	unknown(problem)
	for _, r := range append(list, resources...) {
		out.Labels = append(out.Labels, serving.Required{Requirement: r})
	}
	out.Explanation = d.Explain(pod, node, w.checks(out.Labels)...)
	if len(out.Labels) > 0 {
		out.On = cmp.Or(node, out.Nearest)
		unknown(w.given(ctx, c, out.Labels, out.On))
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

// podResources returns the resources and devices that a pod requires of its node. The error says what is not known of them.
func (w *world) podResources(ctx context.Context, c *cluster.Client, pod *corev1.Pod) ([]podlabels.Requirement, error) {
	out, err := podlabels.Resources(&pod.Spec), error(nil)
	if reports := slices.ContainsFunc(slices.Collect(maps.Values(w.nodes)), podlabels.HasAllocatable); len(out) > 0 && !reports {
		out, err = nil, fmt.Errorf("the resources that the pod requests are not checked, because no Node of %s reports what it can allocate", w.where)
	}
	devices, unknown := w.podDevices(ctx, c, pod, out)
	out = append(out, devices...)
	podlabels.Count(out, maps.Values(w.nodes))
	return out, errors.Join(err, unknown)
}

// checks returns the requirements on labels for the extender's decider, which does not know them.
func (w *world) checks(of []serving.Required) []extender.Check {
	out := make([]extender.Check, len(of))
	for i := range of {
		out[i] = extender.Check{Of: of[i].Of(), Origin: of[i].Origin, Text: of[i].Text, Lacks: func(name string) string {
			if node := w.nodes[name]; node != nil {
				return of[i].Lacks(node)
			}
			return "there is no such Node"
		}}
	}
	return out
}

// installed returns what the cluster has for pods that require features, with the second scheduler if it runs and is that of the pod.
func (f *worldFlags) installed(ctx context.Context, c *cluster.Client, pod *corev1.Pod) (*serving.Installed, error) {
	installed, err := serving.Load(ctx, c)
	if err != nil || pod.Spec.SchedulerName != serving.Scheduler {
		return installed, err
	}
	alive, err := serving.SecondScheduler(ctx, c, cmp.Or(f.AssayNamespace, cluster.DefaultNamespace))
	if alive {
		installed.Scheduler = serving.Scheduler
	}
	return installed, err
}

// waysOf returns what makes the scheduler respect the requirements of a pod.
func waysOf(ctx context.Context, c *cluster.Client, pod *corev1.Pod, installed *serving.Installed) ([]serving.Way, error) {
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
		fmt.Fprintf(w, "%s requires no features, labels or resources: all %s can run it.\n", e.Subject, clip.Count(e.Nodes, "node"))
		return
	}
	fmt.Fprintf(w, "%s requires %s with %s.\n", e.Subject, e.Kinds(), strings.Join(e.Origins, ", "))
	printGiven(w, e)
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
	printTerms(w, e)
}

// printGiven prints the labels and resources that a pod requires, how many nodes have them, and who gives them.
func printGiven(w io.Writer, e *serving.Answer) {
	if len(e.Labels) == 0 {
		return
	}
	t := &table{}
	t.add("REQUIRES", "NODES", "GIVEN BY")
	for i := range e.Labels {
		r := &e.Labels[i]
		t.add(r.Text, fmt.Sprintf("%d of %d", r.Nodes, e.Nodes), dash(r.String()))
	}
	t.print(w, "  ")
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
		t := &table{}
		for _, g := range r.Given {
			if g.Why != "" {
				t.add(g.By, g.Why)
			}
			for _, l := range g.Terms {
				mark := "✗"
				if l.Held {
					mark = "✓"
				}
				t.add(g.By, mark, l.Subject, l.Asked, l.Found)
			}
		}
		missing := strings.HasSuffix(r.Has, " is missing") // the line about the node says so
		switch {
		case !missing:
			fmt.Fprintf(w, "On %s, %s: %s\n", printable(e.On), printable(r.Text), printable(r.Has))
		case len(t.rows) > 0:
			fmt.Fprintf(w, "On %s, %s:\n", printable(e.On), printable(r.Text))
		}
		t.print(w, "  ")
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

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/rules/request"
)

// maxListed is how many objects a finding names.
const maxListed = 5

// A checkup is what assay doctor knows and found.
type checkup struct {
	cluster.Flags
	c   *cluster.Client
	now time.Time
	out io.Writer
	bad int
}

func newDoctor() *cobra.Command {
	d := &checkup{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say whether Assay works in a cluster, and what to do where it does not",
		Long: `Say whether Assay works in a cluster, and what to do where it does not.

It reads: nodes without features; Assay's own pods that are not ready; rules, requests and policies that are refused, fail or
that no node meets; pods that wait for a scheduler that does not run, that cannot ask the extender, or that would not look at
the features they ask for. It changes nothing.`,
		Example: `  assay doctor
  assay doctor --context prod`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if d.c, err = d.Connect(); err != nil {
				return err
			}
			d.now, d.out = time.Now(), cmd.OutOrStdout()
			if err := d.run(cmd.Context()); err != nil {
				return err
			}
			if d.bad > 0 {
				return errFound
			}
			return nil
		},
	}
	d.Flags.Register(cmd.Flags())
	return cmd
}

func (d *checkup) run(ctx context.Context) error {
	for _, check := range []func(context.Context) error{d.nodes, d.pods, d.rules, d.requests, d.policies, d.schedulers} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// say prints a finding: what it is about, and, of a bad one, what to do.
func (d *checkup) say(ok bool, format string, args ...any) {
	mark, text := "ok  ", printable(fmt.Sprintf(format, args...))
	s := styleOf(d.out)
	if ok {
		fmt.Fprintln(d.out, s.good(mark), text)
		return
	}
	d.bad++
	fmt.Fprintln(d.out, s.bad("BAD "), text)
}

// some names the first of a list.
func some(list []string) string { return names(list[:min(len(list), maxListed)], len(list)) }

func (d *checkup) nodes(ctx context.Context) error {
	nodes, err := d.c.Names(ctx, "nodes")
	if err != nil {
		return err
	}
	features, err := d.c.NodesWithFeatures(ctx)
	if err != nil {
		d.say(false, "features cannot be read: %v", err)
		return nil
	}
	var without []string
	for _, n := range nodes {
		if !features[n] {
			without = append(without, n)
		}
	}
	if len(without) == 0 {
		d.say(true, "%s, all of which have features", plural(len(nodes), "node"))
		return nil
	}
	d.say(false, "%d of %s have no features: %s. Does the worker run there? See kubectl -n %s get pods -o wide",
		len(without), plural(len(nodes), "node"), some(without), d.Namespace)
	return nil
}

// ownPods selects the pods of the chart.
const ownPods = "app.kubernetes.io/name=assay"

// pods looks whether Assay's own pods are ready. There are none where it was installed otherwise.
func (d *checkup) pods(ctx context.Context) error {
	pods, err := d.c.PodsOf(ctx, d.Namespace, ownPods)
	if err != nil {
		d.say(false, "the pods of namespace %s cannot be read: %v", d.Namespace, err)
		return nil
	}
	running := 0
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase == corev1.PodSucceeded || p.DeletionTimestamp != nil {
			continue
		}
		if container, why := unready(p); why != "" {
			d.say(false, "pod %s is not ready: %s. See kubectl -n %s logs %s%s", p.Name, why, d.Namespace, p.Name, container)
			continue
		}
		running++
	}
	if running > 0 {
		d.say(true, "%s of Assay, ready", plural(running, "pod"))
	}
	return nil
}

// unready says why a pod is not ready, and the flag by which kubectl finds the log of the container that is not.
func unready(p *corev1.Pod) (container, why string) {
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.Ready:
			continue
		case c.State.Waiting != nil:
			why = fmt.Sprintf("container %s waits: %s", c.Name, c.State.Waiting.Reason)
		case c.State.Terminated != nil:
			why = fmt.Sprintf("container %s has ended with code %d", c.Name, c.State.Terminated.ExitCode)
		default:
			why = fmt.Sprintf("container %s runs, and says that it is not", c.Name)
		}
		return " -c " + c.Name, why
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "", "it waits for a node: " + c.Message
		}
	}
	if len(p.Status.ContainerStatuses) == 0 {
		return "", "its containers have not started"
	}
	return "", ""
}

func (d *checkup) rules(ctx context.Context) error {
	list, err := d.c.Rules(ctx)
	if err != nil {
		d.say(false, "rules cannot be read: %v", err)
		return nil
	}
	fine := 0
	for i := range list {
		r := &list[i]
		switch {
		case len(r.Status.Conditions) == 0 || r.Status.ObservedGeneration != r.Generation:
			d.say(false, "rule %s: no controller has looked at it; does it run?", r.Name)
		case isFalse(r.Status.Conditions, nfdv1alpha1.ConditionAccepted):
			d.say(false, "rule %s is refused: %s", r.Name, why(r.Status.Conditions, nfdv1alpha1.ConditionAccepted))
		case isFalse(r.Status.Conditions, nfdv1alpha1.ConditionHealthy):
			d.say(false, "rule %s fails: %s", r.Name, why(r.Status.Conditions, nfdv1alpha1.ConditionHealthy))
		default:
			fine++
		}
	}
	d.say(true, "%s evaluated", plural(fine, "rule object"))
	return nil
}

func (d *checkup) requests(ctx context.Context) error {
	list, err := d.c.Requests(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		d.status("NodeFeatureRequest "+list[i].Namespace+"/"+list[i].Name, list[i].Generation, &list[i].Status)
	}
	return nil
}

func (d *checkup) policies(ctx context.Context) error {
	list, err := d.c.Policies(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	namespaces, err := d.c.Namespaces(ctx)
	if err != nil {
		return err
	}
	labelled := 0
	for i := range namespaces {
		if namespaces[i].Labels[assayv1alpha1.SchedulingLabel] == assayv1alpha1.SchedulingLabelEnabled {
			labelled++
		}
	}
	if labelled == 0 {
		d.say(false, "there are policies, and no namespace is labelled %s=%s: none applies to any pod",
			assayv1alpha1.SchedulingLabel, assayv1alpha1.SchedulingLabelEnabled)
	}
	for i := range list {
		d.status("NodeFeatureSchedulingPolicy "+list[i].Name, list[i].Generation, &list[i].Status)
	}
	return nil
}

func (d *checkup) status(what string, generation int64, s *assayv1alpha1.RequestStatus) {
	switch {
	case len(s.Conditions) == 0 || s.ObservedGeneration != generation:
		d.say(false, "%s: no controller has looked at it; does it run with the feature gate FeatureScheduling (scheduling.enabled of the chart)?", what)
	case isFalse(s.Conditions, nfdv1alpha1.ConditionAccepted):
		d.say(false, "%s is not understood: %s", what, why(s.Conditions, nfdv1alpha1.ConditionAccepted))
	case isFalse(s.Conditions, assayv1alpha1.ConditionSatisfiable):
		d.say(false, "%s: %s", what, why(s.Conditions, assayv1alpha1.ConditionSatisfiable))
	default:
		d.say(true, "%s", what)
	}
}

// secondScheduler is the name of the second scheduler, leaseName that of its Lease.
const (
	secondScheduler = "assay"
	leaseName       = "assay-scheduler"
	// leaseLate is when a Lease that nobody has renewed says that its holder is gone; kube-scheduler renews within 10 s.
	leaseLate = time.Minute
)

// schedulers looks at pods that wait, by the scheduler that they wait for.
func (d *checkup) schedulers(ctx context.Context) error {
	leases, err := d.c.Leases(ctx, d.Namespace)
	if err != nil {
		return err
	}
	alive := d.alive(leases)
	pods, err := d.c.PendingPods(ctx)
	if err != nil {
		return err
	}
	var orphans, unheard, unasked []string
	said := ""
	for i := range pods {
		p := &pods[i]
		name := p.Namespace + "/" + p.Name
		switch {
		case p.Spec.SchedulerName == secondScheduler && !alive:
			orphans = append(orphans, name)
		case failure(p) != "" && (p.Spec.SchedulerName == secondScheduler || request.Asks(p.Labels, p.Annotations)):
			unasked, said = append(unasked, name), failure(p)
		case p.Spec.SchedulerName == corev1.DefaultSchedulerName && request.Asks(p.Labels, p.Annotations) && !marked(p):
			unheard = append(unheard, name)
		}
	}
	if alive {
		d.say(true, "the second scheduler runs")
	}
	if len(orphans) > 0 {
		d.say(false, "waiting for the scheduler %[2]s, which does not run: %[1]s, %[3]s", plural(len(orphans), "pod"), secondScheduler, some(orphans))
	}
	if len(unheard) > 0 {
		d.say(false, "asking for features and waiting for the default scheduler: %s, %s. Unless the extender is attached to it "+
			"(assay scheduler-config), nobody looks at what they ask for: set schedulerName: %s",
			plural(len(unheard), "pod"), some(unheard), secondScheduler)
	}
	if len(unasked) > 0 {
		d.say(false, "waiting because the scheduler fails: %s, %s. It says: %s", plural(len(unasked), "pod"), some(unasked), said)
	}
	if len(orphans)+len(unheard)+len(unasked) == 0 {
		d.say(true, "no pod waits for a scheduler that does not look at its features")
	}
	return nil
}

// alive reports whether the second scheduler holds its Lease.
func (d *checkup) alive(leases []coordinationv1.Lease) bool {
	for i := range leases {
		l := &leases[i]
		// Whoever ends gives the Lease back: without a holder, and renewed just then.
		if l.Name == leaseName && ptr.Deref(l.Spec.HolderIdentity, "") != "" && l.Spec.RenewTime != nil &&
			d.now.Sub(l.Spec.RenewTime.Time) < leaseLate {
			return true
		}
	}
	return false
}

// failure is what a scheduler says that could not even try to place a pod; empty if it could.
func failure(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonSchedulerError {
			return c.Message
		}
	}
	return ""
}

// marked reports whether admission has marked a pod for an extender of the default scheduler.
func marked(p *corev1.Pod) bool {
	for i := range p.Spec.Containers {
		for _, mark := range []corev1.ResourceName{assayv1alpha1.MarkerResource, assayv1alpha1.PreferenceMarkerResource} {
			if _, ok := p.Spec.Containers[i].Resources.Limits[mark]; ok {
				return true
			}
		}
	}
	return false
}

func isFalse(list []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionFalse(list, kind)
}

func why(list []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(list, kind); c != nil {
		return c.Message
	}
	return ""
}

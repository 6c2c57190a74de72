// Package doctor checks an installation of Assay.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/rules/clip"
)

// Level is the severity of a finding.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // works, but not as configured
	Error   Level = "error"   // does not work
)

// Finding is the result of a check.
type Finding struct {
	// Check is the part that was checked: installation, definitions, controller, worker, webhook, rules, scheduling …
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Message string `json:"message"`
	// Fix tells the user how to fix the problem.
	Fix string `json:"fix,omitempty"`
}

// Check is a further check.
type Check func(ctx context.Context, c *cluster.Client) ([]Finding, error)

// partOf is the label of all objects that the chart installs, independent of the names of the release and the chart.
const partOf = "app.kubernetes.io/part-of=assay"

// component is the label for the component of a workload.
const component = "app.kubernetes.io/component"

// maxListed is the maximum number of objects in a finding.
const maxListed = 5

// examination is the state of one run of the checks.
type examination struct {
	c         *cluster.Client
	namespace string // of the installation; empty: search all namespaces
	now       func() time.Time
	found     []Finding

	deployments []appsv1.Deployment
	daemonSets  []appsv1.DaemonSet
	missing     []string                    // CustomResourceDefinitions that do not exist
	unwhole     map[string]definition.State // of the CustomResourceDefinitions that are not whole
	lacking     map[string]bool             // components whose ServiceAccount lacks rights
	faulty      map[string]bool             // Nodes whose worker has a fault
}

// Examine runs all checks and returns their findings: errors first, then warnings, each in the order of causes before consequences. It does
// not change the cluster. If namespace is empty, Examine searches all namespaces for installations. More are checks that need other packages;
// they run last. Examine returns an error if the cluster cannot be examined at all.
func Examine(ctx context.Context, c *cluster.Client, namespace string, more ...Check) ([]Finding, error) {
	e := &examination{c: c, namespace: namespace, now: time.Now}
	if err := e.workloads(ctx); err != nil {
		return nil, err
	}
	e.definitions(ctx)
	if !e.installed() {
		return e.uninstalled(ctx)
	}
	e.installation()
	checks := []func(context.Context) error{
		e.speed, e.rights, e.parts, e.configurations, e.controller, e.autoscaler, e.workers, e.ready, e.webhook, e.selectors,
		e.of(definition.Rules, e.rules), e.claims, e.holds, e.writes, e.notReady, e.of(definition.Baselines, e.baselines),
		e.of(definition.Shapes, e.shapes), e.of(definition.Requests, e.requests), e.of(definition.Policies, e.policies), e.schedulers, e.topology,
		e.events, e.admission,
	}
	for _, check := range more {
		checks = append(checks, func(ctx context.Context) error {
			if e.lacking["controller"] {
				return nil // what is not written is a consequence
			}
			found, err := check(ctx, c)
			e.found = append(e.found, found...)
			return err
		})
	}
	e.run(ctx, checks...)
	return e.sorted(), nil
}

// run runs checks. What cannot be read is a finding.
func (e *examination) run(ctx context.Context, checks ...func(context.Context) error) {
	for _, check := range checks {
		err := check(ctx)
		if cluster.IsNotFound(err) && len(e.missing) > 0 {
			continue // a consequence of the missing definitions, which are a finding
		}
		if err != nil {
			e.report("access", Warning, fmt.Sprintf("cannot check everything: %v", err), "")
		}
	}
}

// sorted returns the findings, the most important first.
func (e *examination) sorted() []Finding {
	rank := map[Level]int{Error: 0, Warning: 1, OK: 2}
	slices.SortStableFunc(e.found, func(a, b Finding) int { return rank[a.Level] - rank[b.Level] })
	return e.found
}

func (e *examination) report(check string, level Level, message, fix string) {
	e.found = append(e.found, Finding{Check: check, Level: level, Message: message, Fix: fix})
}

func (e *examination) ok(check, format string, args ...any) {
	e.report(check, OK, fmt.Sprintf(format, args...), "")
}

// installed reports whether the cluster has workloads of Assay.
func (e *examination) installed() bool { return len(e.deployments)+len(e.daemonSets) > 0 }

// workloads reads the workloads of Assay.
func (e *examination) workloads(ctx context.Context) (err error) {
	if e.deployments, err = e.c.Deployments(ctx, e.namespace, partOf); err != nil {
		return err
	}
	e.daemonSets, err = e.c.DaemonSets(ctx, e.namespace, partOf)
	return err
}

// installation reports parts of Assay that are not installed.
func (e *examination) installation() {
	if len(e.part("controller")) == 0 {
		e.absent("controller", "Deployment")
	}
	if len(e.agents()) == 0 {
		e.absent("worker", "DaemonSet")
	}
}

func (e *examination) absent(part, kind string) {
	e.report(part, Error, fmt.Sprintf("the %s is not installed: no %s has the labels %s,%s=%s", part, kind, partOf, component, part),
		fmt.Sprintf("Upgrade the release with %s.enabled=true", part))
}

// part returns the Deployments of a component.
func (e *examination) part(name string) []*appsv1.Deployment {
	var out []*appsv1.Deployment
	for i := range e.deployments {
		if e.deployments[i].Labels[component] == name {
			out = append(out, &e.deployments[i])
		}
	}
	return out
}

// agents returns the DaemonSets of the worker.
func (e *examination) agents() []*appsv1.DaemonSet {
	var out []*appsv1.DaemonSet
	for i := range e.daemonSets {
		if e.daemonSets[i].Labels[component] == "worker" {
			out = append(out, &e.daemonSets[i])
		}
	}
	return out
}

// purpose describes what does not work if a component is not running.
var purpose = map[string]string{
	"controller": "labels are not updated",
	"webhook":    "errors in rules are accepted without a message",
	"extender":   "the scheduler cannot check the features that pods require",
	"scheduler":  "pods with schedulerName: assay are not placed",
}

// parts checks that each Deployment has the desired number of replicas.
func (e *examination) parts(ctx context.Context) error {
	for i := range e.deployments {
		if err := e.deployment(ctx, &e.deployments[i]); err != nil {
			return err
		}
	}
	return nil
}

func (e *examination) deployment(ctx context.Context, d *appsv1.Deployment) error {
	part, want := d.Labels[component], int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	name := fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name)
	ready := d.Status.ReadyReplicas
	switch {
	case want == 0:
		e.report(part, Error, consequence(name+" is scaled to 0 replicas", part),
			fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=1", d.Namespace, d.Name))
	case ready < want:
		text := fmt.Sprintf("%s has %d of %d replicas ready", name, ready, want)
		level := Warning
		if ready == 0 {
			level, text = Error, consequence(text, part)
		}
		e.report(part, level, text, fmt.Sprintf("kubectl -n %s describe deployment %s", d.Namespace, d.Name))
	default:
		e.ok(part, "%s has %s ready", name, clip.Count(int(ready), "replica"))
	}
	pods, err := e.c.AllPodsOf(ctx, d.Namespace, d.Spec.Selector)
	for i := range pods {
		e.pod(part, &pods[i])
	}
	return err
}

func consequence(text, part string) string {
	if what := purpose[part]; what != "" {
		text += ": " + what
	}
	return text
}

// pod reports a pod that is not ready.
func (e *examination) pod(part string, p *corev1.Pod) {
	if !counts(p) {
		return
	}
	if container, why := unready(p); why != "" {
		e.report(part, Error, fmt.Sprintf("pod %s/%s is not ready: %s", p.Namespace, p.Name, why), fixOf(part, p, container, why))
	} else if container, why := e.restarted(p); why != "" {
		e.report(part, Warning, fmt.Sprintf("pod %s/%s is ready again: %s", p.Namespace, p.Name, why), fixOf(part, p, container, why))
	}
}

// recentKill is how long a process that was killed is reported after its container is ready again: longer than the back-off of a container
// that is killed again and again, five minutes.
const recentKill = 10 * time.Minute

// restarted returns a container that is ready again after it exceeded its memory limit, and a description.
func (e *examination) restarted(p *corev1.Pod) (container, why string) {
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		last := s.LastTerminationState.Terminated
		if last == nil || e.c.Now().Sub(last.FinishedAt.Time) > recentKill {
			continue
		}
		if text := killed(p, s); text != "" {
			return s.Name, fmt.Sprintf("container %s was restarted%s", s.Name, text)
		}
	}
	return "", ""
}

// counts reports whether a pod is expected to run.
func counts(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && p.DeletionTimestamp == nil
}

// fixOf returns what to do about a pod that is not ready: its log says nothing about a process that was killed.
func fixOf(part string, p *corev1.Pod, container, why string) string {
	if strings.Contains(why, reasonOOMKilled) {
		return fmt.Sprintf("Raise %s.resources.limits.memory: kubectl -n %s describe pod %s shows the limit", part, p.Namespace, p.Name)
	}
	return logsOf(p, container)
}

func logsOf(p *corev1.Pod, container string) string {
	options := ""
	if container != "" {
		options = " -c " + container
	}
	for i := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[i]; s.Name == container && s.State.Running == nil && s.RestartCount > 0 {
			options += " --previous" // the log of the crash: that of the next try may be empty
		}
	}
	return fmt.Sprintf("kubectl -n %s logs %s%s", p.Namespace, p.Name, options)
}

// unready returns the reason why a pod is not ready, and the container that is not ready.
func unready(p *corev1.Pod) (container, why string) {
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.Ready:
			continue
		case c.State.Waiting != nil:
			why = fmt.Sprintf("container %s is waiting: %s", c.Name, c.State.Waiting.Reason) + killed(p, &c)
		case c.State.Terminated != nil:
			why = fmt.Sprintf("container %s has exited with code %d", c.Name, c.State.Terminated.ExitCode) + killed(p, &c)
		default:
			why = fmt.Sprintf("container %s runs, and its readiness probe fails", c.Name)
		}
		return c.Name, why
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "", "it is not scheduled: " + c.Message
		}
	}
	if len(p.Status.ContainerStatuses) == 0 {
		return "", "its containers have not started"
	}
	return "", ""
}

// reasonOOMKilled is the reason of a container that exceeded its memory limit.
const reasonOOMKilled = "OOMKilled"

// killed says that the last run of a container exceeded its memory limit, for the end of a sentence; else it returns "".
func killed(p *corev1.Pod, s *corev1.ContainerStatus) string {
	last := s.State.Terminated
	if last == nil {
		last = s.LastTerminationState.Terminated
	}
	if last == nil || last.Reason != reasonOOMKilled {
		return ""
	}
	for i := range p.Spec.Containers {
		if limit, ok := p.Spec.Containers[i].Resources.Limits[corev1.ResourceMemory]; ok && p.Spec.Containers[i].Name == s.Name {
			return fmt.Sprintf(", %s: it exceeded its memory limit of %s", reasonOOMKilled, limit.String())
		}
	}
	return ", " + reasonOOMKilled + ": the node had no memory left for it"
}

// ago formats the time since an event.
func ago(d time.Duration) string { return d.Round(time.Second).String() }

// some returns the first elements of a list for a message.
func some(list []string) string { return clip.Join(list, ", ", maxListed) }

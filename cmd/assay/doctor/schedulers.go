package doctor

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/assay-project/assay/rules/requirements"
)

const (
	// secondScheduler is the name of the second scheduler. schedulerLease is the name of its Lease.
	secondScheduler = "assay"
	schedulerLease  = "assay-scheduler"
	// leaseLate is the age after which a Lease is considered abandoned. kube-scheduler renews its Lease within 10 s.
	leaseLate = time.Minute
)

// schedulers checks pending pods, grouped by scheduler.
func (e *examination) schedulers(ctx context.Context) error {
	alive, err := e.secondScheduler(ctx)
	if err != nil {
		return err
	}
	pods, err := e.c.PendingPods(ctx)
	if err != nil {
		return err
	}
	var orphans, unheard, unasked []string
	message := ""
	for i := range pods {
		p := &pods[i]
		name := p.Namespace + "/" + p.Name
		asks := requirements.HasAny(p.Labels, p.Annotations)
		switch {
		case p.Spec.SchedulerName == secondScheduler && !alive:
			orphans = append(orphans, name)
		case failure(p) != "" && (p.Spec.SchedulerName == secondScheduler || asks):
			unasked, message = append(unasked, name), failure(p)
		case p.Spec.SchedulerName == corev1.DefaultSchedulerName && asks:
			unheard = append(unheard, name)
		}
	}
	const check = "scheduling"
	if alive {
		e.ok(check, "the second scheduler runs")
	}
	if len(orphans) > 0 {
		e.report(check, Error, fmt.Sprintf("%s: %s: waiting for the scheduler %s, which does not run", plural(len(orphans), "pod"), some(orphans), secondScheduler),
			"Upgrade the release with scheduler.enabled=true")
	}
	if len(unheard) > 0 {
		e.report(check, Error, fmt.Sprintf("%s: %s: requiring features and waiting for the default scheduler, which does not check them unless the extender is "+
			"attached to it", plural(len(unheard), "pod"), some(unheard)), "Set schedulerName: "+secondScheduler+", or see assay scheduler-config")
	}
	if len(unasked) > 0 {
		e.report(check, Error, fmt.Sprintf("%s: %s: waiting because the scheduler fails: %s", plural(len(unasked), "pod"), some(unasked), message), "")
	}
	if len(orphans)+len(unheard)+len(unasked) == 0 {
		e.ok(check, "no pod waits for a scheduler that does not check its features")
	}
	return nil
}

// secondScheduler reports whether the second scheduler holds its Lease in a namespace of the installation.
func (e *examination) secondScheduler(ctx context.Context) (bool, error) {
	namespaces := map[string]bool{}
	for i := range e.deployments {
		namespaces[e.deployments[i].Namespace] = true
	}
	for namespace := range namespaces {
		leases, err := e.c.Leases(ctx, namespace)
		if err != nil {
			return false, err
		}
		// A scheduler that shuts down releases its Lease: it has no holder and was just renewed.
		if l := find(leases, schedulerLease); l != nil && ptr.Deref(l.Spec.HolderIdentity, "") != "" && l.Spec.RenewTime != nil &&
			e.c.Now().Sub(l.Spec.RenewTime.Time) < leaseLate {
			return true, nil
		}
	}
	return false, nil
}

// failure returns the message of a scheduler that failed before it could place a pod, or "".
func failure(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonSchedulerError {
			return c.Message
		}
	}
	return ""
}

package doctor

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
)

// controller checks that a replica of each controller holds the Lease and renews it.
func (e *examination) controller(ctx context.Context) error {
	for _, d := range e.part("controller") {
		leases, err := e.c.Leases(ctx, d.Namespace)
		if err != nil {
			return err
		}
		pods, err := e.c.AllPodsOf(ctx, d.Namespace, d.Spec.Selector)
		if err != nil {
			return err
		}
		own := map[string]bool{}
		for i := range pods {
			own[pods[i].Name] = true
		}
		e.lease(d, leases, own)
	}
	return nil
}

func (e *examination) lease(d *appsv1.Deployment, leases []coordinationv1.Lease, own map[string]bool) {
	const check = "lease"
	l := find(leases, nfdv1alpha1.LeaseName(instance(d)))
	leader := cluster.LeaderOf(l, d.Namespace, instance(d), e.c.Now())
	logs := fmt.Sprintf("kubectl -n %s logs deployment/%s", d.Namespace, d.Name)
	name, pod := "Lease "+leader.Lease, leader.Pod
	if pod == "" {
		if d.Status.ReadyReplicas > 0 { // otherwise the Deployment is already reported
			e.report(check, Error, fmt.Sprintf("no replica of the controller holds %s: labels are not updated", name), logs)
		}
		return
	}
	age := leader.Renewed
	switch {
	case !leader.Alive:
		e.report(check, Error, fmt.Sprintf("%s is held by %s, which has not renewed it for %s: the holder is dead and labels are not updated", name, pod, ago(age)), logs)
	case !own[pod]:
		e.report(check, Error, fmt.Sprintf("%s is held by %s, which is not a pod of Deployment %s: the controller waits for it", name, pod, d.Name),
			"Stop the other controller, for example NFD's master")
	default:
		e.ok(check, "%s is held by %s, renewed %s ago", name, pod, ago(age))
	}
}

// instance returns the --instance argument of a controller, or "".
func instance(d *appsv1.Deployment) string { return instanceOf(&d.Spec.Template.Spec) }

func instanceOf(pod *corev1.PodSpec) string {
	for _, container := range pod.Containers {
		for _, arg := range container.Args {
			if name, ok := strings.CutPrefix(arg, "--instance="); ok {
				return name
			}
		}
	}
	return ""
}

func find(leases []coordinationv1.Lease, name string) *coordinationv1.Lease {
	for i := range leases {
		if leases[i].Name == name {
			return &leases[i]
		}
	}
	return nil
}

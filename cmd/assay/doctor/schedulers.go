package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/podlabels"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/podadmission"
	"github.com/assay-project/assay/rules/requirements"
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
	installed, err := serving.Load(ctx, e.c)
	if err != nil {
		return err
	}
	if alive {
		installed.Scheduler = serving.Scheduler
	}
	list, err := e.c.Requests(ctx)
	if err != nil {
		return err
	}
	requests := map[string]*assayv1alpha1.NodeFeatureRequest{}
	for i := range list {
		requests[list[i].Namespace+"/"+list[i].Name] = &list[i]
	}
	var orphans, unasked []string
	ways := map[serving.Way][]string{}
	message := ""
	for i := range pods {
		p := &pods[i]
		name := p.Namespace + "/" + p.Name
		switch {
		case p.Spec.SchedulerName == serving.Scheduler && !alive:
			orphans = append(orphans, name)
			continue
		case failure(p) != "" && (p.Spec.SchedulerName == serving.Scheduler || requirements.HasAny(p.Labels, p.Annotations)):
			unasked, message = append(unasked, name), failure(p)
			continue
		}
		for _, way := range installed.Of(p, func(request string) *assayv1alpha1.NodeFeatureRequest { return requests[p.Namespace+"/"+request] }) {
			ways[way] = append(ways[way], name)
		}
	}
	const check = "scheduling"
	if alive {
		e.ok(check, "the second scheduler runs")
	}
	if len(orphans) > 0 {
		e.report(check, Error, fmt.Sprintf("%s: %s: waiting for the scheduler %s, which does not run", clip.Count(len(orphans), "pod"), some(orphans), serving.Scheduler),
			"Upgrade the release with scheduler.enabled=true")
	}
	impossible, err := e.unlabeled(ctx, pods, installed)
	if err != nil {
		return err
	}
	unserved := 0
	for _, way := range slices.SortedFunc(maps.Keys(ways), func(a, b serving.Way) int { return strings.Compare(a.String(), b.String()) }) {
		unserved += e.waiting(way, ways[way])
	}
	if len(unasked) > 0 {
		e.report(check, Error, fmt.Sprintf("%s: %s: waiting because the scheduler fails: %s", clip.Count(len(unasked), "pod"), some(unasked), message), "")
	}
	if len(orphans)+unserved+len(unasked)+impossible == 0 {
		e.ok(check, "no pod waits for a scheduler that does not check its features")
	}
	return nil
}

// unlabeled reports pods that require labels of features which no Node has together, and returns their number. Pods that require only other
// labels are not about Assay.
func (e *examination) unlabeled(ctx context.Context, pods []corev1.Pod, installed *serving.Installed) (int, error) {
	waiting := map[string][]string{}
	var nodes []*corev1.Node
	for i := range pods {
		p := &pods[i]
		ours := func(key string) bool { return podadmission.OfFeatures(key) || installed.RuleLabels[key] }
		of, err := podlabels.Of(&p.Spec)
		if err != nil || !slices.ContainsFunc(podlabels.Keys(&p.Spec), ours) {
			continue // the API server rejects what has an error
		}
		if nodes == nil {
			list, err := e.c.Nodes(ctx, "")
			if err != nil {
				return 0, err
			}
			for i := range list {
				nodes = append(nodes, &list[i])
			}
		}
		if podlabels.Count(of, slices.Values(nodes)) > 0 {
			continue
		}
		text := "labels that it requires"
		if none := slices.IndexFunc(of, func(r podlabels.Requirement) bool { return r.Nodes == 0 }); none >= 0 {
			text = of[none].Origin + " " + of[none].Text
		}
		waiting[text] = append(waiting[text], p.Namespace+"/"+p.Name)
	}
	n := 0
	for _, text := range slices.Sorted(maps.Keys(waiting)) {
		pods := waiting[text]
		n += len(pods)
		e.report("scheduling", Warning, fmt.Sprintf("%s waiting: %s: no Node meets the %s", clip.Count(len(pods), "pod"), some(pods), text), "assay why pod "+pods[0])
	}
	return n, nil
}

// waiting reports what serves pods that wait, and returns 1 if nothing does.
func (e *examination) waiting(way serving.Way, pods []string) int {
	text := fmt.Sprintf("%s waiting: %s: %s", clip.Count(len(pods), "pod"), some(pods), way.String())
	switch {
	case !way.Served():
		e.report("scheduling", Error, text, "Require a label instead (docs/scheduling.md), set schedulerName: "+serving.Scheduler+", or see assay scheduler-config")
		return 1
	case way.Problem != "":
		e.report("scheduling", Warning, text, "kubectl get nodefeaturerequests -A")
	default:
		e.ok("scheduling", "%s", text)
	}
	return 0
}

// secondScheduler reports whether the second scheduler holds its Lease in a namespace of the installation.
func (e *examination) secondScheduler(ctx context.Context) (bool, error) {
	namespaces := map[string]bool{}
	for i := range e.deployments {
		namespaces[e.deployments[i].Namespace] = true
	}
	for namespace := range namespaces {
		if alive, err := serving.SecondScheduler(ctx, e.c, namespace); alive || err != nil {
			return alive, err
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

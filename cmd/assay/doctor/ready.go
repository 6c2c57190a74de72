package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
)

// joining is how long a Node may take to become ready: its worker starts, and drivers register their devices.
const joining = 2 * time.Minute

// ready checks the condition FeaturesReady of Nodes. Nodes with one reason are one line. Nodes whose worker has a fault are reported already.
func (e *examination) ready(ctx context.Context) error {
	nodes, err := e.c.Nodes(ctx, "")
	if err != nil {
		return err
	}
	causes := map[string][]string{}
	var order []string
	for i := range nodes {
		n := &nodes[i]
		for _, c := range n.Status.Conditions {
			if string(c.Type) != assayv1alpha1.FeaturesReadyCondition || c.Status == corev1.ConditionTrue || e.faulty[n.Name] ||
				e.c.Now().Sub(c.LastTransitionTime.Time) < joining {
				continue
			}
			cause := c.Reason + ": " + c.Message
			if causes[cause] == nil {
				order = append(order, cause)
			}
			causes[cause] = append(causes[cause], n.Name)
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return len(causes[b]) - len(causes[a]) })
	for i, cause := range order {
		if i == maxListed {
			e.report("ready", Warning, fmt.Sprintf("%s more are not ready for other reasons", clip.Count(len(order)-i, "group of Nodes")), "kubectl describe node")
			break
		}
		names := causes[cause]
		e.report("ready", Warning, fmt.Sprintf("%s: %s: the condition FeaturesReady is not True: %s", clip.Count(len(names), "Node"), some(names), cause), e.unreadyFix(cause, names[0]))
	}
	return nil
}

// unreadyFix returns what to do about a Node that is not ready.
func (e *examination) unreadyFix(cause, node string) string {
	reason, _, _ := strings.Cut(cause, ":")
	logs := "kubectl logs of the worker on the Node"
	for _, d := range e.agents() {
		logs = fmt.Sprintf("kubectl -n %s logs -l app.kubernetes.io/component=worker --field-selector spec.nodeName=%s", d.Namespace, node)
	}
	switch reason {
	case assayv1alpha1.ReasonSourcesUnread:
		return "A source does not answer, such as a device or a hook that hangs: " + logs
	case assayv1alpha1.ReasonLabelsUnmet:
		return "kubectl get nodefeaturerequests -A"
	case assayv1alpha1.ReasonWaitingForDrivers:
		return "kubectl get resourceslices --field-selector spec.nodeName=" + node
	}
	return logs
}

// baselines reports NodeBaselines that are not accepted, and those from which nodes deviate.
func (e *examination) baselines(ctx context.Context) error {
	list, err := e.c.Baselines(ctx)
	if err != nil {
		return err
	}
	fine := 0
	for i := range list {
		b := &list[i]
		if !e.object("baselines", "NodeBaseline "+b.Name, b.Generation, b.Status.ObservedGeneration, b.Status.Conditions) {
			continue
		}
		if c := meta.FindStatusCondition(b.Status.Conditions, assayv1alpha1.ConditionConforming); c != nil && c.Status == metav1.ConditionFalse {
			e.report("baselines", Warning, fmt.Sprintf("NodeBaseline %s: %s: %s", b.Name, c.Reason, c.Message), "assay baseline report "+b.Name)
			continue
		}
		fine++
	}
	if fine > 0 {
		e.ok("baselines", "no node is known to deviate from %d of %s", fine, clip.Count(len(list), "NodeBaseline"))
	}
	return nil
}

// shapes reports NodeShapes of which nodes lack what autoscalers expect of them.
func (e *examination) shapes(ctx context.Context) error {
	list, err := e.c.Shapes(ctx)
	for i := range list {
		if c := meta.FindStatusCondition(list[i].Status.Conditions, assayv1alpha1.ConditionContradicted); c != nil && c.Status == metav1.ConditionTrue {
			e.report("shapes", Warning, fmt.Sprintf("NodeShape %s: nodes differ from what autoscalers expect: %s: %s", list[i].Name, c.Reason, c.Message),
				"kubectl describe nodeshape "+list[i].Name)
		}
	}
	return err
}

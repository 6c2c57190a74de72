package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/internal/fleet/noworker"
	"github.com/assay-project/assay/rules/clip"
)

// nodeState is the state of a worker on a node.
type nodeState struct {
	pod       *corev1.Pod // the pod of the worker; nil: there is none
	published bool        // the worker has published features
	any       bool        // any publisher has published features
	lacking   bool        // the controller asks the worker for feature sets
}

// workers checks that a worker runs on every Node and publishes its features.
func (e *examination) workers(ctx context.Context) error {
	agents := e.agents()
	if len(agents) == 0 {
		return nil
	}
	nodes, err := e.c.Nodes(ctx, "")
	if err != nil {
		return err
	}
	states, err := e.states(ctx, agents)
	if err != nil {
		return err
	}
	var fine, without int
	e.faulty = map[string]bool{}
	faults := map[string][]string{} // problem -> nodes
	fixes := map[string]string{}
	again := map[string][]string{} // why a worker was restarted that is ready again -> nodes
	for i := range nodes {
		n := &nodes[i]
		if byDesign(n, states[n.Name]) {
			without++
			continue
		}
		text, fix := fault(n, states[n.Name], agents)
		if text == "" {
			fine++
			if s := states[n.Name]; s != nil && s.pod != nil {
				if container, why := e.restarted(s.pod); why != "" {
					text := "the worker is ready again: " + why
					again[text] = append(again[text], n.Name)
					fixes[text] = fixOf("worker", s.pod, container, why)
				}
			}
			continue
		}
		faults[text] = append(faults[text], n.Name)
		e.faulty[n.Name] = true
		if fixes[text] == "" {
			fixes[text] = fix
		}
	}
	if fine > 0 || len(nodes) == 0 {
		e.ok("worker", "%d of %s have a ready worker and features", fine, clip.Count(len(nodes)-without, "Node"))
	}
	if without > 0 {
		e.ok("worker", "%s without a worker by design: Windows, AWS Fargate or a virtual kubelet", clip.Count(without, "Node"))
	}
	report := func(level Level, found map[string][]string) {
		for _, text := range slices.Sorted(maps.Keys(found)) {
			list := found[text]
			e.report("worker", level, fmt.Sprintf("%s: %s: %s", clip.Count(len(list), "Node"), some(list), text), fixes[text])
		}
	}
	report(Error, faults)
	report(Warning, again)
	return nil
}

// WorkerFaults returns the faults of the workers by node. It returns nil if no DaemonSet of the worker is installed. If namespace is empty,
// it searches all namespaces for it.
func WorkerFaults(ctx context.Context, c *cluster.Client, namespace string, nodes map[string]*corev1.Node) (map[string]cluster.Worker, error) {
	e := &examination{c: c, namespace: namespace}
	var err error
	if e.daemonSets, err = c.DaemonSets(ctx, namespace, partOf); err != nil || len(e.agents()) == 0 {
		return nil, err
	}
	states, err := e.states(ctx, e.agents())
	if err != nil {
		return nil, err
	}
	out := make(map[string]cluster.Worker, len(nodes))
	for name, node := range nodes {
		text, fix := fault(node, states[name], e.agents())
		s := states[name]
		if byDesign(node, s) {
			text, fix = "", ""
		}
		out[name] = cluster.Worker{Fault: text, Fix: fix, Ready: s != nil && s.ready()}
	}
	return out, nil
}

// states returns the state of the worker on each node.
func (e *examination) states(ctx context.Context, agents []*appsv1.DaemonSet) (map[string]*nodeState, error) {
	out := map[string]*nodeState{}
	own := map[string]bool{} // namespaces of workers
	of := func(node string) *nodeState {
		if out[node] == nil {
			out[node] = &nodeState{}
		}
		return out[node]
	}
	for _, d := range agents {
		own[d.Namespace] = true
		pods, err := e.c.AllPodsOf(ctx, d.Namespace, d.Spec.Selector)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			p := &pods[i]
			if !counts(p) || p.Spec.NodeName == "" {
				continue
			}
			state := of(p.Spec.NodeName)
			if _, why := unready(p); state.pod == nil || why == "" {
				state.pod = p
			}
		}
	}
	objects, err := e.c.FeatureObjects(ctx)
	for i := range objects {
		node := objects[i].Labels[nfdv1alpha1.NodeNameLabel]
		if node == "" {
			continue
		}
		of(node).any = true
		if objects[i].Name == node && own[objects[i].Namespace] { // workers name their NodeFeature like the node
			of(node).published = true
			of(node).lacking = objects[i].Annotations[assayv1alpha1.MissingFeatureSetsAnnotation] != ""
		}
	}
	return out, err
}

// ready reports whether the worker is ready.
func (s *nodeState) ready() bool {
	if s.pod == nil {
		return false
	}
	_, why := unready(s.pod)
	return why == ""
}

// byDesign reports whether a node has no worker by design. Another DaemonSet than the chart's may run there.
func byDesign(n *corev1.Node, s *nodeState) bool {
	return (s == nil || s.pod == nil) && noworker.ByDesign(n)
}

// fault returns the problem of the worker on a node, and the fix.
func fault(n *corev1.Node, s *nodeState, agents []*appsv1.DaemonSet) (text, fix string) {
	if s == nil {
		s = &nodeState{}
	}
	stale := ""
	if s.published {
		stale = "; the NodeFeature of its worker is still there and no longer updated"
	} else if !s.any {
		stale = "; no features are published"
	}
	if s.pod == nil {
		d := agents[0]
		return fmt.Sprintf("no pod of DaemonSet %s/%s%s%s", d.Namespace, d.Name, excluded(n, d), stale),
			fmt.Sprintf("kubectl -n %s describe daemonset %s", d.Namespace, d.Name)
	}
	if container, why := unready(s.pod); why != "" {
		return "the worker is down: " + why + stale, fixOf("worker", s.pod, container, why)
	}
	if !s.published {
		other := ""
		if s.any {
			other = "; those that the Node has are of other publishers"
		}
		return "the worker is ready and publishes no features" + other, logsOf(s.pod, "")
	}
	if s.lacking {
		return "NodeFeatureSets that the NodeFeature names are missing, and its worker has not created them again", logsOf(s.pod, "")
	}
	return "", ""
}

// excluded returns the reason why a DaemonSet does not run on a node, or "" if it should run.
func excluded(n *corev1.Node, d *appsv1.DaemonSet) string {
	spec := &d.Spec.Template.Spec
	for key, value := range spec.NodeSelector {
		if n.Labels[key] != value {
			return fmt.Sprintf(", whose nodeSelector requires %s=%s", key, value)
		}
	}
	for i := range n.Spec.Taints {
		taint := &n.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool {
			return tolerates(&t, taint)
		}) {
			return fmt.Sprintf(", which does not tolerate the taint %s", taint.ToString())
		}
	}
	return ""
}

func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	return t.Operator == corev1.TolerationOpExists || t.Key != "" && t.Value == taint.Value
}

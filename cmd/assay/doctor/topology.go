package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/cmd/assay/numa"
	"github.com/assay-project/assay/discovery/topology"
	"github.com/assay-project/assay/rules/clip"
)

// maxFingerprints is the maximum number of nodes whose fingerprints are compared: each takes a list of the node's pods.
const maxFingerprints = 20

// topology checks the NodeResourceTopologies, if Assay publishes them.
func (e *examination) topology(ctx context.Context) error {
	const check = "topology"
	i := slices.IndexFunc(e.daemonSets, func(d appsv1.DaemonSet) bool { return d.Labels[component] == "topology" })
	if i < 0 {
		return nil
	}
	d := &e.daemonSets[i]
	all, err := e.c.Topologies(ctx)
	switch {
	case cluster.IsNotFound(err):
		e.report(check, Error, "CustomResourceDefinition "+v1alpha2.NodeResourceTopologyResource.GroupResource().String()+" does not exist or does not serve v1alpha2",
			"Upgrade the release with topology.createCRD=true")
		return nil
	case err != nil:
		return err
	}
	if want, ready := d.Status.DesiredNumberScheduled, d.Status.NumberReady; ready < want {
		e.report(check, Warning, fmt.Sprintf("DaemonSet %s/%s has %d of %d pods ready", d.Namespace, d.Name, ready, want),
			fmt.Sprintf("kubectl -n %s describe daemonset %s", d.Namespace, d.Name))
	}
	if err := e.otherUpdater(ctx); err != nil {
		return err
	}
	before := len(e.found)
	e.topologyProblems(all)
	if err := e.fingerprints(ctx, all); err != nil {
		return err
	}
	if len(e.found) == before {
		e.ok(check, "%s published", clip.Count(len(all), "NodeResourceTopology object"))
	}
	return nil
}

// otherUpdater reports Node Feature Discovery's topology updater, which writes the same objects.
func (e *examination) otherUpdater(ctx context.Context) error {
	sets, err := e.c.DaemonSets(ctx, "", "")
	if err != nil {
		return err
	}
	for i := range sets {
		for _, c := range sets[i].Spec.Template.Spec.Containers {
			if slices.Contains(c.Command, "nfd-topology-updater") {
				e.report("topology", Error,
					fmt.Sprintf("DaemonSet %s/%s of Node Feature Discovery writes the same NodeResourceTopologies", sets[i].Namespace, sets[i].Name),
					"Disable its topology updater: topologyUpdater.enable=false in the values of its chart")
			}
		}
	}
	return nil
}

// topologyProblems reports each problem once, with its nodes.
func (e *examination) topologyProblems(all []v1alpha2.NodeResourceTopology) {
	nodes, fixes := map[string][]string{}, map[string]string{}
	var order []string
	for i := range all {
		problem, fix := numa.Problem(&all[i])
		if problem == "" {
			continue
		}
		if nodes[problem] == nil {
			order = append(order, problem)
		}
		nodes[problem] = append(nodes[problem], all[i].Name)
		fixes[problem] = fix
	}
	for _, problem := range order {
		e.report("topology", Warning, fmt.Sprintf("NodeResourceTopology of %s: %s", some(nodes[problem]), problem), fixes[problem])
	}
}

// fingerprints reports nodes for which no scheduler computes the published fingerprint.
func (e *examination) fingerprints(ctx context.Context, all []v1alpha2.NodeResourceTopology) error {
	var differ []string
	for i := range all[:min(len(all), maxFingerprints)] {
		if numa.Attribute(&all[i], topology.AttributeFingerprint) == "" {
			continue
		}
		pods, err := e.c.PodsOnNode(ctx, all[i].Name)
		if err != nil {
			return err
		}
		if c := numa.Compare(&all[i], pods); !c.Matches() {
			differ = append(differ, all[i].Name)
		}
	}
	if len(differ) > 0 {
		e.report("topology", Warning,
			fmt.Sprintf("the fingerprint in the NodeResourceTopology of %s is of other pods than schedulers count: those with a cache ignore new numbers", some(differ)),
			"If pods are starting, run this again; else: assay topology fingerprint "+strings.Fields(differ[0])[0])
	}
	return nil
}

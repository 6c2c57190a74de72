package doctor

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/assay-project/assay/api/topology/v1alpha2"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/numa"
	"github.com/assay-project/assay/discovery/topology"
	"github.com/assay-project/assay/rules/clip"
)

// maxFingerprints is the maximum number of nodes whose fingerprints are compared: each takes a list of the node's pods.
const maxFingerprints = 20

// maxKubelets is the maximum number of kubelets whose settings are compared: each is a request that the API server passes on.
const maxKubelets = 20

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
	if err := e.ownerOfDefinition(ctx); err != nil {
		return err
	}
	before := len(e.found)
	e.topologyProblems(all)
	e.kubeletSettings(ctx, all)
	if err := e.fingerprints(ctx, all); err != nil {
		return err
	}
	if len(e.found) == before {
		e.ok(check, "%s published", clip.Count(len(all), "NodeResourceTopology object"))
	}
	return nil
}

// ownerOfDefinition reports a definition of another release or program, with which all objects are deleted.
func (e *examination) ownerOfDefinition(ctx context.Context) error {
	d, err := e.c.TopologyDefinition(ctx)
	if cluster.IsForbidden(err) || cluster.IsNotFound(err) {
		return nil
	}
	if err == nil && d.Labels["app.kubernetes.io/part-of"] != "assay" {
		e.ok("topology", "CustomResourceDefinition %s belongs to another program: uninstalling that deletes all objects", d.Name)
	}
	return err
}

// kubeletSettings reports nodes whose kubelets run with another policy than is published: flags override the kubelet's file. It is silent if the
// user may not read that, or the API server does not reach a kubelet.
func (e *examination) kubeletSettings(ctx context.Context, all []v1alpha2.NodeResourceTopology) {
	differ := map[string][]string{}
	for i := range all[:min(len(all), maxKubelets)] {
		k, err := e.c.KubeletSettings(ctx, all[i].Name)
		if err != nil {
			break // the next ones would take as long
		}
		for _, s := range []struct{ name, value string }{
			{topology.AttributePolicy, k.TopologyManagerPolicy}, {topology.AttributeScope, k.TopologyManagerScope},
		} {
			if published := numa.Attribute(&all[i], s.name); published != s.value {
				problem := fmt.Sprintf("%s is %s, and the kubelet runs with %s", s.name, published, s.value)
				differ[problem] = append(differ[problem], all[i].Name)
			}
		}
	}
	for _, problem := range slices.Sorted(maps.Keys(differ)) {
		e.report("topology", Warning, fmt.Sprintf("NodeResourceTopology of %s: %s", some(differ[problem]), problem),
			"Flags of the kubelet override its file: set topology.kubelet.configz.enabled, or topology.kubelet.settings")
	}
}

// otherUpdater reports Node Feature Discovery's topology updater, which writes the same objects.
func (e *examination) otherUpdater(ctx context.Context) error {
	sets, err := e.c.DaemonSets(ctx, "", "")
	if err != nil {
		return err
	}
	for i := range sets {
		for _, c := range sets[i].Spec.Template.Spec.Containers {
			if slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(arg string) bool { return path.Base(arg) == "nfd-topology-updater" }) {
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

package doctor

import (
	"context"
	"fmt"
	"slices"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/rules/clip"
)

// install is how to install the chart.
const install = "Install the chart: helm install assay charts/assay --namespace assay-system --create-namespace"

// uninstalled examines a cluster without workloads of the chart: it is empty, has Node Feature Discovery or the definitions alone, or
// programs that run outside of the cluster, such as those of make demo. It says what is there and what to do next.
func (e *examination) uninstalled(ctx context.Context) ([]Finding, error) {
	where := "any namespace"
	if e.namespace != "" {
		where = "namespace " + e.namespace
	}
	none := fmt.Sprintf("no Deployment or DaemonSet in %s has the label %s", where, partOf)
	published, nodes, err := e.published(ctx)
	if err != nil {
		return nil, err
	}
	const check = "installation"
	switch {
	case slices.Contains(e.missing, nfdDefinition):
		e.report(check, Error, "Assay is not installed: "+none, install)
	case len(e.missing) > 0:
		e.report(check, Error, "Assay is not installed: "+none,
			"The definitions of Node Feature Discovery exist: install the chart as docs/install.md describes under \"Take over from Node Feature Discovery\"")
	case published == 0:
		e.report(check, Error, "Assay's definitions are installed, and its programs are not: "+none, install)
	default:
		e.report(check, Warning, fmt.Sprintf("%d of %s have features from programs that are not of the chart: %s; only their objects are checked",
			published, clip.Count(nodes, "Node"), none), install)
		e.run(ctx, e.webhook, e.selectors, e.of(definition.Rules, e.rules), e.claims, e.holds, e.writes, e.notReady,
			e.of(definition.Requests, e.requests), e.of(definition.Policies, e.policies), e.schedulers, e.topology)
	}
	return e.sorted(), nil // without features, other checks would only report consequences
}

// published returns the number of Nodes about which a NodeFeature exists, and of all Nodes.
func (e *examination) published(ctx context.Context) (published, nodes int, err error) {
	objects, err := e.c.FeatureObjects(ctx)
	if err != nil && !cluster.IsNotFound(err) {
		return 0, 0, err
	}
	names, err := e.c.Names(ctx, "nodes")
	for i := range objects {
		if slices.Contains(names, objects[i].Labels[nfdv1alpha1.NodeNameLabel]) {
			published++
		}
	}
	return published, len(names), err
}

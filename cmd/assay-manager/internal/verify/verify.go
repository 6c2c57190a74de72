// Package verify checks that all ready Nodes have features and labels.
package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/assay-project/assay/internal/fleet/noworker"
	"github.com/assay-project/assay/internal/listing"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/settings"
)

// Once checks once and returns the number of ready Nodes. The error names the Nodes that lack something.
func Once(ctx context.Context, c client.Reader, namespace string, like *settings.Settings) (int, error) {
	published, record := map[string]bool{}, like.Record()
	err := listing.Pages(ctx, c, func(list *nodefeature.NodeFeatureList) {
		for i := range list.Items {
			published[list.Items[i].NodeName()] = true
		}
	}, client.InNamespace(namespace))
	if err != nil {
		return 0, err
	}
	nodes := 0
	var missing []string
	err = listing.Pages(ctx, c, func(list *corev1.NodeList) {
		for i := range list.Items {
			n := &list.Items[i]
			if !ready(n) || !published[n.Name] && noworker.ByDesign(n) {
				continue
			}
			nodes++
			switch {
			case !published[n.Name]:
				missing = append(missing, n.Name+" (no NodeFeature: check the worker on this node)")
			case !like.Restrictions.DisableLabels && !like.NoPublish && n.Annotations[record.Labels()] == "":
				missing = append(missing, n.Name+" (a NodeFeature but no labels: check the controller)")
			}
		}
	})
	if err != nil {
		return nodes, err
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nodes, fmt.Errorf("%d of %d nodes are not ready for use: %s", len(missing), nodes, strings.Join(missing, ", "))
	}
	return nodes, nil
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

package ui

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	topologyv1alpha2 "github.com/assay-project/assay/api/topology/v1alpha2"
)

// nodeLive is the part of the page of a node that does not come from its features: what other objects and the cluster say about it.
type nodeLive struct {
	// Deviations are the checks of baselines that the node fails, Groups the groups that list it.
	Deviations, Groups *table
	// Doubts say why the node can deviate from other baselines, or be in other groups.
	Doubts       []string
	Zones        *table // nil: none is published
	ZonesUnknown string
	// Attributes describe the kubelet's policies.
	Attributes string
	Changes    *changes
}

func (p *nodeLive) tables() []*table {
	if p == nil {
		return nil
	}
	return append(some(p.Deviations, p.Groups, p.Zones), p.Changes.tables()...)
}

// newNodeLive reads what the cluster says about a node.
func newNodeLive(ctx context.Context, d *data, n *Node) *nodeLive {
	name := n.Input.Node.Name
	p := &nodeLive{Groups: d.groupsOf(name)}
	p.Deviations, p.Doubts = d.deviationsOf(name)
	if g := &d.Objects.Groups; g.Unknown != "" && !g.Absent {
		p.Doubts = append(p.Doubts, "The groups of the node are not known: "+g.Unknown)
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	if n.Object != nil {
		reading.Go(func() {
			commands := []string{"assay explain " + shellWord(name)}
			if n.Worker != nil && n.Worker.Fix != "" {
				commands = append(commands, n.Worker.Fix)
			}
			p.Changes = d.changesOf(ctx, "Node", "node", &n.Object.ObjectMeta, commands...)
		})
	}
	if d.Live == nil {
		return p
	}
	limited, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	zones, err := d.Live.Zones(limited, name)
	switch {
	case err != nil:
		p.ZonesUnknown = unread(err)
	case zones != nil:
		p.Zones, p.Attributes = zonesTable(zones)
	}
	return p
}

// deviationsOf lists the checks of baselines that a node fails; nil if none is known. The doubts are baselines that say nothing of the node.
func (d *data) deviationsOf(node string) (out *table, doubts []string) {
	k := kindByID("nodebaselines")
	if b := &d.Objects.Baselines; b.Unknown != "" && !b.Absent {
		doubts = append(doubts, "Whether the node deviates from baselines is not known: "+b.Unknown)
	}
	var rows [][]cell
	for i := range d.Objects.Baselines.Items {
		b := &d.Objects.Baselines.Items[i]
		switch listed := slices.ContainsFunc(b.Status.Deviations, func(x assayv1alpha1.BaselineDeviation) bool { return x.Node == node }); {
		case b.Status.Nodes == nil:
			doubts = append(doubts, "The controller has not evaluated the baseline "+b.Name+".")
		case b.Status.Omitted > 0 && !listed:
			doubts = append(doubts, fmt.Sprintf("%s of the baseline %s are not listed in its status, and can be of this node.",
				plural(int(b.Status.Omitted), "deviation"), b.Name))
		}
		for _, x := range b.Status.Deviations {
			if x.Node == node {
				rows = append(rows, []cell{link(b.Name, k.address("", b.Name)), plain(x.Check), plain(x.Message).as("bad"), d.ageOf(x.Since)})
			}
		}
	}
	return unlessEmpty(tableOf("deviations", "Deviates from baselines", slices.Concat(
		columns(columnText, "baseline", "check", "what differs"), columns(columnValue, "since")), rows)), doubts
}

// groupsOf lists the groups whose status names a node; nil if there are none.
func (d *data) groupsOf(node string) *table {
	k := kindByID("nodefeaturegroups")
	var rows [][]cell
	for i := range d.Objects.Groups.Items {
		g := &d.Objects.Groups.Items[i]
		if slices.ContainsFunc(g.Status.Nodes, func(n nfdv1alpha1.FeatureGroupNode) bool { return n.Name == node }) {
			rows = append(rows, []cell{link(g.Name, k.address(g.Namespace, g.Name)), plain(g.Namespace)})
		}
	}
	return unlessEmpty(tableOf("groups", "Groups", columns(columnText, "group", "namespace"), rows))
}

// zonesTable shows what each NUMA node has left.
func zonesTable(t *topologyv1alpha2.NodeResourceTopology) (out *table, attributes string) {
	var pairs []string
	for _, a := range t.Attributes {
		pairs = append(pairs, a.Name+"="+a.Value)
	}
	var rows [][]cell
	for _, z := range t.Zones {
		var distances []string
		for _, c := range z.Costs {
			distances = append(distances, fmt.Sprintf("%s: %d", c.Name, c.Value))
		}
		for _, r := range z.Resources {
			rows = append(rows, []cell{plain(z.Name), plain(r.Name), amount(r.Available), amount(r.Allocatable), amount(r.Capacity), plain(strings.Join(distances, ", "))})
		}
	}
	out = tableOf("zones", "NUMA nodes", slices.Concat(
		columns(columnText, "zone", "resource"), columns(columnValue, "available", "allocatable", "capacity"), columns(columnText, "distances")), rows)
	out.Empty = "The NodeResourceTopology has no zones."
	return out, strings.Join(pairs, " ")
}

func amount(q resource.Quantity) cell {
	return cell{Text: q.String(), Key: strconv.FormatInt(q.Value(), 10)}
}

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

const (
	// sampledNodes is the number of nodes that doctor compares by default: two requests a node.
	sampledNodes = 20
	// maxDifferences is the maximum number of keys of a node in a finding, and of findings about nodes.
	maxDifferences = 5
	// looks is how often doctor reads a node that differs, and lookAgain the time between. The controller writes a change within a second
	// or two. A key that differs in each look is not being changed.
	looks     = 3
	lookAgain = 3 * time.Second
)

// nodeCheck compares Nodes with an evaluation of their rules.
type nodeCheck struct {
	flags world.Options
	all   bool
}

// difference is a key of a Node that is not what rules give.
type difference struct {
	node string
	plan.Step
}

func (d difference) String() string {
	has, wanted := fmt.Sprintf("%q", d.Old), fmt.Sprintf("%q", d.New)
	switch d.Op {
	case plan.Add:
		has = "missing"
	case plan.Remove:
		wanted = "none"
	}
	return fmt.Sprintf("%s %s is %s, and rules give %s", d.Kind, d.Key, has, wanted)
}

// compareDifferences sorts those of a Node: what a message leaves out matters least.
func compareDifferences(a, b difference) int {
	return cmp.Or(keys.CompareImportance(a.Kind, a.Key, b.Kind, b.Key), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
}

func (d difference) same(o difference) bool { return d.node == o.node && d.String() == o.String() }

// examine implements doctor.Check.
func (n *nodeCheck) examine(ctx context.Context, c *cluster.Client) ([]Finding, error) {
	const check = "nodes"
	n.flags.Notes = func() io.Writer { return io.Discard } // other checks report what is left out
	names, err := c.Names(ctx, "nodes")
	if err != nil {
		return nil, err
	}
	total := len(names)
	if !n.all && total > sampledNodes {
		rand.Shuffle(total, func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = names[:sampledNodes]
		slices.Sort(names)
	}
	var left []difference
	var over []Finding
	for look := range looks {
		w, program, found, err := n.differences(ctx, c, names)
		if err != nil {
			return nil, err
		}
		if program == nil {
			return nil, nil // the controller does not run, which is reported
		}
		if look == 0 {
			over = devicesOver(check, w, names)
		}
		if look > 0 {
			found = slices.DeleteFunc(found, func(d difference) bool { return !slices.ContainsFunc(left, d.same) })
		}
		if left = unexplained(ctx, w, program, found); len(left) == 0 || look == looks-1 {
			break
		}
		names = nil
		for _, d := range left {
			if !slices.Contains(names, d.node) {
				names = append(names, d.node)
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookAgain):
		}
	}
	of := fmt.Sprintf("%d of %s", min(total, sampledNodes), clip.Count(total, "Node"))
	if n.all || total <= sampledNodes {
		of = clip.Count(total, "Node")
	}
	if len(left) == 0 {
		return append(over, Finding{
			Check: check, Level: OK, Message: of + " compared: each has what its rules give, or the controller reports why not",
		}), nil
	}
	return append(over, describeDifferences(check, left)...), nil
}

// devicesOver returns a finding about the nodes with more devices of DRA drivers than rules read.
func devicesOver(check string, w *world.World, names []string) []Finding {
	var list []string
	for _, name := range names {
		if w.Nodes[name] == nil {
			continue
		}
		if over := w.Fleet.Input(name).Facts.DevicesOver(); over != "" {
			list = append(list, name+": "+over)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return []Finding{{
		Check: check, Level: Warning,
		Message: fmt.Sprintf("%s with devices of DRA drivers that no rule reads: %s", clip.Count(len(list), "Node"), clip.Join(list, "; ", maxDifferences)),
		Fix:     "Have the driver publish fewer devices in a pool, or exclude drivers that no rule needs with the setting draDrivers",
	}}
}

// describeDifferences returns a finding for each set of differences, up to a limit: Nodes that differ in the same keys probably have one cause.
func describeDifferences(check string, list []difference) (out []Finding) {
	byNode := map[string][]string{}
	keyOf, names := map[string]string{}, []string{}
	for _, d := range list {
		if byNode[d.node] == nil {
			names = append(names, d.node)
			keyOf[d.node] = d.Key
		}
		byNode[d.node] = append(byNode[d.node], d.String())
	}
	groups, order := map[string][]string{}, []string{}
	for _, name := range names {
		cause := clip.Join(byNode[name], "; ", maxDifferences)
		if groups[cause] == nil {
			order = append(order, cause)
		}
		groups[cause] = append(groups[cause], name)
	}
	left := 0
	for i, cause := range order {
		nodes := groups[cause]
		if i >= maxDifferences {
			left += len(nodes)
			continue
		}
		who := "Node " + nodes[0] + " differs from what its rules give"
		if len(nodes) > 1 {
			who = fmt.Sprintf("%d Nodes differ from what their rules give (%s)", len(nodes), clip.Join(nodes, ", ", maxDifferences))
		}
		out = append(out, Finding{
			Check: check, Level: Warning, Message: fmt.Sprintf("%s, and the controller reports no reason: %s", who, cause),
			Fix: fmt.Sprintf("assay explain %s %s; if it stays so, restart the controller, and report its log", nodes[0], keyOf[nodes[0]]),
		})
	}
	if left > 0 {
		out = append(out, Finding{
			Check: check, Level: Warning, Message: fmt.Sprintf("%s differ from what their rules give", clip.Count(left, "more Node")),
		})
	}
	return out
}

// differences compares Nodes with an evaluation of what the cluster has now. The program is nil if no controller runs.
func (n *nodeCheck) differences(ctx context.Context, c *cluster.Client, names []string) (*world.World, *rules.Program, []difference, error) {
	scope := world.Want{Rules: true}
	if n.all {
		scope = world.Want{Nodes: true, Features: true, Rules: true}
	}
	w, err := n.flags.Load(ctx, scope)
	if err != nil {
		return nil, nil, nil, err
	}
	if leader, err := c.Leader(ctx, w.Own, w.Settings.Instance); err != nil || !leader.Alive {
		return w, nil, nil, err
	}
	if !n.all {
		for _, name := range names {
			if err := w.ReadCluster(ctx, c, world.Want{Node: name, Nodes: true, Features: true}, io.Discard); err != nil && w.Nodes[name] != nil {
				return nil, nil, nil, err
			}
		}
		w.Settle(io.Discard)
	}
	program, _ := w.Program(ctx, w.Rules) // rules that are left out are reported by their conditions
	var out []difference
	for _, name := range names {
		if node := w.Nodes[name]; node != nil {
			out = append(out, compare(w, program, node)...)
		}
	}
	return w, program, out, nil
}

// compare returns the keys of a Node that are not what rules give, of those that the controller of this instance writes.
func compare(w *world.World, program *rules.Program, node *corev1.Node) (out []difference) {
	outcome, settings := program.Eval(w.Fleet.Input(node.Name)), w.Desired()
	if outcome.Failed != nil {
		return nil // the node keeps what it has
	}
	for _, s := range settings.Compare(node, desired.Of(outcome)).Differences() {
		out = append(out, difference{node.Name, s})
	}
	slices.SortFunc(out, compareDifferences)
	return out
}

// unexplained returns the differences for which the controller reports no reason.
func unexplained(ctx context.Context, w *world.World, program *rules.Program, list []difference) []difference {
	node, report := "", w.Report(ctx, nil)
	return slices.DeleteFunc(list, func(d difference) bool {
		if d.node != node {
			node, report = d.node, w.Report(ctx, w.Nodes[d.node])
		}
		return w.Hold(report, program, node, d.Kind, d.Key) != nil
	})
}

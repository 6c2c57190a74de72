package baseline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/facts"
)

// Result is what a baseline says about a fleet.
type Result struct {
	// Checks are the results of each check: those in require, then those in uniform, then that of levels.
	Checks []assayv1alpha1.BaselineCheck
	// Deviations are all nodes that fail a check, by check, then by name. Since is not set.
	Deviations []assayv1alpha1.BaselineDeviation
	// Conforming, Deviating and Unknown are the sorted names of the selected nodes in each state.
	Conforming, Deviating, Unknown []string
	// Unread are, by node, the sources that its worker has not read since the node booted, so that results of checks are unknown. A node with
	// such sources is among Unknown, unless it fails another check.
	Unread map[string][]string
	// Levels counts the domains of each level of the baseline. Nodes that deviate from the check levels are in no domain.
	Levels []assayv1alpha1.BaselineLevelStatus

	levels []Level
	tree   []Named // the nodes that do not deviate from levels, sorted by their places
}

// Named is the verdict about a node; nil: the node is not selected.
type Named struct {
	Node    string
	Verdict *Verdict
}

// Fleet judges all nodes, which may be in any order.
func (b *Baseline) Fleet(nodes []Node) *Result {
	list := make([]Named, len(nodes))
	for i := range nodes {
		list[i] = Named{nodes[i].Input.Node.Name, b.Judge(nodes[i])}
	}
	return b.Compare(list)
}

// Compare is the second half of Fleet: it compares the verdicts about all nodes, which it may sort.
func (b *Baseline) Compare(list []Named) *Result {
	slices.SortFunc(list, func(a, b Named) int { return cmp.Compare(a.Node, b.Node) })
	out := &Result{}
	deviates := map[string]bool{}
	deviate := func(check *assayv1alpha1.BaselineCheck, node, message string) {
		check.Deviating++
		deviates[node] = true
		out.Deviations = append(out.Deviations, assayv1alpha1.BaselineDeviation{Node: node, Check: check.Name, Message: message})
	}
	known := slices.DeleteFunc(slices.Clone(list), func(n Named) bool { return n.Verdict == nil || n.Verdict.unknown })
	for i := range b.require {
		check := assayv1alpha1.BaselineCheck{Name: b.require[i].name}
		for _, n := range known {
			if k := slices.IndexFunc(n.Verdict.failing, func(f failure) bool { return f.index == i }); k >= 0 {
				deviate(&check, n.Node, n.Verdict.failing[k].why)
			}
		}
		check.Unknown = unread(known, func(v *Verdict) bool { return slices.Contains(v.unread, i) })
		out.Checks = append(out.Checks, check)
	}
	for i := range b.uniform {
		check, groups := count(b.uniform[i].name, i, known)
		for _, n := range known {
			if n.Verdict.values[i].kind == unreadValue {
				continue
			}
			if message := groups[n.Verdict.group].judge(n.Verdict.group, n.Verdict.values[i]); message != "" {
				deviate(&check, n.Node, message)
			}
		}
		check.Unknown = unread(known, func(v *Verdict) bool { return v.values[i].kind == unreadValue })
		out.Checks = append(out.Checks, check)
	}
	if len(b.levels) > 0 {
		check := assayv1alpha1.BaselineCheck{Name: LevelsCheck}
		why, tree := b.compareLevels(known)
		for _, n := range known {
			if message, found := why[n.Node]; found {
				deviate(&check, n.Node, message)
			}
		}
		out.Checks = append(out.Checks, check)
		out.levels, out.tree, out.Levels = b.levels, tree, summarize(b.levels, tree)
	}
	for _, n := range list {
		if n.Verdict != nil && len(n.Verdict.sources) > 0 {
			if out.Unread == nil {
				out.Unread = map[string][]string{}
			}
			out.Unread[n.Node] = n.Verdict.sources
		}
		switch {
		case n.Verdict == nil:
		case n.Verdict.unknown:
			out.Unknown = append(out.Unknown, n.Node)
		case deviates[n.Node]:
			out.Deviating = append(out.Deviating, n.Node)
		case len(n.Verdict.sources) > 0:
			out.Unknown = append(out.Unknown, n.Node)
		default:
			out.Conforming = append(out.Conforming, n.Node)
		}
	}
	return out
}

// unread counts nodes for which the result of a check is unknown.
func unread(known []Named, is func(*Verdict) bool) (n int32) {
	for _, k := range known {
		if is(k.Verdict) {
			n++
		}
	}
	return n
}

// group is the nodes whose values are compared with one another.
type group struct {
	nodes    int
	values   map[observed]int
	expected observed // that of more than half of the nodes
	majority bool     // there is one
}

// count counts the values of all known nodes by group, and returns the check without its deviations.
func count(name string, index int, known []Named) (assayv1alpha1.BaselineCheck, map[string]*group) {
	check, groups, all := assayv1alpha1.BaselineCheck{Name: name}, map[string]*group{}, map[observed]int{}
	for _, n := range known {
		if n.Verdict.values[index].kind == unreadValue {
			continue
		}
		g := groups[n.Verdict.group]
		if g == nil {
			g = &group{values: map[observed]int{}}
			groups[n.Verdict.group] = g
		}
		value := n.Verdict.values[index]
		g.nodes++
		g.values[value]++
		all[value]++
		if g.values[value] > g.values[g.expected] || g.nodes == 1 {
			g.expected = value
		}
	}
	for _, g := range groups {
		if g.majority = 2*g.values[g.expected] > g.nodes; !g.majority {
			check.NoMajority += int32(g.nodes) //nolint:gosec // a count of nodes
		}
	}
	for value, nodes := range all {
		check.Values = append(check.Values, assayv1alpha1.BaselineValueCount{Value: value.String(), Nodes: int32(nodes)}) //nolint:gosec // see above
	}
	slices.SortFunc(check.Values, func(a, b assayv1alpha1.BaselineValueCount) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Value, b.Value))
	})
	check.Values = check.Values[:min(len(check.Values), maxValues)]
	return check, groups
}

// judge returns how a value differs from those of the other nodes in the group, or "".
func (g *group) judge(name string, value observed) string {
	if !g.majority || value == g.expected {
		return ""
	}
	nodes := "nodes"
	if name != "" {
		nodes += " with " + name
	}
	verb := "have"
	if g.values[g.expected] == 1 {
		verb = "has"
	}
	return clip.Text(fmt.Sprintf("%s; %d of %d %s %s %s", value, g.values[g.expected], g.nodes, nodes, verb, g.expected), maxMessage)
}

// Status returns the status of a baseline: that before with the result. It keeps Since of deviations that the status before has, and the
// transition times of conditions; now is when new deviations were seen. It sets Conforming, and no other condition.
func (r *Result) Status(before *assayv1alpha1.NodeBaselineStatus, generation int64, now metav1.Time) *assayv1alpha1.NodeBaselineStatus {
	s := before.DeepCopy()
	s.ObservedGeneration = generation
	s.Nodes = number(len(r.Conforming) + len(r.Deviating) + len(r.Unknown))
	s.Conforming, s.Deviating, s.Unknown = number(len(r.Conforming)), number(len(r.Deviating)), number(len(r.Unknown))
	s.Checks, s.Levels = slices.Clone(r.Checks), slices.Clone(r.Levels)
	since := map[[2]string]*metav1.Time{}
	for i := range before.Deviations {
		d := &before.Deviations[i]
		since[[2]string{d.Node, d.Check}] = d.Since
	}
	s.Deviations = slices.Clone(r.Deviations[:min(len(r.Deviations), maxDeviations)])
	s.Omitted = int32(len(r.Deviations) - len(s.Deviations)) //nolint:gosec // at most 128 for each node
	for i := range s.Deviations {
		d := &s.Deviations[i]
		if d.Since = since[[2]string{d.Node, d.Check}]; d.Since == nil {
			d.Since = ptr.To(now.Rfc3339Copy()) // as the API server stores it
		}
	}
	c := r.Condition()
	c.ObservedGeneration, c.LastTransitionTime = generation, now
	meta.SetStatusCondition(&s.Conditions, c)
	return s
}

// Invalid returns the status of a baseline that is not accepted.
func Invalid(before *assayv1alpha1.NodeBaselineStatus, generation int64, now metav1.Time) *assayv1alpha1.NodeBaselineStatus {
	s := &assayv1alpha1.NodeBaselineStatus{ObservedGeneration: generation, Conditions: slices.Clone(before.Conditions)}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: assayv1alpha1.ConditionConforming, Status: metav1.ConditionUnknown, Reason: assayv1alpha1.ReasonInvalid,
		Message: "the baseline is not accepted: see the condition Accepted", ObservedGeneration: generation, LastTransitionTime: now,
	})
	return s
}

func number(n int) *int32 { return ptr.To(int32(n)) } //nolint:gosec // a count of nodes

// Condition returns the condition Conforming, without a time and a generation.
func (r *Result) Condition() metav1.Condition {
	total := len(r.Conforming) + len(r.Deviating) + len(r.Unknown)
	open := slices.ContainsFunc(r.Checks, func(c assayv1alpha1.BaselineCheck) bool { return c.NoMajority > 0 })
	of := func(status metav1.ConditionStatus, reason, format string, args ...any) metav1.Condition {
		return metav1.Condition{Type: assayv1alpha1.ConditionConforming, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(r.Deviating) > 0:
		return of(metav1.ConditionFalse, assayv1alpha1.ReasonNodesDeviate, "%d of %s: %s", len(r.Deviating),
			clip.Count(total, "node"), r.first(len(r.Deviating)))
	case open:
		return of(metav1.ConditionFalse, assayv1alpha1.ReasonNoMajority, "%s", r.split())
	case len(r.Unknown) > 0:
		return of(metav1.ConditionUnknown, assayv1alpha1.ReasonFeaturesUnknown, "the features of %d of %s are unknown: %s", len(r.Unknown),
			clip.Count(total, "node"), clip.Join(r.describeUnknown(), ", ", shown))
	case total == 0:
		return of(metav1.ConditionUnknown, assayv1alpha1.ReasonNoNodes, "the baseline selects no node")
	}
	return of(metav1.ConditionTrue, assayv1alpha1.ReasonAllConform, "%s", clip.Count(total, "node"))
}

// shown is the maximum number of nodes in the message of a condition.
const shown = 3

// first describes the first nodes that deviate, of which there are total.
func (r *Result) first(total int) string {
	var out []string
	seen := map[string]bool{}
	for _, d := range r.Deviations {
		if len(out) == shown {
			break
		}
		if !seen[d.Node] {
			seen[d.Node] = true
			out = append(out, fmt.Sprintf("%s (%s: %s)", d.Node, d.Check, d.Message))
		}
	}
	return strings.Join(out, "; ") + clip.More("; ", total-len(out))
}

// split describes the first check in which values have no majority.
func (r *Result) split() string {
	for _, c := range r.Checks {
		if c.NoMajority == 0 {
			continue
		}
		var values []string
		for _, v := range c.Values[:min(len(c.Values), shown)] {
			values = append(values, fmt.Sprintf("%s on %s", v.Value, clip.Count(int(v.Nodes), "node")))
		}
		return fmt.Sprintf("%s: no value is that of more than half of the nodes: %s%s", c.Name, strings.Join(values, ", "), clip.More(", ", len(c.Values)-len(values)))
	}
	return ""
}

// describeUnknown returns the nodes in Unknown, each with the sources that its worker has not read.
func (r *Result) describeUnknown() []string {
	out := slices.Clone(r.Unknown)
	for i, node := range out {
		if sources := r.Unread[node]; len(sources) > 0 {
			out[i] = fmt.Sprintf("%s (%s)", node, facts.WhyUnread(sources))
		}
	}
	return out
}

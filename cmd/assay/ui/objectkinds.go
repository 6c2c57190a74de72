package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/requirements"
)

func requestObject(r *assayv1alpha1.NodeFeatureRequest) object {
	label := plain("")
	if r.Status.Label != "" {
		label = link(r.Status.Label, nodesLink("label "+quoteWord(r.Status.Label)+" = true"))
	}
	satisfiable, order := satisfied(r.Status.Conditions)
	return object{
		meta: &r.ObjectMeta, value: r.Spec, conditions: r.Status.Conditions, order: order,
		cells:  []cell{ready(r.Status.Conditions, "Ready"), satisfiable, count32(r.Status.MatchingNodes), label, onLoss(r.Spec.LossResponse)},
		detail: func(p *objectPage) { p.matching(r.Spec.Required, &r.Status) },
	}
}

// satisfied returns the cell of the condition Satisfiable, and the order of the object: those that no node meets are first.
func satisfied(list []metav1.Condition) (out cell, order int) {
	out = ready(list, assayv1alpha1.ConditionSatisfiable)
	if out.Class == "bad" {
		order = -1
	}
	return out, order
}

func policyObject(r *assayv1alpha1.NodeFeatureSchedulingPolicy) object {
	namespaces, pods := "none", "all"
	if s := r.Spec.NamespaceSelector; s != nil {
		namespaces = cmp.Or(strings.Trim(metav1.FormatLabelSelector(s), "<>"), "all")
		if namespaces == "none" { // FormatLabelSelector's word for an empty selector, which selects all
			namespaces = "all labeled for scheduling"
		}
	}
	if s := r.Spec.PodSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		pods = metav1.FormatLabelSelector(s)
	}
	satisfiable, order := satisfied(r.Status.Conditions)
	return object{
		meta: &r.ObjectMeta, value: r.Spec, conditions: r.Status.Conditions, order: order,
		cells:  []cell{ready(r.Status.Conditions, "Ready"), satisfiable, count32(r.Status.MatchingNodes), plain(namespaces), plain(pods), onLoss(r.Spec.LossResponse)},
		detail: func(p *objectPage) { p.matching(r.Spec.Required, &r.Status) },
	}
}

// matching adds the nodes that meet requirements, as evaluated here, and how that differs from the status.
func (p *objectPage) matching(required *assayv1alpha1.Requirement, status *assayv1alpha1.RequestStatus) {
	if required == nil {
		p.Summary = "It requires nothing, so all nodes meet it."
		return
	}
	if why := p.d.unevaluated(); why != "" {
		p.Summary = "The nodes that meet the requirements are not known here, because " + why + "."
		return
	}
	filter, err := yaml.Marshal(required)
	if err != nil {
		p.Summary = err.Error()
		return
	}
	annotation := map[string]string{assayv1alpha1.RequiredFeaturesAnnotation: string(filter)}
	reqs, report := requirements.Annotations(annotation, field.NewPath("spec", "required"), p.d.Known.Rules)
	if !report.OK() || reqs == nil {
		p.Summary = "The requirements are not valid, so no node meets them."
		return
	}
	answer := p.d.fleet().Query(reqs, len(p.d.Nodes))
	p.Summary = fmt.Sprintf("%s of %s meet the requirements now.", thousands(answer.Matching), plural(answer.Nodes, "node"))
	if n := status.MatchingNodes; n != nil && int(*n) != answer.Matching {
		p.Summary += fmt.Sprintf(" The status says %s: the controller has not evaluated the latest features, or reads others.", thousands(int(*n)))
	}
	if answer.Matching == 0 && answer.Nearest != "" {
		p.add(tableOf("nearest", "Nearest node", columns(columnText, "node", "lacks"), [][]cell{{nodeCell(answer.Nearest), plain(answer.Lacks)}}))
	}
	p.add(nodeList("nodes", "Nodes that meet the requirements", answer.Sample))
}

func groupObject(g *nfdv1alpha1.NodeFeatureGroup) object {
	n := count32(g.Status.Count)
	if g.Status.Count == nil && len(g.Status.Nodes) > 0 { // NFD's master does not write count
		n = number(len(g.Status.Nodes))
	}
	return object{
		meta: &g.ObjectMeta, value: g.Spec, conditions: g.Status.Conditions,
		cells: []cell{ready(g.Status.Conditions, "Ready"), n},
		detail: func(p *objectPage) {
			p.Summary = "The controller has not evaluated the group."
			if n.Text != "" {
				p.Summary = "Nodes in the group, by its status: " + n.Text + "."
			}
			var names []string
			for _, node := range g.Status.Nodes {
				names = append(names, node.Name)
			}
			p.add(nodeList("nodes", "Nodes", names))
		},
	}
}

func baselineObject(b *assayv1alpha1.NodeBaseline) object {
	s := &b.Status
	deviating := count32(s.Deviating)
	if ptr.Deref(s.Deviating, 0) > 0 {
		deviating = deviating.as("bad")
	}
	return object{
		meta: &b.ObjectMeta, value: b.Spec, conditions: s.Conditions, order: -int(ptr.Deref(s.Deviating, 0)),
		cells:  []cell{ready(s.Conditions, "Conforming"), deviating, count32(s.Nodes), count32(s.Unknown)},
		detail: func(p *objectPage) { p.baseline(b) },
	}
}

// baseline adds what deviates first, and then the checks.
func (p *objectPage) baseline(b *assayv1alpha1.NodeBaseline) {
	s := &b.Status
	p.Summary = "The controller has not evaluated the baseline."
	if s.Nodes != nil {
		p.Summary = fmt.Sprintf("%s of %s deviate; of %s the features are unknown.",
			thousands(int(ptr.Deref(s.Deviating, 0))), plural(int(*s.Nodes), "node"), thousands(int(ptr.Deref(s.Unknown, 0))))
	}
	var nodes, checks [][]cell
	for _, x := range s.Deviations {
		nodes = append(nodes, []cell{nodeCell(x.Node), plain(x.Check), plain(x.Message), p.d.ageOf(x.Since)})
	}
	for _, c := range s.Checks {
		var values []string
		for _, v := range c.Values {
			values = append(values, fmt.Sprintf("%s (%s)", v.Value, plural(int(v.Nodes), "node")))
		}
		deviating := number(int(c.Deviating))
		if c.Deviating > 0 {
			deviating = deviating.as("bad")
		}
		checks = append(checks, []cell{plain(c.Name), deviating, number(int(c.NoMajority)), plain(strings.Join(values, ", "))})
	}
	deviations := tableOf("deviations", "Deviations", slices.Concat(columns(columnText, "node", "check", "what differs"), columns(columnValue, "since")), nodes)
	switch {
	case s.Nodes == nil:
		deviations.Empty = "It is not known which nodes deviate: the controller has not evaluated the baseline."
	case ptr.Deref(s.Unknown, 0) > 0:
		deviations.Empty = "No node deviates whose features are known."
	default:
		deviations.Empty = "No node deviates."
	}
	if s.Omitted > 0 {
		deviations.Help = plural(int(s.Omitted), "deviation") + " more: the status lists the first 50."
	}
	p.Tables = append(p.Tables, deviations)
	p.add(tableOf("checks", "Checks", slices.Concat(columns(columnText, "check"), columns(columnCount, "deviating", "not compared"), columns(columnText, "values")), checks))
	var levels [][]cell
	for _, l := range s.Levels {
		levels = append(levels, []cell{plain(l.Name), number(int(l.Domains)), number(int(l.Smallest)), number(int(l.Largest))})
	}
	p.add(tableOf("levels", "Levels", slices.Concat(columns(columnText, "level"),
		columns(columnCount, "domains", "nodes of the smallest", "nodes of the largest")), levels))
}

func shapeObject(s *assayv1alpha1.NodeShape) object {
	var key []string
	for _, name := range slices.Sorted(maps.Keys(s.Status.Key)) {
		key = append(key, name+"="+s.Status.Key[name])
	}
	outputs := len(s.Status.Labels) + len(s.Status.Taints) + len(s.Status.ExtendedResources)
	contradicted := plain("")
	for _, c := range s.Status.Conditions {
		if c.Type == assayv1alpha1.ConditionContradicted && c.Status == metav1.ConditionTrue {
			contradicted = plain(cmp.Or(c.Reason, "yes")).as("bad")
		}
	}
	return object{
		meta: &s.ObjectMeta, conditions: s.Status.Conditions,
		cells: []cell{
			plain(strings.Join(key, " ")), count32(s.Status.Nodes), number(outputs), number(len(s.Status.Differences)), contradicted,
		},
		detail: func(p *objectPage) { p.shape(s) },
	}
}

func (p *objectPage) shape(s *assayv1alpha1.NodeShape) {
	p.Summary = plural(int(ptr.Deref(s.Status.Nodes, 0)), "node") + " of this shape"
	if s.Status.LastSeen != nil {
		p.Summary += "; seen " + p.d.ageOf(s.Status.LastSeen).Text + " ago"
	}
	p.Summary += ". Autoscalers get the outputs below from assay export."
	pairs := func(id, caption string, list map[string]string) {
		var rows [][]cell
		for _, name := range slices.Sorted(maps.Keys(list)) {
			rows = append(rows, []cell{plain(name), plain(list[name])})
		}
		p.add(tableOf(id, caption, columns(columnMono, "key", "value"), rows))
	}
	var differences [][]cell
	for _, x := range s.Status.Differences {
		node := plain("")
		if x.ContradictedBy != "" {
			node = nodeCell(x.ContradictedBy)
		}
		differences = append(differences, []cell{plain(x.Output), plain(x.Name), node, count32(x.Agreeing)})
	}
	t := tableOf("differences", "Differences between its nodes", slices.Concat(
		columns(columnText, "output", "name", "first node without it"), columns(columnCount, "agreeing since")), differences)
	t.Help = "Autoscalers do not get these outputs. Once 20 nodes in a row agree, the difference is forgotten."
	p.add(t)
	pairs("key", "Node group", s.Status.Key)
	pairs("labels", "Labels", s.Status.Labels)
	taints, resources := map[string]string{}, map[string]string{}
	for _, t := range s.Status.Taints {
		taints[t.Key+":"+string(t.Effect)] = t.Value
	}
	for name, amount := range s.Status.ExtendedResources {
		resources[string(name)] = amount.String()
	}
	pairs("taints", "Taints", taints)
	pairs("resources", "Extended resources", resources)
}

func setObject(s *assayv1alpha1.NodeFeatureSet) object {
	var size cell
	if n := s.Status.Bytes; n != nil {
		size = cell{Text: fmt.Sprintf("%.1f kB", float64(*n)/1000), Key: strconv.FormatInt(*n, 10)}
	}
	nodes, feature := count32(s.Status.Nodes), plain(s.Status.Feature)
	if feature.Text != "" {
		feature.Link = nodesLink(s.Status.Feature)
	}
	cells := []cell{feature, nodes, count32(s.Status.Elements), size}
	return object{meta: &s.ObjectMeta, cells: cells, detail: func(p *objectPage) {
		p.Summary = "The controller has not evaluated the set."
		if nodes.Text != "" {
			p.Summary = "Nodes that name this set: " + nodes.Text + ". The controller deletes a set that no node names."
		}
		p.add(tableOf("set", "Set", p.columns, [][]cell{cells}))
	}}
}

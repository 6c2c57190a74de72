package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/requirements"
)

// Kind is all objects of one kind.
type Kind[T any] struct {
	Items []T
	// Unknown is why the objects could not be read, as a sentence; empty: Items are all.
	Unknown string
}

// Objects are the objects that have pages, in addition to nodes and rules.
type Objects struct {
	Requests  Kind[assayv1alpha1.NodeFeatureRequest]
	Policies  Kind[assayv1alpha1.NodeFeatureSchedulingPolicy]
	Groups    Kind[nfdv1alpha1.NodeFeatureGroup]
	Baselines Kind[assayv1alpha1.NodeBaseline]
	Shapes    Kind[assayv1alpha1.NodeShape]
	// Sets are NodeFeatureSets; their spec is not shown.
	Sets Kind[assayv1alpha1.NodeFeatureSet]
}

func plain(text string) cell         { return cell{Text: text} }
func link(text, address string) cell { return cell{Text: text, Link: address} }
func nodeLink(name string) cell      { return link(name, "node?name="+query(name)) }
func number(n int) cell              { return cell{Text: strconv.Itoa(n)} }

// as returns a cell with a class of the style sheet: good, warn, bad or faint.
func (c cell) as(class string) cell {
	c.Class = class
	return c
}

// count32 returns a number that the controller has not written yet if it is nil.
func count32(n *int32) cell {
	if n == nil {
		return cell{}
	}
	return number(int(*n))
}

// age returns the time since t in the form of kubectl.
func (d *data) age(t metav1.Time) cell {
	if t.IsZero() {
		return cell{}
	}
	since := d.At.Sub(t.Time)
	return cell{Text: duration.HumanDuration(since), Key: strconv.Itoa(int(since.Seconds()))}
}

// ageOf is age for a time that may be absent.
func (d *data) ageOf(t *metav1.Time) cell { return d.age(ptr.Deref(t, metav1.Time{})) }

// object is one object of a kind, for its row and its page.
type object struct {
	meta   *metav1.ObjectMeta
	cells  []cell // after the name
	order  int    // objects with a smaller one are listed first
	value  any    // the object, for its text
	detail func(*objectPage)

	conditions []metav1.Condition
}

// kind is one kind of objects with pages.
type kind struct {
	// id is the name of the kind in addresses: the resource. Kind is that of the objects, Title the heading.
	id, Kind, Title string
	// About says what the objects are for.
	About string
	// namespaced kinds have a column for the namespace.
	namespaced bool
	columns    []tableColumn
	list       func(d *data) (list []object, unknown string)
}

// ID is the name of the kind in addresses.
func (k *kind) ID() string { return k.id }

// kindsOfObjects are the kinds with pages, in the order of the tabs.
var kindsOfObjects = []*kind{
	{
		id: "nodefeaturerequests", Kind: manifest.KindRequest, Title: "Requests", namespaced: true,
		About:   "What pods ask of their node, by name.",
		columns: slices.Concat(columns(columnText, "Ready"), columns(columnCount, "Nodes"), columns(columnText, "Node label", "On loss")),
		list: func(d *data) ([]object, string) {
			return objects(d.Objects.Requests, requestObject)
		},
	},
	{
		id: "nodefeatureschedulingpolicies", Kind: manifest.KindPolicy, Title: "Policies",
		About:   "What selected pods ask of their node without a change of their own.",
		columns: slices.Concat(columns(columnText, "Ready"), columns(columnCount, "Nodes"), columns(columnText, "Pods in namespaces", "Pods with labels", "On loss")),
		list: func(d *data) ([]object, string) {
			return objects(d.Objects.Policies, policyObject)
		},
	},
	{
		id: "nodebaselines", Kind: manifest.KindBaseline, Title: "Baselines",
		About:   "What nodes must be. Those with deviating nodes are first.",
		columns: slices.Concat(columns(columnText, "Conforming"), columns(columnCount, "Deviating", "Nodes", "Unknown")),
		list: func(d *data) ([]object, string) {
			return objects(d.Objects.Baselines, baselineObject)
		},
	},
	{
		id: "nodefeaturegroups", Kind: manifest.KindGroup, Title: "Groups", namespaced: true,
		About:   "Named sets of nodes, by their features.",
		columns: slices.Concat(columns(columnText, "Ready"), columns(columnCount, "Nodes")),
		list: func(d *data) ([]object, string) {
			return objects(d.Objects.Groups, groupObject)
		},
	},
	{
		id: "nodeshapes", Kind: manifest.KindShape, Title: "Shapes",
		About:   "What rules give to all nodes of a node group and instance type, for autoscalers.",
		columns: slices.Concat(columns(columnText, "Node group"), columns(columnCount, "Nodes", "Outputs", "Differences"), columns(columnText, "Contradicted")),
		list: func(d *data) ([]object, string) {
			return objects(d.Objects.Shapes, shapeObject)
		},
	},
	{
		id: "nodefeaturesets", Kind: manifest.KindSet, Title: "Feature sets", namespaced: true,
		About:   "Large features that many nodes have in common and NodeFeatures name instead of repeating them.",
		columns: slices.Concat(columns(columnText, "Feature"), columns(columnCount, "Nodes", "Elements"), columns(columnValue, "Size")),
		list: func(d *data) ([]object, string) {
			return objects(d.Objects.Sets, setObject)
		},
	},
}

// kindOf returns a kind by its id, or nil.
func kindByID(id string) *kind {
	for _, k := range kindsOfObjects {
		if k.id == id {
			return k
		}
	}
	return nil
}

// objects converts all objects of a kind.
func objects[T any](k Kind[T], convert func(*T) object) ([]object, string) {
	out := make([]object, len(k.Items))
	for i := range k.Items {
		out[i] = convert(&k.Items[i])
	}
	slices.SortStableFunc(out, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.meta.Namespace, b.meta.Namespace), cmp.Compare(a.meta.Name, b.meta.Name))
	})
	return out, k.Unknown
}

// objectsPage is the list of the objects of one kind.
type objectsPage struct {
	*kind
	Kinds   []*kind
	Unknown string
	Table   *table
}

func (p *objectsPage) tables() []*table { return some(p.Table) }

func newObjectsPage(d *data, k *kind) *objectsPage {
	list, unknown := k.list(d)
	p := &objectsPage{kind: k, Kinds: kindsOfObjects, Unknown: unknown}
	if unknown != "" {
		return p
	}
	names := columns(columnText, "Name")
	if k.namespaced {
		names = columns(columnText, "Name", "Namespace")
	}
	var rows [][]cell
	for i := range list {
		o := &list[i]
		row := []cell{link(o.meta.Name, k.address(o.meta.Namespace, o.meta.Name))}
		if k.namespaced {
			row = append(row, plain(o.meta.Namespace))
		}
		rows = append(rows, append(append(row, o.cells...), d.age(o.meta.CreationTimestamp)))
	}
	p.Table = tableOf(k.id, k.Title, slices.Concat(names, k.columns, columns(columnValue, "Age")), rows)
	p.Table.Help, p.Table.Empty = k.About, "There are none in "+d.Where+"."
	return p
}

// some returns the tables that are not nil.
func some(list ...*table) []*table {
	return slices.DeleteFunc(list, func(t *table) bool { return t == nil })
}

// unlessEmpty returns a table, or nil if it has no rows.
func unlessEmpty(t *table) *table {
	if t.Count() == 0 {
		return nil
	}
	return t
}

// address returns the address of the page of an object.
func (k *kind) address(namespace, name string) string {
	out := "object?kind=" + k.id + "&name=" + query(name)
	if namespace != "" {
		out += "&namespace=" + query(namespace)
	}
	return out
}

// objectPage is the page of one object.
type objectPage struct {
	*kind
	Kinds           []*kind
	Namespace, Name string
	// Summary is the result in one sentence.
	Summary    string
	Conditions *table // nil: there are none
	Tables     []*table
	Text       string
	Changes    *changes

	d *data
}

func (p *objectPage) tables() []*table {
	return append(append(slices.Clone(p.Tables), some(p.Conditions)...), p.Changes.tables()...)
}

// add adds a table that has rows.
func (p *objectPage) add(t *table) {
	if t.Count() > 0 {
		p.Tables = append(p.Tables, t)
	}
}

// newObjectPage returns the page of an object without its changes, or nil if it does not exist.
func newObjectPage(d *data, k *kind, namespace, name string) (*objectPage, *metav1.ObjectMeta) {
	list, _ := k.list(d)
	i := slices.IndexFunc(list, func(o object) bool { return o.meta.Namespace == namespace && o.meta.Name == name })
	if i < 0 {
		return nil, nil
	}
	o := &list[i]
	p := &objectPage{kind: k, Kinds: kindsOfObjects, Namespace: namespace, Name: name, d: d}
	if len(o.conditions) > 0 {
		p.Conditions = conditionTable(o.conditions, d.At)
	}
	if o.detail != nil {
		o.detail(p)
	}
	if o.value != nil {
		p.Text = textOf(o.value)
	}
	return p, o.meta
}

// textOf returns a spec in YAML, without fields that NFD's types always write.
func textOf(spec any) string {
	text, err := yaml.Marshal(spec)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if trimmed := strings.TrimRight(line, "\n"); !strings.HasSuffix(trimmed, ": null") && !strings.HasSuffix(trimmed, `: ""`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// ready returns the cell of a condition: yes, or the reason why not.
func ready(list []metav1.Condition, kind string) cell {
	for _, c := range list {
		switch {
		case c.Type != kind:
		case c.Status == metav1.ConditionTrue:
			return plain("yes").as("good")
		default:
			return plain(cmp.Or(c.Reason, string(c.Status))).as("bad")
		}
	}
	return cell{}
}

// onLoss returns the cell of what happens to nodes that lose what is required.
func onLoss(l assayv1alpha1.LossResponse) cell {
	return plain(cmp.Or(string(l.OnLoss), string(assayv1alpha1.LossEvent)))
}

func requestObject(r *assayv1alpha1.NodeFeatureRequest) object {
	label := plain("")
	if r.Status.Label != "" {
		label = link(r.Status.Label, "fleet?by=nodes&filter="+query("label "+quoteWord(r.Status.Label)+" = true"))
	}
	return object{
		meta: &r.ObjectMeta, value: r.Spec, conditions: r.Status.Conditions,
		cells:  []cell{ready(r.Status.Conditions, "Ready"), count32(r.Status.MatchingNodes), label, onLoss(r.Spec.LossResponse)},
		detail: func(p *objectPage) { p.matching(r.Spec.Required, &r.Status) },
	}
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
	return object{
		meta: &r.ObjectMeta, value: r.Spec, conditions: r.Status.Conditions,
		cells:  []cell{ready(r.Status.Conditions, "Ready"), count32(r.Status.MatchingNodes), plain(namespaces), plain(pods), onLoss(r.Spec.LossResponse)},
		detail: func(p *objectPage) { p.matching(r.Spec.Required, &r.Status) },
	}
}

// matching adds the nodes that meet requirements, as evaluated here, and how that differs from the status.
func (p *objectPage) matching(required *assayv1alpha1.Requirement, status *assayv1alpha1.RequestStatus) {
	if required == nil {
		p.Summary = "It requires nothing, so all nodes meet it."
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
		p.add(tableOf("nearest", "Nearest node", columns(columnText, "Node", "Lacks"), [][]cell{{nodeLink(answer.Nearest), plain(answer.Lacks)}}))
	}
	p.add(nodeList("nodes", "Nodes that meet the requirements", answer.Sample))
}

// nodeList lists nodes.
func nodeList(id, caption string, names []string) *table {
	return listOf(id, caption, "Node", len(names), func(i int) cell { return nodeLink(names[i]) })
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
			nodes := g.Status.Nodes
			p.add(listOf("nodes", "Nodes", "Node", len(nodes), func(i int) cell { return nodeLink(nodes[i].Name) }))
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
		nodes = append(nodes, []cell{nodeLink(x.Node), plain(x.Check), plain(x.Message), p.d.ageOf(x.Since)})
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
	deviations := tableOf("deviations", "Deviations", slices.Concat(columns(columnText, "Node", "Check", "What differs"), columns(columnValue, "Since")), nodes)
	deviations.Empty = "No node deviates."
	if s.Omitted > 0 {
		deviations.Help = plural(int(s.Omitted), "deviation") + " more: the status lists the first 50."
	}
	p.Tables = append(p.Tables, deviations)
	p.add(tableOf("checks", "Checks", slices.Concat(columns(columnText, "Check"), columns(columnCount, "Deviating", "Not compared"), columns(columnText, "Values")), checks))
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
		p.add(tableOf(id, caption, columns(columnMono, "Key", "Value"), rows))
	}
	var differences [][]cell
	for _, x := range s.Status.Differences {
		node := plain("")
		if x.ContradictedBy != "" {
			node = nodeLink(x.ContradictedBy)
		}
		differences = append(differences, []cell{plain(x.Output), plain(x.Name), node, count32(x.Agreeing)})
	}
	t := tableOf("differences", "Differences between its nodes", slices.Concat(
		columns(columnText, "Output", "Name", "First node without it"), columns(columnCount, "Agreeing since")), differences)
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
		feature.Link = "fleet?by=nodes&filter=" + query(s.Status.Feature)
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

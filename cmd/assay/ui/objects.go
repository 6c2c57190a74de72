package ui

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/manifest"
)

// Kind is all objects of one kind.
type Kind[T any] struct {
	Items []T
	// Unknown is why the objects could not be read, as a sentence; empty: Items are all.
	Unknown string
	// Absent is set if the cluster does not have the kind, hence no objects.
	Absent bool
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
	// Waiting are the pods without a node, Events those of Assay's programs.
	Waiting Kind[corev1.Pod]
	Events  Kind[corev1.Event]
}

func plain(text string) cell         { return cell{Text: text} }
func link(text, address string) cell { return cell{Text: text, Link: address} }
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

// age returns the time since an event in the form of kubectl; empty: unknown.
func (d *data) age(at time.Time) cell {
	if at.IsZero() {
		return cell{}
	}
	since := max(0, d.now.Sub(at))
	return cell{Text: shortDuration(since), Key: strconv.Itoa(int(since / time.Second)), At: at}
}

// shortDuration returns a duration in the form of kubectl.
func shortDuration(d time.Duration) string { return duration.HumanDuration(d) }

// ageOf is age for a time that may be absent.
func (d *data) ageOf(t *metav1.Time) cell { return d.age(ptr.Deref(t, metav1.Time{}).Time) }

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
		About:   "Named sets of feature requirements for pods. Those that no node meets are first.",
		columns: slices.Concat(columns(columnText, "ready", "satisfiable"), columns(columnCount, "nodes"), columns(columnText, "node label", "on loss")),
		list: func(d *data) ([]object, string) {
			return objects(d.Objects.Requests, requestObject)
		},
	},
	{
		id: "nodefeatureschedulingpolicies", Kind: manifest.KindPolicy, Title: "Policies",
		About:   "Feature requirements of the pods that a policy selects. Those that no node meets are first.",
		columns: slices.Concat(columns(columnText, "ready", "satisfiable"), columns(columnCount, "nodes"), columns(columnText, "pods in namespaces", "pods with labels", "on loss")),
		list: func(d *data) ([]object, string) {
			return objects(d.Objects.Policies, policyObject)
		},
	},
	{
		id: "nodebaselines", Kind: manifest.KindBaseline, Title: "Baselines",
		About:   "What nodes must be. Those with deviating nodes are first.",
		columns: slices.Concat(columns(columnText, "conforming"), columns(columnCount, "deviating", "nodes", "unknown")),
		list: func(d *data) ([]object, string) {
			return objects(d.Objects.Baselines, baselineObject)
		},
	},
	{
		id: "nodefeaturegroups", Kind: manifest.KindGroup, Title: "Groups", namespaced: true,
		About:   "Named sets of nodes, by their features.",
		columns: slices.Concat(columns(columnText, "ready"), columns(columnCount, "nodes")),
		list: func(d *data) ([]object, string) {
			return objects(d.Objects.Groups, groupObject)
		},
	},
	{
		id: "nodeshapes", Kind: manifest.KindShape, Title: "Shapes",
		About:   "What rules give to all nodes of a node group and instance type, for autoscalers.",
		columns: slices.Concat(columns(columnText, "node group"), columns(columnCount, "nodes", "outputs", "differences"), columns(columnText, "contradicted")),
		list: func(d *data) ([]object, string) {
			return objects(d.Objects.Shapes, shapeObject)
		},
	},
	{
		id: "nodefeaturesets", Kind: manifest.KindSet, Title: "Feature sets", namespaced: true,
		About:   "Large features that many nodes have in common and NodeFeatures name instead of repeating them.",
		columns: slices.Concat(columns(columnText, "feature"), columns(columnCount, "nodes", "elements"), columns(columnValue, "size")),
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
	names := columns(columnText, "name")
	if k.namespaced {
		names = columns(columnText, "name", "namespace")
	}
	var rows [][]cell
	for i := range list {
		o := &list[i]
		row := []cell{link(o.meta.Name, k.address(o.meta.Namespace, o.meta.Name))}
		if k.namespaced {
			row = append(row, plain(o.meta.Namespace))
		}
		rows = append(rows, append(append(row, o.cells...), d.ageOf(&o.meta.CreationTimestamp)))
	}
	p.Table = tableOf(k.id, k.Title, slices.Concat(names, k.columns, columns(columnValue, "age")), rows)
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
		p.Conditions = d.conditionTable(o.conditions)
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

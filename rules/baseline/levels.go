package baseline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
)

// Limits of spec.levels, which the CustomResourceDefinition has too. A Topology of Kueue has 1 to 16 levels; a tree needs two.
const (
	MinLevels = 2
	MaxLevels = 16
)

// LevelsCheck is the name of the check of spec.levels.
const LevelsCheck = "levels"

// Level is a level of a tree of nodes.
type Level struct {
	Name, Label string
	// path says that a domain is known by its value and those of all wider levels: the same value can be in two branches.
	path bool
	max  int // of nodes in a domain; 0: no limit
}

// Levels returns the levels of the baseline from the widest to the narrowest.
func (b *Baseline) Levels() []Level { return b.levels }

// levels compiles spec.levels.
func (c *compiler) levels(list []assayv1alpha1.BaselineLevel, path *field.Path) {
	if len(list) == 0 {
		return
	}
	if len(list) < MinLevels || len(list) > MaxLevels {
		c.errors(field.Invalid(path, len(list), fmt.Sprintf("write %d to %d levels, the widest first", MinLevels, MaxLevels)))
		return
	}
	if c.names[LevelsCheck] {
		c.errors(field.Forbidden(path, fmt.Sprintf("the result of levels has the name %q, which a check in require or uniform has too: rename that check", LevelsCheck)))
	}
	names, labels := map[string]bool{}, map[string]bool{}
	for i := range list {
		in, at := &list[i], path.Index(i)
		if len(validation.IsDNS1035Label(in.Name)) > 0 {
			c.errors(field.Invalid(at.Child("name"), clip.Text(in.Name, maxValue), "write lower-case letters, digits and dashes, such as rack"))
		} else if names[in.Name] {
			c.errors(field.Duplicate(at.Child("name"), in.Name))
		}
		names[in.Name] = true
		for _, fault := range validation.IsQualifiedName(in.Label) {
			c.errors(field.Invalid(at.Child("label"), clip.Text(in.Label, maxMessage), fault))
		}
		if labels[in.Label] {
			c.errors(field.Duplicate(at.Child("label"), in.Label))
		}
		labels[in.Label] = true
		if in.Label == corev1.LabelHostname && i < len(list)-1 {
			c.errors(field.Forbidden(at.Child("label"), "the label "+corev1.LabelHostname+" can only be used at the lowest level: write this level last"))
		}
		level := Level{Name: in.Name, Label: in.Label, path: !ptr.Deref(in.Unique, true)}
		if in.Nodes != nil {
			if level.max = int(in.Nodes.Max); level.max < 1 {
				c.errors(field.Invalid(at.Child("nodes", "max"), in.Nodes.Max, "write the number of nodes that a domain has at most, such as 18"))
			}
		}
		c.out.levels = append(c.out.levels, level)
	}
}

// place is where a node is in the tree.
type place struct {
	values  []string // by level
	lacks   string   // what is missing; empty: nothing
	created metav1.Time
}

// place returns where a node is, by the labels of its Node.
func (b *Baseline) place(n Node) *place {
	if len(b.levels) == 0 {
		return nil
	}
	out := &place{created: n.Created}
	var missing []string
	for _, l := range b.levels {
		value := n.Labels[l.Label]
		if value == "" {
			missing = append(missing, l.Label)
		}
		out.values = append(out.values, value)
	}
	switch len(missing) {
	case 0:
	case 1:
		out.lacks = clip.Text(missing[0]+" is missing", maxMessage)
	default:
		out.lacks = clip.Text(strings.Join(missing, ", ")+" are missing", maxMessage)
	}
	return out
}

// Domain is a domain of a tree of nodes: all nodes that have one value of a level.
type Domain struct {
	Level string `json:"level"`
	Value string `json:"value"`
	// Nodes is the number of nodes.
	Nodes int `json:"nodes"`
	// Domains are those of the next level, by value.
	Domains []*Domain `json:"domains,omitempty"`
}

// tree judges the places of nodes. Nodes that lack a level are left out first, then level by level those that contradict it, then those that
// are too many: what is left is a tree.
type tree struct {
	levels  []Level
	nodes   []Named           // that are left
	deviate map[string]string // by node
}

// compareLevels returns how nodes deviate from the tree of most of them, by node, and the others, sorted by their places.
func (b *Baseline) compareLevels(known []Named) (deviate map[string]string, others []Named) {
	t := &tree{levels: b.levels, deviate: map[string]string{}}
	for _, n := range known {
		if n.Verdict.place.lacks != "" {
			t.deviate[n.Node] = n.Verdict.place.lacks
		} else {
			t.nodes = append(t.nodes, n)
		}
	}
	for i := 1; i < len(t.levels); i++ {
		if !t.levels[i].path {
			t.contradictions(i)
		}
	}
	for i := range t.levels {
		if t.levels[i].max > 0 {
			t.sizes(i)
		}
	}
	slices.SortFunc(t.nodes, func(a, b Named) int { return slices.Compare(a.Verdict.place.values, b.Verdict.place.values) })
	return t.deviate, t.nodes
}

// id identifies the domain of a node on a level.
func (t *tree) id(p *place, i int) string {
	if i == 0 || !t.levels[i].path {
		return p.values[i]
	}
	return t.id(p, i-1) + "/" + p.values[i] // values of labels have no slash
}

// drop removes the nodes that deviate.
func (t *tree) drop() {
	t.nodes = slices.DeleteFunc(t.nodes, func(n Named) bool {
		_, found := t.deviate[n.Node]
		return found
	})
}

// contradictions finds the nodes whose domain on a level is part of another domain than for most of its nodes.
func (t *tree) contradictions(i int) {
	parents := map[string]map[string]int{} // the number of nodes, by domain and its parent
	for _, n := range t.nodes {
		p := n.Verdict.place
		of := parents[p.values[i]]
		if of == nil {
			of = map[string]int{}
			parents[p.values[i]] = of
		}
		of[t.id(p, i-1)]++
	}
	for _, n := range t.nodes {
		p := n.Verdict.place
		of, own := parents[p.values[i]], t.id(p, i-1)
		if len(of) == 1 {
			continue
		}
		most, total := own, 0
		for parent, nodes := range of {
			total += nodes
			if nodes > of[most] {
				most = parent
			}
		}
		name, in := t.levels[i].Name+" "+p.values[i], t.levels[i-1].Name
		switch {
		case 2*of[most] <= total:
			t.deviate[n.Node] = clip.Text(fmt.Sprintf("%s is in %s, and no majority of its %d nodes is in one of them",
				name, domainsOf(in, of), total), maxMessage)
		case most != own:
			t.deviate[n.Node] = clip.Text(fmt.Sprintf("%s is in %s %s for %d of %d nodes, here in %s", name, in, most, of[most], total, own), maxMessage)
		}
	}
	t.drop()
}

// domainsOf lists the domains in which the nodes of another domain are.
func domainsOf(level string, of map[string]int) string {
	names := make([]string, 0, len(of))
	for name, nodes := range of {
		names = append(names, fmt.Sprintf("%s %s for %s", level, name, clip.Count(nodes, "node")))
	}
	slices.Sort(names)
	return clip.Join(names, ", ", shown)
}

// sizes finds the nodes that a domain of a level has too many, the youngest.
func (t *tree) sizes(i int) {
	domains := map[string][]Named{}
	for _, n := range t.nodes {
		id := t.id(n.Verdict.place, i)
		domains[id] = append(domains[id], n)
	}
	for id, nodes := range domains {
		most := t.levels[i].max
		if len(nodes) <= most {
			continue
		}
		slices.SortFunc(nodes, func(a, b Named) int {
			return cmp.Or(a.Verdict.place.created.Compare(b.Verdict.place.created.Time), cmp.Compare(a.Node, b.Node))
		})
		for _, n := range nodes[most:] {
			t.deviate[n.Node] = clip.Text(fmt.Sprintf("%s %s has %d nodes, at most %d", t.levels[i].Name, id, len(nodes), most), maxMessage)
		}
	}
	t.drop()
}

// Domains returns the domains of the widest level, with those below them. Nodes that deviate from the check levels are in no domain.
func (r *Result) Domains() []*Domain { return grow(r.levels, r.tree, 0) }

// grow returns the domains of sorted nodes from a level on.
func grow(levels []Level, nodes []Named, i int) (out []*Domain) {
	if i == len(levels) {
		return nil
	}
	for len(nodes) > 0 {
		value, n := nodes[0].Verdict.place.values[i], 1
		for n < len(nodes) && nodes[n].Verdict.place.values[i] == value {
			n++
		}
		out = append(out, &Domain{Level: levels[i].Name, Value: value, Nodes: n, Domains: grow(levels, nodes[:n], i+1)})
		nodes = nodes[n:]
	}
	slices.SortFunc(out, func(a, b *Domain) int { return natural(a.Value, b.Value) })
	return out
}

// natural compares values of labels by length where only numbers differ: r9 comes before r10.
func natural(a, b string) int {
	if strings.TrimRight(a, "0123456789") == strings.TrimRight(b, "0123456789") {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

// summarize counts the domains of each level, of sorted nodes.
func summarize(levels []Level, nodes []Named) []assayv1alpha1.BaselineLevelStatus {
	out := make([]assayv1alpha1.BaselineLevelStatus, len(levels))
	for i := range levels {
		s := &out[i]
		s.Name = levels[i].Name
		for begin, n := 0, 1; n <= len(nodes); n++ {
			if n < len(nodes) && slices.Equal(nodes[n].Verdict.place.values[:i+1], nodes[begin].Verdict.place.values[:i+1]) {
				continue
			}
			size := int32(n - begin) //nolint:gosec // a count of nodes
			if s.Domains == 0 || size < s.Smallest {
				s.Smallest = size
			}
			s.Domains++
			s.Largest = max(s.Largest, size)
			begin = n
		}
	}
	return out
}

package ui

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// comparePage shows the differences between two nodes.
type comparePage struct {
	A, B string
	// Nodes are suggestions for the names.
	Nodes []string
	// Say is the reason why nothing is compared.
	Say   string
	Table *table
	// Same is the number of features that are equal.
	Same int
}

func (p *comparePage) tables() []*table {
	if p.Table == nil {
		return nil
	}
	return []*table{p.Table}
}

func (s *Server) compare(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	q := r.URL.Query()
	s.show(w, r, http.StatusOK, "compare", "Compare nodes", newComparePage(d, q.Get("a"), q.Get("b")))
}

func newComparePage(d *data, a, b string) *comparePage {
	p := &comparePage{A: a, B: b, Nodes: d.choices()}
	for _, name := range []string{a, b} {
		if name != "" && d.node(name) == nil {
			p.Say = "Node " + name + " not found" + cmp.Or(didYouMean(name, d.nodeNames()), ".")
		}
	}
	switch {
	case p.Say != "":
	case d.unevaluated() != "":
		p.Say = "Nothing is compared: " + d.unevaluated() + "."
	case a == "" || b == "":
		p.Say = "Choose two nodes."
	case a == b:
		p.Say = "Choose two different nodes."
	default:
		p.compare(d)
	}
	return p
}

// choices returns the names of the first nodes, as suggestions.
func (d *data) choices() []string { return d.nodeNames()[:min(len(d.Nodes), maxChoices)] }

func (d *data) nodeNames() []string {
	out := make([]string, len(d.Nodes))
	for i := range d.Nodes {
		out[i] = d.Nodes[i].Input.Node.Name
	}
	return out
}

// differences are the rows of the differences between two nodes.
type differences struct {
	d    *data
	rows [][]cell
}

func (p *comparePage) compare(d *data) {
	a, b := d.node(p.A), d.node(p.B)
	c := &differences{d: d}
	c.outputs(a, b)
	c.rules(a.Input, b.Input)
	names := map[string]bool{}
	for _, f := range []*facts.Facts{a.Input.Facts, b.Input.Facts} {
		for _, name := range f.Names() {
			names[name] = true
		}
	}
	for _, name := range facts.SortedKeys(names) {
		before := len(c.rows)
		if c.feature(name, a.Input.Facts.Feature(name), b.Input.Facts.Feature(name)); len(c.rows) == before {
			p.Same++
		}
	}
	heads := []tableColumn{{Name: "what"}, {Name: "name", Kind: columnMono}, {Name: p.A, Kind: columnMono}, {Name: p.B, Kind: columnMono}}
	p.Table = tableOf("differences", "Differences", heads, c.rows)
	p.Table.Empty = "The nodes have the same features, outputs and matching rules."
}

// row adds a row unless the values are equal.
func (c *differences) row(what, name, a, b string) {
	if a != b {
		c.rows = append(c.rows, []cell{{Text: what}, {Text: name}, {Text: a}, {Text: b}})
	}
}

// outputs compares what rules and NodeFeatures give, and what the Nodes have of it.
func (c *differences) outputs(a, b *Node) {
	type key struct {
		kind keys.Kind
		name string
	}
	values := [2]map[key]string{{}, {}}
	for i, n := range []*Node{a, b} {
		o := c.d.Program.Eval(n.Input)
		if o.Failed != nil {
			continue
		}
		compared := c.d.Desired.Compare(n.Object, desired.Of(o))
		for g := range o.Given() {
			value := cmp.Or(g.Value, "set")
			switch state, has, _ := compared.Given(g.Kind, g.Key); state {
			case desired.Missing:
				value = "not on the Node; rules give " + value
			case desired.Different:
				value = has + "; rules give " + value
			}
			values[i][key{g.Kind, g.Key}] = value
		}
		for _, s := range compared.Differences() {
			if s.Op == plan.Remove {
				values[i][key{s.Kind, s.Key}] = cmp.Or(s.Old, "set") + "; rules do not give it"
			}
		}
	}
	all := maps.Clone(values[0])
	maps.Copy(all, values[1])
	for _, k := range slices.SortedFunc(maps.Keys(all), func(x, y key) int {
		return cmp.Or(slices.Index(keys.NodeKinds[:], x.kind)-slices.Index(keys.NodeKinds[:], y.kind), strings.Compare(x.name, y.name))
	}) {
		c.row(string(k.kind), k.name, values[0][k], values[1][k])
	}
}

// rules compares which rules match.
func (c *differences) rules(a, b rules.Input) {
	mask := c.d.Known.Rules.Mask
	first, second := c.d.Program.Trace(a), c.d.Program.Trace(b)
	for i := range min(len(first), len(second)) {
		x, y := newTrace(&first[i], mask), newTrace(&second[i], mask)
		if x.Word == y.Word {
			continue
		}
		result := func(t *trace) cell {
			return cell{Text: strings.ToLower(t.Word), Note: strings.Join(t.Say, "; ")}
		}
		name := ruleCell(first[i].Object)
		name.Text = first[i].String()
		c.rows = append(c.rows, []cell{{Text: "rule"}, name, result(&x), result(&y)})
	}
}

// feature compares a feature. If only one node has it, its elements are not listed: a kernel has thousands of options.
func (c *differences) feature(name string, a, b *facts.Feature) {
	if a == nil || b == nil {
		c.row("feature", name, elements(a), elements(b))
		return
	}
	if id := a.ID(); id == b.ID() && id != (facts.FeatureID{}) {
		return
	}
	for _, flag := range union(a.Flags.Names(), b.Flags.Names()) {
		c.row("flag", name+"."+flag, yesIf(a.Flags.Has(flag)), yesIf(b.Flags.Has(flag)))
	}
	for _, key := range union(a.Attributes.Names(), b.Attributes.Names()) {
		x, _ := a.Attributes.Get(key)
		y, _ := b.Attributes.Get(key)
		if x != y && c.d.Known.Rules.Mask.Hides(key) {
			x, y = rules.Hidden, rules.Hidden+" (another value)"
		}
		c.row("attribute", name+"."+key, x, y)
	}
	x, y := c.instances(name, a.Instances), c.instances(name, b.Instances)
	all := maps.Clone(x)
	maps.Copy(all, y)
	for _, text := range slices.Sorted(maps.Keys(all)) {
		c.row("instance", name+": "+text, times(x[text]), times(y[text]))
	}
}

// instances counts instances by their attributes.
func (c *differences) instances(name string, list *facts.Instances) map[string]int {
	out := map[string]int{}
	columns := firstColumns(list.Names())
	for i := range list.Len() {
		attributes := list.Instance(i)
		var parts []string
		for _, key := range columns {
			value, ok := attributes[key]
			if !ok {
				continue
			}
			if c.d.Known.Rules.Mask.Hides(key) {
				value = rules.Hidden
			}
			parts = append(parts, key+"="+value)
		}
		text := strings.Join(parts, " ")
		if c.d.Describe != nil {
			if device := c.d.Describe(name, attributes); device != "" {
				text = device + ", " + text
			}
		}
		out[text]++
	}
	return out
}

func elements(f *facts.Feature) string {
	if f == nil {
		return ""
	}
	return plural(f.Flags.Len()+f.Attributes.Len()+f.Instances.Len(), "element")
}

func union(a, b []string) []string {
	all := map[string]bool{}
	for _, name := range slices.Concat(a, b) {
		all[name] = true
	}
	return facts.SortedKeys(all)
}

func yesIf(yes bool) string {
	if yes {
		return "yes"
	}
	return ""
}

func times(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

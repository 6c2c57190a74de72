package compose

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/rules/yamltree"
)

// AssembledYAML is the result of assembling a document and its bases.
type AssembledYAML struct {
	// Root is the main document with the assembled spec.
	Root *yaml.Node
	// Spec is the assembled spec. It has a basedOn only for templates that stay in the cluster.
	Spec *yaml.Node
	// Rules, Bases and Hash are the same as in Assembled.
	Rules []Source
	Bases []string
	Hash  string

	origin map[*yaml.Node]string
}

// Origin returns the ID of the document that a node of Spec comes from. The line and column of the node refer to that document.
func (a *AssembledYAML) Origin(n *yaml.Node) string { return a.origin[n] }

// LoadYAML returns the document that a reference in another document names, or nil if it does not exist.
type LoadYAML func(from *YAML, r Ref) (*YAML, error)

// YAMLOptions configure an assembly.
type YAMLOptions struct {
	// KeepNames keeps references to templates in the cluster: the result is based on these templates. This is only possible if they
	// come after all other documents.
	KeepNames bool
	// KeepWildcards keeps wildcard rules, for a result that other documents will be based on.
	KeepWildcards bool
	// Into is the document into which the result is written. Nil means the first document. It differs if another document overrides
	// the user's.
	Into *YAML
}

// AssembleYAML combines the first document with its bases and with the layers below it, as AssembleLayers does. It keeps comments.
// If two documents have a comment on the line of the same field, the one with the higher precedence wins.
func AssembleYAML(layers []*YAML, load LoadYAML, opt YAMLOptions) (*AssembledYAML, error) {
	f := &untyped{get: load, opt: opt, origin: map[*yaml.Node]string{}}
	g, roots, err := gather(layers, f)
	if err != nil {
		return nil, err
	}
	out, order, err := f.combine(g, roots)
	if err != nil {
		return nil, err
	}
	for _, doc := range order[1:] {
		if base := g.docs[doc].doc; !base.absent && base != opt.Into {
			fillDocumentComments(out.Root, base.Root)
		}
	}
	unflow(out.Root, out.Root)
	return out, g.checkDigests(order, f.digests(g))
}

// untyped implements face for YAML nodes.
type untyped struct {
	get    LoadYAML
	opt    YAMLOptions
	origin map[*yaml.Node]string
}

func (f *untyped) id(d *YAML) string { return d.ID }

func (f *untyped) bases(d *YAML) ([]Ref, error) {
	if d.absent {
		return nil, nil
	}
	return d.Bases()
}

func (f *untyped) rules(d *YAML) []string {
	var names []string
	_, rules := lookup(d.Spec, "rules")
	if rules == nil || rules.Kind != yaml.SequenceNode {
		return nil
	}
	for _, r := range rules.Content {
		name := ""
		if r.Kind == yaml.MappingNode {
			if _, n := lookup(r, "name"); n != nil {
				name = n.Value
			}
		}
		names = append(names, name)
	}
	return names
}

func (f *untyped) load(from *YAML, r Ref) (*YAML, bool, error) {
	if name, ok := r.Template(); ok && f.opt.KeepNames {
		return &YAML{ID: clusterPrefix + name, Spec: &yaml.Node{Kind: yaml.MappingNode}, absent: true}, true, nil
	}
	d, err := f.get(from, r)
	return d, d != nil, err
}

const clusterPrefix = "cluster:"

// Template returns the name of the template in the cluster that is referenced, if any.
func (r Ref) Template() (string, bool) {
	if r.Kind == ByName {
		return r.Locator, true
	}
	if r.Kind == ByLocator {
		return strings.CutPrefix(r.Locator, clusterPrefix)
	}
	return "", false
}

func (f *untyped) digests(g *graph[*YAML]) func(int, bool) (string, bool, error) {
	return func(doc int, tree bool) (string, bool, error) {
		d := g.docs[doc].doc
		if d.absent {
			return "", false, nil
		}
		if tree {
			sub, _, err := f.combine(g, []int{doc})
			if err != nil {
				return "", false, err
			}
			if at, _ := lookup(sub.Spec, "basedOn"); at >= 0 {
				return "", false, fmt.Errorf("the tree digest of %s cannot be checked without the cluster's templates; embed all", d.ID)
			}
			return sub.Hash, true, nil
		}
		spec, err := Typed(d.Spec)
		if err != nil {
			return "", false, fmt.Errorf("%s: %w", d.ID, err)
		}
		return Digest(spec), true, nil
	}
}

// combine combines the documents under roots.
func (f *untyped) combine(g *graph[*YAML], roots []int) (*AssembledYAML, []int, error) {
	p, err := g.plan(roots)
	if err != nil {
		return nil, nil, err
	}
	order := p.order
	present, kept, err := splitKept(g, order, roots)
	if err != nil {
		return nil, nil, err
	}
	main := g.docs[present[0]].doc
	m := &merger{origin: f.origin}
	spec := m.clone(main.Spec, main.ID)
	dropNulls(spec)
	for _, doc := range present[1:] {
		m.document = g.docs[doc].id
		if err := m.fill(spec, g.docs[doc].doc.Spec, "", specPolicies); err != nil {
			return nil, nil, err
		}
	}
	out := &AssembledYAML{Spec: spec, Bases: g.ids(present[1:]), origin: f.origin}
	var rules []*yaml.Node
	for _, from := range p.rules {
		rule, err := m.rule(g, from)
		if err != nil {
			return nil, nil, err
		}
		_, name := lookup(rule, "name")
		source := Source{From: g.sources(from)}
		if name != nil {
			source.Rule = name.Value
		}
		rules, out.Rules = append(rules, rule), append(out.Rules, source)
	}
	var wildcards []*yaml.Node
	for _, w := range p.wildcards {
		rule, err := m.rule(g, planned{parts: []part{w}})
		if err != nil {
			return nil, nil, err
		}
		wildcards = append(wildcards, rule)
	}
	setBases(spec, kept)
	setRules(spec, append(slices.Clone(rules), wildcards...))
	if err := out.check(); err != nil {
		return nil, nil, err
	}
	if f.opt.KeepWildcards { // first, so that they are not applied to rules twice
		rules = append(wildcards, rules...)
	}
	setRules(spec, rules)
	into := main
	if f.opt.Into != nil {
		into = f.opt.Into
	}
	out.Root = replace(into.Root, into.Spec, spec)
	return out, order, nil
}

// check rejects a spec that the API server would reject, and sets the hash.
func (a *AssembledYAML) check() error {
	if problems := checkShape(a.Spec, a.Origin); len(problems) > 0 {
		return problems.orNil()
	}
	typed, err := Typed(a.Spec)
	if err != nil {
		return err
	}
	a.Hash, err = treeDigest(typed)
	return err
}

// replace replaces old by another node. It copies the path from root to old.
func replace(root, old, with *yaml.Node) *yaml.Node {
	if root == old {
		return with
	}
	out := *root
	out.Content = make([]*yaml.Node, len(root.Content))
	for i, c := range root.Content {
		out.Content[i] = replace(c, old, with)
	}
	return &out
}

// rule builds one rule of the result.
func (m *merger) rule(g *graph[*YAML], p planned) (*yaml.Node, error) {
	var out *yaml.Node
	for _, part := range p.parts {
		doc := g.docs[part.doc].doc
		_, rules := lookup(doc.Spec, "rules")
		src := rules.Content[part.rule]
		if src.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("%s:%d: rules[%d]: expected a map of fields, found a %s", doc.ID, src.Line, part.rule, yamltree.Type(src))
		}
		if out == nil {
			out = m.clone(src, doc.ID)
			dropNulls(out)
			continue
		}
		m.document = doc.ID
		_, name := lookup(out, "name")
		if err := m.fill(out, src, "rules["+name.Value+"]", rulePolicies); err != nil {
			return nil, err
		}
		fillComments(out, src)
	}
	return out, nil
}

// setRules sets the rules of spec, unless spec has no field rules and there are no rules.
func setRules(spec *yaml.Node, rules []*yaml.Node) {
	at, list := lookup(spec, "rules")
	if at < 0 {
		return
	}
	if list.Kind != yaml.SequenceNode {
		return // checkShape reports the error
	}
	list.Content = rules
	list.Style &^= yaml.FlowStyle
	if len(rules) == 0 {
		list.Style |= yaml.FlowStyle
	}
}

// setBases sets the bases of spec, or removes basedOn if there are none.
func setBases(spec *yaml.Node, refs []Ref) {
	at, _ := lookup(spec, "basedOn")
	if len(refs) == 0 {
		if at >= 0 {
			spec.Content = slices.Delete(spec.Content, at, at+2)
		}
		return
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	for _, r := range refs {
		entry := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		entry.Content = append(entry.Content, textNode("name"), textNode(r.Locator))
		if r.Digest != "" {
			entry.Content = append(entry.Content, textNode("digest"), textNode(r.Digest))
		}
		if len(r.Exclude) > 0 {
			patterns := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
			for _, p := range r.Exclude {
				patterns.Content = append(patterns.Content, textNode(p))
			}
			entry.Content = append(entry.Content, textNode("exclude"), patterns)
		}
		list.Content = append(list.Content, entry)
	}
	if at >= 0 {
		spec.Content[at+1] = list
		return
	}
	spec.Content = slices.Insert(spec.Content, insertionPoint(spec), textNode("basedOn"), list)
}

func textNode(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// splitKept separates documents that are loaded from templates that stay in the cluster, and returns references to the latter from
// the main document. They can only stay if they come last, since fields in the main document take precedence over those of its
// bases.
func splitKept(g *graph[*YAML], order, roots []int) (present []int, kept []Ref, err error) {
	var absent []int
	for _, doc := range order {
		if g.docs[doc].doc.absent {
			absent = append(absent, doc)
			continue
		}
		if len(absent) > 0 {
			return nil, nil, fmt.Errorf("%s cannot be embedded while %s stays in the cluster, which comes before it: name it after the files, or embed all",
				g.docs[doc].id, g.docs[absent[0]].id)
		}
		present = append(present, doc)
	}
	if len(absent) == 0 {
		return present, nil, nil
	}
	ways := map[int][]string{} // document -> sets of patterns that are excluded on a path to it, each sorted and joined
	for _, r := range roots {
		ways[r] = []string{""}
	}
	refs := map[int][]Ref{}
	for _, doc := range present {
		for _, e := range g.docs[doc].bases {
			for _, way := range ways[doc] {
				set := union(way, e.ref.Exclude)
				key := strings.Join(set, "\n")
				if !slices.Contains(ways[e.to], key) {
					ways[e.to] = append(ways[e.to], key)
				}
				if name, ok := strings.CutPrefix(g.docs[e.to].id, clusterPrefix); ok && g.docs[e.to].doc.absent {
					r := Ref{Kind: ByName, Locator: name, Digest: e.ref.Digest, Exclude: set}
					same := func(o Ref) bool { return o.Digest == r.Digest && slices.Equal(o.Exclude, r.Exclude) }
					if !slices.ContainsFunc(refs[e.to], same) {
						refs[e.to] = append(refs[e.to], r)
					}
				}
				if len(ways[e.to]) > MaxDocuments || len(refs[e.to]) > MaxDocuments {
					return nil, nil, &LimitError{What: "ways to " + g.docs[e.to].id, Got: MaxDocuments + 1, Limit: MaxDocuments}
				}
			}
		}
	}
	for _, doc := range absent {
		kept = append(kept, refs[doc]...)
	}
	return present, kept, nil
}

// union returns the sorted patterns in way, which is separated by line breaks, and in more.
func union(way string, more []string) []string {
	set := slices.Clone(more)
	if way != "" {
		set = append(set, strings.Split(way, "\n")...)
	}
	sort.Strings(set)
	return slices.Compact(set)
}

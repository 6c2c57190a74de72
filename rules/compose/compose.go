// Package compose assembles rules with the templates on which they are based.
//
// There is one algorithm with two representations of documents. Assemble works on typed specs, for the controller and the webhook.
// AssembleYAML works on YAML nodes and keeps comments, for the command line. Both use the same code to load and order the documents
// and to decide which rules combine (gather, linearize, arrange); they differ in how the fields of a rule are copied.
//
// The order of precedence is the method resolution order of Python (C3 linearization, "A Monotonic Superclass Linearization for
// Dylan", 1996): a document, then its bases in the order written, each before its own bases, and a shared base after all documents
// that are based on it. The value of a field comes from the document with the highest precedence that sets it; maps are merged by
// key. Rules run in the opposite order, so that the variables of a base exist first and the outputs of the main document win.
//
// The package does not read files, talk to a cluster or log. All functions are safe for concurrent use.
package compose

import (
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Limits on one assembly. Rules are assembled again whenever one of their templates changes.
const (
	// MaxDepth is the maximum length of a chain of bases.
	MaxDepth = 8
	// MaxDocuments is the maximum number of documents, including the main one.
	MaxDocuments = 32
	// MaxRules is the maximum number of rules of all documents together, before they are combined. One object has at most 256.
	MaxRules = 4096
	// MaxWildcards is the maximum number of wildcards of all documents together, one per document. Each wildcard is tried on every
	// rule.
	MaxWildcards = MaxDocuments
	// MaxExcludes is the maximum number of exclude patterns of all documents together. Each pattern is tried on every name.
	MaxExcludes = 256
	// MaxResult is the maximum size of the result in bytes, as canonical JSON. An object in the cluster cannot be much larger: etcd
	// accepts 1.5 MiB including managed fields and status.
	MaxResult = 512 << 10
)

// Document is a spec with a name.
type Document struct {
	Name string
	// Template is set for a NodeFeatureRuleTemplate. A NodeFeatureRule with the same name is a different document.
	Template bool
	// Spec must not be modified.
	Spec *nfdv1alpha1.NodeFeatureRuleSpec
}

// ID returns the name of the document in errors and sources: the name of a template, NodeFeatureRule/NAME otherwise.
func (d Document) ID() string {
	if d.Template {
		return d.Name
	}
	return "NodeFeatureRule/" + d.Name
}

// Assembled is the result of assembling a document and its bases.
type Assembled struct {
	// Spec has no basedOn. It shares memory with the specs from which it was assembled: treat all of them as read-only.
	Spec *nfdv1alpha1.NodeFeatureRuleSpec
	// Rules holds the source of each rule of Spec, by index.
	Rules []Source
	// Main is the ID of the main document. Bases are the IDs of all other documents, highest precedence first.
	Main  string
	Bases []string
	// Hash is the tree digest of the result: tree:sha256:HEX. It includes the wildcards, which are not in Spec, because they affect
	// the rules that are based on a pinned template.
	Hash string
}

// Source identifies where one rule came from.
type Source struct {
	// Rule is the name of the rule.
	Rule string
	// From are the IDs of the documents that provided fields, highest precedence first.
	From []string
}

// Origins returns, for the status of the main document, one entry for each rule and each template that it came from.
func (a *Assembled) Origins() []nfdv1alpha1.RuleOrigin {
	var out []nfdv1alpha1.RuleOrigin
	for _, s := range a.Rules {
		for _, from := range s.From {
			if from != a.Main {
				out = append(out, nfdv1alpha1.RuleOrigin{Rule: s.Rule, From: from})
			}
		}
	}
	return out
}

// RuleBases returns, for each rule of Spec by index, the template that it came from, or "" if the main document sets any of its
// fields.
func (a *Assembled) RuleBases() []string {
	out := make([]string, len(a.Rules))
	for i, s := range a.Rules {
		if len(s.From) > 0 && s.From[0] != a.Main {
			out[i] = s.From[0]
		}
	}
	return out
}

// Lookup returns the spec of a template, or nil if the template does not exist.
type Lookup func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error)

// Assemble combines main with its bases. The error is a *MissingError, *CycleError, *OrderError, *DigestError, *LimitError or
// *ValueError, an Errors of several of these, or an error that get returned.
func Assemble(main Document, get Lookup) (*Assembled, error) {
	return AssembleLayers([]Document{main}, get)
}

// AssembleOver is like Assemble, with a template below the document and all of its bases. An empty name means no template.
func AssembleOver(main Document, template string, get Lookup) (*Assembled, error) {
	if template == "" {
		return Assemble(main, get)
	}
	spec, err := get(template)
	if err != nil {
		return nil, err
	}
	if spec == nil {
		return nil, &MissingError{Base: template}
	}
	return AssembleLayers([]Document{main, {Name: template, Template: true, Spec: spec}}, get)
}

// AssembleLayers is like Assemble, with additional documents below the first one, each with its own bases: for example the template
// that a cluster applies to every rule. The first layer is the main document. A layer comes after all documents above it, so that
// it never contradicts the order of bases in a document.
func AssembleLayers(layers []Document, get Lookup) (*Assembled, error) {
	t := &typed{get: get}
	g, roots, err := gather(layers, t)
	if err != nil {
		return nil, err
	}
	return t.assemble(g, roots)
}

// typed implements face for typed specs.
type typed struct{ get Lookup }

func (t *typed) id(d Document) string { return d.ID() }

func (t *typed) bases(d Document) ([]Ref, error) {
	refs := make([]Ref, 0, len(d.Spec.BasedOn))
	for _, b := range d.Spec.BasedOn {
		refs = append(refs, Ref{Kind: ByName, Locator: b.Name, Digest: b.Digest, Exclude: b.Exclude})
	}
	return refs, nil
}

func (t *typed) rules(d Document) []string {
	names := make([]string, len(d.Spec.Rules))
	for i := range d.Spec.Rules {
		names[i] = d.Spec.Rules[i].Name
	}
	return names
}

func (t *typed) load(_ Document, r Ref) (Document, bool, error) {
	spec, err := t.get(r.Locator)
	return Document{Name: r.Locator, Template: true, Spec: spec}, spec != nil, err
}

// assemble combines the documents under roots and checks all pinned digests.
func (t *typed) assemble(g *graph[Document], roots []int) (*Assembled, error) {
	out, order, err := t.combine(g, roots)
	if err != nil {
		return nil, err
	}
	return out, g.checkDigests(order, func(doc int, tree bool) (string, bool, error) {
		if !tree {
			return Digest(g.docs[doc].doc.Spec), true, nil
		}
		sub, _, err := t.combine(g, []int{doc}) // its own pins are checked separately
		if err != nil {
			return "", false, err
		}
		return sub.Hash, true, nil
	})
}

// combine combines the documents under roots, and also returns their order.
func (t *typed) combine(g *graph[Document], roots []int) (*Assembled, []int, error) {
	p, err := g.plan(roots)
	if err != nil {
		return nil, nil, err
	}
	order := p.order
	spec := *g.docs[order[0]].doc.Spec
	spec.BasedOn = nil
	for _, d := range order[1:] {
		if err := fillSpec(&spec, g.docs[d].doc.Spec, g.docs[d].id); err != nil {
			return nil, nil, err
		}
	}
	out := &Assembled{Spec: &spec, Rules: make([]Source, len(p.rules)), Main: g.docs[order[0]].id, Bases: g.ids(order[1:])}
	spec.Rules = make([]nfdv1alpha1.Rule, len(p.rules))
	for i, from := range p.rules {
		r := &spec.Rules[i]
		*r = *ruleAt(g, from.parts[0])
		for _, part := range from.parts[1:] {
			fillRule(r, ruleAt(g, part))
		}
		out.Rules[i] = Source{Rule: r.Name, From: g.sources(from)}
	}
	all := spec
	for _, w := range p.wildcards {
		all.Rules = append(all.Rules[:len(all.Rules):len(all.Rules)], *ruleAt(g, w))
	}
	out.Hash, err = treeDigest(&all)
	return out, order, err
}

func ruleAt(g *graph[Document], p part) *nfdv1alpha1.Rule {
	return &g.docs[p.doc].doc.Spec.Rules[p.rule]
}

// Package compose assembles rules with the templates that they are based on.
//
// One algorithm has two implementations of its interface to documents. Assemble works on typed specs, for the
// controller and the webhook; AssembleYAML works on YAML nodes and keeps their comments, for the command line. Both
// load the documents, order them and decide which rules combine with the same code (gather, linearize, arrange); they
// differ only in how the fields of one rule are copied.
//
// The order of precedence is that of Python's classes (the C3 linearization, "A Monotonic Superclass Linearization
// for Dylan", 1996): a document, then its bases in the order written, each before its own bases, a shared base after
// all documents that need it. Of each field, the document of the highest precedence that has it wins; maps combine
// key by key. Rules run in the opposite order, so that a base's variables exist first and the outputs of the main
// document win.
//
// The package does not read files, talk to a cluster or log. All functions are safe for concurrent use.
package compose

import (
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Limits of one assembly. They are generous for users and small for machines: a rule set is assembled whenever one of
// its templates changes.
const (
	// MaxDepth is the maximum length of a chain of bases.
	MaxDepth = 8
	// MaxDocuments is the maximum number of documents, the main one included.
	MaxDocuments = 32
	// MaxRules is the maximum number of rules of all documents together, before any combine. An object has 256 at
	// most.
	MaxRules = 4096
	// MaxWildcards is the maximum number of wildcards of all documents together, one per document: each is tried on
	// every rule.
	MaxWildcards = MaxDocuments
	// MaxExcludes is the maximum number of patterns that all documents exclude together: each is tried on every name.
	MaxExcludes = 256
	// MaxResult is the maximum size of the result in bytes, as canonical JSON. An object in the cluster cannot be
	// much larger (etcd accepts 1.5 MiB, managed fields and status included).
	MaxResult = 512 << 10
)

// Document is a spec with a name.
type Document struct {
	Name string
	// Template is set for a NodeFeatureRuleTemplate, which others can be based on; a NodeFeatureRule of the same name
	// is a different document.
	Template bool
	// Spec is read only.
	Spec *nfdv1alpha1.NodeFeatureRuleSpec
}

// ID names the document in errors and sources: the bare name of a template, NodeFeatureRule/NAME otherwise.
func (d Document) ID() string {
	if d.Template {
		return d.Name
	}
	return "NodeFeatureRule/" + d.Name
}

// Assembled is the result of assembling a document and its bases.
type Assembled struct {
	// Spec has no basedOn. It shares memory with the specs that it was made from: treat all of them as read-only.
	Spec *nfdv1alpha1.NodeFeatureRuleSpec
	// Rules holds the source of each rule of Spec, by position.
	Rules []Source
	// Main is the ID of the main document, Bases are those of all others, highest precedence first.
	Main  string
	Bases []string
	// Hash is the tree digest of the result: tree:sha256:HEX. Equal results have equal hashes. It covers the
	// wildcards that are no longer in Spec, because a pinned template must not change its effect on the rules that
	// are based on it.
	Hash string
}

// Source identifies where one rule came from.
type Source struct {
	// Rule is its name.
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

// RuleBases returns for each rule of Spec, by position, the template that it came from; "" for those that the main
// document has written itself, even in part.
func (a *Assembled) RuleBases() []string {
	out := make([]string, len(a.Rules))
	for i, s := range a.Rules {
		if len(s.From) > 0 && s.From[0] != a.Main {
			out[i] = s.From[0]
		}
	}
	return out
}

// Lookup returns the spec of the template of that name, or nil if there is none.
type Lookup func(name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error)

// Assemble combines main with its bases. The error, if any, is a *MissingError, *CycleError, *OrderError,
// *DigestError, *LimitError or *ValueError, several of them in an Errors, or the error that get returned.
func Assemble(main Document, get Lookup) (*Assembled, error) {
	return AssembleLayers([]Document{main}, get)
}

// AssembleOver is Assemble with a template below the document and all of its bases; an empty name means none.
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

// AssembleLayers is Assemble with more documents below the first one, each with bases of its own: for example the
// template that a cluster applies to every rule. The first is the main document. A layer comes after all documents
// above it, so that it never contradicts the order of bases that users wrote.
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

// assemble combines the documents under roots and checks every pin.
func (t *typed) assemble(g *graph[Document], roots []int) (*Assembled, error) {
	out, order, err := t.combine(g, roots)
	if err != nil {
		return nil, err
	}
	return out, g.checkDigests(order, func(doc int, tree bool) (string, bool, error) {
		if !tree {
			return Digest(g.docs[doc].doc.Spec), true, nil
		}
		sub, _, err := t.combine(g, []int{doc}) // its own pins are checked like all others
		if err != nil {
			return "", false, err
		}
		return sub.Hash, true, nil
	})
}

// combine combines the documents under roots. It returns their order as well.
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

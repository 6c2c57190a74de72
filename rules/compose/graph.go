package compose

import (
	"fmt"
	"slices"
	"sort"
)

// RefKind is the way in which a base is referenced.
type RefKind string

// The kinds of references. Objects in the cluster can only refer to names.
const (
	ByName    RefKind = "name"    // a NodeFeatureRuleTemplate: {name: X}
	ByFile    RefKind = "file"    // {file: X}
	ByURL     RefKind = "url"     // {url: X}
	ByLocator RefKind = "locator" // a plain string
)

// Ref is a reference to a base, as written in a document.
type Ref struct {
	Kind    RefKind
	Locator string
	Digest  string
	Exclude []string
}

// face is the interface between the algorithm and a representation of documents.
type face[D any] interface {
	id(D) string
	bases(D) ([]Ref, error)
	rules(D) []string // names of the rules, in order
	load(from D, r Ref) (doc D, found bool, err error)
}

// graph holds all documents of an assembly.
type graph[D any] struct {
	docs  []vertex[D]
	index map[string]int
	face  face[D]
}

// vertex is one document.
type vertex[D any] struct {
	id    string
	doc   D
	rules []string
	bases []edge
	done  bool // its bases have been gathered
	depth int  // length of the longest chain of bases below it
}

// edge is a reference from one document to its base.
type edge struct {
	to  int
	ref Ref
}

// gather loads roots and all their bases. It also returns the positions of the roots. It reports all missing bases at once and
// stops at any other error.
func gather[D any](roots []D, f face[D]) (*graph[D], []int, error) {
	g := &graph[D]{index: map[string]int{}, face: f}
	var at []int
	var problems Errors
	for _, doc := range roots {
		i, ok := g.index[f.id(doc)]
		if !ok {
			i = g.add(doc)
		}
		at = append(at, i)
		missing, err := g.visit(i, nil)
		if err != nil {
			return nil, nil, err
		}
		problems = append(problems, missing...)
	}
	if err := problems.orNil(); err != nil {
		return nil, nil, err
	}
	return g, at, g.bounded()
}

// bounded rejects assemblies that exceed a limit on the sum of their documents.
func (g *graph[D]) bounded() error {
	rules, wildcards, excludes := 0, 0, 0
	for _, d := range g.docs {
		rules += len(d.rules)
		for _, name := range d.rules {
			if name == Wildcard {
				wildcards++
			}
		}
		for _, e := range d.bases {
			excludes += len(e.ref.Exclude)
		}
	}
	switch {
	case rules > MaxRules:
		return &LimitError{What: "rules", Got: rules, Limit: MaxRules}
	case wildcards > MaxWildcards:
		return &LimitError{What: "wildcard rules", Got: wildcards, Limit: MaxWildcards}
	case excludes > MaxExcludes:
		return &LimitError{What: "excluded names", Got: excludes, Limit: MaxExcludes}
	}
	return nil
}

func (g *graph[D]) add(doc D) int {
	i := len(g.docs)
	id := g.face.id(doc)
	g.docs = append(g.docs, vertex[D]{id: id, doc: doc, rules: g.face.rules(doc)})
	g.index[id] = i
	return i
}

// visit gathers the bases of document i. path is the path from the root to the document, exclusive.
func (g *graph[D]) visit(i int, path []int) (missing Errors, err error) {
	if at := slices.Index(path, i); at >= 0 {
		return nil, &CycleError{Path: g.ids(append(slices.Clone(path[at:]), i))}
	}
	if len(path) > MaxDepth {
		return nil, &LimitError{What: "bases behind one another", Got: len(path), Limit: MaxDepth}
	}
	if g.docs[i].done {
		if got := len(path) + g.docs[i].depth; got > MaxDepth {
			return nil, &LimitError{What: "bases behind one another", Got: got, Limit: MaxDepth}
		}
		return nil, nil
	}
	refs, err := g.face.bases(g.docs[i].doc)
	if err != nil {
		return nil, err
	}
	path = append(slices.Clone(path), i)
	for _, ref := range refs {
		doc, found, err := g.face.load(g.docs[i].doc, ref)
		if err != nil {
			return nil, fmt.Errorf("base %s of %s: %w", ref.Locator, g.docs[i].id, err)
		}
		if !found {
			missing = append(missing, &MissingError{Base: ref.Locator, From: g.docs[i].id})
			continue
		}
		to, known := g.index[g.face.id(doc)]
		if !known {
			if len(g.docs) == MaxDocuments {
				return nil, &LimitError{What: "documents", Got: MaxDocuments + 1, Limit: MaxDocuments}
			}
			to = g.add(doc)
		}
		below, err := g.visit(to, path)
		if err != nil {
			return nil, err
		}
		missing = append(missing, below...)
		g.docs[i].bases = append(g.docs[i].bases, edge{to: to, ref: ref})
		g.docs[i].depth = max(g.docs[i].depth, g.docs[to].depth+1)
	}
	g.docs[i].done = true
	return missing, nil
}

// ids returns the names of documents.
func (g *graph[D]) ids(docs []int) []string {
	out := make([]string, len(docs))
	for i, d := range docs {
		out[i] = g.docs[d].id
	}
	return out
}

// linearize returns the documents under roots, highest precedence first.
func (g *graph[D]) linearize(roots []int) ([]int, error) {
	memo := map[int][]int{}
	var out []int
	for _, root := range roots {
		order, err := g.c3(root, memo)
		if err != nil {
			return nil, err
		}
		for _, d := range order {
			if !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// c3 returns document i and all documents below it in C3 order.
func (g *graph[D]) c3(i int, memo map[int][]int) ([]int, error) {
	if order, ok := memo[i]; ok {
		return order, nil
	}
	var lists [][]int
	var direct []int
	for _, e := range g.docs[i].bases {
		if slices.Contains(direct, e.to) {
			continue // the same base named twice
		}
		order, err := g.c3(e.to, memo)
		if err != nil {
			return nil, err
		}
		lists, direct = append(lists, order), append(direct, e.to)
	}
	merged, rest := mergeOrders(append(lists, direct))
	if rest != nil {
		names := g.ids(rest)
		sort.Strings(names)
		return nil, &OrderError{Bases: names}
	}
	memo[i] = append([]int{i}, merged...)
	return memo[i], nil
}

// mergeOrders merges lists, keeping the order of each. It takes the first head that is not in the tail of another list. If there is
// no such head, it returns the heads.
func mergeOrders(lists [][]int) (merged, stuck []int) {
	lists = slices.Clone(lists)
	for {
		lists = slices.DeleteFunc(lists, func(l []int) bool { return len(l) == 0 })
		if len(lists) == 0 {
			return merged, nil
		}
		next, ok := nextHead(lists)
		if !ok {
			for _, l := range lists {
				if !slices.Contains(stuck, l[0]) {
					stuck = append(stuck, l[0])
				}
			}
			return nil, stuck
		}
		merged = append(merged, next)
		for i, l := range lists {
			if l[0] == next {
				lists[i] = l[1:]
			}
		}
	}
}

func nextHead(lists [][]int) (int, bool) {
	for _, candidate := range lists {
		inTail := func(l []int) bool { return slices.Contains(l[1:], candidate[0]) }
		if !slices.ContainsFunc(lists, inTail) {
			return candidate[0], true
		}
	}
	return 0, false
}

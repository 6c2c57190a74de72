package compose

import (
	"slices"

	"github.com/assay-project/assay/rules/glob"
)

// Wildcard is the name of a rule that is not evaluated itself but gives defaults to other rules.
const Wildcard = "*"

// part is one rule of one document.
type part struct{ doc, rule int }

// planned is one rule of the result: the rules that provide its fields, in order of precedence.
type planned struct{ parts []part }

// plan describes the result of an assembly.
type plan struct {
	order     []int     // the documents, highest precedence first
	rules     []planned // in evaluation order
	wildcards []part    // highest precedence first
}

// plan computes the plan for the documents under roots.
func (g *graph[D]) plan(roots []int) (*plan, error) {
	order, err := g.linearize(roots)
	if err != nil {
		return nil, err
	}
	p := &plan{order: order}
	p.rules, p.wildcards = g.arrange(order, roots)
	return p, nil
}

// arrange decides which rules combine, and in which order they run.
//
// It visits the documents in order of precedence and the rules of each from first to last. A wildcard adds its fields to all rules
// found so far. A rule adds its fields to the rule with its name from an earlier document, and moves that rule to its own document.
// Two rules with one name in a document remain two rules, as in NFD: the n-th one combines with the n-th one of another document.
// Rules without a name are not combined.
func (g *graph[D]) arrange(order, roots []int) (rules []planned, wildcards []part) {
	type key struct {
		name string
		nth  int
	}
	var (
		found  []planned
		place  []part // position of each rule found so far
		byName = map[key]int{}
		allow  = g.reachable(order, roots)
	)
	for rank, doc := range order {
		count := map[string]int{}
		for i, name := range g.docs[doc].rules {
			if !allow(rank, name) {
				continue
			}
			p := part{doc, i}
			if name == Wildcard {
				wildcards = append(wildcards, p)
				for f := range found {
					found[f].parts = append(found[f].parts, p)
				}
				continue
			}
			k := key{name, count[name]}
			count[name]++
			f, ok := byName[k]
			if !ok || name == "" {
				f = len(found)
				found, place = append(found, planned{}), append(place, part{})
				byName[k] = f
			}
			found[f].parts = append(found[f].parts, p)
			place[f] = part{rank, i}
		}
	}
	// The lowest precedence comes first, so that the rules of a base run before those that depend on it.
	at := make([]int, len(found))
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int {
		if place[a].doc != place[b].doc {
			return place[b].doc - place[a].doc
		}
		return place[a].rule - place[b].rule
	})
	rules = make([]planned, len(found))
	for i, f := range at {
		rules[i] = found[f]
	}
	return rules, wildcards
}

// reachable returns a function that reports whether a rule with the given name is inherited from the document at the given rank of
// order: whether there is a path from a root to the document on which no document excludes the rule.
func (g *graph[D]) reachable(order, roots []int) func(rank int, name string) bool {
	if !g.excludes(order) {
		return func(int, string) bool { return true }
	}
	rankOf := map[int]int{}
	for rank, doc := range order {
		rankOf[doc] = rank
	}
	memo := map[string][]bool{}
	return func(rank int, name string) bool {
		ok, known := memo[name]
		if !known {
			ok = make([]bool, len(order))
			for _, r := range roots {
				ok[rankOf[r]] = true
			}
			for from, doc := range order { // a document comes after all documents that are based on it
				for _, e := range g.docs[doc].bases {
					if ok[from] && !excluded(e.ref.Exclude, name) {
						ok[rankOf[e.to]] = true
					}
				}
			}
			memo[name] = ok
		}
		return ok[rank]
	}
}

func (g *graph[D]) excludes(order []int) bool {
	for _, doc := range order {
		for _, e := range g.docs[doc].bases {
			if len(e.ref.Exclude) > 0 {
				return true
			}
		}
	}
	return false
}

// sources returns the names of the documents that a rule comes from, highest precedence first, without duplicates.
func (g *graph[D]) sources(p planned) []string {
	var out []string
	for _, part := range p.parts {
		if id := g.docs[part.doc].id; !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

func excluded(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return glob.Match(p, name) })
}

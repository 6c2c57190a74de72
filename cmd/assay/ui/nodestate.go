package ui

import (
	"slices"
	"strconv"
	"strings"
)

// stateTrait is the name of the state of nodes in addresses and filters.
const stateTrait = "state"

// stateWord is a state of a node, by the column that has it.
type stateWord struct {
	word, class string
	column      string
	values      []string
}

// stateWords are the states of nodes, the most urgent first.
var stateWords = []stateWord{
	{"not ready", "bad", "ready", []string{"no", "unknown"}},
	{"worker down", "bad", "worker", []string{"down", "failing"}},
	{"no features", "bad", "features-age", []string{"none"}},
	{"features not ready", "bad", "features-ready", []string{"no", "unknown"}},
	{"outputs missing", "warn", "missing", nil},
	{"deviates", "warn", "", nil},
	{"cordoned", "warn", "", nil},
	{"unknown", "faint", "", nil},
	{"no known problem", "good", "", nil},
}

// The ranks of the states that no column has.
var (
	rankDeviates, rankCordoned = wordRank("deviates"), wordRank("cordoned")
	rankUnknown, rankWell      = wordRank("unknown"), wordRank("no known problem")
)

func wordRank(word string) int {
	return slices.IndexFunc(stateWords, func(w stateWord) bool { return w.word == word })
}

// nodeState is the state of a node.
type nodeState struct {
	rank int
	// why are sentences, the most urgent first.
	why []string
}

// cell returns the state as a chip with the reasons.
func (s *nodeState) cell() cell {
	w := stateWords[s.rank]
	return cell{Text: w.word, Class: w.class, Note: strings.Join(s.why, "\n"), Key: string(rune('a' + s.rank))}
}

// nodeState returns the state of a node: the most urgent of its problems. Evaluated is set if the results of rules count, which need an
// evaluation of the node.
func (d *data) nodeState(i int, evaluated bool) nodeState {
	n := &d.Nodes[i]
	out := nodeState{rank: rankWell}
	found := func(rank int, why string) {
		if out.rank = min(out.rank, rank); why != "" {
			out.why = append(out.why, strings.TrimSuffix(why, "."))
		}
	}
	if n.Object == nil || d.unevaluated() != "" {
		found(rankUnknown, "")
	}
	for rank, w := range stateWords {
		if w.column == "" || w.column == "missing" && (!evaluated || n.Object == nil) {
			continue
		}
		c := stateOf(w.column).of(d, i)
		if slices.Contains(w.values, c.Text) || w.values == nil && c.holds() {
			found(rank, strings.TrimPrefix(w.column+": "+c.Note, w.column+": "+w.column+" "))
		}
	}
	for _, name := range d.deviating()[n.Input.Node.Name] {
		found(rankDeviates, "baseline "+name)
	}
	if n.Object != nil && n.Object.Spec.Unschedulable {
		found(rankCordoned, "")
	}
	if evaluated && d.unevaluated() == "" {
		for _, name := range []string{"conflicts", "withheld"} { // often the same setting on all nodes
			if c := stateOf(name).of(d, i); c.Note != "" {
				out.why = append(out.why, name+": "+strings.TrimSuffix(c.Note, "."))
			}
		}
	}
	return out
}

// deviating returns the baselines from which nodes deviate, by node, as far as their statuses list them.
func (d *data) deviating() map[string][]string {
	d.deviatingOnce.Do(func() {
		d.deviants = map[string][]string{}
		for i := range d.Objects.Baselines.Items {
			b := &d.Objects.Baselines.Items[i]
			for _, x := range b.Status.Deviations {
				if !slices.Contains(d.deviants[x.Node], b.Name) {
					d.deviants[x.Node] = append(d.deviants[x.Node], b.Name)
				}
			}
		}
	})
	return d.deviants
}

// countStates returns the numbers of nodes by state, the most urgent first. The link of each is a term.
func countStates(list []nodeState) (out []swatch) {
	counts := make([]int, len(stateWords))
	for _, s := range list {
		counts[s.rank]++
	}
	for rank, n := range counts {
		if n > 0 {
			out = append(out, swatch{Class: stateClass(rank), Text: stateWords[rank].word, Link: "state = " + quoteWord(stateWords[rank].word), Nodes: n})
		}
	}
	return out
}

// stateClass returns the CSS class of the color of a state.
func stateClass(rank int) string { return "s" + strconv.Itoa(rank) }

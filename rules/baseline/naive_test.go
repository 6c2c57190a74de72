package baseline_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/baseline"
)

// naiveNode is a node as the naive evaluation reads it.
type naiveNode struct {
	labels  m
	values  m // of the feature f.a; nil: its worker has published nothing
	unknown bool
}

// naiveSpec is a baseline as the naive evaluation reads it: selected by the label pool and the value sel, with lower limits of values and
// values that are equal within groups of the label zone.
type naiveSpec struct {
	pool, sel string
	least     map[string]int
	uniform   []string
	within    bool
}

func (s naiveSpec) yaml() string {
	var out strings.Builder
	if s.pool != "" {
		fmt.Fprintf(&out, "nodeSelector: {pool: %s}\n", s.pool)
	}
	if s.sel != "" {
		fmt.Fprintf(&out, "matchFeatures: [{feature: f.a, matchExpressions: {sel: {op: In, value: [%q]}}}]\n", s.sel)
	}
	out.WriteString("require:\n")
	for _, name := range sortedNames(s.least) {
		fmt.Fprintf(&out, "- {name: at-%s, matchFeatures: [{feature: f.a, matchExpressions: {%s: {op: Ge, value: [%q]}}}]}\n", name, name, fmt.Sprint(s.least[name]))
	}
	out.WriteString("uniform:\n")
	for _, name := range s.uniform {
		fmt.Fprintf(&out, "- {name: is-%s, value: '{@\"f.a.%s\"}'}\n", name, name)
	}
	if s.within {
		out.WriteString("within: [zone]\n")
	}
	return out.String()
}

func sortedNames[V any](of map[string]V) (out []string) {
	for name := range of {
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

// naive evaluates a baseline, one question after the other. It shares no code with the package.
func naive(s naiveSpec, fleet map[string]*naiveNode) (failing map[string][]string, conforming, deviating, unknown int, reason string) {
	failing, split := map[string][]string{}, false
	value := func(n *naiveNode, name string) string {
		if v, ok := n.values[name]; ok {
			return "is " + v
		}
		return "missing"
	}
	known := map[string]*naiveNode{}
	for name, n := range fleet {
		if s.pool != "" && n.labels["pool"] != s.pool {
			continue
		}
		if n.values != nil && s.sel != "" && n.values["sel"] != s.sel {
			continue
		}
		if n.values == nil || n.unknown {
			unknown++
			continue
		}
		known[name] = n
	}
	bad := map[string]bool{}
	for name, n := range known {
		for key, least := range s.least {
			got, err := strconv.Atoi(n.values[key])
			if err != nil || got < least {
				failing["at-"+key] = append(failing["at-"+key], name)
				bad[name] = true
			}
		}
		for _, key := range s.uniform {
			peers, same := 0, map[string]int{}
			for _, other := range known {
				zone, of := n.labels["zone"]
				otherZone, otherOf := other.labels["zone"]
				if !s.within || zone == otherZone && of == otherOf {
					peers++
					same[value(other, key)]++
				}
			}
			most := ""
			for v, count := range same {
				if count*2 > peers {
					most = v
				}
			}
			switch {
			case most == "":
				split = true
			case most != value(n, key):
				failing["is-"+key] = append(failing["is-"+key], name)
				bad[name] = true
			}
		}
	}
	deviating = len(bad)
	conforming = len(known) - deviating
	switch {
	case deviating > 0:
		reason = "NodesDeviate"
	case split:
		reason = "NoMajority"
	case unknown > 0:
		reason = "FeaturesUnknown"
	case conforming == 0:
		reason = "NoNodes"
	default:
		reason = "AllConform"
	}
	return failing, conforming, deviating, unknown, reason
}

// TestNaiveEvaluation compares the status of random baselines and fleets, over random edits of both and restarts of workers, with an
// evaluation that shares no code. What the status before says is all that is kept between two evaluations, so that a restart of the
// controller changes nothing.
func TestNaiveEvaluation(t *testing.T) {
	reasons := map[string]int{}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 46))
		pick := func(list ...string) string { return list[r.IntN(len(list))] }
		values := func() m {
			out := m{"sel": pick("x", "y")}
			for _, key := range []string{"a", "b", "c"} {
				if r.IntN(12) > 0 {
					out[key] = pick("3", "3", "3", "3", "3", "2", "4", "", "q")
				}
			}
			return out
		}
		join := func() *naiveNode {
			n := &naiveNode{labels: m{"pool": pick("p", "q")}, values: values()}
			if zone := pick("", "z1", "z2"); zone != "" {
				n.labels["zone"] = zone
			}
			return n
		}
		draw := func() naiveSpec {
			s := naiveSpec{pool: pick("", "p"), sel: pick("", "x"), least: map[string]int{}, within: r.IntN(2) == 0}
			for _, key := range []string{"a", "b", "c"} {
				if r.IntN(4) == 0 {
					s.least[key] = r.IntN(4)
				}
				if r.IntN(2) == 0 {
					s.uniform = append(s.uniform, key)
				}
			}
			return s
		}
		fleet := map[string]*naiveNode{}
		for i := range r.IntN(14) {
			fleet[fmt.Sprintf("n%02d", i)] = join()
		}
		spec, status := draw(), &assayv1alpha1.NodeBaselineStatus{}
		since := map[[2]string]time.Time{}
		now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
		for step := range 30 {
			now = now.Add(time.Minute)
			name := fmt.Sprintf("n%02d", r.IntN(14))
			switch n := fleet[name]; {
			case r.IntN(9) == 0:
				spec = draw()
			case n == nil:
				fleet[name] = join()
			case r.IntN(6) == 0:
				delete(fleet, name)
			case r.IntN(4) == 0:
				n.unknown = !n.unknown
			case r.IntN(8) == 0:
				n.values = nil
			default:
				n.values = values()
			}
			var nodes []baseline.Node
			for name, n := range fleet {
				published := m(nil)
				if n.values != nil {
					published = m{}
					for key, value := range n.values {
						published["f.a."+key] = value
					}
				}
				in := node(name, n.labels, published)
				in.Unknown = n.unknown
				nodes = append(nodes, in)
			}
			b := compile(t, spec.yaml())
			status = b.Fleet(nodes).Status(status, int64(step), metav1.NewTime(now))
			text, err := yaml.Marshal(status)
			if err != nil {
				t.Fatal(err)
			}
			*status = assayv1alpha1.NodeBaselineStatus{} // as a process that has just started reads it
			if err := yaml.Unmarshal(text, status); err != nil {
				t.Fatal(err)
			}

			want, conforming, deviating, unknown, reason := naive(spec, fleet)
			got, seen := map[string][]string{}, map[[2]string]time.Time{}
			for _, d := range status.Deviations {
				got[d.Check] = append(got[d.Check], d.Node)
				key := [2]string{d.Node, d.Check}
				if seen[key] = now; !since[key].IsZero() {
					seen[key] = since[key]
				}
				if !d.Since.Time.Equal(seen[key]) {
					t.Errorf("seed %d, step %d: %v since %s, want %s", seed, step, key, d.Since, seen[key])
				}
			}
			since = seen
			for check := range want {
				slices.Sort(want[check])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, step %d: deviations:\n%s\n%s", seed, step, diff, spec.yaml())
			}
			c := meta.FindStatusCondition(status.Conditions, assayv1alpha1.ConditionConforming)
			numbers := fmt.Sprint(*status.Nodes, *status.Conforming, *status.Deviating, *status.Unknown, c.Reason)
			if w := fmt.Sprint(conforming+deviating+unknown, conforming, deviating, unknown, reason); numbers != w {
				t.Fatalf("seed %d, step %d: %s, want %s\n%s", seed, step, numbers, w, spec.yaml())
			}
			reasons[c.Reason]++
		}
	}
	if len(reasons) != 5 {
		t.Errorf("the reasons are %v, want all five", reasons)
	}
}

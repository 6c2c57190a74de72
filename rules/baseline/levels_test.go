package baseline_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/baseline"
)

// fabric has 2 levels above the node, of which a rack has at most 3 nodes.
const fabric = `
levels:
- {name: block, label: example.com/block}
- {name: rack, label: example.com/rack, nodes: {max: 3}}
- {name: host, label: kubernetes.io/hostname}
`

// placed returns a node with the labels of fabric, created at a time that its index gives.
func placed(name, block, rack string, age int) baseline.Node {
	n := node(name, nil, m{"a.b.c": "1"})
	n.Labels = m{"example.com/block": block, "example.com/rack": rack, "kubernetes.io/hostname": name}
	for label, value := range n.Labels {
		if value == "" {
			delete(n.Labels, label)
		}
	}
	n.Created = metav1.Unix(int64(1e9-age), 0)
	return n
}

func TestLevels(t *testing.T) {
	empty := placed("empty", "b1", "r1", 1)
	empty.Labels["example.com/rack"] = ""
	unknown := placed("unknown", "b2", "r1", 1)
	unknown.Unknown = true
	for name, tc := range map[string]struct {
		nodes []baseline.Node
		want  []string
	}{
		"Tree": {[]baseline.Node{placed("a", "b1", "r1", 1), placed("b", "b1", "r2", 1), placed("c", "b2", "r3", 1)}, nil},
		"Missing": {
			[]baseline.Node{placed("a", "b1", "r1", 1), placed("b", "", "r1", 1), placed("c", "", "", 1), empty},
			[]string{"b: example.com/block is missing", "c: example.com/block, example.com/rack are missing", "empty: example.com/rack is missing"},
		},
		"Contradiction": {
			[]baseline.Node{placed("a", "b1", "r1", 1), placed("b", "b1", "r1", 1), placed("c", "b2", "r1", 1), placed("d", "b2", "r2", 1)},
			[]string{"c: rack r1 is in block b1 for 2 of 3 nodes, here in b2"},
		},
		"NoMajority": {
			[]baseline.Node{placed("a", "b1", "r1", 1), placed("b", "b2", "r1", 1), placed("c", "b2", "r2", 1)},
			[]string{
				"a: rack r1 is in block b1 for 1 node, block b2 for 1 node, and no majority of its 2 nodes is in one of them",
				"b: rack r1 is in block b1 for 1 node, block b2 for 1 node, and no majority of its 2 nodes is in one of them",
			},
		},
		"TooLarge": {
			[]baseline.Node{placed("a", "b1", "r1", 1), placed("b", "b1", "r1", 4), placed("c", "b1", "r1", 3), placed("d", "b1", "r1", 1), placed("e", "b1", "r1", 2)},
			[]string{"a: rack r1 has 5 nodes, at most 3", "d: rack r1 has 5 nodes, at most 3"},
		},
		// A node that lacks a level, contradicts it or is unknown is not one of too many, and does not vote.
		"OthersDoNotCount": {
			[]baseline.Node{placed("a", "b1", "r1", 1), placed("b", "b1", "r1", 1), unknown, placed("d", "", "r1", 9), placed("e", "b1", "r1", 1)},
			[]string{"d: example.com/block is missing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := compile(t, fabric).Fleet(tc.nodes)
			var got []string
			for _, d := range r.Deviations {
				got = append(got, d.Node+": "+d.Message)
				if d.Check != "levels" {
					t.Errorf("%s is a deviation of the check %q, want levels", d.Node, d.Check)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTheStatusCountsDomains: without the nodes that deviate.
func TestTheStatusCountsDomains(t *testing.T) {
	r := compile(t, fabric).Fleet([]baseline.Node{
		placed("a", "b1", "r9", 1), placed("b", "b1", "r9", 1), placed("c", "b1", "r10", 1), placed("d", "b2", "r3", 1), placed("e", "", "r3", 1),
	})
	want := []assayv1alpha1.BaselineLevelStatus{
		{Name: "block", Domains: 2, Smallest: 1, Largest: 3}, {Name: "rack", Domains: 3, Smallest: 1, Largest: 2}, {Name: "host", Domains: 4, Smallest: 1, Largest: 1},
	}
	s := r.Status(&assayv1alpha1.NodeBaselineStatus{}, 1, metav1.Now())
	if diff := cmp.Diff(want, s.Levels); diff != "" {
		t.Error(diff)
	}
	var racks []string
	for _, d := range r.Domains()[0].Domains {
		racks = append(racks, d.Value)
	}
	if want := []string{"r9", "r10"}; !slices.Equal(racks, want) {
		t.Errorf("racks %v of block b1, want %v", racks, want)
	}
}

// TestTheSameValueInTwoBranches is allowed if the level says so.
func TestTheSameValueInTwoBranches(t *testing.T) {
	nodes := []baseline.Node{placed("a", "b1", "1", 1), placed("b", "b2", "1", 1), placed("c", "b2", "1", 1)}
	for unique, want := range map[string]int{"true": 1, "false": 0} {
		b := compile(t, strings.Replace(fabric, "rack,", "rack, unique: "+unique+",", 1))
		r := b.Fleet(nodes)
		if len(r.Deviations) != want {
			t.Errorf("unique: %s: %v, want %d deviations", unique, r.Deviations, want)
		}
		if domains := r.Levels[1].Domains; unique == "false" && domains != 2 {
			t.Errorf("%d racks, want 2", domains)
		}
	}
}

// TestLevelsReadAllLabelsOfTheNode: also those that rules write, which the input of rules does not have.
func TestLevelsReadAllLabelsOfTheNode(t *testing.T) {
	published := node("a", nil, m{"system.name.nodename": "a"})
	created := metav1.Unix(1e9, 0)
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: created, Labels: m{"example.com/block": "b", "example.com/rack": "r", "kubernetes.io/hostname": "a"}}}
	n := baseline.NodeOf(published.Input, baseline.Evidence{Object: object, Published: true}, false)
	if r := compile(t, fabric).Fleet([]baseline.Node{n}); len(r.Conforming) != 1 || !n.Created.Equal(&created) {
		t.Errorf("%v, created at %v", r.Deviations, n.Created)
	}
}

func TestErrorsInLevels(t *testing.T) {
	list := func(n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("{name: l%d, label: example.com/l%d}", i, i))
		}
		return "levels: [" + strings.Join(out, ", ") + "]"
	}
	for name, tc := range map[string]struct{ spec, want string }{
		"One":         {list(1), "spec.levels: Invalid value: 1: write 2 to 16 levels, the widest first"},
		"Seventeen":   {list(17), "spec.levels: Invalid value: 17: write 2 to 16 levels, the widest first"},
		"SameLabel":   {`levels: [{name: a, label: x/y}, {name: b, label: x/y}]`, `spec.levels[1].label: Duplicate value: "x/y"`},
		"SameName":    {`levels: [{name: a, label: x/y}, {name: a, label: x/z}]`, `spec.levels[1].name: Duplicate value: "a"`},
		"Name":        {`levels: [{name: A, label: x/y}, {name: b, label: x/z}]`, "spec.levels[0].name: Invalid value"},
		"Hostname":    {`levels: [{name: a, label: kubernetes.io/hostname}, {name: b, label: x/z}]`, "spec.levels[0].label: Forbidden: the label kubernetes.io/hostname can only be used at the lowest level"},
		"Label":       {`levels: [{name: a, label: "x y"}, {name: b, label: x/z}]`, "spec.levels[0].label: Invalid value"},
		"Max":         {`levels: [{name: a, label: x/y, nodes: {max: 0}}, {name: b, label: x/z}]`, "spec.levels[0].nodes.max: Invalid value"},
		"NameOfCheck": {`{require: [{name: levels, matchFeatures: [{feature: a.b}]}], levels: [{name: a, label: x/y}, {name: b, label: x/z}]}`, "spec.levels: Forbidden: the result of levels has the name"},
	} {
		t.Run(name, func(t *testing.T) {
			b, report := baseline.Compile(parse(t, tc.spec), field.NewPath("spec"), rules.Options{})
			if got := fmt.Sprint(report.Errors.ToAggregate()); b != nil || !strings.Contains(got, tc.want) {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// naiveLevels finds the nodes that deviate by asking of each node about all others. It shares no code with the package.
func naiveLevels(spec naiveTree, nodes map[string][]string) (out map[string]string) {
	out = map[string]string{}
	ok := func(name string) bool { _, bad := out[name]; return !bad }
	for name, values := range nodes {
		if slices.Contains(values, "") {
			out[name] = "missing"
		}
	}
	// sameDomain reports whether two nodes are in one domain of a level.
	var sameDomain func(a, b string, level int) bool
	sameDomain = func(a, b string, level int) bool {
		return nodes[a][level] == nodes[b][level] && (level == 0 || !spec.path[level] || sameDomain(a, b, level-1))
	}
	for level := 1; level < spec.depth; level++ {
		found := map[string]string{}
		for name := range nodes {
			if !ok(name) || spec.path[level] {
				continue
			}
			peers, with := 0, 0
			var apart []string
			for other := range nodes {
				if ok(other) && sameDomain(name, other, level) {
					if peers++; sameDomain(name, other, level-1) {
						with++
					} else {
						apart = append(apart, other)
					}
				}
			}
			if 2*with > peers {
				continue
			}
			found[name] = "no majority"
			for _, one := range apart {
				together := 0
				for _, other := range apart {
					if sameDomain(one, other, level-1) {
						together++
					}
				}
				if 2*together > peers {
					found[name] = "contradicts"
				}
			}
		}
		maps.Copy(out, found)
	}
	for level := range spec.depth {
		found := map[string]string{}
		for name := range nodes {
			older, size := 0, 0
			for other := range nodes {
				if ok(name) && ok(other) && sameDomain(name, other, level) {
					if size++; other < name { // names grow with the age of the test's nodes
						older++
					}
				}
			}
			if spec.max[level] > 0 && ok(name) && older >= spec.max[level] {
				found[name] = "too many"
			}
		}
		maps.Copy(out, found)
	}
	return out
}

type naiveTree struct {
	depth int
	path  map[int]bool
	max   map[int]int
}

func TestLevelsAgainstANaiveCheck(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 71)) //nolint:gosec // reproducible
		spec := naiveTree{depth: 2 + r.IntN(3), path: map[int]bool{}, max: map[int]int{}}
		var levels []assayv1alpha1.BaselineLevel
		for i := range spec.depth {
			l := assayv1alpha1.BaselineLevel{Name: fmt.Sprint("l", i), Label: fmt.Sprint("example.com/l", i)}
			if spec.path[i] = r.IntN(4) == 0; spec.path[i] {
				l.Unique = new(false)
			}
			if r.IntN(3) == 0 {
				spec.max[i] = 1 + r.IntN(12)
				l.Nodes = &assayv1alpha1.BaselineLevelNodes{Max: int32(spec.max[i])}
			}
			levels = append(levels, l)
		}
		text, err := json.Marshal(assayv1alpha1.NodeBaselineSpec{Levels: levels})
		if err != nil {
			t.Fatal(err)
		}
		places, fleet := map[string][]string{}, []baseline.Node(nil)
		for k := range 20 + r.IntN(40) {
			name, domain := fmt.Sprintf("n%03d", k), r.IntN(3)
			var values []string
			for range spec.depth {
				values = append(values, fmt.Sprint("v", domain))
				domain = 3*domain + r.IntN(3)
			}
			switch r.IntN(12) {
			case 0:
				values[r.IntN(spec.depth)] = ""
			case 1, 2:
				values[r.IntN(spec.depth)] = fmt.Sprint("v", r.IntN(9))
			}
			places[name] = values
			n := node(name, nil, m{"a.b.c": "1"})
			n.Labels, n.Created = m{}, metav1.Unix(int64(k), 0)
			for i, value := range values {
				n.Labels[levels[i].Label] = value
			}
			fleet = append(fleet, n)
		}
		r.Shuffle(len(fleet), func(i, j int) { fleet[i], fleet[j] = fleet[j], fleet[i] })
		got := map[string]string{}
		for _, d := range compile(t, string(text)).Fleet(fleet).Deviations {
			switch {
			case strings.Contains(d.Message, "missing"):
				got[d.Node] = "missing"
			case strings.Contains(d.Message, "no majority"):
				got[d.Node] = "no majority"
			case strings.Contains(d.Message, "here in"):
				got[d.Node] = "contradicts"
			case strings.Contains(d.Message, "at most"):
				got[d.Node] = "too many"
			}
			kinds[got[d.Node]]++
		}
		if diff := cmp.Diff(naiveLevels(spec, places), got); diff != "" {
			t.Fatalf("seed %d: %s\n%s", seed, diff, text)
		}
	}
	if len(kinds) != 4 {
		t.Errorf("the seeds have deviations %v, want all four kinds", kinds)
	}
}

// TestAStatusOfManyDomainsIsSmall: 15,000 nodes that all deviate.
func TestAStatusOfManyDomainsIsSmall(t *testing.T) {
	var nodes []baseline.Node
	for i := range 15000 {
		nodes = append(nodes, placed(fmt.Sprintf("%s-%d", strings.Repeat("n", 50), i), "", fmt.Sprint("r", i), i))
	}
	s := compile(t, fabric).Fleet(nodes).Status(&assayv1alpha1.NodeBaselineStatus{}, 1, metav1.Now())
	text, err := yaml.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) >= 64<<10 || len(s.Deviations) != 50 || s.Omitted != 15000-50 {
		t.Errorf("%d bytes, %d deviations, %d omitted", len(text), len(s.Deviations), s.Omitted)
	}
}

// BenchmarkLevels is a pass over a fleet of 15,000 nodes in 4 levels. The controller keeps nothing of the nodes between two passes:
// B/node/level is garbage.
func BenchmarkLevels(b *testing.B) {
	compiled := compile(b, `levels: [{name: a, label: x/a}, {name: b, label: x/b}, {name: c, label: x/c, nodes: {max: 20}}, {name: host, label: kubernetes.io/hostname}]`)
	nodes := make([]baseline.Node, 15000)
	for i := range nodes {
		name := fmt.Sprint("n", i)
		nodes[i] = node(name, nil, m{"a.b.c": "1"})
		nodes[i].Labels = m{"x/a": fmt.Sprint(i / 2000), "x/b": fmt.Sprint(i / 200), "x/c": fmt.Sprint(i / 20), "kubernetes.io/hostname": name}
	}
	status := &assayv1alpha1.NodeBaselineStatus{}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		r := compiled.Fleet(nodes)
		if len(r.Deviations) > 0 {
			b.Fatal(r.Deviations[0])
		}
		status = r.Status(status, 1, metav1.Unix(0, 0))
	}
	runtime.ReadMemStats(&after)
	text, err := json.Marshal(status)
	if err != nil {
		b.Fatal(err)
	}
	perNode := float64(b.N) * float64(len(nodes))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/perNode, "ns/node")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/perNode/4, "B/node/level")
	b.ReportMetric(float64(len(text)), "B/status")
}

package ui_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/baselines"
	"github.com/assay-project/assay/cmd/assay/ui"
	"github.com/assay-project/assay/rules"
	judged "github.com/assay-project/assay/rules/baseline"
	"github.com/assay-project/assay/rules/facts"
)

// placed returns a node with the labels of a block and a rack; an empty one: without the label.
func placed(in *facts.Interner, name, block, rack string) ui.Node {
	n := node(in, name, "Intel", nil)
	n.Object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for key, value := range map[string]string{"example.com/block": block, "example.com/rack": rack} {
		if value != "" {
			n.Object.Labels[key] = value
		}
	}
	return n
}

// withTree adds the tree of a baseline with a block and a rack.
func withTree(t testing.TB, s *ui.Snapshot, name string) {
	t.Helper()
	spec := assayv1alpha1.NodeBaselineSpec{
		Levels: []assayv1alpha1.BaselineLevel{{Name: "block", Label: "example.com/block"}, {Name: "rack", Label: "example.com/rack"}},
	}
	b, report := judged.Compile(&spec, nil, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors.ToAggregate())
	}
	var nodes []judged.Node
	for i := range s.Nodes {
		n := judged.Node{Input: s.Nodes[i].Input, Labels: s.Nodes[i].Object.Labels}
		n.Input.Publishers = []rules.Publisher{{}}
		nodes = append(nodes, n)
	}
	s.Trees = append(s.Trees, baselines.NewTree(name, b, b.Fleet(nodes)))
}

func TestFleetShowsTheTreeOfLevels(t *testing.T) {
	in := facts.NewInterner()
	whole := snapshot(t, placed(in, "n0", "b1", "r1"), placed(in, "n1", "b1", "r9"))
	withTree(t, whole, "alike")
	s := snapshot(t, placed(in, "n1", "b1", "r1"), placed(in, "n2", "b1", "r1"), placed(in, "n3", "b2", "r1"), placed(in, "n4", "b2", "r10"),
		placed(in, "n5", "b2", "r9"), placed(in, "n6", "", "r9"))
	s.Trees = whole.Trees
	withTree(t, s, "fabric")
	site := serve(t, s, nil)

	want(t, site.get(t, "fleet", http.StatusOK), `<a href="fleet?by=levels">Levels <span class="bad">2 deviate</span></a>`)
	page := site.get(t, "fleet?by=levels", http.StatusOK)
	want(t, page, `<a href="object?kind=nodebaselines&amp;name=fabric">fabric: 6 nodes by block, rack; 2 deviate</a>`, "No node deviates.")
	at := 0
	for _, part := range []string{
		"fabric: 6 nodes", `<a href="node?name=n3">`, "rack r1 is in block b1 for 2 of 3 nodes, here in b2", `<a href="node?name=n6">`, "example.com/block is missing",
		">Domains ", "<bdi>b1</bdi>", "<bdi>b2</bdi>", "<bdi>r9</bdi>", "<bdi>r10</bdi>", "alike: 2 nodes",
	} {
		next := strings.Index(page[at:], part)
		if next < 0 {
			t.Fatalf("%q is not on the page, or not after the part before it:\n%s", part, page[at:])
		}
		at += next
	}
	if got, want := site.get(t, "fleet?by=levels&format=csv&table=domains-fabric", http.StatusOK), "block,rack,nodes\nb1,,2\nb1,r1,2\nb2,,2\nb2,r9,1\nb2,r10,1\n"; got != want {
		t.Errorf("the domains are\n%s", got)
	}
	of := "fleet?" + url.Values{"by": {"nodes"}, "filter": {"label example.com/block = b2 and label example.com/rack = r9"}}.Encode()
	want(t, page, strings.ReplaceAll(strings.ReplaceAll(of, "&", "&amp;"), "+", "&#43;"))
	want(t, site.get(t, of, http.StatusOK), "1 of 6 nodes", "node?name=n5")

	// A filter selects the nodes that are listed, and leaves the tree whole.
	if got := site.get(t, "fleet?by=levels&filter=n6&format=csv", http.StatusOK); strings.Contains(got, "n3") || !strings.Contains(got, "n6,example.com/block is missing,,r9") {
		t.Errorf("the selected nodes that deviate are\n%s", got)
	}
	want(t, site.get(t, "fleet?by=levels&filter=n1", http.StatusOK), "None of the selected nodes deviates.", "<bdi>r10</bdi>")
}

func TestFleetSaysWhyThereAreNoLevels(t *testing.T) {
	s := snapshot(t)
	if page := serve(t, s, nil).get(t, "fleet", http.StatusOK); strings.Contains(page, "Levels") {
		t.Error("the page has a tab for levels, and no baseline has any")
	}
	want(t, serve(t, s, nil).get(t, "fleet?by=levels", http.StatusOK), "No NodeBaseline has levels.")
	s.Objects.Baselines.Unknown = "nodebaselines is forbidden"
	want(t, serve(t, s, nil).get(t, "fleet", http.StatusOK), `">Levels</a>`)
	want(t, serve(t, s, nil).get(t, "fleet?by=levels", http.StatusOK), "The NodeBaselines are not known: nodebaselines is forbidden")
}

func TestPagesOfLargeTreesStaySmall(t *testing.T) {
	in := facts.NewInterner()
	var nodes []ui.Node
	for i := range 15_000 {
		nodes = append(nodes, placed(in, fmt.Sprintf("node-%05d", i), fmt.Sprint("b", i/500), fmt.Sprint("r", i)))
	}
	for i := range 1000 {
		nodes[15*i] = placed(in, nodes[15*i].Input.Node.Name, "", strings.Repeat("x", 63))
	}
	s := snapshot(t, nodes...)
	withTree(t, s, "fabric")
	page := serve(t, s, nil).get(t, "fleet?by=levels&domains-fabric.page=141", http.StatusOK)
	want(t, page, "Page 1 of 10, 1,000 rows", "Page 141 of 141, 14,030 rows")
	if len(page) > maxPage {
		t.Errorf("the page has %d bytes, want at most %d", len(page), maxPage)
	}
}

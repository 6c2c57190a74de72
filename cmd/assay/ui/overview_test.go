package ui_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/cmd/assay/ui"
	"github.com/assay-project/assay/internal/hold"
	"github.com/assay-project/assay/rules/facts"
)

// linked returns the address of the link that says something.
func linked(t testing.TB, page, text string) string {
	t.Helper()
	m := regexp.MustCompile(`<a href="([^"]*)">(?:<i [^>]*></i> )?(?:<bdi>)?` + regexp.QuoteMeta(text) + `(?:</bdi>)?</a>`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no link says %q:\n%s", text, page)
	}
	return html.UnescapeString(m[1])
}

// TestOverviewCountsNodesByTheirMostUrgentState: a dead worker among 300 nodes was found only by those who sorted the list of nodes by it.
// Each number leads to its nodes.
func TestOverviewCountsNodesByTheirMostUrgentState(t *testing.T) {
	data := states(t)
	data.Objects = stored(t)
	data.Objects.Baselines.Items[1].Status.Deviations[0].Node = "like"
	in := facts.NewInterner()
	for _, name := range []string{"bare", "like", "kept"} {
		n := node(in, name, "Intel", nil)
		n.Object = data.Nodes[0].Object.DeepCopy()
		n.Object.Name = name
		data.Nodes = append(data.Nodes, n)
	}
	data.Nodes[4].Published = false
	data.Nodes[6].Object.Spec.Unschedulable = true
	data.Nodes = append(data.Nodes, node(in, "filed", "AMD", nil)) // the Node is unknown
	s := serve(t, data, nil)
	page := s.get(t, "overview", http.StatusOK)
	for state, node := range map[string]string{
		"not ready": "gone", "worker down": "idle", "no features": "bare", "outputs missing": "late", "deviates": "like", "cordoned": "kept", "unknown": "filed",
		"no known problem": "well",
	} {
		want(t, page, state+"</a> <b>1</b>")
		if got := nodesIn(s.get(t, linked(t, page, state), http.StatusOK)); !slices.Equal(got, []string{node}) {
			t.Errorf("%s leads to %v, want %s", state, got, node)
		}
	}
	want(t, s.get(t, "fleet?filter=idle", http.StatusOK), "worker: the worker is down: container worker is waiting: CrashLoopBackOff")
	want(t, s.get(t, "node?name=idle", http.StatusOK), `<bdi class="chip bad">worker down</bdi>`)
	data.Unknown.Rules = "nodefeaturerules is forbidden"
	if page := serve(t, data, nil).get(t, "overview", http.StatusOK); strings.Contains(page, "no known problem") {
		t.Error("without rules, a node is not known to be well")
	}
}

// TestOverviewGroupsAndColorsSquares by labels and features, and says why it cannot.
func TestOverviewGroupsAndColorsSquares(t *testing.T) {
	s := serve(t, states(t), nil)
	const well, gone, idle, late = `class="s8" href="node?name=well"`, `class="s0" href="node?name=gone"`, `class="s1" href="node?name=idle"`, `class="s4" href="node?name=late"`
	inOrder(t, s.get(t, "overview?by=zone", http.StatusOK), "Each square is a node", "eu-0", idle, well, "eu-1", gone, late)
	page := s.get(t, "overview?by=cpu.model.vendor_id&color=zone", http.StatusOK)
	inOrder(t, page, `aria-label="Colors"`, "eu-0", "eu-1", "AMD", `class="c1" href="node?name=gone"`, "Intel", `class="c0" href="node?name=well"`)
	_, groups, _ := strings.Cut(page, `class="groups"`)
	if got := nodesIn(s.get(t, linked(t, groups, "AMD"), http.StatusOK)); !slices.Equal(got, []string{"gone"}) {
		t.Errorf("the group leads to %v", got)
	}
	page = s.get(t, "overview?by=none", http.StatusOK)
	want(t, page, "<bdi>all nodes</bdi>")
	inOrder(t, page, gone, idle, late, well)
	want(t, s.get(t, "overview?by=zon&color=cpu.model.vender_id", http.StatusOK), "no node has zon; did you mean zone?", "did you mean cpu.model.vendor_id?")
	want(t, s.get(t, "overview?color=cpu.cpuid.AVX2", http.StatusOK), `class="c0"`)
}

// TestASquareOfALargeFleetIsSeveralNodes: no state vanishes, however few nodes have it.
func TestASquareOfALargeFleetIsSeveralNodes(t *testing.T) {
	in := facts.NewInterner()
	var nodes []ui.Node
	for i := range 15_000 {
		n := node(in, fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/250, i%250), "AMD", nil)
		n.Object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Input.Node.Name, Labels: map[string]string{
			"topology.kubernetes.io/zone": fmt.Sprint("eu-central-1", string(rune('a'+i%3))), "example.com/rack": fmt.Sprint("r", i/20),
		}}}
		n.OfWorker, n.Object.Labels["feature.node.kubernetes.io/asked"] = true, "yes"
		nodes = append(nodes, n)
	}
	nodes[7].Object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	s := serve(t, snapshot(t, nodes...), nil)
	page := s.get(t, "overview", http.StatusOK)
	want(t, page, "Each square is up to 5 nodes", "eu-central-1c")
	if n := strings.Count(page, `<i class="s0">`); n != 1 {
		t.Errorf("%d squares are not ready, want 1", n)
	}
	if n := strings.Count(page, `<i class="s8">`); n != 3000 {
		t.Errorf("%d squares are well, want 3000", n)
	}
	page = s.get(t, "overview?by=example.com/rack", http.StatusOK)
	want(t, page, "710 other values")
	nodes = nodes[:3000] // the largest number for which each square is a link
	page += s.get(t, "overview", http.StatusOK)
	for _, page := range []string{page, serve(t, snapshot(t, nodes...), nil).get(t, "overview", http.StatusOK)} {
		if len(page) > 250_000*2 {
			t.Errorf("the page has %d bytes", len(page))
		}
	}
	t.Logf("15,000 nodes: %d bytes; 3,000 nodes: %d bytes", len(s.get(t, "overview", http.StatusOK)), len(serve(t, snapshot(t, nodes...), nil).get(t, "overview", http.StatusOK)))
}

// heldEvent returns an Event that publishes a hold of a Node.
func heldEvent(node, reason, why string, until time.Time) corev1.Event {
	e := hold.Event("", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []hold.Hold{{Reason: reason, Why: why, Until: until, Keys: []string{"label example.com/x"}}}, time.Now())
	return *e
}

// TestOverviewShowsWhatNeedsAttention: rules, holds with the time that is left, baselines, pods and Events, each a link to its object.
func TestOverviewShowsWhatNeedsAttention(t *testing.T) {
	data := states(t)
	data.Objects = stored(t)
	data.Objects.Waiting.Items = []corev1.Pod{waiting("train", "ARM"), {ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front"}}}
	soon := time.Now().Add(90 * time.Second)
	data.Objects.Events.Items = []corev1.Event{
		heldEvent("well", hold.Removal, "removalBudget: 2 nodes", soon), heldEvent("late", hold.Removal, "removalBudget: 2 nodes", soon.Add(time.Hour)),
		heldEvent("gone", hold.Contested, "another client changes it", time.Time{}), heldEvent("idle", hold.Flapping, "over", time.Now().Add(-time.Second)),
		{InvolvedObject: corev1.ObjectReference{Kind: "NodeFeatureRule", Name: "vendor"}, Reason: "RuleConflict", Message: "sets another value"},
	}
	s := serve(t, data, nil)
	page := s.get(t, "overview", http.StatusOK)
	want(t, page, `<a href="rules?sort=state" class="chip good">ready</a> <b>1</b>`,
		`<a href="object?kind=nodebaselines&amp;name=firmware"><bdi>firmware</bdi></a> <span class="faint">1 of 3 nodes</span>`, "1 without a deviating node",
		`Waiting pods</a> <span class="count">2</span>`, `name=train`, "RuleConflict", `<a href="rule?name=vendor">`)
	inOrder(t, page, `<span class="count">2</span></h2>`, ">held<", ">2 nodes</a>", `<time class="left"`, "removalBudget: 2 nodes", ">contested<", "gone", "no end")
	if !regexp.MustCompile(`<time class="left"[^>]*>(90|89|88)s<`).MatchString(page) {
		t.Errorf("the time that is left is missing:\n%s", page)
	}
	if got := nodesIn(s.get(t, linked(t, page, "2 nodes"), http.StatusOK)); !slices.Equal(got, []string{"well", "late"}) {
		t.Errorf("the hold leads to %v", got)
	}
	data.Objects.Events.Unknown, data.Objects.Waiting.Unknown, data.Objects.Baselines.Unknown = "events is forbidden", "pods is forbidden", "nodebaselines is forbidden"
	page = serve(t, data, nil).get(t, "overview", http.StatusOK)
	want(t, page, "Not known: events is forbidden", "Not known: pods is forbidden", "Not known: nodebaselines is forbidden")
	for _, none := range []string{"nothing</li>", "none requires features", ">none<", "No Events found"} {
		if strings.Contains(page, none) {
			t.Errorf("what is unknown is %q", none)
		}
	}
}

// inOrder reports parts that are not on a page, or not after the part before.
func inOrder(t testing.TB, page string, parts ...string) {
	t.Helper()
	at := 0
	for _, part := range parts {
		next := strings.Index(page[at:], part)
		if next < 0 {
			t.Fatalf("%q is not on the page, or not after the part before it:\n%s", part, page[at:])
		}
		at += next
	}
}

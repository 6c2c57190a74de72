package ui_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/ui"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// TestRelativeTimesCountFromOneMoment: the corner counted from now and tables from the reading, so that the two differed by its age, and
// Events that were newer than the reading had the age <invalid>.
func TestRelativeTimesCountFromOneMoment(t *testing.T) {
	data := snapshot(t)
	data.At = time.Now().Add(-20 * time.Minute)
	data.Nodes[0].Changed = time.Now().Add(-50 * time.Minute)
	data.Nodes[0].Object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	data.Live = &live{events: []corev1.Event{{
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "a"}, Reason: "Rebooted", LastTimestamp: metav1.NewTime(time.Now().Add(-5 * time.Minute)),
	}}}
	page := serve(t, data, nil).get(t, "node?name=a", http.StatusOK)
	want(t, page, ">20m</time> ago", ">50m</time>", ">5m</time>")
	if strings.Contains(page, "&lt;invalid") {
		t.Error("an age is negative")
	}
}

// TestAPageThatShowsAnOldStateDoesNotReadAgain: another page has read the cluster since; reading it once more would cost its API server
// as many readings as there are pages.
func TestAPageThatShowsAnOldStateDoesNotReadAgain(t *testing.T) {
	reads := make(chan struct{}, 10)
	data := snapshot(t)
	s := serve(t, data, func(context.Context) (*ui.Snapshot, error) {
		reads <- struct{}{}
		return data, nil
	})
	older := data.At.Add(-time.Minute).UTC().Format(time.RFC3339)
	if page := s.post(t, "reload", url.Values{"back": {"fleet"}, "shown": {older}}, http.StatusOK); strings.Contains(page, "Reading again") {
		t.Error("the page that shows an older state reads again")
	}
	s.post(t, "reload", url.Values{"back": {"fleet"}, "shown": {data.At.UTC().Format(time.RFC3339)}}, http.StatusOK)
	<-reads
}

// TestErrorPagesKeepTheNavigation: a page that does not exist was one line of text.
func TestErrorPagesKeepTheNavigation(t *testing.T) {
	s := serve(t, snapshot(t), nil)
	for page, says := range map[string]string{"nodes": "Page nodes not found", "node?name=x": "Node x not found", "rule?name=x": "Rule x not found"} {
		want(t, s.get(t, page, http.StatusNotFound), says, `<a href="rules"`, `id="find"`)
	}
	want(t, s.get(t, "rule?name=x", http.StatusNotFound), `<a href="rules" aria-current="page">`)
	want(t, s.post(t, "fleet", nil, http.StatusNotFound), "Page fleet not found", `<a href="rules"`)
}

// TestANoteAboutARuleIsOnItsPages: it was on all pages.
func TestANoteAboutARuleIsOnItsPages(t *testing.T) {
	data := snapshot(t)
	data.Notes = []ui.Note{{Text: "not evaluated: vendor: broken", Rule: "vendor"}}
	s := serve(t, data, nil)
	for page, shown := range map[string]bool{"": true, "rule?name=vendor": true, "rules": false, "node?name=a": false, "overview": true, "fleet?filter=a": false, "playground": false} {
		text := s.get(t, page, http.StatusOK)
		if got := strings.Contains(text, `not evaluated: vendor: broken <a href="rule?name=vendor">`); got != shown {
			t.Errorf("%s: the note is shown: %v, want %v", page, got, shown)
		}
	}
}

// TestASentenceOfManyRowsIsShownOnce: a setting that withholds an output was the same sentence in each row.
func TestASentenceOfManyRowsIsShownOnce(t *testing.T) {
	data := states(t)
	data.Desired.Withholding.Taints = true
	in := facts.NewInterner()
	for i := range 4 {
		data.Nodes = append(data.Nodes, node(in, fmt.Sprint("like-", i), "Intel", nil))
	}
	s := serve(t, data, nil)
	const sentence = "taints are disabled; set enableTaints"
	page := s.get(t, "fleet?by=nodes", http.StatusOK)
	want(t, page, `<dt>note 1</dt>`, "in 7 rows", `href="#nodes-1"`)
	if n := strings.Count(page, sentence) - strings.Count(page, `title="withheld: taint example.com/intel:NoSchedule: `+sentence); n != 1 {
		t.Errorf("the sentence is %d times on the page", n)
	}
	if file := s.get(t, "fleet?by=nodes&format=csv", http.StatusOK); strings.Count(file, sentence) != 7 {
		t.Errorf("the file does not have the reason of each node:\n%s", file)
	}
}

// TestUnknownDeviationsAreNotNone: a baseline that no controller has evaluated, or that lists some of its deviations, said nothing on the page
// of a node.
func TestUnknownDeviationsAreNotNone(t *testing.T) {
	data := snapshot(t)
	data.Objects, data.Live = stored(t), &live{}
	data.Objects.Baselines.Items[0].Status.Nodes = nil
	data.Objects.Baselines.Items[1].Status.Omitted = 7
	s := serve(t, data, nil)
	want(t, s.get(t, "node?name=b", http.StatusOK), "The controller has not evaluated the baseline all-alike.", "7 deviations of the baseline firmware are not listed")
	want(t, s.get(t, "object?kind=nodebaselines&name=all-alike", http.StatusOK), "It is not known which nodes deviate")
	data.Objects.Baselines = ui.Kind[assayv1alpha1.NodeBaseline]{Unknown: "nodebaselines is forbidden"}
	want(t, serve(t, data, nil).get(t, "node?name=b", http.StatusOK), "Whether the node deviates from baselines is not known: nodebaselines is forbidden")
	data.Objects.Baselines.Absent = true
	if page := serve(t, data, nil).get(t, "node?name=b", http.StatusOK); strings.Contains(page, "deviates from baselines") {
		t.Error("a cluster without the kind has no deviations")
	}
}

// TestCompareShowsWhatTheNodesHave: it showed what rules give, also while the controller holds another value on the Node.
func TestCompareShowsWhatTheNodesHave(t *testing.T) {
	data := states(t)
	data.Nodes[3].Object.Labels["example.com/intel"] = "old"
	gone := data.Nodes[1].Object // AMD, whose label no rule gives
	gone.Annotations = map[string]string{nfdv1alpha1.FeatureLabelsAnnotation: "example.com/intel"}
	page := serve(t, data, nil).get(t, "compare?a=gone&b=late&format=csv", http.StatusOK)
	want(t, page, "label,example.com/intel,true; rules do not give it,old; rules give true")
}

// TestARulePageSaysWhichNodesHaveItsOutputs: the page named the nodes that match, although one of them lacks the label.
func TestARulePageSaysWhichNodesHaveItsOutputs(t *testing.T) {
	page := serve(t, states(t), nil).get(t, "rule?name=vendor", http.StatusOK)
	want(t, page, "Matches 3 of 4 nodes · 2 have all its outputs", `href="#incomplete">1 lack some</a>`)
	if strings.Index(page, "Nodes that match ") > strings.Index(page, "Nearest nodes") {
		t.Error("the nodes that match are after others")
	}
}

// TestNothingIsGivenIsNeverAboveOutputs: outputs that an invalid value keeps from the Node were below the sentence that nothing is given.
func TestNothingIsGivenIsNeverAboveOutputs(t *testing.T) {
	data := snapshot(t, node(facts.NewInterner(), "a", "Intel", nil))
	object := data.Rules[0].Object.DeepCopy()
	object.Spec.Rules[0].Labels, object.Spec.Rules[0].Taints = map[string]string{"example.com/model": "@cpu.model.name"}, nil
	set, report := rules.Compile(object, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors.ToAggregate())
	}
	data.Program = rules.Link(rules.Options{}, set)
	page := serve(t, data, nil).get(t, "node?name=a", http.StatusOK)
	want(t, page, "not written", "example.com/model")
	if strings.Contains(page, "No rule gives this node anything") {
		t.Error("the page says that no rule gives the node anything")
	}
}

package ui_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/held"
	"github.com/assay-project/assay/cmd/assay/ui"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
)

// states returns a snapshot with a node for each state: well, not ready, worker down, output missing.
func states(t testing.TB) *ui.Snapshot {
	in := facts.NewInterner()
	var nodes []ui.Node
	for i, name := range []string{"well", "gone", "idle", "late"} {
		n := node(in, name, []string{"Intel", "AMD", "Intel", "Intel"}[i], nil)
		n.Object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "eu-" + fmt.Sprint(i%2), "example.com/intel": "true"}}}
		n.Object.Spec.Taints = []corev1.Taint{{Key: "example.com/intel", Effect: corev1.TaintEffectNoSchedule}}
		n.Object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "assay.dev/FeaturesReady", Status: corev1.ConditionTrue}}
		n.Object.Labels["feature.node.kubernetes.io/asked"] = "yes"
		n.Worker, n.OfWorker = &cluster.Worker{}, true
		n.Changed = time.Now().AddDate(0, 0, -i)
		nodes = append(nodes, n)
	}
	nodes[1].Object.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "container runtime is down"}
	nodes[2].Worker.Fault = "the worker is down: container worker is waiting: CrashLoopBackOff"
	nodes[2].Object.Status.Conditions[1] = corev1.NodeCondition{Type: "assay.dev/FeaturesReady", Status: corev1.ConditionFalse, Reason: "NoFeatures", Message: "no features of this boot"}
	delete(nodes[3].Object.Labels, "example.com/intel")
	return snapshot(t, nodes...)
}

// nodesIn returns the names in the first column of a table.
func nodesIn(page string) (out []string) {
	for _, m := range regexp.MustCompile(`<th scope="row"[^>]*><a href="node\?name=[^"]*"><bdi>([^<]*)`).FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	return out
}

func TestTablesSortByEachColumn(t *testing.T) {
	in := facts.NewInterner()
	var nodes []ui.Node
	for _, name := range []string{"n1", "n10", "n2"} {
		n := node(in, name, "Intel", nil)
		if name != "n2" {
			n = node(in, name, "Intel", map[string]string{"speed": strings.TrimPrefix(name, "n") + "GHz"})
		}
		nodes = append(nodes, n)
	}
	s := serve(t, snapshot(t, nodes...), nil)
	for sort, want := range map[string][]string{
		"":                 {"n1", "n10", "n2"},
		"node":             {"n1", "n2", "n10"},
		"-node":            {"n10", "n2", "n1"},
		"cpu.model.speed":  {"n1", "n10", "n2"}, // n2 has no value and is last in both orders
		"-cpu.model.speed": {"n10", "n1", "n2"},
		"no-such-column":   {"n1", "n10", "n2"},
	} {
		page := s.get(t, "fleet?by=nodes&columns=cpu.model.speed&sort="+sort, http.StatusOK)
		if got := nodesIn(page); !slices.Equal(got, want) {
			t.Errorf("sorted by %q: %v, want %v", sort, got, want)
		}
	}
	page := s.get(t, "fleet?by=nodes&columns=cpu.model.speed&sort=node&filter=n1", http.StatusOK)
	want(t, page, `aria-sort="ascending"><a href="fleet?by=nodes&amp;columns=cpu.model.speed&amp;filter=n1&amp;sort=-node">`)
}

// TestFilesHaveTheRowsOfThePage: CSV and JSON have the filter, the columns and the order of the page, and all pages.
func TestFilesHaveTheRowsOfThePage(t *testing.T) {
	s := serve(t, many(t, 250), nil)
	const query = "fleet?by=nodes&columns=cpu.model.vendor_id&sort=-node&filter=cpu.model.vendor_id+%3D+Intel"
	records, err := csv.NewReader(strings.NewReader(s.get(t, query+"&format=csv", http.StatusOK))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 1+166 || records[0][0] != "node" || records[1][0] != "node-00248" || !slices.Contains(records[1], "Intel") {
		t.Errorf("%d records, the first are %v", len(records), records[:2])
	}
	var objects []map[string]any
	if err := json.Unmarshal([]byte(s.get(t, query+"&format=json&table=nodes", http.StatusOK)), &objects); err != nil {
		t.Fatal(err)
	}
	if len(objects) != 166 || objects[0]["node"] != "node-00248" || objects[0]["cpu.model.vendor_id"] != "Intel" || objects[0]["withheld"] != float64(0) || objects[0]["state.reason"] != "" {
		t.Errorf("%d objects, the first is %v", len(objects), objects[0])
	}
	want(t, s.get(t, query, http.StatusOK), "Page 1 of 2, 166 rows", "format=csv")
	want(t, s.get(t, query+"&format=xml", http.StatusBadRequest), "use csv or json")
	want(t, s.get(t, query+"&format=csv&table=x", http.StatusNotFound), "this page has nodes")
	want(t, s.get(t, "fleet?filter=a+and&format=csv", http.StatusBadRequest), "nothing follows and")
	for _, page := range []string{"rules?", "rule?name=vendor&table=matched&", "node?name=node-00001&table=outputs&", "fleet?by=sets&", "compare?a=node-00001&b=node-00003&"} {
		if text := s.get(t, page+"format=csv", http.StatusOK); strings.Count(text, "\n") < 2 {
			t.Errorf("%s: no rows: %s", page, text)
		}
	}
}

// TestSpreadsheetsEvaluateNoValues: values come from nodes, and a cell that begins with = is a formula in spreadsheets.
func TestSpreadsheetsEvaluateNoValues(t *testing.T) {
	n := node(facts.NewInterner(), "a", "=HYPERLINK(\"http://evil.example\")", map[string]string{"offset": "-5"})
	text := serve(t, snapshot(t, n), nil).get(t, "fleet?by=nodes&columns=cpu.model.vendor_id+cpu.model.offset&format=csv", http.StatusOK)
	want(t, text, `"'=HYPERLINK(""http://evil.example"")",-5`)
}

func TestFilterJoinsTermsAndSearchesNames(t *testing.T) {
	s := serve(t, states(t), nil)
	for filter, want := range map[string][]string{
		"well":                 {"well"},
		"WELL":                 {"well"},
		"eu-1":                 {"gone", "late"},
		"zone=eu-1":            {"gone", "late"},
		"zone = eu-1 and late": {"late"},
		`"eu-1"`:               {"gone", "late"},
		"name In well, late":   {"well", "late"},
		"name ~ ^(well|gone)$": {"well", "gone"},
		"not cpu.model.vendor_id = Intel or name = well": {"well", "gone"},
		"not (cpu.model.vendor_id = Intel or gone)":      {},
		"(name ~ (w|g) or late) and cpu.cpuid.AVX2":      {"well", "gone", "late"},
		"cpu.model.name=\"AMD CPU\"":                     {"gone"},
		"rule vendor":                                    {"well", "idle", "late"},
		"ready":                                          {"well", "idle", "late"},
		"not ready":                                      {"gone"},
		"ready = False":                                  {"gone"},
		"ready ~ runtime":                                {"gone"},
		"features-ready = no":                            {"idle"},
		"worker = down":                                  {"idle"},
		"worker ~ CrashLoop":                             {"idle"},
		"not worker":                                     {"idle"},
		"missing":                                        {"late"},
		"missing >= 1 or not ready":                      {"gone", "late"},
		"features-age > 1d":                              {"idle", "late"},
		"features-age <= 24h":                            {"well", "gone"},
		"withheld":                                       {},
		"-l zone=eu-1":                                   {"gone", "late"},
		"-l 'zone in (eu-0, eu-2), !rack' and worker": {"well"},
		`not (-l "zone notin (eu-0)" or idle)`:        {"well"},
		"-l !zone":                                    {},
	} {
		page := s.get(t, "fleet?by=nodes&filter="+url.QueryEscape(filter), http.StatusOK)
		got := nodesIn(page)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) && len(got)+len(want) > 0 {
			t.Errorf("%s: %v, want %v", filter, got, want)
		}
	}
	for filter, message := range map[string]string{
		"(ready":                          "closing parenthesis",
		"ready)":                          "unexpected",
		"a or":                            "nothing follows or",
		"and":                             "a term is missing",
		"= 1":                             "a name is missing",
		"-l":                              "a label selector is missing",
		"-l zone in (eu-1)":               "unexpected",
		"-l 'zone in (eu-1'":              "invalid label selector",
		"-l 'zone":                        "closing quote",
		"worker Between 1":                "invalid operator",
		"features-age > soon":             "write a number, or a time",
		"rule vendr":                      "did you mean vendor?",
		"name > 1":                        "use In, NotIn or InRegexp",
		strings.Repeat("a or ", 80) + "a": "more than 64 terms",
		strings.Repeat("x", 5000):         "at most 4096",
		strings.Repeat("(", 100) + "a":    "parentheses",
	} {
		want(t, s.get(t, "fleet?filter="+url.QueryEscape(filter), http.StatusBadRequest), "The filter is not valid", message)
	}
}

// TestFilterSuggestsKnownNames: a misspelled name or one in another case selected no node without a word.
func TestFilterSuggestsKnownNames(t *testing.T) {
	s := serve(t, states(t), nil)
	for filter, instead := range map[string]string{
		"cpu.modle.vendor_id = Intel":         "cpu.model.vendor_id = Intel",
		"cpu.model.vender_id = Intel":         "cpu.model.vendor_id = Intel",
		"cpu.model.vendor_id = intel":         "cpu.model.vendor_id = Intel",
		"cpu.cpuid.avx2":                      "cpu.cpuid.AVX2",
		"not cpu.cpuid.avx2 and ready":        "not cpu.cpuid.AVX2 and ready",
		"label Zone = eu-1":                   "label zone = eu-1",
		"label zone = EU-1":                   "label zone = eu-1",
		"wel1":                                "well",
		`cpu.model.name = "amd CPU" or ready`: `cpu.model.name = "AMD CPU" or ready`,
		"cpu.cpuid.avx2 DoesNotExist":         "cpu.cpuid.AVX2 DoesNotExist",
	} {
		page := s.get(t, "fleet?filter="+url.QueryEscape(filter), http.StatusOK)
		want(t, page, "Did you mean", "filter="+strings.ReplaceAll(url.QueryEscape(instead), "+", "&#43;"))
	}
	for _, filter := range []string{"cpu.cpuid.AVX3 DoesNotExist", "well", "ready", "cpu.model.vendor_id = Intel"} {
		if page := s.get(t, "fleet?filter="+url.QueryEscape(filter), http.StatusOK); strings.Contains(page, "Did you mean") {
			t.Errorf("%s: a suggestion", filter)
		}
	}
	page := s.get(t, "fleet?by=nodes&filter="+url.QueryEscape("gone and ready"), http.StatusOK)
	want(t, page, "Alone, the terms select", "<code>gone</code></a> 1 node", "<code>ready</code></a> 3 nodes")
}

func TestNodeListSaysWhatIsWrong(t *testing.T) {
	page := serve(t, states(t), nil).get(t, "fleet?by=nodes", http.StatusOK)
	want(t, page, "KubeletNotReady: container runtime is down", "CrashLoopBackOff", "NoFeatures: no features of this boot", "label example.com/intel: the Node does not have it")
	data := states(t)
	data.Desired.Withholding.Taints = true
	page = serve(t, data, nil).get(t, "fleet?by=nodes&filter=withheld", http.StatusOK)
	want(t, page, "3 of 4 nodes", "taint example.com/intel:NoSchedule: taints are disabled")
}

func TestRulesListSaysWhatIsWrong(t *testing.T) {
	for kind, state := range map[string]string{"Withheld": "withheld", "Conflicted": "conflicted"} {
		data := snapshot(t)
		data.Rules[0].Object.Status.Conditions = append(data.Rules[0].Object.Status.Conditions,
			metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "SomeReason", Message: "what is wrong"})
		want(t, serve(t, data, nil).get(t, "rules", http.StatusOK), ">"+state+"<", "what is wrong")
	}
	want(t, serve(t, snapshot(t), nil).get(t, "rules", http.StatusOK), ">ready<")
}

func TestSearchLeadsToTheObjectOfAName(t *testing.T) {
	s := serve(t, states(t), nil)
	want(t, s.get(t, "search?q=well", http.StatusOK), "<title>well")
	want(t, s.get(t, "search?q=vendor", http.StatusOK), "<title>vendor")
	want(t, s.get(t, "search?q=eu-1", http.StatusOK), "2 of 4 nodes")
	for _, page := range []string{"fleet", "node?name=well", "rules", "rule?name=vendor", "playground", "compare"} {
		want(t, s.get(t, page, http.StatusOK), `<form class="find" action="search"`)
	}
}

func TestCompareShowsOnlyDifferences(t *testing.T) {
	in := facts.NewInterner()
	s := serve(t, snapshot(t, node(in, "a", "Intel", nil), node(in, "b", "AMD", map[string]string{"stepping": "4"}), node(in, "c", "Intel", nil)), nil)
	page := s.get(t, "compare?a=a&b=b&format=csv", http.StatusOK)
	for _, line := range []string{
		"what,name,a,b", "label,example.com/intel,true,", "taint,example.com/intel:NoSchedule,set,", "attribute,cpu.model.vendor_id,Intel,AMD", "attribute,cpu.model.stepping,,4",
		`rule,vendor/intel,match,"no match: cpu.model/vendor_id is ""AMD"", not ""Intel"""`,
	} {
		want(t, page, line)
	}
	if strings.Contains(page, "AVX") || strings.Contains(page, "asked") {
		t.Errorf("what is equal is listed:\n%s", page)
	}
	want(t, s.get(t, "compare?a=a&b=c", http.StatusOK), "The nodes have the same features, outputs and matching rules.")
	want(t, s.get(t, "compare?a=a", http.StatusOK), "Choose two nodes.")
	want(t, s.get(t, "compare?a=a&b=a", http.StatusOK), "Choose two different nodes.")
	want(t, s.get(t, "compare?a=a&b=none", http.StatusOK), "Node none not found")
}

// TestRulesThatNeedAttentionAreFirst: sorted by state, a failing object was between those that are ready.
func TestRulesThatNeedAttentionAreFirst(t *testing.T) {
	data := snapshot(t)
	ready := data.Rules[0]
	data.Rules = nil
	for name, condition := range map[string]metav1.Condition{
		"a-ready":    {Type: "Ready", Status: metav1.ConditionTrue},
		"b-withheld": {Type: "Withheld", Status: metav1.ConditionTrue, Message: "taints are disabled"},
		"c-failing":  {Type: "Healthy", Status: metav1.ConditionFalse, Message: "on 2 nodes"},
		"d-rejected": {Type: "Accepted", Status: metav1.ConditionFalse, Message: "Gt compares integers"},
	} {
		rule := ready
		rule.Object = ready.Object.DeepCopy()
		rule.Object.Name, rule.Object.Status.Conditions = name, []metav1.Condition{condition}
		data.Rules = append(data.Rules, rule)
	}
	s := serve(t, data, nil)
	rows, err := csv.NewReader(strings.NewReader(s.get(t, "rules?sort=state&format=csv", http.StatusOK))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range rows[1:] {
		got = append(got, row[0])
	}
	if !slices.Equal(got, []string{"d-rejected", "c-failing", "b-withheld", "a-ready"}) {
		t.Errorf("the order is %v", got)
	}
	page := s.get(t, "rules", http.StatusOK)
	want(t, page, "1 <bdi class=\"chip bad\">not accepted</bdi>", "1 <bdi class=\"chip good\">ready</bdi>", `href="rules?sort=state"`)
}

// TestAPageOfANodeWithManyRulesStaysSmall: the page of a real server with 100 rules had 312 kB.
func TestAPageOfANodeWithManyRulesStaysSmall(t *testing.T) {
	var object nfdv1alpha1.NodeFeatureRule
	object.Name = "many"
	for i := range 250 {
		object.Spec.Rules = append(object.Spec.Rules, nfdv1alpha1.Rule{Name: fmt.Sprint("rule-", i), MatchFeatures: nfdv1alpha1.FeatureMatcher{{
			Feature: "pci.device", MatchExpressions: &nfdv1alpha1.MatchExpressionSet{
				"vendor": {Op: nfdv1alpha1.MatchIn, Value: nfdv1alpha1.MatchValue{"ffff"}}, "class": {Op: nfdv1alpha1.MatchIn, Value: nfdv1alpha1.MatchValue{"ffff"}},
				"device": {Op: nfdv1alpha1.MatchIn, Value: nfdv1alpha1.MatchValue{"ffff"}}, "subsystem_vendor": {Op: nfdv1alpha1.MatchIn, Value: nfdv1alpha1.MatchValue{"ffff"}},
			},
		}}})
	}
	set, report := rules.Compile(&object, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors.ToAggregate())
	}
	data := snapshot(t)
	data.Program = rules.Link(rules.Options{}, set)
	page := serve(t, data, nil).get(t, "node?name=a", http.StatusOK)
	want(t, page, "more rules: see")
	if len(page) > 200_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
}

// TestARuleThatIsNotEvaluatedMayGiveAKey: for a user who may not read the Secret of a rule, the page said that no rule gives its labels.
func TestARuleThatIsNotEvaluatedMayGiveAKey(t *testing.T) {
	data := states(t)
	data.Explain = func(context.Context, *corev1.Node, *rules.Outcome, *held.Report) []ui.Unwanted {
		return []ui.Unwanted{{Kind: "label", Key: "example.com/secret", Value: "yes", Kept: true, Why: "no rule or NodeFeature gives it now"}}
	}
	const page = "node?name=well"
	want(t, serve(t, data, nil).get(t, page, http.StatusOK), "Kept, although no rule gives them now", "no rule or NodeFeature gives it now")
	data.Rules[0].LeftOut = "secrets is forbidden"
	text := serve(t, data, nil).get(t, page, http.StatusOK)
	want(t, text, "example.com/secret", "a rule that is not evaluated here may give it")
	if strings.Contains(text, "no rule or NodeFeature gives it now") || strings.Contains(text, "although no rule gives") {
		t.Error("the page says that no rule gives the label")
	}
}

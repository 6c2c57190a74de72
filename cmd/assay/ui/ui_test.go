package ui_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/ui"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/plan"
)

// intel is a rule that matches half of the nodes.
const intel = `apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: vendor}
spec:
  rules:
  - name: intel
    labels: {example.com/intel: "true"}
    taints: [{key: example.com/intel, effect: NoSchedule}]
    matchFeatures:
    - feature: cpu.model
      matchExpressions: {vendor_id: {op: In, value: [Intel]}}
`

// node returns a node with a CPU of the given vendor.
func node(in *facts.Interner, name, vendor string, more map[string]string) ui.Node {
	model := map[string]string{"vendor_id": vendor, "name": vendor + " CPU"}
	for key, value := range more {
		model[key] = value
	}
	return ui.Node{Published: true, Input: rules.Input{
		Node: rules.Node{Name: name},
		Facts: facts.FromMap(map[string]facts.Feature{
			"cpu.model":      {Attributes: facts.NewAttributes(model)},
			"cpu.cpuid":      {Flags: facts.NewFlags("AVX", "AVX2")},
			"kernel.version": {Attributes: facts.NewAttributes(map[string]string{"full": "6.8.0-45", "major": "6"})},
			"pci.device": {Instances: facts.NewInstances([]map[string]string{
				{"class": "0200", "vendor": "15b3"}, {"class": "0302", "vendor": "10de"},
			})},
		}, in),
		Labels: map[string]string{"feature.node.kubernetes.io/asked": "yes"},
	}}
}

// snapshot returns a snapshot with the nodes a (Intel), b (AMD) and c (Intel), and the rule.
func snapshot(t testing.TB, nodes ...ui.Node) *ui.Snapshot {
	t.Helper()
	var object nfdv1alpha1.NodeFeatureRule
	if err := yaml.UnmarshalStrict([]byte(intel), &object); err != nil {
		t.Fatal(err)
	}
	object.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Accepted", Message: "The rules are used."}}
	set, report := rules.Compile(&object, rules.Options{})
	if !report.OK() {
		t.Fatal(report.Errors.ToAggregate())
	}
	if nodes == nil {
		in := facts.NewInterner()
		nodes = []ui.Node{node(in, "a", "Intel", nil), node(in, "b", "AMD", nil), node(in, "c", "Intel", nil)}
	}
	return &ui.Snapshot{
		Desired: desired.Settings{Policy: plan.Policy{Taints: true}},
		Where:   "test", At: time.Now(), Nodes: nodes, Program: rules.Link(rules.Options{}, set),
		Rules: []ui.Rule{{Object: &object, Text: intel}},
	}
}

// site is a server for a snapshot.
type site struct {
	*httptest.Server
	base string
}

func serve(t testing.TB, s *ui.Snapshot, source ui.Source) *site {
	t.Helper()
	server := ui.New(s, source)
	listener, err := ui.Listen(ui.DefaultAddress)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(server.Handler(t.Context()))
	_ = web.Listener.Close()
	web.Listener = listener
	web.Start()
	t.Cleanup(web.Close)
	return &site{web, server.URL(listener)}
}

// get returns a page.
func (s *site) get(t testing.TB, page string, status int) string {
	t.Helper()
	response, err := s.Client().Get(s.base + page) //nolint:bodyclose // body closes it
	if err != nil {
		t.Fatal(err)
	}
	return body(t, page, response, status)
}

func (s *site) post(t testing.TB, page string, form url.Values, status int) string {
	t.Helper()
	response, err := s.Client().PostForm(s.base+page, form) //nolint:bodyclose // body closes it
	if err != nil {
		t.Fatal(err)
	}
	return body(t, page, response, status)
}

func body(t testing.TB, page string, response *http.Response, status int) string {
	t.Helper()
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != status {
		t.Errorf("%s: status %d, want %d:\n%s", page, response.StatusCode, status, data)
	}
	return string(data)
}

// want reports parts that are missing on a page.
func want(t testing.TB, page string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(page, part) {
			t.Errorf("the page has no %q:\n%s", part, page)
		}
	}
}

func TestNodeShowsOutputsWithTheirRulesAndFeatures(t *testing.T) {
	s := serve(t, snapshot(t), nil)
	page := s.get(t, "node?name=a", http.StatusOK)
	want(t, page, "example.com/intel", `<a href="rule?name=vendor">`, "example.com/intel:NoSchedule", "feature.node.kubernetes.io/asked",
		"vendor_id", "Intel CPU", "AVX2", "15b3", "MATCH", "vendor_id In Intel")
	page = s.get(t, "node?name=b", http.StatusOK)
	want(t, page, "No rule gives this node anything", "NO MATCH", "cpu.model/vendor_id is &#34;AMD&#34;, not &#34;Intel&#34;")
	page = s.get(t, "node?name=a&q=avx2", http.StatusOK)
	want(t, page, "AVX2")
	if strings.Contains(page, "Intel CPU") {
		t.Error("the search shows other elements")
	}
	want(t, s.get(t, "node?name=none", http.StatusNotFound), "Node none not found.")
}

func TestNodeShowsWhatOthersSetAndWhatIsNotWritten(t *testing.T) {
	in := facts.NewInterner()
	n := node(in, "a", "Intel", nil)
	n.Object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{"example.com/intel": "false", "rack": "7"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "rack-labeler", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:rack":{}}}}`)}},
	}}
	data := snapshot(t, n)
	data.Desired.Withholding.Taints = true
	page := serve(t, data, nil).get(t, "node?name=a", http.StatusOK)
	want(t, page, "the Node has false instead", "taints are disabled; set enableTaints", "rack-labeler", "2 outputs of rules are not on the Node")
}

func TestRuleShowsMatchedNodesAndTheNearest(t *testing.T) {
	s := serve(t, snapshot(t), nil)
	want(t, s.get(t, "rules", http.StatusOK), `<a href="rule?name=vendor">`, `<td class="num"><bdi>2</bdi></td>`)
	want(t, s.get(t, "rule?name=vendor", http.StatusOK), "Matches 2 of 3 nodes", "The rules are used.", "Nearest nodes", `<a href="node?name=b">`, "found AMD")
	want(t, s.get(t, "rule?name=vendr", http.StatusNotFound), "Rule vendr not found; did you mean vendor?")
}

func TestFleetGroupsAndFilters(t *testing.T) {
	s := serve(t, snapshot(t), nil)
	want(t, s.get(t, "fleet?by=values", http.StatusOK), "3 nodes", "Intel CPU", "AMD CPU", "6.8.0-45")
	for filter, matching := range map[string]string{
		"cpu.model.vendor_id = Intel":                               "2 of 3",
		`cpu.model.name In "AMD CPU", other`:                        "1 of 3",
		"cpu.model.vendor_id = Intel and kernel.version.major >= 7": "0 of 3",
		"pci.device.vendor = 10de":                                  "3 of 3",
		"cpu.cpuid.AVX2":                                            "3 of 3",
		"cpu.cpuid.AVX512F DoesNotExist":                            "3 of 3",
		"rule.matched.example.com/intel = true":                     "2 of 3",
		"matchFeatures: [{feature: cpu.model, matchExpressions: {vendor_id: {op: In, value: [AMD]}}}]": "1 of 3",
	} {
		want(t, s.get(t, "fleet?filter="+url.QueryEscape(filter), http.StatusOK), matching+" nodes")
	}
	for filter, message := range map[string]string{
		"cpu.model.vendor_id Equals Intel":     "did you mean In?",
		"vendor = Intel":                       "invalid name",
		"cpu.model = Intel":                    "name one of its elements",
		"cpu.model.vendor_id = Intel and":      "nothing follows and",
		`cpu.model.name = "Intel`:              "closing quote",
		"label rack Between 1":                 "invalid operator",
		`label a"]}{x = 1`:                     "invalid label key",
		"matchFeatures: [{feture: cpu.model}]": "feture",
	} {
		page := s.get(t, "fleet?filter="+url.QueryEscape(filter), http.StatusBadRequest)
		want(t, page, "The filter is not valid", message)
	}
	want(t, s.get(t, "fleet?filter="+url.QueryEscape("cpu.model.vendor_id = ARM"), http.StatusOK), "No node matches.", "The nearest is")
	want(t, s.get(t, "fleet?by=nodes&columns=cpu.model.vendor_id", http.StatusOK), `<a href="node?name=b">`, "AMD")
	want(t, s.get(t, "fleet?by=features", http.StatusOK), "kernel.version", "pci.device")
}

func TestFleetFiltersByLabels(t *testing.T) {
	in := facts.NewInterner()
	var nodes []ui.Node
	for i, zone := range []string{"eu-1", "eu-2", ""} {
		n := node(in, fmt.Sprint("n", i), "Intel", nil)
		n.Object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Input.Node.Name, Labels: map[string]string{"cores": fmt.Sprint(8 * (i + 1))}}}
		if zone != "" {
			n.Object.Labels["topology.kubernetes.io/zone"] = zone
		}
		nodes = append(nodes, n)
	}
	s := serve(t, snapshot(t, nodes...), nil)
	for filter, matching := range map[string]string{
		"label topology.kubernetes.io/zone = eu-1":               "1 of 3",
		"label topology.kubernetes.io/zone In eu-1, eu-2":        "2 of 3",
		"label topology.kubernetes.io/zone != eu-1":              "2 of 3",
		"label topology.kubernetes.io/zone":                      "2 of 3",
		"label topology.kubernetes.io/zone DoesNotExist":         "1 of 3",
		"label topology.kubernetes.io/zone ~ ^eu":                "2 of 3",
		"label cores > 8 and cpu.model.vendor_id = Intel":        "2 of 3",
		`label cores < 16 and label topology.kubernetes.io/zone`: "1 of 3",
	} {
		want(t, s.get(t, "fleet?filter="+url.QueryEscape(filter), http.StatusOK), matching+" nodes")
	}
}

func TestPlaygroundReviewsAndEvaluates(t *testing.T) {
	s := serve(t, snapshot(t), nil)
	want(t, s.get(t, "playground", http.StatusOK), "recent-kernel", "No errors or warnings", "MATCH", "found 6")
	try := func(text, node string) string {
		return s.post(t, "playground", url.Values{"text": {text}, "node": {node}}, http.StatusOK)
	}
	want(t, try(intel, "a"), "MATCH", "example.com/intel")
	want(t, try(intel, "b"), "NO MATCH", "found AMD", "Nothing would be written on the node.")
	want(t, try(strings.ReplaceAll(intel, "\n", "\r\n"), "a"), "MATCH")
	page := try(strings.Replace(intel, "op: In", "op: Inn", 1), "a")
	want(t, page, `<li class="error" title="`, "did you mean In?", "Not evaluated: correct the errors first.", "11:")
	want(t, try(intel, "none"), "Node none not found.", "choose a node")
	want(t, try("", "a"), "the text has no NodeFeatureRule")
	want(t, try("}{", "a"), "error")
	want(t, s.get(t, "playground?rule=vendor&node=b", http.StatusOK), "example.com/intel", "NO MATCH")
	big := s.post(t, "playground", url.Values{"text": {strings.Repeat("#", 2<<20)}}, http.StatusRequestEntityTooLarge)
	s.post(t, "playground", url.Values{"text": {strings.Repeat("\n", 1<<20)}}, http.StatusRequestEntityTooLarge)
	want(t, big, "larger than 1 MiB")
}

// A rule in the playground may come from someone else, so its bases are not read from the user's files.
func TestPlaygroundReadsNoFiles(t *testing.T) {
	s := serve(t, snapshot(t), nil)
	text := strings.Replace(intel, "spec:\n", "spec:\n  basedOn: [{name: /etc/passwd}, {name: ./ui_test.go}]\n", 1)
	page := s.post(t, "playground", url.Values{"text": {text}, "node": {"a"}}, http.StatusOK)
	if strings.Contains(page, "root:") || strings.Contains(page, "package ui_test") {
		t.Error("a file was read")
	}
}

func TestOnlyTheTokenAndThisMachineAreServed(t *testing.T) {
	s := serve(t, snapshot(t), nil)
	u, err := url.Parse(s.base)
	if err != nil {
		t.Fatal(err)
	}
	status := func(path, host string) (int, http.Header) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+u.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		response, err := s.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode, response.Header
	}
	for path, want := range map[string]int{
		"/": 404, "/fleet": 404, "/x/fleet": 404, "/" + strings.Repeat("A", 26) + "/fleet": 404, "/static/ui.js": 404,
		u.Path + "fleet": 200, u.Path + "static/ui.js": 200, u.Path + "static/../ui.go": 404, u.Path + "static/no.js": 404,
	} {
		if got, _ := status(path, u.Host); got != want {
			t.Errorf("%s: status %d, want %d", path, got, want)
		}
	}
	for host, want := range map[string]int{
		"localhost:9000": 200, "127.0.0.1": 200, "[::1]:80": 200,
		"evil.example": 421, "127.0.0.1.evil.example:80": 421, "10.0.0.1": 421,
	} {
		if got, _ := status(u.Path+"fleet", host); got != want {
			t.Errorf("host %s: status %d, want %d", host, got, want)
		}
	}
	_, header := status(u.Path+"fleet", u.Host)
	for name, value := range map[string]string{
		"Content-Security-Policy": "default-src 'none'", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
		"Cache-Control": "no-store",
	} {
		if !strings.Contains(header.Get(name), value) {
			t.Errorf("%s is %q, want %q", name, header.Get(name), value)
		}
	}
}

func TestListenRejectsOtherInterfaces(t *testing.T) {
	for address, message := range map[string]string{
		"0.0.0.0:0": "loopback", ":8080": "loopback", "example.com:80": "loopback", "127.0.0.1": "use for example 127.0.0.1:0",
		"127.0.0.1:99999": "cannot listen",
	} {
		l, err := ui.Listen(address)
		if err == nil {
			_ = l.Close()
			t.Errorf("%s: no error", address)
		} else if !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v, want %q", address, err, message)
		}
	}
}

func TestHostileValuesStayText(t *testing.T) {
	const script = `</td><script>alert(1)</script>`
	in := facts.NewInterner()
	long := strings.Repeat("x", 100_000)
	n := node(in, script, script, map[string]string{script: "\u202egnp.exe", "long": long, "quote": `" onmouseover="alert(1)`})
	data := snapshot(t, n)
	data.Where = script
	data.Notes = []ui.Note{{Text: script, Rule: script}}
	s := serve(t, data, nil)
	for _, page := range []string{
		"overview", "overview?by=" + url.QueryEscape(script) + "&color=" + url.QueryEscape(script), "overview?by=cpu.model.vendor_id&color=cpu.model.name",
		"fleet", "fleet?by=nodes", "fleet?filter=" + url.QueryEscape(script), "node?name=" + url.QueryEscape(script), "node?name=" + url.QueryEscape(script) + "&q=" + url.QueryEscape(script),
		"rules", "rule?name=vendor", "playground?node=" + url.QueryEscape(script), "search?q=" + url.QueryEscape(script),
		"compare?a=" + url.QueryEscape(script) + "&b=" + url.QueryEscape(script), "fleet?by=values", "fleet?by=nodes&format=json",
	} {
		response, err := s.Client().Get(s.base + page) //nolint:bodyclose // body closes it
		if err != nil {
			t.Fatal(err)
		}
		text := body(t, page, response, response.StatusCode)
		if strings.Contains(text, "<script>alert") || strings.Contains(text, `" onmouseover="`) {
			t.Errorf("%s: a value is not escaped:\n%s", page, text)
		}
		if len(text) > maxPage {
			t.Errorf("%s: %d bytes", page, len(text))
		}
	}
	want(t, s.get(t, "node?name="+url.QueryEscape(script), http.StatusOK), "(100,000 characters)")
}

func TestMaskedValuesAreNotShown(t *testing.T) {
	in := facts.NewInterner()
	s := serve(t, snapshot(t, node(in, "a", "Intel", map[string]string{"password": "swordfish"}), node(in, "b", "Intel", map[string]string{"password": "secret"})), nil)
	for _, page := range []string{
		"node?name=a", "node?name=a&q=swordfish", "fleet?columns=cpu.model.password", "fleet?by=nodes&columns=cpu.model.password", "playground?node=a",
		"fleet?by=nodes&columns=cpu.model.password&format=csv", "fleet?by=values&columns=cpu.model.password&format=json", "compare?a=a&b=b",
		"fleet?filter=cpu.model.password+=+swordfisch",
	} {
		if text := s.get(t, page, http.StatusOK); strings.Contains(strings.NewReplacer("=swordfish", "", `="swordfish"`, "", "“swordfish”", "").Replace(text), "swordfish") {
			t.Errorf("%s shows the password", page)
		}
	}
}

func TestReloadKeepsTheOldStateUntilTheNewOneIsThere(t *testing.T) {
	next := make(chan error)
	after := snapshot(t, node(facts.NewInterner(), "new", "Intel", nil), node(facts.NewInterner(), "newer", "Intel", nil))
	s := serve(t, snapshot(t), func(context.Context) (*ui.Snapshot, error) {
		if err := <-next; err != nil {
			return nil, err
		}
		return after, nil
	})
	want(t, s.post(t, "reload", url.Values{"back": {"fleet?by=nodes"}}, http.StatusOK), "Reading again", "3 nodes", `aria-current="page">Nodes`)
	next <- errors.New("the cluster is gone")
	eventually(t, func() bool {
		return strings.Contains(s.get(t, "fleet", http.StatusOK), "Cannot read again: the cluster is gone")
	})
	want(t, s.post(t, "reload", url.Values{"back": {"https://evil.example/"}}, http.StatusOK), "Reading again", "3 nodes")
	next <- nil
	eventually(t, func() bool { return strings.Contains(s.get(t, "fleet", http.StatusOK), "2 nodes") })
}

// eventually waits for a condition.
func eventually(t testing.TB, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come true")
		}
	}
}

func TestEmptyStatesSayWhatToDo(t *testing.T) {
	s := serve(t, &ui.Snapshot{Where: "empty"}, nil)
	want(t, s.get(t, "fleet", http.StatusOK), "No nodes found", "assay doctor")
	want(t, s.get(t, "overview", http.StatusOK), "No nodes found", "assay doctor")
	want(t, s.get(t, "rules", http.StatusOK), "No rules found", "assay library list")
	want(t, s.get(t, "playground", http.StatusOK), "Not evaluated: there are no nodes.")
}

// maxPage is the maximum size of a page in bytes.
const maxPage = 300_000

// many returns a snapshot of count nodes of about a hundred kinds.
func many(t testing.TB, count int) *ui.Snapshot {
	in := facts.NewInterner()
	var nodes []ui.Node
	for i := range count {
		vendor := "Intel"
		if i%3 == 0 {
			vendor = "AMD"
		}
		nodes = append(nodes, node(in, fmt.Sprintf("node-%05d", i), vendor, map[string]string{"microcode": fmt.Sprint(i % 211)}))
	}
	return snapshot(t, nodes...)
}

func TestPagesOfLargeFleetsStaySmall(t *testing.T) {
	s := serve(t, many(t, 15_000), nil)
	for _, page := range []string{
		"overview", "overview?color=cpu.model.microcode&by=cpu.model.microcode", "fleet", "fleet?by=nodes&page=150", "fleet?by=features", "fleet?columns=cpu.model.microcode", "fleet?filter=" + url.QueryEscape("cpu.model.microcode > 100"),
		"fleet?by=values&columns=cpu.model.microcode", "rules", "rule?name=vendor&matched.page=50&unmatched.page=9999", "node?name=node-00001", "playground",
		"compare?a=node-00001&b=node-00003",
	} {
		if text := s.get(t, page, http.StatusOK); len(text) > maxPage {
			t.Errorf("%s: %d bytes, want at most %d", page, len(text), maxPage)
		}
	}
	want(t, s.get(t, "fleet?by=nodes&page=2", http.StatusOK), "node-00100", "Page 2 of 150, 15,000 rows")
	want(t, s.get(t, "rule?name=vendor", http.StatusOK), "Matches 10,000 of 15,000 nodes", "Searched 64 of")
}

// BenchmarkFirstView serves a page of 15,000 nodes for the first time, including the computation of derived data. It reports the size.
func BenchmarkFirstView(b *testing.B) {
	data := many(b, 15_000)
	for _, page := range []string{
		"overview", "fleet", "fleet?by=nodes", "fleet?by=nodes&sort=-withheld", "fleet?by=nodes&filter=" + url.QueryEscape("not (cpu.model.vendor_id = Intel or withheld)"),
		"fleet?by=nodes&filter=no-such-name", "fleet?by=values&columns=cpu.model.microcode", "rules", "rule?name=vendor", "fleet?by=nodes&format=csv",
	} {
		b.Run(page, func(b *testing.B) {
			size := 0
			for b.Loop() {
				s := serve(b, data, nil)
				size = len(s.get(b, page, http.StatusOK))
				s.Close()
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}

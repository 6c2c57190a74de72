//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// catchUp waits until the watches have shown what a list had.
func (w *world) catchUp(ctx context.Context, s state) error {
	return cluster.WaitFor(ctx, "watches of this test", func(context.Context) error {
		for path, key := range map[string]string{
			nodesPath: w.nodeStore.behind(s.nodes), featuresPath: w.featureStore.behind(s.features), rulesPath: w.ruleStore.behind(s.rules),
			namespacesPath: w.nsStore.behind(s.namespaces), setsPath: w.setStore.behind(s.sets),
		} {
			if key != "" {
				return fmt.Errorf("%s %s", path, key)
			}
		}
		return nil
	})
}

// cut returns what has happened since the last cut.
func (w *world) cut() (out window, err error) {
	var errs [5]error
	out.features, errs[0] = w.featureStore.cut()
	out.namespaces, errs[1] = w.nsStore.cut()
	out.rules, errs[2] = w.ruleStore.cut()
	out.nodes, errs[3] = w.nodeStore.cut()
	out.sets, errs[4] = w.setStore.cut()
	return out, errors.Join(errs[:]...)
}

// rest waits until the Nodes are what the reference says, and returns the state.
func (w *world) rest(ctx context.Context) (s state, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.patience, fmt.Errorf("waited %s", w.patience))
	defer cancel()
	var differ []string
	for quiet := ""; ; {
		if s, err = w.state(ctx); err != nil {
			if ctx.Err() != nil {
				err = differences(ctx, differ)
			}
			return s, err
		}
		differ = nil
		p := program(s.rules)
		for _, n := range w.nodes {
			node := s.nodes["/"+n.name]
			if node == nil {
				differ = append(differ, n.name+" does not exist")
				continue
			}
			differ = append(differ, w.differ(n, keysOf(node), w.wanted(s, p, n))...)
			differ = append(differ, w.unpublished(n, s)...)
		}
		now := fmt.Sprint(marshal(s))
		if len(differ) == 0 && now == quiet { // twice the same
			return s, nil
		}
		quiet = now
		select {
		case <-ctx.Done():
			return s, differences(ctx, differ)
		case <-time.After(restInterval):
		}
	}
}

func differences(ctx context.Context, all []string) error {
	return fmt.Errorf("%w; %d differences:\n  %s", context.Cause(ctx), len(all), strings.Join(all[:min(len(all), maxPrinted)], "\n  "))
}

// maxPrinted is the maximum number of differences that are printed.
const maxPrinted = 12

// grace is the default of removalGracePeriod.
const grace = 10 * time.Minute

// held returns the deleted object of a worker whose features count nevertheless; nil: there is none.
func (w *world) held(n *node) *nfdv1alpha1.NodeFeature {
	if w.form == "A" || time.Since(n.at) > grace {
		return nil
	}
	return n.deleted
}

// wanted returns the keys that the Node of n must have at rest. A controller that was started after the object of a worker had been deleted
// keeps the keys on the Node, but not the features: it cannot know what a rule that is edited later would give. Then only keys count that
// follow from what is stored too.
func (w *world) wanted(s state, p *rules.Program, n *node) map[string]string {
	held := w.held(n)
	want, _ := evaluate(p, s.input(s.nodes["/"+n.name], held))
	if held != nil && n.at.Before(w.controlled) {
		without, _ := evaluate(p, s.input(s.nodes["/"+n.name], nil))
		maps.DeleteFunc(want, func(key, _ string) bool { _, is := without[key]; return !is })
	}
	return want
}

// restInterval is the time between two comparisons of all Nodes.
const restInterval = 250 * time.Millisecond

// marshal returns the versions of all objects but Nodes' heartbeats.
func marshal(s state) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(s.nodes)) {
		out = append(out, s.nodes[key].ResourceVersion)
	}
	for _, key := range slices.Sorted(maps.Keys(s.features)) {
		out = append(out, s.features[key].ResourceVersion)
	}
	return out
}

// differ compares the keys on a Node with the wanted ones. In form B the default settings can hold keys back: what is on the Node must have
// been right once, and nothing that the Node has never had is missing.
func (w *world) differ(n *node, have, want map[string]string) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value, is := have[key]
		switch {
		case !is:
			out = append(out, fmt.Sprintf("%s lacks %s=%q", n.name, key, want[key]))
		case value != want[key] && w.form == "A":
			out = append(out, fmt.Sprintf("%s has %s=%q, want %q", n.name, key, value, want[key]))
		}
	}
	if w.form == "A" {
		for _, key := range slices.Sorted(maps.Keys(have)) {
			if _, is := want[key]; !is {
				out = append(out, fmt.Sprintf("%s has %s=%q, which no rule gives it", n.name, key, have[key]))
			}
		}
	}
	return out
}

// unpublished reports a worker whose object does not have its content.
func (w *world) unpublished(n *node, s state) []string {
	if !n.employed {
		return nil
	}
	f := s.features[namespace+"/"+n.name]
	if f == nil || slices.ContainsFunc(f.OwnerReferences, ownedByAnother(s.nodes["/"+n.name])) {
		return []string{n.name + ": its worker has not published"}
	}
	have, want := s.content(f), empty()
	merge(&want, n.content.Features)
	if !same(have, want) || !maps.Equal(f.Spec.Labels, n.content.Labels) && len(f.Spec.Labels)+len(n.content.Labels) > 0 {
		return []string{n.name + ": its worker has published something else than it was given"}
	}
	return nil
}

func ownedByAnother(n *corev1.Node) func(metav1.OwnerReference) bool {
	return func(r metav1.OwnerReference) bool { return r.APIVersion == "v1" && r.Kind == "Node" && r.UID != n.UID }
}

func same(a, b nfdv1alpha1.Features) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// probe is a rule with several entries, of which the webhook reports those that match no node, and the extender the nodes that match.
func (w *world) probe() (*nfdv1alpha1.NodeFeatureRule, error) {
	rule := &nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	for i := range probes {
		n := w.nodes[w.draw.IntN(len(w.nodes))]
		attr, cards := n.content.Features.Attributes["twin.attr"].Elements, n.content.Features.Instances["twin.card"].Elements
		vendor := "none"
		if len(cards) > 0 {
			vendor = cards[0].Attributes["vendor"]
		}
		text := replace(probeForms[w.draw.IntN(len(probeForms))], map[string]string{
			"SERIAL": attr["serial"], "MODEL": attr["model"], "VENDOR": vendor, "LEVEL": fmt.Sprint(w.draw.IntN(12)), "FLAG": fmt.Sprintf("F%d", w.draw.IntN(9)),
		})
		var r nfdv1alpha1.Rule
		if err := yaml.UnmarshalStrict([]byte(text), &r); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, text)
		}
		r.Name, r.Labels = fmt.Sprintf("probe-%d", i), map[string]string{fmt.Sprintf("%sprobe-%d", domain, i): "true"}
		rule.Spec.Rules = append(rule.Spec.Rules, r)
	}
	return rule, nil
}

// probes is the number of rules of a probe.
const probes = 6

var probeForms = []string{
	`{matchFeatures: [{feature: twin.attr, matchExpressions: {serial: {op: In, value: ["SERIAL"]}}}]}`,
	`{matchFeatures: [{feature: twin.attr, matchExpressions: {model: {op: In, value: ["MODEL"]}, level: {op: Gt, value: ["LEVEL"]}}}]}`,
	`{matchFeatures: [{feature: twin.card, matchExpressions: {vendor: {op: In, value: ["VENDOR"]}, speed: {op: In, value: ["25", "100"]}}}]}`,
	`{matchFeatures: [{feature: vendor.card, matchExpressions: {vendor: {op: InRegexp, value: ["-LEVEL-"]}}}]}`,
	`{matchAny: [{matchFeatures: [{feature: twin.flag, matchExpressions: {FLAG: {op: Exists}}}]}, {matchFeatures: [{feature: vendor.attr, matchExpressions: {level: {op: Gt, value: ["LEVEL"]}}}]}]}`,
	`{matchFeatures: [{feature: twin.port, matchExpressions: {driver: {op: In, value: [driver-LEVEL]}}}, {feature: twin.flag, matchExpressions: {FLAG: {op: Exists}}}]}`,
}

// matches returns, for each rule of a probe, the nodes that match, among those for which something counts.
func (w *world) matches(s state, rule *nfdv1alpha1.NodeFeatureRule) (nodes [][]string, described int) {
	set, _ := rules.Compile(rule, rules.Options{})
	sets := []*rules.RuleSet{set}
	for _, other := range s.rules {
		if early, _ := rules.Compile(other, rules.Options{}); early.Early() {
			sets = append(sets, early)
		}
	}
	p := rules.Link(rules.Options{}, sets...)
	nodes = make([][]string, len(rule.Spec.Rules))
	for _, n := range w.nodes {
		held := w.held(n)
		if n.at.Before(w.served) {
			held = nil
		}
		in := s.input(s.nodes["/"+n.name], held)
		if len(in.Publishers) > 0 {
			described++
		}
		for _, r := range p.Eval(in.Input).Rules() {
			if r.Object == rule.Name && r.Matched {
				nodes[r.Index] = append(nodes[r.Index], n.name)
			}
		}
	}
	return nodes, described
}

// review compares the webhook's warning about a rule that no one creates.
func (w *world) review(ctx context.Context, s state) error {
	rule, err := w.probe()
	if err != nil {
		return err
	}
	nodes, described := w.matches(s, rule)
	var idle []string
	for i, matched := range nodes {
		if len(matched) == 0 {
			idle = append(idle, fmt.Sprintf("%q", rule.Spec.Rules[i].Name))
		}
	}
	want := ""
	switch {
	case len(idle) == len(nodes):
		want = fmt.Sprintf("matches 0 of %d nodes now", described)
	case len(idle) > 0:
		want = fmt.Sprintf("match 0 of %d nodes now: %s", described, strings.Join(idle, ", "))
	}
	return cluster.WaitFor(ctx, "the warning of the webhook", func(ctx context.Context) error {
		w.warnings.take()
		if err := w.client.Create(ctx, rule.DeepCopy(), client.DryRunAll); err != nil {
			return err
		}
		all := w.warnings.take()
		got := slices.DeleteFunc(all, func(text string) bool { return !strings.Contains(text, " 0 of ") })
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasSuffix(got[0], want)) {
			return fmt.Errorf("the webhook warns %q, want %q", got, want)
		}
		return nil
	})
}

// filter compares the extender's answer about a pod with the same requirements as a rule.
func (w *world) filter(ctx context.Context, s state) error {
	rule, err := w.probe()
	if err != nil {
		return err
	}
	nodes, _ := w.matches(s, rule)
	var names []string
	for _, n := range w.nodes {
		names = append(names, n.name)
	}
	for i, r := range rule.Spec.Rules {
		requirement, err := json.Marshal(map[string]any{"matchFeatures": r.MatchFeatures, "matchAny": r.MatchAny})
		if err != nil {
			return err
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "pod", Annotations: map[string]string{assayv1alpha1.RequiredFeaturesAnnotation: string(requirement)},
		}}
		args, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names})
		if err != nil {
			return err
		}
		err = cluster.WaitFor(ctx, "the answer of the extender", func(ctx context.Context) error {
			var answer extenderv1.ExtenderFilterResult
			if err := post(ctx, w.at[stage.Extender].Health+"/filter", args, &answer); err != nil {
				return err
			}
			var got []string
			if answer.NodeNames != nil {
				got = *answer.NodeNames
			}
			if answer.Error != "" || !slices.Equal(got, nodes[i]) {
				return fmt.Errorf("%s: the extender returns %q %v, want %v", requirement, answer.Error, got, nodes[i])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func post(ctx context.Context, url string, body []byte, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return json.NewDecoder(response.Body).Decode(into)
}

// leakPaths are lists that must not contain a masked value.
var leakPaths = []string{
	nodesPath, rulesPath, "/api/v1/events", "/api/v1/configmaps", "/apis/" + nfdv1alpha1.GroupName + "/v1alpha1/nodefeaturegroups",
	"/apis/" + assayv1alpha1.GroupName + "/v1alpha1/nodeshapes",
	"/apis/" + assayv1alpha1.GroupName + "/v1alpha1/nodebaselines",
}

// leaks searches Nodes, Events, status, metrics and logs for masked values.
func (w *world) leaks(ctx context.Context) (out []string, err error) {
	known := make(map[string]bool, len(w.draw.secrets))
	for _, s := range w.draw.secrets {
		known[s] = true
	}
	search := func(where string, text []byte) {
		for i := 0; i+secretLength <= len(text); i++ {
			if known[string(text[i:i+secretLength])] {
				out = append(out, fmt.Sprintf("%s contains a masked value: …%s…", where, text[max(0, i-120):min(len(text), i+secretLength+20)]))
				return
			}
		}
	}
	for _, path := range leakPaths {
		body, err := w.reader.get(ctx, path)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil {
			return nil, err
		}
		search(path, text)
	}
	for _, name := range programNames {
		text, err := cluster.Get(ctx, w.at[name].Metrics)
		if err != nil {
			return nil, err
		}
		search("metrics of "+name, []byte(text))
		log, err := os.ReadFile(filepath.Join(w.LogDir(), name+".log"))
		if err != nil {
			return nil, err
		}
		search("log of "+name, log)
	}
	return out, nil
}

// explain checks that the command line names what holds keys that differ from the reference.
func (w *world) explain(ctx context.Context, h *history, s state) (held int, err error) {
	p := program(s.rules)
	asked := 0
	for _, at := range w.draw.Perm(len(w.nodes)) {
		n := w.nodes[at]
		node := s.nodes["/"+n.name]
		have := keysOf(node)
		given := w.given(s, p, n)
		for _, key := range slices.Sorted(maps.Keys(have)) {
			if given(key, have[key]) {
				continue
			}
			held++
			if !h.ever[n.name][key][have[key]] {
				return held, fmt.Errorf("%s has %s=%q, which the rules never gave it", n.name, key, have[key])
			}
			if asked++; asked > maxExplained || w.assay == "" {
				continue
			}
			err := cluster.WaitFor(ctx, "the right value, or what holds it", func(ctx context.Context) error { return w.explainOne(ctx, n, key) })
			if err != nil {
				return held, err
			}
		}
	}
	return held, nil
}

// given returns a function that reports whether rules give a node a value now. A controller that was started after the object of a worker had been deleted keeps
// the keys on the Node, but not the features: then other publishers' features decide about values.
func (w *world) given(s state, p *rules.Program, n *node) func(key, value string) bool {
	is := func(held *nfdv1alpha1.NodeFeature) func(key, value string) bool {
		want, _ := evaluate(p, s.input(s.nodes["/"+n.name], held))
		return func(key, value string) bool { now, is := want[key]; return is && now == value }
	}
	now := is(nil)
	if held := w.held(n); held != nil {
		before := is(held)
		return func(key, value string) bool { return now(key, value) || before(key, value) }
	}
	return now
}

// maxExplained is the maximum number of keys of one rest that the command line explains.
const maxExplained = 4

// holds are the reasons for which the controller may leave a key of a Node as it is.
var holds = []string{"RemovalHeld", "KeyFlapping", "KeyContested"}

func (w *world) explainOne(ctx context.Context, n *node, key string) error {
	s, err := w.state(ctx)
	if err != nil {
		return err
	}
	object := s.nodes["/"+n.name]
	have, is := keysOf(object)[key]
	if !is || w.given(s, program(s.rules), n)(key, have) {
		return nil // it was about to be written
	}
	_, name, _ := strings.Cut(strings.TrimPrefix(key, "extended "), " ")
	out, err := exec.CommandContext(ctx, w.assay, "explain", n.name, name, "-o=json", "--kubeconfig="+w.Kubeconfig, "--namespace="+namespace).Output() //nolint:gosec // own program
	if err != nil {
		return fmt.Errorf("explain %s %s: %w\n%s", n.name, name, err, out)
	}
	var found struct {
		Keys []struct {
			Kind, Key, Value string
			Hold             struct {
				Reason, Message string
				Until           time.Time
			}
		}
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return fmt.Errorf("explain %s %s: %w\n%s", n.name, name, err, out)
	}
	for _, k := range found.Keys {
		if strings.HasPrefix(key, k.Kind+" ") && slices.Contains(holds, k.Hold.Reason) && k.Hold.Until.After(time.Now().Add(-time.Minute)) && k.Hold.Message != "" {
			return nil
		}
	}
	return fmt.Errorf("the Node has %q; explain %s %s does not name what holds it:\n%s", have, n.name, name, out)
}

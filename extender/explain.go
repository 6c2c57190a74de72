package extender

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/rules/requirements"
)

// maxSample is the maximum number of nodes listed for each reason.
const maxSample = 5

// Explanation lists the nodes on which a pod can run given their features, and what the other nodes lack.
type Explanation struct {
	Pod string `json:"pod"`
	// Origins lists the origins of the requirements: annotations, a request, policies. Empty: the pod has no requirements.
	Origins []string `json:"asks,omitempty"`
	// Problem is why the pod fits on no node, independent of the nodes' features.
	Problem string `json:"problem,omitempty"`
	// Nodes is the number of nodes, Matching the number that meet all requirements, Sample some of the latter.
	Nodes    int      `json:"nodes"`
	Matching int      `json:"matching"`
	Sample   []string `json:"sample,omitempty"`
	// Missing lists what the other nodes lack, most frequent first.
	Missing []Missing `json:"missing,omitempty"`
	// Nearest is the node that lacks the least, if none matches, and Lacks lists what it lacks.
	Nearest string `json:"nearest,omitempty"`
	Lacks   string `json:"lacks,omitempty"`
	// Findings are the details of one node, if requested.
	Node     string          `json:"node,omitempty"`
	Findings []index.Finding `json:"findings,omitempty"`
}

// Missing is one reason, worded as in the scheduler's event.
type Missing struct {
	Reason string   `json:"reason"`
	Nodes  int      `json:"nodes"`
	Sample []string `json:"sample"`
}

// Check is a requirement of a pod that the extender does not evaluate, because the scheduler does, such as its node selector.
type Check struct {
	// Of is what it is a requirement on, such as label or resource. Origin is the part of the pod, Text what it requires.
	Of, Origin, Text string
	// Lacks returns what a node lacks; empty: it meets the requirement.
	Lacks func(node string) string
}

func (c Check) lacks() string { return c.Of + " " + c.Text }

// unmet returns the reason in the form of those about features.
func (c Check) unmet() string { return fmt.Sprintf("node %s requirement not met: %s", c.Of, c.Text) }

// Explain returns the nodes on which a pod can run, which meet the further checks too. If node is not empty, it adds the details of that
// node.
func (d *Decider) Explain(pod *corev1.Pod, node string, checks ...Check) Explanation {
	out := Explanation{Pod: pod.Namespace + "/" + pod.Name, Node: node}
	reqs, problem := d.Requirements.Of(pod.Namespace, pod.Labels, pod.Annotations)
	names := d.Index.Names()
	out.Nodes = len(names)
	switch {
	case problem != "":
		out.Problem = index.NotMet(problem).Text
		return out
	case reqs == nil && len(checks) == 0:
		out.Matching = len(names)
		return out
	case reqs == nil:
		reqs = &requirements.Requirements{}
	}
	out.Origins = origins(reqs, checks)
	now := d.now()
	missing := map[string]*Missing{}
	for name, unmet := range d.unmet(reqs, names, now, checks) {
		text := unmet.text
		if text == "" {
			out.Matching++
			out.Sample = appendSample(out.Sample, name)
			continue
		}
		m := missing[text]
		if m == nil {
			m = &Missing{Reason: text}
			missing[text] = m
		}
		m.Nodes++
		m.Sample = appendSample(m.Sample, name)
	}
	for _, m := range missing {
		out.Missing = append(out.Missing, *m)
	}
	slices.SortFunc(out.Missing, func(a, b Missing) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Reason, b.Reason))
	})
	if out.Matching == 0 {
		out.Nearest, out.Lacks = d.nearest(reqs, names, now, checks)
	}
	if node != "" {
		out.Findings = d.findings(reqs, node, now, checks)
	}
	return out
}

// Unmet returns the first requirement of a pod that each node does not meet, sorted by the names of the nodes; empty: it meets all.
func (d *Decider) Unmet(pod *corev1.Pod, checks ...Check) iter.Seq2[string, string] {
	reqs, problem := d.Requirements.Of(pod.Namespace, pod.Labels, pod.Annotations)
	if problem != "" {
		return func(func(string, string) bool) {} // it does not depend on nodes
	}
	if reqs == nil {
		reqs = &requirements.Requirements{}
	}
	return func(yield func(string, string) bool) {
		for name, unmet := range d.unmet(reqs, d.Index.Names(), d.now(), checks) {
			if !yield(name, cmp.Or(unmet.lacks, unmet.text)) {
				return
			}
		}
	}
}

// unmet is the first requirement that a node does not meet: the full message, and what the node lacks. It is empty if the node meets all.
type unmet struct{ text, lacks string }

func (d *Decider) unmet(reqs *requirements.Requirements, names []string, now int64, checks []Check) iter.Seq2[string, unmet] {
	none := noNodeMeets(names, checks)
	return func(yield func(string, unmet) bool) {
		j := d.Index.Judge(reqs, now)
		defer j.End()
		for _, name := range names {
			first, noNode := unmet{}, false
			if i := slices.IndexFunc(checks, func(c Check) bool { return c.Lacks(name) != "" }); i >= 0 {
				first, noNode = unmet{checks[i].unmet(), checks[i].lacks()}, none[i]
			} else if why, all := j.Check([]byte(name)); why != nil {
				first, noNode = unmet{why.Text, why.Lacks}, all
			}
			if noNode {
				first.text += " (no node has it)"
			}
			if !yield(name, first) {
				return
			}
		}
	}
}

// noNodeMeets reports for each check whether no node meets it.
func noNodeMeets(names []string, checks []Check) []bool {
	out := make([]bool, len(checks))
	for i, c := range checks {
		out[i] = !slices.ContainsFunc(names, func(name string) bool { return c.Lacks(name) == "" })
	}
	return out
}

// nearest returns the node that lacks the fewest labels, and of these one that lacks the fewest features, with what it lacks.
func (d *Decider) nearest(reqs *requirements.Requirements, names []string, now int64, checks []Check) (nearest, lacks string) {
	a := d.Index.Query(reqs, 0)
	if len(checks) == 0 {
		return a.Nearest, a.Lacks
	}
	j := d.Index.Judge(reqs, now)
	defer j.End()
	fewest := 0
	for _, name := range names {
		var list []string
		for _, c := range checks {
			if c.Lacks(name) != "" {
				list = append(list, c.lacks())
			}
		}
		n := 2 * len(list)
		if why, _ := j.Check([]byte(name)); why != nil {
			list = append(list, why.Lacks)
			n += 2
		}
		if name != a.Nearest {
			n++ // among equals, the one that lacks the fewest features
		}
		if nearest == "" || n < fewest {
			nearest, lacks, fewest = name, strings.Join(list, ", "), n
		}
	}
	return nearest, lacks
}

// findings returns the result of each requirement on a node, nil if there is no such node.
func (d *Decider) findings(reqs *requirements.Requirements, node string, now int64, checks []Check) []index.Finding {
	of, ok := d.Index.Explain(reqs, node, now)
	if !ok {
		return nil
	}
	var out []index.Finding
	for _, c := range checks {
		f := index.Finding{Origin: c.Origin + " " + c.Text, Why: c.Lacks(node)}
		if f.Met = f.Why == ""; !f.Met {
			f.Lacks = c.lacks()
		}
		out = append(out, f)
	}
	return append(out, of...)
}

// origins returns the distinct origins of requirements, in the order of evaluation.
func origins(reqs *requirements.Requirements, checks []Check) (out []string) {
	add := func(origin string) {
		if !slices.Contains(out, origin) {
			out = append(out, origin)
		}
	}
	for _, c := range checks {
		add(c.Origin)
	}
	for _, r := range reqs.Required {
		add(r.Origin)
	}
	if reqs.StaleAfter > 0 {
		add(reqs.StaleOrigin)
	}
	for _, p := range reqs.Preferred {
		add(p.Origin)
	}
	return out
}

func appendSample(list []string, name string) []string {
	if len(list) < maxSample {
		list = append(list, name)
	}
	return list
}

// explain serves GET /v1/explain?pod=NAMESPACE/NAME[&node=NAME].
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	namespace, name, ok := strings.Cut(r.URL.Query().Get("pod"), "/")
	if !ok || namespace == "" || name == "" {
		fail(w, &httpError{http.StatusBadRequest, "ask for /v1/explain?pod=NAMESPACE/NAME, with &node=NAME for one node in detail"})
		return
	}
	node := r.URL.Query().Get("node")
	if node != "" && !s.decider.Index.Knows(node) {
		fail(w, errNoNode)
		return
	}
	pod, err := s.opts.Pod(r.Context(), namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		fail(w, &httpError{http.StatusNotFound, "there is no such pod"})
	case err != nil:
		fail(w, &httpError{http.StatusBadGateway, "the API server does not say"})
	default:
		writeJSON(w, s.decider.Explain(pod, node))
	}
}

var errNoNode = &httpError{http.StatusNotFound, "there is no such node"}

// features serves GET /v1/nodes/{name}/features, without masked values.
func (s *Server) features(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "name")
	in, produced, ok := s.decider.Index.Input(name)
	if !ok {
		fail(w, errNoNode)
		return
	}
	features := in.Facts.Features()
	s.opts.Mask.Conceal(features)
	writeJSON(w, map[string]any{"node": name, "features": features, "ruleMatched": produced})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has disconnected
}

package extender

import (
	"cmp"
	"encoding/json"
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

// Explain returns the nodes on which a pod can run. If node is not empty, it adds the details of that node.
func (d *Decider) Explain(pod *corev1.Pod, node string) Explanation {
	out := Explanation{Pod: pod.Namespace + "/" + pod.Name, Node: node}
	reqs, problem := d.Requirements.Of(pod.Namespace, pod.Labels, pod.Annotations)
	names := d.Index.Names()
	out.Nodes = len(names)
	switch {
	case problem != "":
		out.Problem = index.NotMet(problem).Text
		return out
	case reqs == nil:
		out.Matching = len(names)
		return out
	}
	out.Origins = origins(reqs)
	now := d.now()
	j := d.Index.Judge(reqs, now)
	missing := map[string]*Missing{}
	for _, name := range names {
		why, noNode := j.Check([]byte(name))
		if why == nil {
			out.Matching++
			out.Sample = appendSample(out.Sample, name)
			continue
		}
		text := why.Text
		if noNode {
			text += " (no node has it)"
		}
		m := missing[text]
		if m == nil {
			m = &Missing{Reason: text}
			missing[text] = m
		}
		m.Nodes++
		m.Sample = appendSample(m.Sample, name)
	}
	j.End()
	for _, m := range missing {
		out.Missing = append(out.Missing, *m)
	}
	slices.SortFunc(out.Missing, func(a, b Missing) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Reason, b.Reason))
	})
	if out.Matching == 0 {
		a := d.Index.Query(reqs, 0)
		out.Nearest, out.Lacks = a.Nearest, a.Lacks
	}
	if node != "" {
		out.Findings, _ = d.Index.Explain(reqs, node, now)
	}
	return out
}

// origins returns the distinct origins of requirements, in the order of evaluation.
func origins(reqs *requirements.Requirements) (out []string) {
	add := func(origin string) {
		if !slices.Contains(out, origin) {
			out = append(out, origin)
		}
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

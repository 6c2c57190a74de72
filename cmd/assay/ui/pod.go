package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/podlabels"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
	"github.com/assay-project/assay/rules/podadmission"
	"github.com/assay-project/assay/rules/requirements"
)

func query(text string) string { return url.QueryEscape(text) }

// podsPage is the list of pods that wait for a node.
type podsPage struct {
	Unknown string
	Table   *table
}

func (p *podsPage) tables() []*table { return some(p.Table) }

func podAddress(namespace, name string) string {
	return "pod?namespace=" + query(namespace) + "&name=" + query(name)
}

func newPodsPage(d *data) *podsPage {
	p := &podsPage{Unknown: d.Objects.Waiting.Unknown}
	if d.Live == nil {
		p.Unknown = "Pods are read from a cluster or from files."
	}
	if p.Unknown != "" {
		return p
	}
	list := slices.Clone(d.Objects.Waiting.Items)
	// Pods that require features are first: the page is about them.
	slices.SortStableFunc(list, func(a, b corev1.Pod) int {
		if x, y := asked(&a) != "", asked(&b) != ""; x != y {
			if x {
				return -1
			}
			return 1
		}
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	p.Table = newTable("pods", "Pods without a node", slices.Concat(
		columns(columnText, "pod", "namespace", "requires features with", "scheduler", "the scheduler says"), columns(columnValue, "age")),
		len(list), func(row, column int) cell { return d.waiting(&list[row], column) })
	p.Table.Empty = "No pod waits for a node. Enter the name of a pod to see which nodes have the features that it requires."
	return p
}

// waiting returns the cell of a pod without a node.
func (d *data) waiting(pod *corev1.Pod, column int) cell {
	switch column {
	case 0:
		return link(pod.Name, podAddress(pod.Namespace, pod.Name))
	case 1:
		return plain(pod.Namespace)
	case 2:
		return plain(asked(pod))
	case 3:
		return plain(pod.Spec.SchedulerName)
	case 4:
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return plain(c.Message)
			}
		}
		return plain("")
	}
	return d.ageOf(&pod.CreationTimestamp)
}

// asked names the labels, annotations, node selectors and labels of the required node affinity with which a pod requires features; "" if it does not, apart from policies.
func asked(pod *corev1.Pod) string {
	var out []string
	if name := pod.Labels[assayv1alpha1.FeatureRequestLabel]; name != "" {
		out = append(out, assayv1alpha1.FeatureRequestLabel+"="+name)
	}
	for _, key := range requirements.AnnotationKeys {
		if pod.Annotations[key] != "" {
			out = append(out, key)
		}
	}
	for _, key := range podlabels.Keys(&pod.Spec) {
		if podadmission.OfFeatures(key) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// podPage is the page of a pod: what assay why says about it.
type podPage struct {
	Namespace, Name, Node string
	Unknown               string
	Pod                   *corev1.Pod
	Why                   *serving.Answer
	Asked                 string
	// Request is the address of the page of the request that the pod names.
	Request string
	// Required are the labels and resources that the pod requires. Reasons are what other nodes lack, Sample nodes that meet the requirements, Details the requirements on the node that was asked for.
	Required, Reasons, Sample, Details *table
	Changes                            *changes
}

func (p *podPage) tables() []*table {
	return append(some(p.Required, p.Details, p.Reasons, p.Sample), p.Changes.tables()...)
}

// Verdict returns the answer in one sentence.
func (p *podPage) Verdict() string {
	switch e := &p.Why.Explanation; {
	case e.Problem != "":
		return e.Problem
	case len(e.Origins) == 0:
		return fmt.Sprintf("The pod requires no features, labels or resources: all %s can run it, as far as these decide.", plural(e.Nodes, "node"))
	default:
		return fmt.Sprintf("%s of %s meet its requirements.", thousands(e.Matching), plural(e.Nodes, "node"))
	}
}

// Good reports whether a node meets the requirements.
func (p *podPage) Good() bool { return p.Why.Problem == "" && p.Why.Matching > 0 }

// newPodPage returns the page of a pod, or nil if the pod does not exist.
func newPodPage(ctx context.Context, d *data, namespace, name, node string) *podPage {
	p := &podPage{Namespace: namespace, Name: name, Node: node}
	if d.Live == nil {
		p.Unknown = "Pods are read from a cluster or from files."
		return p
	}
	if why := d.unevaluated(); why != "" {
		p.Unknown = "which nodes the pod can run on, because " + why + "."
		return p
	}
	reading, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	pod, why, err := d.Live.Why(reading, d.fleet(), namespace, name, node)
	switch {
	case err != nil:
		p.Unknown = unread(err)
		return p
	case pod == nil:
		return nil
	}
	p.Pod, p.Why, p.Asked, p.Node = pod, why, asked(pod), cmp.Or(node, pod.Spec.NodeName)
	if request := pod.Labels[assayv1alpha1.FeatureRequestLabel]; request != "" {
		p.Request = kindByID("nodefeaturerequests").address(namespace, request)
	}
	p.answer()
	p.Changes = d.changesOf(ctx, "Pod", "pod", &pod.ObjectMeta, "assay why pod "+shellWord(namespace+"/"+name))
	return p
}

// answer fills the tables.
func (p *podPage) answer() {
	if len(p.Why.Origins) > 0 {
		p.Sample = unlessEmpty(nodeList("nodes", "Nodes that meet the requirements", p.Why.Sample))
	}
	var reasons, details [][]cell
	for _, m := range p.Why.Missing {
		such := cell{}
		if len(m.Sample) > 0 {
			such = link(m.Sample[0], podAddress(p.Namespace, p.Name)+"&node="+query(m.Sample[0]))
		}
		reasons = append(reasons, []cell{plain(m.Reason), number(m.Nodes), such})
	}
	for _, f := range p.Why.Findings {
		kind, result := plain("required"), plain("met").as("good")
		if f.Weight > 0 {
			kind = plain(fmt.Sprintf("preferred, weight %d", f.Weight))
		}
		if !f.Met {
			result = plain(f.Why).as("bad")
		}
		details = append(details, []cell{plain(f.Origin), kind, result})
	}
	var required [][]cell
	for i := range p.Why.Labels {
		r := &p.Why.Labels[i]
		required = append(required, []cell{plain(r.Text), plain(r.Origin), number(r.Nodes), plain(r.String())})
	}
	p.Required = unlessEmpty(tableOf("required", "What the pod requires", slices.Concat(
		columns(columnText, "requirement", "part of the pod"), columns(columnCount, "nodes"), columns(columnText, "given by")), required))
	p.Reasons = unlessEmpty(tableOf("lacks", "What the other nodes lack", slices.Concat(
		columns(columnText, "reason"), columns(columnCount, "nodes"), columns(columnText, "such as")), reasons))
	p.Details = unlessEmpty(tableOf("details", "On node "+p.Node, columns(columnText, "requirements of", "kind", "result"), details))
}

func (s *Server) pods(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	s.show(w, r, http.StatusOK, "pods", "Pods", newPodsPage(d))
}

func (s *Server) pod(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	q := r.URL.Query()
	namespace, name := q.Get("namespace"), q.Get("name")
	if before, after, ok := strings.Cut(name, "/"); ok && (namespace == "" || namespace == corev1.NamespaceDefault) {
		namespace, name = before, after
	}
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	if p := newPodPage(r.Context(), d, namespace, name, q.Get("node")); p != nil {
		s.show(w, r, http.StatusOK, "pod", name, p)
		return
	}
	s.missing(w, r, "Pod "+namespace+"/"+name+" not found.", "pods", "Pods that wait")
}

func (s *Server) objects(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	k := kindsOfObjects[0]
	if id := r.URL.Query().Get("kind"); id != "" {
		if k = kindByID(id); k == nil {
			s.missing(w, r, "Kind "+id+" not found.", "objects", "Objects")
			return
		}
	}
	s.show(w, r, http.StatusOK, "objects", k.Title, newObjectsPage(d, k))
}

func (s *Server) object(w http.ResponseWriter, r *http.Request) {
	d := s.current()
	q := r.URL.Query()
	k := kindByID(q.Get("kind"))
	if k == nil {
		s.missing(w, r, "Kind "+q.Get("kind")+" not found.", "objects", "Objects")
		return
	}
	p, meta := newObjectPage(d, k, q.Get("namespace"), q.Get("name"))
	if p == nil {
		s.missing(w, r, k.Kind+" "+strings.TrimPrefix(q.Get("namespace")+"/"+q.Get("name"), "/")+" not found.", "objects?kind="+k.id, k.Title)
		return
	}
	p.Changes = d.changesOf(r.Context(), k.Kind, k.id, meta)
	s.show(w, r, http.StatusOK, "object", q.Get("name"), p)
}

package placement

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
	"github.com/assay-project/assay/cmd/assay/internal/tracing"
	"github.com/assay-project/assay/cmd/assay/internal/workerlabel"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/cmd/assay/internal/written"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/manifest"
	"github.com/assay-project/assay/rules/requirements"
)

// maxValues is the maximum number of values of a label, and of clients that have set it, in an answer.
const maxValues = 4

// providers finds who gives the labels and resources that a pod requires.
type providers struct {
	w        *world.World
	program  *rules.Program
	requests []assayv1alpha1.NodeFeatureRequest
	node     string // the node on which rules are evaluated; empty: none
	traces   []rules.RuleTrace
}

// given adds who gives each requirement, as evaluated on a node.
func given(ctx context.Context, w *world.World, c *cluster.Client, list []serving.Required, node string) error {
	program, _ := w.Program(ctx, w.Rules) // the caller has printed what is left out
	g := &providers{w: w, program: program, requests: w.Scheduling.Requests, node: node}
	g.traces = program.Trace(w.Fleet.Input(node))
	var err error
	if c != nil && slices.ContainsFunc(list, func(r serving.Required) bool { return slices.ContainsFunc(r.Keys(), ofRequest) }) {
		g.requests, err = c.Requests(ctx)
	}
	for i := range list {
		if of := w.Nodes[node]; of != nil {
			list[i].Has = list[i].Lacks(of)
		}
		switch r := &list[i]; r.Of() {
		case "label":
			for _, key := range r.Keys() {
				g.label(ctx, r, key)
			}
		case "resource":
			g.resource(r)
		}
	}
	return err
}

func ofRequest(key string) bool {
	return strings.HasPrefix(key, assayv1alpha1.RequestLabelNamespace+"/")
}

// label adds who gives a label.
func (g *providers) label(ctx context.Context, r *serving.Required, key string) {
	if ofRequest(key) {
		g.request(r, key)
		return
	}
	computed := g.rules(r, keys.Label, key)
	g.published(ctx, r, key)
	g.known(r, key)
	if len(r.Given) == 0 {
		for _, t := range computed {
			r.Given = append(r.Given, serving.Provider{By: "rule " + t.Ref.String(), Why: "it computes the names of its labels, and may write any"})
		}
	}
	if len(r.Given) == 0 && g.none(key) {
		r.Why = "nothing gives it" + cli.DidYouMean(key, g.keys())
	}
}

// rules adds the rules whose source names a key, with their expressions on the node, and returns those that compute the names of keys.
func (g *providers) rules(r *serving.Required, kind keys.Kind, key string) []*rules.RuleTrace {
	named, computed := tracing.Naming(g.program, g.traces, []keys.Kind{kind}, key)
	for _, t := range named {
		r.Given = append(r.Given, g.rule("rule "+t.Ref.String(), t))
	}
	return computed
}

// rule describes a rule on the node.
func (g *providers) rule(by string, t *rules.RuleTrace) serving.Provider {
	out := serving.Provider{By: by, Why: t.Skipped, Terms: tracing.Lines(t, g.w.Limits.Mask)}
	if t.Err != nil {
		out.Why = t.Err.Error()
	}
	return out
}

// request adds the NodeFeatureRequest of a label, with its expressions on the node.
func (g *providers) request(r *serving.Required, key string) {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(key, assayv1alpha1.RequestLabelNamespace+"/"), ".")
	var known []string
	for i := range g.requests {
		o := &g.requests[i]
		if o.Namespace != namespace {
			continue
		}
		known = append(known, o.Name)
		if o.Name != name {
			continue
		}
		set, report := rules.Compile(requirements.RuleOf(o), g.w.Limits)
		provider := serving.Provider{By: fmt.Sprintf("NodeFeatureRequest %s/%s", namespace, name), Why: serving.NotYet(o)}
		if report.OK() {
			traces := rules.Link(g.w.Limits, set).Trace(g.w.Fleet.Input(g.node))
			provider.Terms = g.rule("", &traces[0]).Terms
		}
		r.Given = append(r.Given, provider)
		return
	}
	if key == requirements.ImpossibleLabel {
		r.Why = "no Node has it: the request of the pod cannot have a label"
		return
	}
	r.Why = fmt.Sprintf("NodeFeatureRequest %s/%s does not exist", namespace, name) + cli.DidYouMean(name, known)
}

// published adds the NodeFeatures that request a label, and the source of the worker that would.
func (g *providers) published(ctx context.Context, r *serving.Required, key string) {
	short := strings.TrimPrefix(key, nfdv1alpha1.FeatureLabelNamespace+"/")
	worker, others := 0, []string{}
	for _, node := range g.w.Fleet.Names() {
		for _, p := range g.w.Fleet.Published(node) {
			switch {
			case !has(p, key) && (short == key || !has(p, short)):
			case g.w.Policy().Own(p):
				worker++
			default:
				others = append(others, "NodeFeature "+p.Namespace+"/"+p.Name)
			}
		}
	}
	if worker > 0 {
		r.Given = append(r.Given, serving.Provider{By: "the worker"})
	}
	for i, other := range others {
		if i < maxValues {
			r.Given = append(r.Given, serving.Provider{By: other})
		}
	}
	if short == key || len(r.Given) > 0 || g.node == "" {
		return
	}
	s, _ := g.w.WorkerSettings(ctx)
	if why := workerlabel.Explain(short, s, g.w.Fleet.Input(g.node).Worker, g.w.Limits.Mask); why != nil && g.none(key) {
		text := why.Found
		if why.Why != "" {
			text += ": " + why.Why
		}
		r.Given = append(r.Given, serving.Provider{By: "the worker's source " + why.Source, Why: text})
		if near := manifest.Nearest(key, g.keys()); near != "" {
			r.Why = "did you mean " + near + "?"
		}
	}
}

func has(p offline.Published, label string) bool {
	_, ok := p.Labels[label]
	return ok
}

// wellKnown are labels that parts of Kubernetes and of clouds give to Nodes, by the beginning of their keys.
var wellKnown = []struct{ prefix, by string }{
	{corev1.LabelHostname, "the kubelet"},
	{corev1.LabelOSStable, "the kubelet"},
	{corev1.LabelArchStable, "the kubelet"},
	{"beta.kubernetes.io/", "the kubelet"},
	{corev1.LabelInstanceTypeStable, "the cloud provider"},
	{"topology.kubernetes.io/", "the cloud provider"},
	{"failure-domain.beta.kubernetes.io/", "the cloud provider"},
	{"node-role.kubernetes.io/", "the installer of the cluster"},
	{"node.kubernetes.io/exclude-from-external-load-balancers", "the installer of the cluster"},
	{"eks.amazonaws.com/", "the cloud provider"},
	{"karpenter.k8s.aws/", "Karpenter"},
	{"karpenter.sh/", "Karpenter"},
	{"cloud.google.com/", "the cloud provider"},
	{"kubernetes.azure.com/", "the cloud provider"},
}

// known adds the part of Kubernetes that gives a label, or the clients that have set it on Nodes, and its values.
func (g *providers) known(r *serving.Required, key string) {
	i := slices.IndexFunc(wellKnown, func(k struct{ prefix, by string }) bool { return strings.HasPrefix(key, k.prefix) })
	if i >= 0 {
		r.Given = append(r.Given, serving.Provider{By: wellKnown[i].by})
	}
	values, clients := map[string]bool{}, map[string]bool{}
	for _, node := range g.w.Nodes {
		value, ok := node.Labels[key]
		if !ok {
			continue
		}
		values[value] = true
		if len(r.Given) == 0 {
			for _, client := range written.Managers(node, keys.Label, key) {
				clients[client] = true
			}
		}
	}
	if r.Nodes == 0 && len(values) > 0 {
		sorted := slices.Sorted(maps.Keys(values))
		for i := range sorted {
			sorted[i] = key + "=" + sorted[i]
		}
		r.Values = sorted[:min(len(sorted), maxValues)]
	}
	switch {
	case len(clients) > 0:
		r.Given = append(r.Given, serving.Provider{By: "the client " + clip.Join(slices.Sorted(maps.Keys(clients)), ", ", maxValues)})
	case len(values) > 0 && len(r.Given) == 0:
		r.Given = append(r.Given, serving.Provider{By: "another client"})
	}
}

// none reports whether no Node has a label.
func (g *providers) none(key string) bool {
	for _, node := range g.w.Nodes {
		if _, ok := node.Labels[key]; ok {
			return false
		}
	}
	return true
}

// keys returns the keys of labels that Nodes have, and those that rules name.
func (g *providers) keys() []string {
	all := map[string]bool{}
	for _, node := range g.w.Nodes {
		for key := range node.Labels {
			all[key] = true
		}
	}
	return append(slices.Sorted(maps.Keys(all)), g.program.KeyNames()...)
}

// resource adds who gives a resource.
func (g *providers) resource(r *serving.Required) {
	if !strings.Contains(r.Resource, "/") {
		r.Given = append(r.Given, serving.Provider{By: "the kubelet"})
		return
	}
	computed := g.rules(r, keys.Resource, r.Resource)
	all := map[string]bool{}
	for _, node := range g.w.Nodes {
		for name := range node.Status.Allocatable {
			all[string(name)] = true
		}
	}
	switch {
	case len(r.Given) > 0:
	case all[r.Resource]:
		r.Given = append(r.Given, serving.Provider{By: "a device plugin"})
	case len(computed) > 0:
		r.Given = append(r.Given, serving.Provider{By: "rule " + computed[0].Ref.String(), Why: "it computes the names of its resources, and may write any"})
	case r.Nodes == 0:
		r.Why = "nothing gives it" + cli.DidYouMean(r.Resource, slices.Sorted(maps.Keys(all)))
	}
}

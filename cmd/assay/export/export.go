// Package export renders NodeShapes as configuration of autoscalers and of Kueue, so that they know what rules will give to a node that
// does not exist yet.
package export

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules/clip"
	"github.com/assay-project/assay/rules/keys"
)

// The programs for which shapes are exported.
const (
	Karpenter         = "karpenter"
	ClusterAPI        = "cluster-api"
	ClusterAutoscaler = "cluster-autoscaler"
	Kueue             = "kueue"
)

// Targets are the programs that Render supports.
var Targets = []string{Karpenter, ClusterAPI, ClusterAutoscaler, Kueue}

// Options select what is rendered.
type Options struct {
	// Labels are the labels to export: names, or prefixes that end in "*". None means all, and for Kueue those of requests.
	Labels []string
	// Namespace is the namespace of MachineDeployments.
	Namespace string
	// Pools are the NodePools that exist, and All reports whether that are all. Labels and taints that others have written there are
	// kept.
	Pools []NodePool
	All   bool
	// Deployments are the MachineDeployments that exist. Labels and taints that others have written there are kept.
	Deployments []MachineDeployment
	// Form is the form of the output for Cluster Autoscaler, one of Forms; empty means Tags.
	Form string
	// Nodes are the templates of node groups that users have written. What they contain is kept.
	Nodes []NodeTemplate
	// Topology is the labels of nodes that are levels of Kueue's Topology, the highest first. The node is always the lowest level.
	// If it is empty, no Topology is printed.
	Topology []string
	// TopologyName is the name of the Topology; empty means assay.
	TopologyName string
	// InTopology selects the nodes that the Topology is for; nil: all. A ResourceFlavor has it unless it selects none of them.
	InTopology apilabels.Selector
	// Selected are labels that pods, requests or policies of the cluster select. They are kept first where a format has a limit.
	Selected map[string]bool
	// Fleet are the Nodes of the cluster.
	Fleet []corev1.Node
}

// Result is what Render returns.
type Result struct {
	// Documents are the objects, in the order of their names.
	Documents []any
	// Notes are sentences about what is left out.
	Notes []string
	// Incomplete are the nodes of the fleet that a ResourceFlavor selects and that lack labels of levels.
	Incomplete []Incomplete
}

// Render renders shapes for one of Targets.
func Render(target string, shapes []assayv1alpha1.NodeShape, opt Options) (*Result, error) {
	out := &Result{}
	switch target {
	case Karpenter:
		out.karpenter(shapes, opt)
	case ClusterAPI:
		out.clusterAPI(shapes, opt)
	case ClusterAutoscaler:
		out.clusterAutoscaler(shapes, opt)
	case Kueue:
		out.kueue(shapes, opt)
	default:
		return nil, fmt.Errorf("unknown target %q: pass --for %s", target, strings.Join(Targets, "|"))
	}
	return out, nil
}

// YAML returns the documents as YAML.
func (r *Result) YAML() ([]byte, error) {
	var out strings.Builder
	for i, d := range r.Documents {
		text, err := yaml.Marshal(d)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		if pool, ok := d.(*NodePool); ok {
			text = pool.commented(text)
		}
		out.Write(text)
	}
	return []byte(out.String()), nil
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// group is the shapes of one node group: an autoscaler has one template for all of them.
type group struct {
	name   string
	shapes []*assayv1alpha1.NodeShape
	all    map[string]string // the labels that all shapes have
	labels map[string]string // those of them that are exported
	taints []corev1.Taint    // what all shapes have
}

// groups returns the groups of shapes by name. Shapes whose name is empty are left out.
func (r *Result) groups(shapes []assayv1alpha1.NodeShape, opt Options, what string, name func(key map[string]string) string) []*group {
	byName := map[string]*group{}
	for i := range shapes {
		s := &shapes[i]
		n := name(s.Status.Key)
		if n == "" {
			r.note("NodeShape %s is left out: it has no %s.", s.Name, what)
			continue
		}
		if byName[n] == nil {
			byName[n] = &group{name: n}
		}
		byName[n].shapes = append(byName[n].shapes, s)
	}
	var out []*group
	for _, n := range slices.Sorted(maps.Keys(byName)) {
		g := byName[n]
		g.intersect(opt)
		r.partial(g, opt)
		out = append(out, g)
	}
	return out
}

// intersect finds what all shapes of the group have.
func (g *group) intersect(opt Options) {
	g.all, g.labels = map[string]string{}, map[string]string{}
	for name, value := range g.shapes[0].Status.Labels {
		if slices.ContainsFunc(g.shapes, func(s *assayv1alpha1.NodeShape) bool {
			got, ok := s.Status.Labels[name]
			return !ok || got != value
		}) {
			continue
		}
		if g.all[name] = value; opt.exports(name) {
			g.labels[name] = value
		}
	}
	for _, t := range g.shapes[0].Status.Taints {
		if !slices.ContainsFunc(g.shapes, func(s *assayv1alpha1.NodeShape) bool { return !slices.Contains(s.Status.Taints, t) }) {
			g.taints = append(g.taints, t)
		}
	}
}

// maxNoted is the maximum number of labels in a note.
const maxNoted = 5

// partial notes the labels that only some shapes of the group have.
func (r *Result) partial(g *group, opt Options) {
	some := map[string]bool{}
	for _, s := range g.shapes {
		for name := range s.Status.Labels {
			if _, all := g.labels[name]; !all && opt.exports(name) {
				some[name] = true
			}
		}
	}
	if len(some) == 0 {
		return
	}
	r.note("Node group %s: only some of its instance types have %s. Make a node group of these types to scale it for pods that need the label.",
		g.name, first(slices.SortedFunc(maps.Keys(some), keys.CompareLabels)))
}

// first returns the first names of a list and the number of the others.
func first(names []string) string { return clip.Join(names, ", ", maxNoted) }

// exports reports whether a label is selected.
func (o Options) exports(name string) bool {
	return len(o.Labels) == 0 || slices.ContainsFunc(o.Labels, func(pattern string) bool {
		prefix, is := strings.CutSuffix(pattern, "*")
		return name == pattern || is && strings.HasPrefix(name, prefix)
	})
}

// sortedLabels returns names of labels by importance, for a format with a limit: those that something in the cluster selects first.
func (o Options) sortedLabels(labels map[string]string) []string {
	return slices.SortedFunc(maps.Keys(labels), func(a, b string) int {
		switch {
		case o.first(a) == o.first(b):
			return keys.CompareLabels(a, b)
		case o.first(a):
			return -1
		}
		return 1
	})
}

// first reports whether a label comes before all that an autoscaler can do without: pods refer to it.
func (o Options) first(label string) bool { return o.Selected[label] || ofRequest(label) }

func ofRequest(label string) bool {
	return strings.HasPrefix(label, assayv1alpha1.RequestLabelNamespace+"/")
}

func formatTaint(t corev1.Taint) string { return t.Key + "=" + t.Value + ":" + string(t.Effect) }

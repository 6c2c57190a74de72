package explanation

import (
	"context"
	"slices"
	"strings"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/cmd/assay/internal/written"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/requirements"
)

// bookkeeping describes an annotation of a Node in which the controller stores what it needs itself.
func bookkeeping(name string) string {
	switch name {
	case assayv1alpha1.FailedAnnotation:
		return "the rule that prevents changes to the node, and why"
	case assayv1alpha1.FeaturesGenerationAnnotation:
		return "it notifies schedulers of changed features"
	}
	return "a record of the keys that it has written"
}

// loss says because of which objects a taint is on the Node: it has lost features. It returns "" for other keys.
func (e *Explanation) loss(ctx context.Context, g written.Key) string {
	c, ok := e.world.Kept.(*cluster.Client)
	if !ok || g.Kind != keys.Taint {
		return ""
	}
	requests, _ := c.Requests(ctx) // without permission to read them, the taint is explained like others
	policies, _ := c.Policies(ctx)
	var by []string
	for i := range requests {
		if r := &requests[i]; r.Spec.OnLoss == assayv1alpha1.LossTaint && requirements.TaintValue(r.Namespace, r.Name) == g.Value {
			by = append(by, "NodeFeatureRequest "+r.Namespace+"/"+r.Name)
		}
	}
	for i := range policies {
		if p := &policies[i]; p.Spec.OnLoss == assayv1alpha1.LossTaint && requirements.TaintValue("", p.Name) == g.Value {
			by = append(by, "NodeFeatureSchedulingPolicy "+p.Name)
		}
	}
	if len(by) == 0 {
		return ""
	}
	why := "written by Assay, not by a rule: onLoss of " + strings.Join(by, " or ")
	if text := c.NodeEvent(ctx, e.outcome.Node, "LossTaintAdded", g.Value); text != "" {
		why += "; LossTaintAdded: " + text
	}
	return why
}

// recorded returns the objects that set a key according to the controller's provenance record, in Why what has become of each.
func (e *Explanation) recorded(ctx context.Context, instance string, g written.Key) (out []source) {
	p := e.records[instance]
	if p == nil {
		p = &provenance{}
		p.record, p.where, p.err = e.world.Provenance(ctx, instance)
		if e.records == nil {
			e.records = map[string]*provenance{}
		}
		e.records[instance] = p
	}
	if p.err != nil {
		return []source{{Kind: ruleKind, Why: "an unknown rule: " + p.err.Error()}}
	}
	for _, owner := range p.record.Owners(record.KeyOf(g.Kind, g.Key)) {
		s := source{Kind: ruleKind, Name: owner.Name, Why: object(e.world, owner)}
		if owner.ID == record.Requested {
			s.Kind, s.Name = "NodeFeature", ""
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return []source{{Kind: ruleKind, Why: "an unknown rule: the record in " + p.where + " does not have the key"}}
	}
	return out
}

// provenance is the record of an instance of the controller, or the error of reading it.
type provenance struct {
	record *record.Record
	where  string
	err    error
}

// object describes an object of the record, and what has become of it.
func object(w *world.World, g record.Owner) string {
	if g.ID == record.Requested {
		return "spec.labels of a NodeFeature"
	}
	isBuiltIn := func(r nfdv1alpha1.NodeFeatureRule) bool { return r.Name == g.Name }
	if slices.ContainsFunc(w.BuiltIn, isBuiltIn) {
		return "the built-in rules " + g.Name
	}
	text := "NodeFeatureRule " + g.Name
	for i := range w.Rules {
		switch r := &w.Rules[i]; {
		case string(r.UID) == g.ID || r.UID == "" && r.Name == g.ID:
			return text
		case r.Name == g.Name:
			return text + ", which was deleted and created again"
		}
	}
	return text + ", which was deleted"
}

package plan

import (
	"maps"
	"slices"
	"strings"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
)

// Record defines how the owned keys of a Node are recorded: in annotations in NFD's format, so that NFD and Assay can take over
// from each other. The zero Record is the default.
type Record struct {
	// Instance distinguishes several controllers in one cluster. It is a prefix of the namespace of the annotations.
	Instance string
	// Bare keeps names without a namespace unchanged (NFD's feature gate DisableAutoPrefix). Records that were written without it
	// can still be parsed.
	Bare bool
}

// Labels returns the name of the annotation that lists the owned labels.
func (r Record) Labels() string { return r.annotation(nfdv1alpha1.FeatureLabelsAnnotation) }

// Annotations returns the name of the annotation that lists the owned annotations.
func (r Record) Annotations() string { return r.annotation(nfdv1alpha1.FeatureAnnotationsAnnotation) }

// Resources returns the name of the annotation that lists the owned extended resources.
func (r Record) Resources() string { return r.annotation(nfdv1alpha1.ExtendedResourcesAnnotation) }

// Taints returns the name of the annotation that lists the owned taints. In NFD it is the same for all instances, which therefore remove the
// taints of one another.
func (r Record) Taints() string { return r.annotation(nfdv1alpha1.TaintsAnnotation) }

// Conditions returns the annotation that lists the owned conditions. NFD has none.
func (r Record) Conditions() string { return r.annotation(assayv1alpha1.NodeConditionsAnnotation) }

func (r Record) annotation(name string) string {
	if r.Instance == "" {
		return name
	}
	return r.Instance + "." + name
}

// mayOwn reports whether a key in the record can be owned. A kubelet may edit the annotations of its own Node, including the
// record: without this check it could list control-plane taints or isolating labels there to have them removed, which it is not
// allowed to do itself.
func (p Policy) mayOwn(kind keys.Kind, key string) bool {
	policy := keys.Policy{DisableAutoPrefix: true, Requests: true}
	if p.Keys != nil {
		policy.Protected = p.Keys.Protected
	}
	switch kind {
	case keys.Label, keys.Annotation:
		return !policy.Protects(key)
	case keys.Resource:
		return policy.ResourceName(key).Cause != keys.ProtectedKey
	case keys.Condition:
		return policy.ConditionType(key).OK()
	}
	return policy.TaintKey(key).OK()
}

// defaultPrefix is omitted from names in the record.
const defaultPrefix = nfdv1alpha1.FeatureLabelNamespace + "/"

// Parse returns the full names in a record.
func (r Record) Parse(list string) []string {
	var out []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if !r.Bare && !strings.Contains(name, "/") {
			name = defaultPrefix + name
		}
		if out == nil {
			out = make([]string, 0, 1+strings.Count(list, ","))
		}
		out = append(out, name)
	}
	return out
}

// Format formats full names as a record: sorted, comma-separated, without the default namespace.
func (r Record) Format(names []string) string {
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = r.short(name)
	}
	slices.Sort(short)
	return strings.Join(slices.Compact(short), ",")
}

// short removes the default namespace from a name if Parse restores it. A record may contain invalid keys, such as a namespace
// without a name; short keeps these unchanged.
func (r Record) short(name string) string {
	rest, ok := strings.CutPrefix(name, defaultPrefix)
	if r.Bare || !ok || rest == "" || rest != strings.TrimSpace(rest) || strings.Contains(rest, "/") {
		return name
	}
	return rest
}

// Given returns the labels, extended resources and taints that a Node has from rules: those in the record.
func (p Policy) Given(state State) Desired {
	d := Desired{Labels: map[string]string{}, ExtendedResources: map[string]string{}}
	pick := func(to map[string]string, kind keys.Kind, annotation string, have map[string]string) {
		for _, key := range p.Record.Parse(state.Annotations[annotation]) {
			key = p.Record.resolve(key, have)
			if value, ok := have[key]; ok && p.mayOwn(kind, key) {
				to[key] = value
			}
		}
	}
	pick(d.Labels, keys.Label, p.Record.Labels(), state.Labels)
	pick(d.ExtendedResources, keys.Resource, p.Record.Resources(), resources(state))
	owned := map[string]bool{}
	for _, t := range ParseTaints(state.Annotations[p.Record.Taints()]) {
		owned[keys.TaintName(t)] = p.mayOwn(keys.Taint, t.Key)
	}
	for _, t := range state.Taints {
		if owned[keys.TaintName(t)] {
			d.Taints = append(d.Taints, t)
		}
	}
	return d
}

// resolve adds the default namespace to a name in the record if only the name with the namespace is on the Node: the record was
// then written before Bare was set.
func (r Record) resolve(name string, have map[string]string) string {
	if !r.Bare {
		return name
	}
	_, bare := have[name]
	if _, prefixed := have[defaultPrefix+name]; prefixed && !bare {
		return defaultPrefix + name
	}
	return name
}

// recordAfter returns the changes to the record annotations; nil removes an annotation. The record of taints is not included,
// because taints have their own patch.
func (p *Plan) recordAfter() map[string]*string {
	out := map[string]*string{}
	p.recordKeys(out, p.policy.Record.Labels(), keys.Label)
	p.recordKeys(out, p.policy.Record.Annotations(), keys.Annotation)
	p.recordKeys(out, p.policy.Record.Resources(), keys.Resource)
	p.recordKeys(out, p.policy.Record.Conditions(), keys.Condition)
	return out
}

// recordKeys adds the change to the record of one kind. The record of a kind of which nothing changes stays as it is.
func (p *Plan) recordKeys(out map[string]*string, annotation string, kind keys.Kind) {
	if p.owned[kind] != nil {
		p.recordInto(out, annotation, p.policy.Record.Format(slices.Collect(maps.Keys(p.owned[kind]))))
	}
}

func (p *Plan) recordInto(out map[string]*string, annotation, value string) {
	old, present := p.state.Annotations[annotation]
	switch {
	case value == "" && present:
		out[annotation] = nil
	case value != "" && value != old:
		out[annotation] = &value
	}
}

// taintRecordAfter returns the record of taints after the plan is applied.
func (p *Plan) taintRecordAfter() string {
	var list []string
	for _, t := range p.TaintsAfter() {
		if p.owned[keys.Taint][keys.TaintName(t)] {
			list = append(list, FormatTaint(t))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

package plan

import (
	"maps"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Record is how it is kept on a Node which keys are ours: in annotations, in NFD's form, so that either can take over from
// the other. The zero Record is the default one.
type Record struct {
	// Instance keeps several controllers in one cluster apart. It is put in front of the annotations' namespace.
	Instance string
}

// Labels is the annotation that lists our labels.
func (r Record) Labels() string { return r.annotation(nfdv1alpha1.FeatureLabelsAnnotation) }

// Annotations is the annotation that lists our annotations.
func (r Record) Annotations() string { return r.annotation(nfdv1alpha1.FeatureAnnotationsAnnotation) }

// Resources is the annotation that lists our extended resources.
func (r Record) Resources() string { return r.annotation(nfdv1alpha1.ExtendedResourcesAnnotation) }

// Taints is the annotation that lists our taints. NFD does not tell instances apart here.
func (r Record) Taints() string { return nfdv1alpha1.TaintsAnnotation }

func (r Record) annotation(name string) string {
	if r.Instance == "" {
		return name
	}
	return r.Instance + "." + name
}

// defaultPrefix is left out of names in the record.
const defaultPrefix = nfdv1alpha1.FeatureLabelNamespace + "/"

// Parse returns the full names in a list as it is recorded.
func (r Record) Parse(list string) []string {
	var out []string
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if !strings.Contains(name, "/") {
			name = defaultPrefix + name
		}
		out = append(out, name)
	}
	return out
}

// Format writes full names as they are recorded: sorted, separated by commas, without the default namespace.
func (r Record) Format(names []string) string {
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = strings.TrimPrefix(name, defaultPrefix)
	}
	slices.Sort(short)
	return strings.Join(slices.Compact(short), ",")
}

// after returns what the annotations of the record must be changed to: nil to remove one. Those that are right already are
// left out. Taints have a patch of their own, and so has their record.
func (p *Plan) recordAfter() map[string]*string {
	out := map[string]*string{}
	p.recordInto(out, p.policy.Record.Labels(), p.policy.Record.Format(slices.Collect(maps.Keys(p.owned[Label]))))
	p.recordInto(out, p.policy.Record.Annotations(), p.policy.Record.Format(slices.Collect(maps.Keys(p.owned[Annotation]))))
	p.recordInto(out, p.policy.Record.Resources(), p.policy.Record.Format(slices.Collect(maps.Keys(p.owned[Resource]))))
	return out
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

// taintRecordAfter is the record of taints once the plan is carried out.
func (p *Plan) taintRecordAfter() string {
	var list []string
	for _, t := range p.taintsAfter() {
		if p.owned[Taint][taintKey(t)] {
			list = append(list, FormatTaint(t))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

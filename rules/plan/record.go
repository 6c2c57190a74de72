package plan

import (
	"maps"
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules/keys"
)

// Record is how it is kept on a Node which keys are ours: in annotations, in NFD's form, so that either can take over from
// the other. The zero Record is the default one.
type Record struct {
	// Instance keeps several controllers in one cluster apart. It is put in front of the annotations' namespace.
	Instance string
	// Bare says that names without a namespace stand for themselves (NFD's feature gate DisableAutoPrefix). A record that
	// was written without it is still understood.
	Bare bool
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

// mayOwn reports whether a key in the record can be ours. The record is an annotation, and a kubelet may edit those of its
// own Node: without this check a node could have its control-plane taint or its isolating labels removed by entering them,
// which it is not allowed to do itself.
func (p Policy) mayOwn(kind Kind, key string) bool {
	policy := keys.Policy{DisableAutoPrefix: true}
	if p.Keys != nil {
		policy.Protected = p.Keys.Protected
	}
	switch kind {
	case Label:
		return policy.LabelName(key).Cause != keys.ProtectedKey
	case Annotation:
		return policy.AnnotationName(key).Cause != keys.ProtectedKey
	case Resource:
		return policy.ResourceName(key).Cause != keys.ProtectedKey
	}
	return policy.TaintKey(key).OK()
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
		if !r.Bare && !strings.Contains(name, "/") {
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
		short[i] = r.short(name)
	}
	slices.Sort(short)
	return strings.Join(slices.Compact(short), ",")
}

// short leaves out the default namespace of a name that Parse gives it back. A record may hold names that are not valid keys, such
// as the namespace alone: they stay as they are.
func (r Record) short(name string) string {
	rest, ok := strings.CutPrefix(name, defaultPrefix)
	if r.Bare || !ok || rest == "" || rest != strings.TrimSpace(rest) || strings.Contains(rest, "/") {
		return name
	}
	return rest
}

// resolve gives a name of the record its namespace if only so it is on the Node: the record was written before names could
// be bare.
func (r Record) resolve(name string, have map[string]string) string {
	if !r.Bare || strings.Contains(name, "/") {
		return name
	}
	_, bare := have[name]
	if _, prefixed := have[defaultPrefix+name]; prefixed && !bare {
		return defaultPrefix + name
	}
	return name
}

// recordAfter returns what the annotations of the record must be changed to: nil to remove one. Those that are right already are
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

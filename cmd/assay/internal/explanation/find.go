package explanation

import (
	"slices"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/written"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// find returns the keys with a name that rules set. The name may omit the default namespace.
func (e *Explanation) find(name string) []given {
	full := e.world.Limits.Keys.Qualify(name)
	var out []given
	for _, m := range []struct {
		kind   keys.Kind
		values map[string]string
	}{
		{keys.Label, e.outcome.Labels()}, {keys.Annotation, e.outcome.Annotations()},
		{keys.Resource, e.outcome.ExtendedResources()},
		{keys.Condition, e.outcome.NodeConditions()},
	} {
		for _, key := range []string{name, full} {
			if value, ok := m.values[key]; ok && !slices.Contains(out, given{m.kind, key, value}) {
				out = append(out, given{m.kind, key, value})
			}
		}
	}
	for _, t := range e.outcome.Taints() {
		if t.Key == name || t.Key == full || keys.TaintName(t) == name {
			out = append(out, given{keys.Taint, keys.TaintName(t), t.Value})
		}
	}
	return out
}

// names reports whether a rule could write a key.
func (e *Explanation) names(t *rules.RuleTrace, name string) bool {
	full := e.world.Limits.Keys.Qualify(name)
	rule := e.spec(t.Ref)
	if rule == nil {
		return false
	}
	for _, m := range []map[string]string{rule.Labels, rule.Annotations, rule.ExtendedResources} {
		for key := range m {
			if q := e.world.Limits.Keys.Qualify(key); q == full || strings.Contains(key, "{") && sameShape(q, full) {
				return true
			}
		}
	}
	for _, c := range rule.NodeConditions {
		if c.Type == name {
			return true
		}
	}
	for _, taint := range rule.Taints {
		if taint.Key == name || taint.Key == full {
			return true
		}
	}
	short := strings.TrimPrefix(full, nfdv1alpha1.FeatureLabelNamespace+"/")
	if strings.Contains(rule.LabelsTemplate, short) {
		return true
	}
	return slices.ContainsFunc(rule.Actions, func(a nfdv1alpha1.Action) bool { return strings.Contains(string(a.Args.Raw), "/"+short) })
}

// sameShape reports whether a key with expressions can result in key: the literal text before and after the expressions must match.
func sameShape(pattern, key string) bool {
	before, _, _ := strings.Cut(pattern, "{")
	after := pattern[strings.LastIndexByte(pattern, '}')+1:]
	return strings.HasPrefix(key, before) && strings.HasSuffix(key, after)
}

// spec returns the source of a rule. Rules from a base are found by name.
func (e *Explanation) spec(ref rules.Ref) *nfdv1alpha1.Rule {
	for i := range e.world.Rules {
		if e.world.Rules[i].Name != ref.Object {
			continue
		}
		specs := []*nfdv1alpha1.NodeFeatureRuleSpec{&e.world.Rules[i].Spec}
		for _, t := range e.world.Templates {
			specs = append(specs, t)
		}
		for _, spec := range specs {
			for j := range spec.Rules {
				if spec.Rules[j].Name == ref.Rule {
					return &spec.Rules[j]
				}
			}
		}
	}
	return nil
}

func (e *Explanation) suggest(name string) string {
	known := e.program.KeyNames()
	for _, m := range []map[string]string{e.outcome.Labels(), e.outcome.Annotations(), e.outcome.ExtendedResources(), e.outcome.NodeConditions()} {
		known = append(known, facts.SortedKeys(m)...)
	}
	return cli.DidYouMean(e.world.Limits.Keys.Qualify(name), known)
}

// named returns the keys of the Node with a name, with or without its namespace, and with or without the effect of a taint.
func (e *Explanation) named(name string) (out []given) {
	full := e.world.Limits.Keys.Qualify(name)
	for _, k := range written.Keys(e.node) {
		short := k.Key
		if k.Kind == keys.Taint {
			short, _, _ = strings.Cut(k.Key, ":")
		}
		if k.Key == name || short == name || short == full && k.Kind != keys.Condition {
			out = append(out, given{k.Kind, k.Key, k.Value})
		}
	}
	return out
}

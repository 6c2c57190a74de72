package doctor

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/rules/keys"
)

// writes checks that rules write only in the namespaces that the admission policy of the controller allows: the API server rejects others.
func (e *examination) writes(ctx context.Context) error {
	policy, err := e.c.NodeWrites(ctx)
	if cluster.IsNotFound(err) || cluster.IsForbidden(err) {
		return nil // it is not installed, or the user may not read it
	}
	if err != nil {
		return err
	}
	allowed := allowedNamespaces(policy)
	if len(allowed) == 0 {
		return nil
	}
	rules, err := e.c.Rules(ctx)
	if err != nil {
		return err
	}
	for i := range rules {
		if outside := keysOutside(&rules[i], allowed); len(outside) > 0 {
			e.report("rules", Warning,
				fmt.Sprintf("NodeFeatureRule %s writes %s, which the policy %s does not let the controller write", rules[i].Name, strings.Join(outside, ", "), policy.Name),
				"Add the namespaces of these keys to policies.namespaces of the chart")
		}
	}
	return nil
}

// quoted matches a string in the list of the Common Expression Language that the chart writes. Namespaces have no quotes.
var quoted = regexp.MustCompile(`'([^']*)'`)

// allowedNamespaces returns policies.namespaces of the chart; empty: all of them are allowed.
func allowedNamespaces(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (out []string) {
	for _, v := range policy.Spec.Variables {
		if v.Name == "namespaces" {
			for _, match := range quoted.FindAllStringSubmatch(v.Expression, -1) {
				out = append(out, match[1])
			}
		}
	}
	return out
}

// keysOutside returns the keys that an object of rules writes in other namespaces, sorted. It does not see those of templates, actions and bases.
func keysOutside(r *nfdv1alpha1.NodeFeatureRule, allowed []string) []string {
	var all []string
	for i := range r.Spec.Rules {
		rule := &r.Spec.Rules[i]
		for _, m := range []map[string]string{rule.Labels, rule.Annotations, rule.ExtendedResources} {
			all = slices.AppendSeq(all, maps.Keys(m))
		}
		for _, t := range rule.Taints {
			all = append(all, t.Key)
		}
		for _, c := range rule.NodeConditions {
			all = append(all, c.Type)
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(key string) bool {
		namespace, _ := keys.Split(key)
		own := namespace == "" || namespace == nfdv1alpha1.FeatureLabelNamespace || namespace == assayv1alpha1.RequestLabelNamespace
		return own || strings.ContainsAny(key, "{@") || slices.ContainsFunc(allowed, func(a string) bool {
			return a == namespace || strings.HasPrefix(a, ".") && strings.HasSuffix(namespace, a)
		})
	})
}

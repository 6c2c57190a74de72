package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// accountInCEL is the user name of a ServiceAccount, or a pattern of them, in an expression.
var accountInCEL = regexp.MustCompile(`['"](\^?system:serviceaccount:[^'"]+)['"]`)

// disarmed reports policies that exist and apply to no ServiceAccount of the component whose token they restrict. An overlay of kustomize that
// moves the pods to another namespace or renames the ServiceAccounts does not change the names in the expressions.
func (e *examination) disarmed(policies []admissionregistrationv1.ValidatingAdmissionPolicy) {
	accounts := map[string][]string{}
	for _, a := range e.accounts() {
		accounts[a.component] = append(accounts[a.component], a.user())
	}
	for _, p := range protects {
		i := slices.IndexFunc(policies, func(o admissionregistrationv1.ValidatingAdmissionPolicy) bool { return o.Name == p.name })
		if i < 0 || len(accounts[p.component]) == 0 {
			continue
		}
		if named := accountsOf(&policies[i].Spec); len(named) > 0 && !slices.ContainsFunc(accounts[p.component], func(user string) bool { return matchesAny(named, user) }) {
			e.report("policies", Error, fmt.Sprintf("admission policy %s names %s, and not %s of the %s: %s",
				p.name, strings.Join(named, ", "), strings.Join(accounts[p.component], ", "), p.component, p.without),
				"Run helm upgrade, or apply hack/kustomize/base, whose policies apply in every namespace: an overlay of kustomize changes no names in expressions")
		}
	}
}

// accountsOf returns the names and patterns of ServiceAccounts in the expressions of a policy.
func accountsOf(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) (out []string) {
	var all []string
	for _, c := range spec.MatchConditions {
		all = append(all, c.Expression)
	}
	for _, v := range spec.Variables {
		all = append(all, v.Expression)
	}
	for _, v := range spec.Validations {
		all = append(all, v.Expression)
	}
	for _, match := range accountInCEL.FindAllStringSubmatch(strings.Join(all, "\n"), -1) {
		if parts := strings.Split(match[1], ":"); parts[len(parts)-1] != "" { // else it is a prefix, of all ServiceAccounts of a namespace
			out = append(out, match[1])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// matchesAny reports whether a user has one of the names, or matches one of the patterns.
func matchesAny(named []string, user string) bool {
	return slices.ContainsFunc(named, func(one string) bool {
		if !strings.HasPrefix(one, "^") {
			return one == user
		}
		pattern, err := regexp.Compile(one)
		return err == nil && pattern.MatchString(user)
	})
}

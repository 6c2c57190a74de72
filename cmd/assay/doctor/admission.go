package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// protects are the admission policies of a default installation, with the component whose token they restrict or exempt, and what is possible
// without them.
var protects = []struct{ name, component, without string }{
	{"assay-holds", "controller", "a client that may create Events can forge what the controller reports about Nodes"},
	{"assay-node-writes", "controller", "the controller's token can write any label, taint and condition of Nodes"},
	{"assay-node-bound-publishing", "worker", "the token of one worker can publish features of all Nodes"},
	{"assay-node-bound-sets", "worker", "the token of one worker can fill etcd with NodeFeatureSets"},
}

// admission checks that the admission policies exist and are bound with an action that rejects requests.
func (e *examination) admission(ctx context.Context) error {
	const check = "policies"
	policies, err := e.c.ValidatingPolicies(ctx)
	if err != nil {
		return err
	}
	bindings, err := e.c.ValidatingBindings(ctx)
	if err != nil {
		return err
	}
	e.disarmed(policies)
	var missing, unbound, lenient, risks []string
	for _, p := range protects {
		if !slices.ContainsFunc(policies, func(o admissionregistrationv1.ValidatingAdmissionPolicy) bool { return o.Name == p.name }) {
			missing, risks = append(missing, p.name), append(risks, p.without)
			continue
		}
		bound, denies := false, false
		for i := range bindings {
			if bindings[i].Spec.PolicyName == p.name {
				bound = true
				denies = denies || slices.Contains(bindings[i].Spec.ValidationActions, admissionregistrationv1.Deny)
			}
		}
		switch {
		case !bound:
			unbound, risks = append(unbound, p.name), append(risks, p.without)
		case !denies:
			lenient, risks = append(lenient, p.name), append(risks, p.without)
		}
	}
	var wrong []string
	for _, w := range []struct {
		names []string
		text  string
	}{{missing, "do not exist"}, {unbound, "have no ValidatingAdmissionPolicyBinding"}, {lenient, "are bound without the action Deny"}} {
		if len(w.names) > 0 {
			wrong = append(wrong, strings.Join(w.names, ", ")+" "+w.text)
		}
	}
	if len(wrong) == 0 {
		e.ok(check, "all %d admission policies are bound and reject requests", len(protects))
		return nil
	}
	e.report(check, Warning, fmt.Sprintf("admission policies %s: %s", strings.Join(wrong, "; "), strings.Join(risks, "; ")),
		"Run helm upgrade with policies.install=true, which creates them and their bindings; without them on purpose, see docs/security.md")
	return nil
}

package charts

import (
	"fmt"
	"strconv"
	"strings"
)

// The default names in the policies.
const (
	// DefaultNamespace is the namespace in which Assay is installed.
	DefaultNamespace = "assay-system"
	// DefaultWorker is the ServiceAccount of the workers in that namespace.
	DefaultWorker = "assay-worker"
	// DefaultManager is the ServiceAccount of the manager in that namespace.
	DefaultManager = "assay-manager"
	// DefaultTopology is the ServiceAccount of the publishers of NodeResourceTopologies in that namespace.
	DefaultTopology = "assay-topology"
)

// TopologyPolicy returns the YAML of the policy about NodeResourceTopologies, which Policies does not contain, for publishers in a namespace.
// It is installed with these publishers only.
func TopologyPolicy(namespace string) []byte {
	return []byte(strings.ReplaceAll(string(read("files/topology/policy.yaml")), user(DefaultNamespace, DefaultTopology), user(or(namespace, DefaultNamespace), DefaultTopology)))
}

// PolicySettings are what an installation writes into the policies. Empty names mean the defaults.
type PolicySettings struct {
	Namespace, Worker, Manager string
	// StartupTaint is the key of the taint that the controller removes from new nodes; empty: none.
	StartupTaint string
	// OwnTaints are the keys of the taints that Assay itself writes, failTaint and lossTaint.
	OwnTaints []string
	// Namespaces are the namespaces of keys that the controller may write on Nodes in addition to Assay's own; a leading dot covers all
	// below. Empty: all that are not protected.
	Namespaces []string
	// Hardened binds every ServiceAccount to the node of its token, except Publishers.
	Hardened bool
	// Publishers are ServiceAccounts that may publish for any node, as NAMESPACE/NAME, if Hardened is set.
	Publishers []string
}

// Policies returns the YAML of the ValidatingAdmissionPolicies and their bindings, by file name.
func Policies(s PolicySettings) map[string][]byte {
	namespace := or(s.Namespace, DefaultNamespace)
	replace := strings.NewReplacer(
		user(DefaultNamespace, DefaultWorker), user(namespace, or(s.Worker, DefaultWorker)),
		user(DefaultNamespace, DefaultManager), user(namespace, or(s.Manager, DefaultManager)),
		"'"+DefaultNamespace+"'", "'"+namespace+"'",
		variable("startupTaint", "''"), variable("startupTaint", quote(s.StartupTaint)),
		variable("ownTaints", "[]"), variable("ownTaints", list(s.OwnTaints)),
		variable("namespaces", "[]"), variable("namespaces", list(s.Namespaces)),
		variable("hardened", "false"), variable("hardened", strconv.FormatBool(s.Hardened)),
		variable("publishers", "[]"), variable("publishers", list(users(s.Publishers))),
	)
	out := all("files/policies")
	for name, data := range out {
		out[name] = []byte(replace.Replace(string(data)))
	}
	return out
}

// variable returns the YAML of a variable of a policy that is a setting.
func variable(name, expression string) string {
	return fmt.Sprintf("- name: %s\n    expression: %q\n", name, expression)
}

// quote returns a CEL string. Names and keys have no characters to escape.
func quote(s string) string { return "'" + s + "'" }

// list returns a CEL list of strings.
func list(values []string) string {
	var quoted []string
	for _, v := range values {
		quoted = append(quoted, quote(v))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// users returns the user names of ServiceAccounts that are written as NAMESPACE/NAME.
func users(accounts []string) (out []string) {
	for _, a := range accounts {
		namespace, name, _ := strings.Cut(a, "/")
		out = append(out, user(namespace, name))
	}
	return out
}

func user(namespace, serviceAccount string) string {
	return "system:serviceaccount:" + namespace + ":" + serviceAccount
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// The MutatingAdmissionPolicies for pods that require features.
const (
	// PodScheduler sets the scheduler of pods to that of their namespace.
	PodScheduler = "pod-scheduler"
	// FeatureRequest writes the label of the NodeFeatureRequest that a pod names into its node selector.
	FeatureRequest = "feature-request"
)

// SchedulingPolicy returns the YAML of one of these policies and its binding.
func SchedulingPolicy(name string) []byte { return read("files/scheduling/" + name + ".yaml") }

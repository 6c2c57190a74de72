package keys

import (
	"strings"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// protectedNamespaces are namespaces that rules may not use, whatever the policy allows: Kubernetes uses their keys to schedule and
// evict pods and to authorize nodes. See https://kubernetes.io/docs/reference/labels-annotations-taints/ and, for node-restriction,
// the NodeRestriction admission plugin.
var protectedNamespaces = []struct {
	namespace string
	below     bool // also protects the subdomains
	why       string
}{
	{"node-role.kubernetes.io", true, "it says which nodes run the control plane"},
	{"node-restriction.kubernetes.io", true, "administrators isolate nodes by it, and features are not evidence enough"},
	{"topology.kubernetes.io", true, "volumes and the spreading of pods depend on it"},
	{"failure-domain.beta.kubernetes.io", true, "volumes and the spreading of pods depend on it"},
	{"node.kubernetes.io", false, "Kubernetes keeps the life of nodes there"},
	{"node.alpha.kubernetes.io", true, "Kubernetes keeps the life of nodes there"},
	{"node.cloudprovider.kubernetes.io", true, "cloud controllers keep the life of nodes there"},
	{"cloudprovider.kubernetes.io", true, "cloud controllers keep the life of nodes there"},
	{"alpha.kubernetes.io", true, "it is the kubelet's"},
	{"beta.kubernetes.io", true, "it is the kubelet's"},
	{"kubelet.kubernetes.io", true, "it is the kubelet's"},
	{"kubeadm.alpha.kubernetes.io", true, "kubeadm finds the container runtime by it"},
	{"volumes.kubernetes.io", true, "volumes are attached by it"},
	{"csi.volume.kubernetes.io", true, "volumes are attached by it"},
	{"pod-security.kubernetes.io", true, "it decides what pods may do"},
	{"container.apparmor.security.beta.kubernetes.io", true, "it decides what pods may do"},
	{"cluster-autoscaler.kubernetes.io", true, "the autoscaler removes nodes by it"},
	{nfdv1alpha1.BookkeepingNamespace, true, "the record of what rules wrote is kept there"},
	{assayv1alpha1.GroupName, true, "Assay writes it itself"},
}

// protectedKeys are protected keys in namespaces that are otherwise allowed, or may be allowed with ExtraNamespaces.
var protectedKeys = map[string]string{
	"kubernetes.io/hostname":                           "pods and volumes are bound to nodes by it",
	"kubernetes.io/os":                                 "it is the kubelet's",
	"kubernetes.io/arch":                               "it is the kubelet's",
	"kubernetes.io/role":                               "it says which nodes run the control plane",
	"kubernetes.io/instance-type":                      "it is the cloud's",
	"kubernetes.io/metadata.name":                      "policies trust it as the object's name",
	"kubernetes.io/cluster-service":                    "it marks parts of the control plane",
	"kubernetes.io/config.source":                      "it is the kubelet's",
	"kubernetes.io/config.seen":                        "it is the kubelet's",
	"kubernetes.io/config.mirror":                      "it is the kubelet's",
	"kubectl.kubernetes.io/last-applied-configuration": "kubectl computes changes from it",
}

// protectedBareKeys are protected keys without a namespace. They matter if DisableAutoPrefix is set.
var protectedBareKeys = map[string]string{
	"ToBeDeletedByClusterAutoscaler":       "the autoscaler removes nodes by it",
	"DeletionCandidateOfClusterAutoscaler": "the autoscaler removes nodes by it",
	"CriticalAddonsOnly":                   "it marks parts of the control plane",
}

// protectedBy returns why a key is protected, or "" if it is not.
func (p *Policy) protectedBy(key string) string {
	namespace, _ := Split(key)
	if p.Requests && namespace == assayv1alpha1.RequestLabelNamespace {
		return ""
	}
	if why := protectedAlways(namespace, key); why != "" {
		return why
	}
	for _, entry := range p.Protected {
		if entry == key || covers(entry, namespace) {
			return "the administrator protects " + entry
		}
	}
	return ""
}

// protectedAlways returns why a key is protected under every policy, or "" if it is not.
func protectedAlways(namespace, key string) string {
	switch {
	case namespace == "":
		return protectedBareKeys[key]
	case namespace == nfdv1alpha1.FeatureLabelNamespace:
		return "" // applies to most keys
	case !reserved(namespace) && !within(namespace, assayv1alpha1.GroupName):
		return "" // namespaces of vendors
	}
	if why := protectedKeys[key]; why != "" {
		return why
	}
	for i := range protectedNamespaces {
		entry := &protectedNamespaces[i]
		if namespace == entry.namespace || entry.below && within(namespace, entry.namespace) {
			return entry.why
		}
	}
	return ""
}

// native reports whether a name without a namespace is a resource that Kubernetes itself accounts for. NFD would add the default
// namespace, which is never intended.
func native(name string) bool {
	switch name {
	case "cpu", "memory", "storage", "ephemeral-storage", "pods", "services", "secrets", "configmaps",
		"replicationcontrollers", "resourcequotas", "persistentvolumeclaims", "count":
		return true
	}
	for _, prefix := range [...]string{"hugepages-", "attachable-volumes-", "limits.", "requests."} {
		if strings.HasPrefix(name, prefix) && strings.IndexByte(name, '/') < 0 {
			return true
		}
	}
	return false
}

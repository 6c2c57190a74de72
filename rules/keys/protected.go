package keys

import (
	"slices"
	"strings"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// ProtectedNamespace is a namespace that rules may not use, whatever the policy allows.
type ProtectedNamespace struct {
	Namespace string `json:"namespace"`
	// Below also protects the subdomains.
	Below bool   `json:"below"`
	Why   string `json:"why"`
}

// protectedNamespaces are namespaces that rules may not use, whatever the policy allows: Kubernetes uses their keys to schedule and
// evict pods and to authorize nodes. See https://kubernetes.io/docs/reference/labels-annotations-taints/ and, for node-restriction,
// the NodeRestriction admission plugin.
var protectedNamespaces = []ProtectedNamespace{
	{"node-role.kubernetes.io", true, "it marks control plane nodes"},
	{"node-restriction.kubernetes.io", true, "administrators use it to isolate nodes"},
	{"topology.kubernetes.io", true, "volumes and topology spread constraints depend on it"},
	{"failure-domain.beta.kubernetes.io", true, "volumes and topology spread constraints depend on it"},
	{"node.kubernetes.io", false, "Kubernetes uses it for the node lifecycle"},
	{"node.alpha.kubernetes.io", true, "Kubernetes uses it for the node lifecycle"},
	{"node.cloudprovider.kubernetes.io", true, "cloud controllers use it for the node lifecycle"},
	{"cloudprovider.kubernetes.io", true, "cloud controllers use it for the node lifecycle"},
	{"alpha.kubernetes.io", true, "the kubelet manages it"},
	{"beta.kubernetes.io", true, "the kubelet manages it"},
	{"kubelet.kubernetes.io", true, "the kubelet manages it"},
	{"kubeadm.alpha.kubernetes.io", true, "kubeadm uses it to find the container runtime"},
	{"volumes.kubernetes.io", true, "it is used to attach volumes"},
	{"csi.volume.kubernetes.io", true, "it is used to attach volumes"},
	{"pod-security.kubernetes.io", true, "it controls what pods may do"},
	{"container.apparmor.security.beta.kubernetes.io", true, "it controls what pods may do"},
	{"cluster-autoscaler.kubernetes.io", true, "the cluster autoscaler uses it to remove nodes"},
	{nfdv1alpha1.BookkeepingNamespace, true, "it holds the record of outputs"},
	{assayv1alpha1.GroupName, true, "Assay writes it itself"},
}

// protectedKeys are protected keys in namespaces that are otherwise allowed, or may be allowed with ExtraNamespaces.
var protectedKeys = map[string]string{
	"kubernetes.io/hostname":                           "it is used to schedule pods and volumes",
	"kubernetes.io/os":                                 "the kubelet manages it",
	"kubernetes.io/arch":                               "the kubelet manages it",
	"kubernetes.io/role":                               "it marks control plane nodes",
	"kubernetes.io/instance-type":                      "the cloud provider manages it",
	"kubernetes.io/metadata.name":                      "policies rely on it as the name of the object",
	"kubernetes.io/cluster-service":                    "it marks parts of the control plane",
	"kubernetes.io/config.source":                      "the kubelet manages it",
	"kubernetes.io/config.seen":                        "the kubelet manages it",
	"kubernetes.io/config.mirror":                      "the kubelet manages it",
	"kubectl.kubernetes.io/last-applied-configuration": "kubectl apply uses it to compute changes",
}

// protectedBareKeys are protected keys without a namespace. They matter if DisableAutoPrefix is set.
var protectedBareKeys = map[string]string{
	"ToBeDeletedByClusterAutoscaler":       "the cluster autoscaler uses it to remove nodes",
	"DeletionCandidateOfClusterAutoscaler": "the cluster autoscaler uses it to remove nodes",
	"CriticalAddonsOnly":                   "it marks parts of the control plane",
}

// Protects reports whether rules may not write a key because it controls Kubernetes itself.
func (p *Policy) Protects(key string) bool { return p.protectedBy(key) != "" }

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
	return WhyProtected(namespace)
}

// ProtectedNamespaces returns all protected namespaces.
func ProtectedNamespaces() []ProtectedNamespace { return slices.Clone(protectedNamespaces) }

// WhyProtected returns why rules may not use any name in a namespace, whatever the policy allows, or "".
func WhyProtected(namespace string) string {
	for i := range protectedNamespaces {
		entry := &protectedNamespaces[i]
		if namespace == entry.Namespace || entry.Below && within(namespace, entry.Namespace) {
			return entry.Why
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

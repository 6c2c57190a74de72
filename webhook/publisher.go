package webhook

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// nodeClaim is the key in a user's extra with the name of the node on which the token's pod runs (KEP-4193; in tokens by default
// since Kubernetes 1.30). The API server sets it, so that a process cannot choose it.
const nodeClaim = "authentication.kubernetes.io/node-name"

// nodeUIDClaim is the key with the UID of that node, if it existed when the token was issued. A token can outlive its Node, and a
// new Node can have the same name.
const nodeUIDClaim = "authentication.kubernetes.io/node-uid"

// Publishing configures which clients can publish which NodeFeatures. The zero value restricts none.
//
// Workers are restricted: their tokens must name a node, and they can only write the object that has the name of this node, in its
// metadata.name, its label and its feature system.name. Other clients can publish for any node, as in NFD. If Hardened is set, all
// ServiceAccounts can only write objects of the node in their token, except for the manager, which cleans up after deleted nodes,
// Publishers, and Kubernetes' own controllers. The policies of the chart have the same rule.
type Publishing struct {
	// Namespace of Assay.
	Namespace string
	// Workers and Managers are user names of ServiceAccounts, system:serviceaccount:NAMESPACE:NAME.
	Workers, Managers []string
	// Hardened restricts all ServiceAccounts but Publishers, which are user names as well.
	Hardened   bool
	Publishers []string
	// LabelPrefixes returns the prefixes of labels that NodeFeatures in a namespace can request; ok is false for a namespace
	// without restriction. Nil restricts no namespace. Features are never restricted: rules decide about their effect.
	LabelPrefixes func(namespace string) (prefixes []string, ok bool)
}

// LabelPrefixesAnnotation on a Namespace lists the prefixes of labels that its NodeFeatures can request, separated by commas; an
// empty list allows none. The owner of a namespace usually cannot edit the Namespace object itself.
const LabelPrefixesAnnotation = "assay.dev/allowed-label-prefixes"

// ParseLabelPrefixes parses LabelPrefixesAnnotation in the annotations of a Namespace.
func ParseLabelPrefixes(annotations map[string]string) (prefixes []string, ok bool) {
	text, ok := annotations[LabelPrefixesAnnotation]
	for _, p := range strings.Split(text, ",") {
		if p = strings.TrimSpace(p); p != "" {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes, ok
}

// check returns errors if the client is not allowed to write the object. Either of object and old can be nil.
func (p *Publishing) check(req *admissionv1.AdmissionRequest, object, old *nfdv1alpha1.NodeFeature) (errs field.ErrorList) {
	user := req.UserInfo.Username
	worker := contains(p.Workers, user)
	node, bound := p.bound(req)
	if !bound {
		return nil
	}
	meta := field.NewPath("metadata")
	if node == "" {
		return append(errs, namesNoNode(user))
	}
	label := meta.Child("labels").Key(nfdv1alpha1.NodeNameLabel)
	for _, o := range []*nfdv1alpha1.NodeFeature{object, old} {
		if o == nil {
			continue
		}
		if of := o.Labels[nfdv1alpha1.NodeNameLabel]; of != node {
			why := "a node publishes only for itself: the token is of node %q"
			if o == old {
				why = "a node changes only what is its own, and this object is not: the token is of node %q"
			}
			errs = append(errs, field.Invalid(label, of, fmt.Sprintf(why, node)))
		}
	}
	if !worker {
		return errs
	}
	if req.Name != "" && req.Name != node {
		errs = append(errs, field.Invalid(meta.Child("name"), req.Name,
			fmt.Sprintf("the worker's object has the name of its node, %q", node)))
	}
	if object == nil {
		return errs
	}
	errs = append(errs, checkOwners(object.OwnerReferences, claim(&req.UserInfo, nodeUIDClaim))...)
	set := object.Spec.Features.Attributes["system.name"]
	if told, ok := set.Elements["nodename"]; ok && told != node {
		errs = append(errs, field.Invalid(
			field.NewPath("spec", "features", "attributes").Key("system.name").Child("elements").Key("nodename"), told,
			fmt.Sprintf("a node publishes only for itself: the token is of node %q", node)))
	}
	return errs
}

// bound returns the node of a client's token, and whether the client may write for this node only. A bound token without a node may write
// nothing.
func (p *Publishing) bound(req *admissionv1.AdmissionRequest) (node string, bound bool) {
	user := req.UserInfo.Username
	node = claim(&req.UserInfo, nodeClaim)
	return node, contains(p.Workers, user) || p.Hardened && !contains(p.Managers, user) && !contains(p.Publishers, user) &&
		(node != "" || strings.HasPrefix(user, serviceAccountPrefix) && !strings.HasPrefix(user, serviceAccountPrefix+metav1.NamespaceSystem+":"))
}

// serviceAccountPrefix begins the user name of every ServiceAccount. Those of kube-system without a node are Kubernetes' own controllers,
// such as the garbage collector.
const serviceAccountPrefix = "system:serviceaccount:"

func namesNoNode(user string) *field.Error {
	return field.Forbidden(field.NewPath("metadata"), fmt.Sprintf(
		"%s must write with a token of its pod, which names the pod's node; this token names none", user))
}

// checkLabels returns errors for labels that the namespace cannot request.
func (p *Publishing) checkLabels(namespace string, object *nfdv1alpha1.NodeFeature) (errs field.ErrorList) {
	if p.LabelPrefixes == nil {
		return nil
	}
	prefixes, restricted := p.LabelPrefixes(namespace)
	if !restricted {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(object.Spec.Labels)) {
		full := key
		if !strings.Contains(key, "/") {
			full = nfdv1alpha1.FeatureLabelNamespace + "/" + key
		}
		if !hasPrefix(full, prefixes) {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "labels").Key(key), fmt.Sprintf(
				"namespace %q may only ask for labels that begin with %s", namespace, orNothing(prefixes))))
		}
	}
	return errs
}

// checkOwners rejects an owner that is another Node than that of the token; an empty UID is unknown. The admission policy checks
// that there is an owner, since it is configured with the owners that workers have.
func checkOwners(owners []metav1.OwnerReference, uid string) (errs field.ErrorList) {
	for i, owner := range owners {
		if uid != "" && owner.APIVersion == "v1" && owner.Kind == "Node" && string(owner.UID) != uid {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "ownerReferences").Index(i).Child("uid"), owner.UID,
				fmt.Sprintf("the token is of the Node with UID %q", uid)))
		}
	}
	return errs
}

func claim(u *authenticationv1.UserInfo, name string) string {
	if v := u.Extra[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "nothing: none are allowed"
	}
	return strings.Join(list, ", ")
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

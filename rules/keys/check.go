package keys

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"

	"github.com/assay-project/assay/rules/clip"
)

// MaxAnnotationValue is the maximum length in bytes of an annotation value, as in NFD.
const MaxAnnotationValue = 1024

// Label checks a label and its value.
func (p *Policy) Label(name, value string) Verdict {
	v := p.LabelName(name)
	if v.OK() {
		p.checkLabelValue(&v, value)
	}
	return v
}

// LabelName checks the name of a label whose value is not known yet.
func (p *Policy) LabelName(name string) Verdict {
	v := p.name(Label, name)
	if !v.OK() {
		return v
	}
	namespace, base := Split(v.Key)
	if extra := contains(p.ExtraNamespaces, namespace); !extra {
		if reserved(namespace) && !within(namespace, nfdv1alpha1.FeatureLabelNamespace) && !within(namespace, nfdv1alpha1.ProfileLabelNamespace) {
			return refuse(v.Key, BadNamespace, fmt.Sprintf("labels may not be in the namespace %q", namespace),
				fmt.Sprintf("write %s/%s, a namespace of your own, or allow the namespace with -extra-label-ns",
					nfdv1alpha1.FeatureLabelNamespace, clip.Text(base, maxShown)))
		}
		if denied := p.deniedBy(namespace); denied != "" {
			return refuse(v.Key, Denied, fmt.Sprintf("the namespace %q is denied by %q", namespace, denied), adviseNamespace(base))
		}
	}
	if p.LabelWhiteList != nil && !p.LabelWhiteList.MatchString(base) {
		return refuse(v.Key, NotWhiteListed, fmt.Sprintf("the label name %q is not on the white list %q", base, p.LabelWhiteList), "")
	}
	return v
}

// Annotation checks an annotation and its value.
func (p *Policy) Annotation(name, value string) Verdict {
	v := p.AnnotationName(name)
	if !v.OK() {
		return v
	}
	if len(value) > MaxAnnotationValue {
		return refuse(v.Key, BadValue, fmt.Sprintf("the annotation value is %d bytes long", len(value)),
			fmt.Sprintf("write at most %d bytes", MaxAnnotationValue))
	}
	if !utf8.ValidString(value) {
		return refuse(v.Key, BadValue, "the annotation value is not UTF-8", "")
	}
	return v
}

// AnnotationName checks the name of an annotation whose value is not known yet.
func (p *Policy) AnnotationName(name string) Verdict {
	v := p.name(Annotation, name)
	if !v.OK() {
		return v
	}
	return featureNamespace(v, Annotation)
}

// Resource checks an extended resource and its quantity.
func (p *Policy) Resource(name, quantity string) Verdict {
	v := p.ResourceName(name)
	if v.OK() {
		p.checkQuantity(&v, quantity)
	}
	return v
}

// ResourceName checks the name of an extended resource whose quantity is not known yet.
func (p *Policy) ResourceName(name string) Verdict {
	if native(name) && !p.Strict {
		return refuse(name, ProtectedKey, fmt.Sprintf("%q is a resource that the kubelet reports", name),
			fmt.Sprintf("write a name with a namespace, like vendor.example/%s", name))
	}
	v := p.name(Resource, name)
	if !v.OK() {
		return v
	}
	if namespace, base := Split(v.Key); namespace == "" {
		return refuse(v.Key, BadName, fmt.Sprintf("the extended resource %q has no namespace", name), adviseNamespace(base))
	}
	if strings.HasPrefix(v.Key, corev1.DefaultResourceRequestsPrefix) {
		return refuse(v.Key, BadName, fmt.Sprintf("the extended resource %q begins with %q, which resource quotas use", name, corev1.DefaultResourceRequestsPrefix), "")
	}
	return featureNamespace(v, Resource)
}

// Taint checks the key, value and effect of a taint.
func (p *Policy) Taint(t corev1.Taint) Verdict {
	v := p.TaintKey(t.Key)
	if !v.OK() {
		return v
	}
	if p.checkLabelValue(&v, t.Value); !v.OK() {
		return v
	}
	switch t.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return v
	}
	return refuse(v.Key, BadValue, fmt.Sprintf("invalid taint effect %q", t.Effect), adviseEffect(t.Effect))
}

// TaintName returns the name of a taint among the outputs of rules: KEY:EFFECT. Taints with the same name replace each other: a Node has at
// most one for each key and effect.
func TaintName(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// TaintKey checks the key of a taint whose value is not known yet. A taint never gets the default namespace, because pods tolerate
// it by its full key.
func (p *Policy) TaintKey(key string) Verdict {
	if namespace, base := Split(key); namespace == "" {
		return refuse(key, BadName, fmt.Sprintf("the taint key %q has no namespace", key), adviseNamespace(base))
	}
	v := p.name(Taint, key)
	if !v.OK() {
		return v
	}
	return featureNamespace(v, Taint)
}

// ConditionType checks the type of a condition. Components of Kubernetes and of its SIGs act on conditions, so that rules write none of
// those; and a type without a namespace could become one of them.
func (p *Policy) ConditionType(kind string) Verdict {
	namespace, base := Split(kind)
	if namespace == "" {
		return refuse(kind, BadName, fmt.Sprintf("the condition type %q has no namespace", kind), adviseConditionType(base))
	}
	if fault := faultOfKey(kind); fault != "" {
		return refuse(kind, BadName, fmt.Sprintf("invalid %s type %s: %s", Condition, strconv.Quote(clip.Text(kind, maxShown)), fault),
			"write a DNS name, one slash and a name in CamelCase, such as example.com/DriverReady")
	}
	for _, root := range [...]string{"kubernetes.io", "k8s.io", "x-k8s.io"} {
		if within(namespace, root) {
			return refuse(kind, ProtectedKey, fmt.Sprintf("the %s %q is protected: Kubernetes and its SIGs define the conditions of %s", Condition, kind, root),
				adviseConditionType(base))
		}
	}
	if by := p.protectedBy(kind); by != "" {
		return refuse(kind, ProtectedKey, fmt.Sprintf("the %s %q is protected: %s", Condition, kind, by), adviseConditionType(base))
	}
	return Verdict{Key: kind}
}

func adviseConditionType(base string) string {
	return fmt.Sprintf("write a namespace of your own, such as example.com/%s", clip.Text(base, maxShown))
}

// startupTaintExample is the key that the documentation recommends: with another one, Cluster Autoscaler buys nodes while one starts.
const startupTaintExample = assayv1alpha1.StartupTaintNamespace + "/features"

// StartupTaint checks the key of a taint that keeps pods away from a node until its features are known. It may be a
// start-up taint of the Cluster Autoscaler. Keys of Kubernetes itself are rejected, because the controller removes the taint.
func StartupTaint(key string) Verdict {
	namespace, _ := Split(key)
	if namespace == "" {
		return refuse(key, BadName, fmt.Sprintf("the taint key %q has no namespace", key), "write for example "+startupTaintExample)
	}
	if fault := faultOfKey(key); fault != "" {
		return refuse(key, BadName, fmt.Sprintf("invalid %s key %s: %s", Taint, strconv.Quote(clip.Text(key, maxShown)), fault), "")
	}
	if namespace == assayv1alpha1.StartupTaintNamespace || within(namespace, assayv1alpha1.GroupName) {
		return Verdict{Key: key}
	}
	if why := protectedAlways(namespace, key); why != "" {
		return refuse(key, ProtectedKey, fmt.Sprintf("the taint %q is protected: %s", key, why), "write for example "+startupTaintExample)
	}
	return Verdict{Key: key}
}

// name adds the default namespace to a name and runs the checks that are common to all kinds.
func (p *Policy) name(kind Kind, name string) Verdict {
	key := name
	if kind != Taint {
		key = p.Qualify(name)
	}
	if fault := faultOfKey(key); fault != "" {
		return refuse(key, BadName, fmt.Sprintf("invalid %s name %s: %s", kind, strconv.Quote(clip.Text(name, maxShown)), fault),
			"write letters, digits, '-', '_' and '.', optionally behind a DNS name and one slash")
	}
	if by := p.protectedBy(key); by != "" {
		return refuse(key, ProtectedKey, fmt.Sprintf("the %s %q is protected: %s", kind, key, by), adviseProtected(key))
	}
	return Verdict{Key: key}
}

// featureNamespace allows, under kubernetes.io, the feature namespace and its subdomains.
func featureNamespace(v Verdict, kind Kind) Verdict {
	namespace, base := Split(v.Key)
	if reserved(namespace) && !within(namespace, nfdv1alpha1.FeatureLabelNamespace) {
		return refuse(v.Key, BadNamespace, fmt.Sprintf("a rule's %s may not be in the namespace %q", kind, namespace), adviseNamespace(base))
	}
	return v
}

// deniedBy returns the entry of DenyNamespaces that denies the namespace. NFD's documentation states that the default
// namespaces cannot be denied; its code denies them.
func (p *Policy) deniedBy(namespace string) string {
	if !p.Strict && (namespace == nfdv1alpha1.FeatureLabelNamespace || namespace == nfdv1alpha1.ProfileLabelNamespace) {
		return ""
	}
	for _, entry := range p.DenyNamespaces {
		if covers(entry, namespace) {
			return entry
		}
	}
	return ""
}

// covers reports whether an entry, which is exact or a suffix after a leading *, matches the namespace.
func covers(entry, namespace string) bool {
	if suffix, ok := strings.CutPrefix(entry, "*"); ok {
		return strings.HasSuffix(namespace, suffix)
	}
	return entry == namespace
}

// reserved reports whether a namespace belongs to Kubernetes. As in NFD, this does not include k8s.io.
func reserved(namespace string) bool { return within(namespace, "kubernetes.io") }

// within reports whether a namespace equals root or is a subdomain of it.
func within(namespace, root string) bool {
	rest, ok := strings.CutSuffix(namespace, root)
	return ok && (rest == "" || rest[len(rest)-1] == '.')
}

func contains(list []string, s string) bool {
	for _, entry := range list {
		if entry == s {
			return true
		}
	}
	return false
}

func adviseNamespace(base string) string {
	return fmt.Sprintf("write %s/%s, or a namespace of your own", nfdv1alpha1.FeatureLabelNamespace, clip.Text(base, maxShown))
}

func adviseProtected(key string) string {
	_, base := Split(key)
	return adviseNamespace(base)
}

func adviseEffect(effect corev1.TaintEffect) string {
	for _, known := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute} {
		if strings.EqualFold(strings.NewReplacer("-", "", "_", "", " ", "").Replace(string(effect)), string(known)) {
			return fmt.Sprintf("write %s", known)
		}
	}
	return "write NoSchedule, PreferNoSchedule or NoExecute"
}

// maxShown is the maximum number of bytes of a name in an error, more than the length of any valid name.
const maxShown = 80

// Package keys checks which labels, annotations, taints and extended resources a rule may write.
//
// The checks run twice: when a rule is compiled, for literal names and values, and when it is evaluated, for those
// that a template or an expression computed. A Policy is used for both, so that evaluation never rejects a literal
// that admission has accepted.
package keys

import (
	"regexp"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Policy defines which names and values may be written. The zero value is NFD's default policy with Assay's
// corrections. A Policy is read-only once in use, and then safe for concurrent use.
type Policy struct {
	// ExtraNamespaces are namespaces that labels may use although they are below kubernetes.io or denied (NFD's
	// -extra-label-ns). Exact names; a protected key stays protected.
	ExtraNamespaces []string
	// DenyNamespaces are namespaces that labels may not use (NFD's -deny-label-ns): exact names, or a leading * for a
	// suffix, so that "*.vendor.com" denies a.vendor.com and not vendor.com. The two default namespaces cannot be
	// denied, unless Strict.
	DenyNamespaces []string
	// LabelWhiteList, if set, must match a part of a label's name, the part after the slash.
	LabelWhiteList *regexp.Regexp
	// DisableAutoPrefix keeps names without a namespace unchanged (NFD's feature gate of that name). Taints never get
	// a namespace, and extended resources always need one.
	DisableAutoPrefix bool
	// Protected adds to the keys that no rule may set: exact keys, namespaces, or a leading * for a suffix of the
	// namespace.
	Protected []string
	// Strict follows NFD where Assay corrects it: denied default namespaces, and quantities that are negative or
	// fractional. Values that the API server always rejects, and protected keys, are rejected anyway.
	Strict bool
}

// Kind is the kind of output that a key belongs to.
type Kind uint8

// The four kinds of outputs on a Node.
const (
	Label Kind = iota
	Annotation
	Resource
	Taint
)

var kindNames = [...]string{"label", "annotation", "extended resource", "taint"}

// String returns the kind in words.
func (k Kind) String() string { return kindNames[k] }

// Cause identifies the check that rejected a key. It is a value of metric labels.
type Cause string

// The causes of a rejection.
const (
	BadName        Cause = "name"      // not a name that the API server accepts
	BadValue       Cause = "value"     // not a value that the API server accepts
	BadNamespace   Cause = "namespace" // a namespace that rules may not use by default
	Denied         Cause = "denied"    // a namespace that the administrator denied
	NotWhiteListed Cause = "whitelist" // not matched by the white list
	ProtectedKey   Cause = "protected" // a key that controls Kubernetes itself
)

// Verdict is the result of a check. It is a plain value; the zero Verdict has no key.
type Verdict struct {
	// Key is the name with its namespace: what to write on the Node.
	Key string
	// Cause is empty if the key may be written.
	Cause Cause
	// Reason explains why it may not be written.
	Reason string
	// Instead suggests what to write instead; it may be empty.
	Instead string
}

// OK reports whether the key may be written.
func (v Verdict) OK() bool { return v.Cause == "" }

// Message returns the reason and the advice in one sentence, for an error, a condition or a warning.
func (v Verdict) Message() string {
	if v.Instead == "" {
		return v.Reason
	}
	return v.Reason + "; " + v.Instead
}

func refuse(key string, cause Cause, reason, instead string) Verdict {
	return Verdict{Key: key, Cause: cause, Reason: reason, Instead: instead}
}

// Qualify returns name with the default namespace if it has none. It does not validate, and allocates only to add the
// namespace.
func (p *Policy) Qualify(name string) string {
	if p.DisableAutoPrefix || strings.IndexByte(name, '/') >= 0 {
		return name
	}
	return nfdv1alpha1.FeatureLabelNamespace + "/" + name
}

// Split returns the namespace of a key and the name after it. The namespace is empty if there is none.
func Split(key string) (namespace, name string) {
	if i := strings.IndexByte(key, '/'); i >= 0 {
		return key[:i], key[i+1:]
	}
	return "", key
}

// QualifyAll returns values with every name qualified. If a map holds both spellings of a key, the one written with
// the namespace wins, as in NFD. The result is a new map; nil for an empty one.
func (p *Policy) QualifyAll(values map[string]string) map[string]string {
	if len(values) == 0 {
		return nil
	}
	out := make(map[string]string, len(values))
	for name, value := range values {
		key := p.Qualify(name)
		if key != name {
			if _, spelledOut := values[key]; spelledOut {
				continue
			}
		}
		out[key] = value
	}
	return out
}

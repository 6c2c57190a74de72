// Package keys checks which labels, annotations, taints and extended resources a rule may write.
//
// The checks run twice: on literal names and values when a rule is compiled, and on names and values computed by templates and
// expressions when it is evaluated. Both use a Policy, so that evaluation never rejects a literal that admission accepted.
package keys

import (
	"regexp"
	"strings"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Policy defines which names and values may be written. The zero value is NFD's default policy with Assay's corrections. A Policy
// must not be modified once in use, and is then safe for concurrent use.
type Policy struct {
	// ExtraNamespaces are namespaces that labels may use although they are below kubernetes.io or denied (NFD's -extra-label-ns).
	// Names are exact. Protected keys stay protected.
	ExtraNamespaces []string
	// DenyNamespaces are namespaces that labels may not use (NFD's -deny-label-ns): exact names, or suffixes after a leading *:
	// "*.vendor.com" denies a.vendor.com but not vendor.com. The two default namespaces can be denied only if Strict is set.
	DenyNamespaces []string
	// LabelWhiteList, if set, must match in the part of a label's name after the slash.
	LabelWhiteList *regexp.Regexp
	// DisableAutoPrefix keeps names without a namespace unchanged, as NFD's feature gate with this name does. Taints never get a
	// namespace, and extended resources always need one.
	DisableAutoPrefix bool
	// Protected adds to the keys that no rule may set: exact keys, namespaces, or suffixes of namespaces after a leading *.
	Protected []string
	// Requests allows the namespace of the labels of materialized NodeFeatureRequests, which is protected otherwise.
	Requests bool
	// Strict follows NFD where Assay differs: default namespaces can be denied, and quantities can be negative or fractional.
	// Values that the API server always rejects, and protected keys, are still rejected.
	Strict bool
}

// Kind is the kind of output to which a key belongs.
type Kind string

// The kinds of outputs: what a Node has, in the order in which plans show it; then variables and actions.
const (
	Label      Kind = "label"
	Annotation Kind = "annotation"
	Resource   Kind = "extended resource"
	Condition  Kind = "condition"
	Taint      Kind = "taint"
	Var        Kind = "var"
	Action     Kind = "action"
)

// NodeKinds are the kinds of what a Node has.
var NodeKinds = [...]Kind{Label, Annotation, Resource, Condition, Taint}

// Cause identifies the check that rejected a key. It is a value of a metric label.
type Cause string

// The causes of a rejection.
const (
	BadName        Cause = "name"      // the API server does not accept the name
	BadValue       Cause = "value"     // the API server does not accept the value
	BadNamespace   Cause = "namespace" // a namespace that rules may not use by default
	Denied         Cause = "denied"    // a namespace that the administrator denied
	NotWhiteListed Cause = "whitelist" // does not match the white list
	ProtectedKey   Cause = "protected" // the key controls Kubernetes itself
)

// Verdict is the result of a check.
type Verdict struct {
	// Key is the name with its namespace, to write on the Node.
	Key string
	// Cause is empty if the key may be written.
	Cause Cause
	// Reason explains why the key may not be written.
	Reason string
	// Instead suggests what to write instead; it may be empty.
	Instead string
}

// OK reports whether the key may be written.
func (v Verdict) OK() bool { return v.Cause == "" }

// Message returns the reason and the advice in one sentence.
func (v Verdict) Message() string {
	if v.Instead == "" {
		return v.Reason
	}
	return v.Reason + "; " + v.Instead
}

func refuse(key string, cause Cause, reason, instead string) Verdict {
	return Verdict{Key: key, Cause: cause, Reason: reason, Instead: instead}
}

// Qualify returns name with the default namespace if it has no namespace. It does not validate the name.
func (p *Policy) Qualify(name string) string {
	if p.DisableAutoPrefix || strings.IndexByte(name, '/') >= 0 {
		return name
	}
	return nfdv1alpha1.FeatureLabelNamespace + "/" + name
}

// Split returns the namespace of a key and the name after it. The namespace is empty if the key has none.
func Split(key string) (namespace, name string) {
	if i := strings.IndexByte(key, '/'); i >= 0 {
		return key[:i], key[i+1:]
	}
	return "", key
}

// QualifyAll returns a copy of values in which every name has a namespace, or nil if values is empty. If values contains both
// spellings of a key, the one with the namespace wins, as in NFD.
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

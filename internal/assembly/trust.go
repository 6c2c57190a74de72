package assembly

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/rules/compose"
)

// Accepted is what was accepted of an object last.
type Accepted struct {
	Generation int64
	// Print is the fingerprint of the spec; empty: none was accepted, because the object was first read, or edited, while fields of it could be
	// lost.
	Print string
}

// none is the generation that no object has.
const none = -1

// AcceptedKey is the key, in the ConfigMap with the last active rules, of what was accepted of each object. It is not a valid object name.
const AcceptedKey = "_accepted"

// MaxAccepted is the maximum size of the value of AcceptedKey in bytes, which is enough for 1,500 objects. The ConfigMap holds 1 MiB, most of
// which is for the last active rules and the record of provenance.
const MaxAccepted = 96 << 10

// EncodeAccepted returns the value of AcceptedKey. Objects that do not fit are left out.
func EncodeAccepted(all map[types.UID]Accepted) string {
	out, size := map[types.UID]string{}, 0
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		text := strings.TrimSuffix(fmt.Sprint(all[uid].Generation, " ", all[uid].Print), " ")
		if size += len(uid) + len(text) + len(`"":"",`); size > MaxAccepted {
			break
		}
		out[uid] = text
	}
	data, _ := json.Marshal(out) // strings always marshal
	return string(data)
}

// DecodeAccepted is the inverse of EncodeAccepted. It leaves out what it cannot read.
func DecodeAccepted(text string) map[types.UID]Accepted {
	var in map[types.UID]string
	if json.Unmarshal([]byte(text), &in) != nil {
		return nil
	}
	out := make(map[types.UID]Accepted, len(in))
	for uid, text := range in {
		var a Accepted
		if n, _ := fmt.Sscan(text, &a.Generation, &a.Print); n > 0 {
			out[uid] = a
		}
	}
	return out
}

// printLength is the length of a fingerprint: 64 bits, in hexadecimal digits.
const printLength = 16

// Print returns the fingerprint of what is evaluated of a spec.
func Print(spec *nfdv1alpha1.NodeFeatureRuleSpec) string {
	evaluated := *spec
	evaluated.Description = nil
	_, digest, _ := strings.Cut(compose.Digest(&evaluated), ":")
	return digest[:printLength]
}

// definition returns the status of the definition of NodeFeatureRules.
func (a *Assembler) definition() definition.Status {
	if a.opt.Definition == nil {
		return definition.Status{State: definition.Whole}
	}
	return a.opt.Definition()
}

// accepted returns what was accepted of an object.
func (a *Assembler) accepted(obj *nfdv1alpha1.NodeFeatureRule, last *Object) (was Accepted, known bool) {
	switch {
	case last != nil:
		return last.Accepted, true
	case a.opt.Accepted != nil:
		return a.opt.Accepted(obj.UID)
	}
	return Accepted{}, false
}

// lost returns why an object may not be what its user wrote, or nil. If its definition lacks fields of Assay, the API server drops them
// silently, and a rule without its conditions matches more nodes than intended.
//
// Nothing that the API server stores tells which fields were dropped: managedFields and audit logs are written afterwards, and a write by any
// client makes the loss permanent without a new generation. So an object is what its user wrote if it was read while the definition had all
// fields, if it is still what was accepted then, or if kubectl's annotation says so. An object of the same generation that is not what was
// accepted has lost fields.
func (a *Assembler) lost(obj *nfdv1alpha1.NodeFeatureRule, was Accepted, known bool, d definition.Status) *Error {
	same := known && was.Print == Print(&obj.Spec)
	if d.Trusted() {
		if same || !known || was.Generation != obj.Generation || complete(obj) {
			return nil
		}
		return &Error{reasonDropped, "the object was written while the definition of its kind lacked fields, and has lost those that it had: " +
			"apply it again; if that changes nothing, delete it and create it again"}
	}
	if same || complete(obj) || d.State == definition.Foreign && len(d.Drops()) == 0 {
		return nil
	}
	return distrusted(d.State)
}

// complete reports whether kubectl's annotation, which the API server does not prune, shows that an object has lost nothing that is evaluated.
func complete(obj *nfdv1alpha1.NodeFeatureRule) bool {
	text := obj.Annotations[corev1.LastAppliedConfigAnnotation]
	if text == "" {
		return false
	}
	var given nfdv1alpha1.NodeFeatureRule
	return json.Unmarshal([]byte(text), &given) == nil && Print(&given.Spec) == Print(&obj.Spec)
}

// uses reports whether a spec has one of some fields, such as spec.rules[].conditions.
func uses(spec *nfdv1alpha1.NodeFeatureRuleSpec, fields []string) bool {
	data, err := json.Marshal(map[string]any{"spec": spec})
	var given map[string]any
	if err != nil || json.Unmarshal(data, &given) != nil {
		return true
	}
	return slices.ContainsFunc(fields, func(path string) bool { return mentions(given, strings.Split(path, ".")) })
}

// mentions reports whether a value exists at a path. The elements of the path are names, with [] after those of lists.
func mentions(value any, path []string) bool {
	if len(path) == 0 {
		return value != nil
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return false
	}
	name, list := strings.CutSuffix(path[0], "[]")
	if !list {
		return mentions(fields[name], path[1:])
	}
	items, _ := fields[name].([]any)
	return slices.ContainsFunc(items, func(item any) bool { return mentions(item, path[1:]) })
}

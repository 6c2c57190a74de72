// Package assembly resolves the references of a NodeFeatureRule (bases, default template, Secrets, ConfigMaps) and compiles the result.
//
// The result depends on more than the object: on its bases, the default template, Secrets and ConfigMaps, on the definition of its
// kind, and, while one of these is missing, on the last result. All components that evaluate rules use this
// package, so that they get the same result. It does not watch the cluster: package controller/compile keeps the rules of a running
// cluster compiled.
package assembly

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/review"
	"github.com/assay-project/assay/rules/warning"
)

// Options configure an Assembler. All components of one cluster must use the same options.
type Options struct {
	// Rules are the options for compiling rules.
	Rules rules.Options
	// Namespace is Assay's own namespace, in which rules refer to Secrets and ConfigMaps.
	Namespace string
	// DefaultTemplate is the name of a NodeFeatureRuleTemplate on which every object is based in addition to its own bases. Empty
	// means none.
	DefaultTemplate string
	// Version is the version of this program. A rule's minimumVersion is compared with it. A value that is not a version supports
	// all rules.
	Version string
	// KeptName is the name of the ConfigMap in Namespace with the last active rules. It defaults to SharedKeptName.
	KeptName string
	// Definition returns the status of the definition of NodeFeatureRules, and Accepted what an earlier process accepted of an object. Nil means
	// that the definition is whole, and that there was none.
	Definition func() definition.Status
	Accepted   func(types.UID) (Accepted, bool)
	// IDs returns the names of PCI and USB IDs for warnings. Nil means unknown.
	IDs lint.IDs
}

// known returns the input for reviews of objects.
func (o *Options) known(rules rules.Options) review.Known {
	return review.Known{Rules: rules, IDs: o.IDs}
}

// Source reads the objects that rules refer to: templates, and Secrets and ConfigMaps in Assay's own namespace. Errors are those of
// the API server, such as NotFound and Forbidden.
type Source interface {
	Template(ctx context.Context, name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error)
	Secret(ctx context.Context, name string) (*corev1.Secret, error)
	ConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error)
}

// Assembler assembles objects. It is safe for concurrent use if its Source is.
type Assembler struct {
	opt    Options
	source Source
}

// New returns an Assembler that reads referenced objects from a source.
func New(opt Options, source Source) *Assembler { return &Assembler{opt: opt, source: source} }

// Object is the result of assembling an object with rules. It is immutable.
type Object struct {
	UID        types.UID
	Generation int64
	Created    time.Time
	Sensitive  bool

	// Refused is the reason why none of the rules are used. Nil means that they are used.
	Refused *Error
	// Unresolved describes a reference that cannot be resolved. Nil means that all are resolved.
	Unresolved *Error
	// Lost is why the object may not be what its user wrote, because of the definition of its kind. The rules that were accepted before stay
	// active, unless the spec was edited since. Nil means that nothing is lost.
	Lost *Error
	// Accepted is what was accepted of the object last. Definition is the UID of the definition of its kind, which the caller sets; empty:
	// unknown.
	Accepted   Accepted
	Definition types.UID
	// Errors are the errors of rules that are left out. Warnings are about valid fields that are probably not intended.
	Errors   field.ErrorList
	Warnings []warning.Warning

	// Rules are the active rules. Set is nil if there are none. Spec may share memory with the object. Hash identifies the rules in
	// messages, and Origins lists the documents that they come from.
	Rules
	Hash    string
	Origins []nfdv1alpha1.RuleOrigin

	// Excess is set if the object exceeds the maximum compiled size of all rules in the cluster: it needs more than Room, the size
	// that older objects leave.
	Excess bool
	Room   int

	// Good is the part to store in case a referenced object is deleted, or the definition of the kind is replaced. Nil means that the object
	// has no references, and that it has no field that a definition in the cluster drops. Fragile is set for the latter.
	Good    *Kept
	Fragile bool
	// Refs are all references, including those to objects that do not exist. The object must be assembled again when one of them
	// changes.
	Refs []Ref
}

// Settled reports whether the active rules follow only from the object and what it refers to. They do not if a reference is
// missing, if the API server may have dropped fields, or if other objects leave no room.
func (o *Object) Settled() bool {
	return o.Unresolved == nil && !o.Excess && o.Lost == nil
}

// Suspended reports whether it is unknown what the rules of the object are, because of a definition, for as long as that is so.
func (o *Object) Suspended() bool {
	return o.Set == nil && (o.Lost != nil || o.Unresolved != nil && o.Unresolved.Reason == reasonDefinition)
}

// Vanish returns the object after it was deleted with the definition of its kind: its rules stay active.
func (o *Object) Vanish() *Object {
	out := *o
	out.Lost = &Error{reasonDefinition, "the object was deleted with the definition of its kind: apply Assay's definition, then the object"}
	return &out
}

// Distrust returns the state of an object of a kind whose definition is not to be trusted: what was known of it before. What was first read
// or edited now may have lost fields, also once the definition is whole.
func Distrust(obj metav1.Object, last *Object, d definition.Status) *Object {
	doubtful := Accepted{Generation: obj.GetGeneration()}
	if d.Returning {
		doubtful.Generation = none
	}
	if last == nil || last.UID != obj.GetUID() {
		return &Object{
			UID: obj.GetUID(), Generation: obj.GetGeneration(), Created: obj.GetCreationTimestamp().Time, Lost: distrusted(d.State), Accepted: doubtful,
		}
	}
	if last.Generation == obj.GetGeneration() {
		return last
	}
	out := *last
	out.Accepted = doubtful
	return &out
}

// distrusted is why an object waits whose definition is not to be trusted.
func distrusted(state definition.State) *Error {
	return &Error{reasonDefinition, fmt.Sprintf(
		"the definition of its kind is %s, and it is not known which fields the object has lost: apply Assay's definition", state)}
}

// ErrDistrust is why a template cannot be read whose definition is not to be trusted.
func ErrDistrust(state definition.State) error { return distrusted(state) }

// ErrDropped is why a template cannot be used that has lost fields.
func ErrDropped(template string) error {
	return &Error{reasonDropped, "NodeFeatureRuleTemplate " + template + " was written while the definition of its kind lacked fields, and has lost those that it had: " +
		"apply it again; if that changes nothing, delete it and create it again"}
}

// ToKeep returns the result to store for another process, or nil if that process can assemble it again.
func (o *Object) ToKeep() *Kept {
	if o.Unresolved != nil || o.Lost != nil || o.Fragile {
		return o.Good
	}
	return nil
}

// Error is the reason and message of a condition.
type Error struct{ Reason, Message string }

// Waits reports whether the problem can be solved by applying a referenced object, without changing the object itself. Objects may
// be applied in any order.
func (p *Error) Waits() bool {
	return p.Reason == reasonBase || p.Reason == reasonDigest || p.Reason == reasonMissing
}

// Error implements error.
func (p *Error) Error() string { return p.Message }

// Assemble resolves the references of an object and compiles the result. If a reference cannot be resolved, the last active rules
// of this object (not of another one with the same name) stay active. last is the previous result for this name, or nil.
//
// room is the compiled size in bytes that older objects have left; see Sum. An object that needs more than room, but not more than
// the maximum of one object, is rejected and not compiled completely.
//
// Errors are not about the object: they mean that the source could not be read.
func (a *Assembler) Assemble(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule, last *Object, room int) (*Object, error) {
	out := &Object{
		UID: obj.UID, Generation: obj.Generation, Created: obj.CreationTimestamp.Time, Room: room, Sensitive: ptr.Deref(obj.Spec.Sensitive, false),
	}
	if last != nil && last.UID != obj.UID {
		last = nil
	}
	d := a.definition()
	was, known := a.accepted(obj, last)
	out.Accepted = Accepted{obj.Generation, Print(&obj.Spec)}
	if out.Lost = a.lost(obj, was, known, d); out.Lost != nil {
		if !known || was.Generation != obj.Generation || was.Print == "" {
			if out.Accepted.Print = ""; d.Returning && (!known || was.Generation != obj.Generation) {
				out.Accepted.Generation = none // it is accepted with the next look
			}
			return out, nil // what is wrong with it is a part of the object
		}
		out.Accepted = was
		return out, a.stand(ctx, obj, out, last)
	}
	// First, because references for a newer version may be unknown to this one.
	if out.Refused = a.tooOld(&obj.Spec); out.Refused != nil {
		return out, nil //nolint:nilerr // see above
	}
	whole, err := a.resolve(ctx, obj)
	out.Refs = whole.refs
	out.Sensitive = out.Sensitive || whole.sensitive
	if missing := (*Error)(nil); errors.As(err, &missing) {
		out.Unresolved = missing
		return out, a.stand(ctx, obj, out, last)
	}
	if err != nil {
		return nil, err
	}
	if out.Refused = a.tooOld(whole.spec); out.Refused != nil {
		return out, nil //nolint:nilerr // see above
	}
	opt := a.opt.Rules
	opt.Room = max(1, out.Room)
	found := review.Assembled(compose.Document{Name: obj.Name, Spec: &obj.Spec}, whole.spec, whole.bases, a.opt.known(opt))
	if found.Over && out.Room < rules.MaxSize {
		out.exceed()
		return out, nil
	}
	set := found.Set
	set.UID = string(obj.UID)
	out.Errors, out.Warnings = slices.Concat(found.Errors, found.Inherited), found.Warnings
	out.Rules, out.Hash, out.Origins = Rules{set, whole.spec}, whole.hash(set), whole.origins
	out.Fragile = !d.Trusted() && (d.State != definition.Foreign || uses(&obj.Spec, d.Drops()))
	if len(whole.refs) > 0 || out.Fragile {
		out.Good = &Kept{UID: obj.UID, Spec: whole.keep, Hash: out.Hash, Origins: out.Origins}
	}
	return out, nil
}

// stand keeps the last active rules: those of last, or those that another process has stored.
func (a *Assembler) stand(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule, out, last *Object) error {
	if last != nil && last.Set != nil {
		out.Rules, out.Good, out.Hash, out.Origins = last.Rules, last.Good, last.Hash, last.Origins
		out.Sensitive = out.Sensitive || last.Sensitive
		if out.Good == nil { // it has no references
			out.Good = &Kept{UID: obj.UID, Spec: last.Spec, Hash: out.Hash, Origins: out.Origins}
		}
		return nil
	}
	out.Refs = append(out.Refs, Ref{ConfigMapRef, a.keptName()}) // another process may write it at any time
	good, err := a.restore(ctx, obj)
	if good == nil || err != nil {
		return err
	}
	whole := &resolved{spec: good.Spec}
	if err := a.fetch(ctx, whole); err != nil {
		return nil //nolint:nilerr // what it needs is gone as well; the condition says what the object itself lacks
	}
	opt := a.opt.Rules
	opt.Bases, opt.Room = whole.bases, max(1, out.Room)
	set, report := rules.CompileSpec(obj.Name, whole.spec, opt)
	if report.Over && out.Room < rules.MaxSize {
		out.exceed()
		return nil
	}
	set.UID = string(obj.UID)
	out.Rules, out.Good, out.Hash, out.Origins = Rules{set, whole.spec}, good, good.Hash, good.Origins
	out.Sensitive = out.Sensitive || whole.sensitive
	return nil
}

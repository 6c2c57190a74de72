// Package assembly resolves the references of a NodeFeatureRule (bases, default template, Secrets, ConfigMaps) and compiles the result.
//
// The result depends on more than the object: on its bases, on the default template, on Secrets and ConfigMaps, on fields that the
// API server may have dropped, and, while one of these is missing, on the last result. All components that evaluate rules use this
// package, so that they get the same result. It does not read a cluster: package controller/compile compiles the rules of a
// running one.
package assembly

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/compose"
	"github.com/assay-project/assay/rules/lint"
	"github.com/assay-project/assay/rules/review"
)

// Options say how rules are put together. All who do so for one cluster need the same.
type Options struct {
	// Rules are the settings that rules are compiled under.
	Rules rules.Options
	// Namespace is Assay's own: the one of Secrets and ConfigMaps that rules refer to.
	Namespace string
	// DefaultTemplate is the name of a NodeFeatureRuleTemplate that every object is based on in addition to its own bases;
	// empty: none.
	DefaultTemplate string
	// Version is the version of this program, which a rule's minimumVersion is compared with. One that is not a version
	// understands everything.
	Version string
	// KeptName is the ConfigMap of Namespace that holds what objects last came to; empty: SharedKeptName.
	KeptName string
	// Missing returns the fields of a NodeFeatureRule that the API server drops, because another chart has installed the
	// definition; nil: none.
	Missing func() []string
	// IDs returns the names of PCI and USB ids for warnings; nil: unknown.
	IDs lint.IDs
}

// known returns what reviews of objects depend on.
func (o *Options) known(rules rules.Options) review.Known {
	return review.Known{Rules: rules, IDs: o.IDs}
}

// Source is where rules and what they refer to is looked up: Secrets and ConfigMaps in Assay's own namespace. What does not
// exist, or must not be read, is an error as the API server has it.
type Source interface {
	Template(ctx context.Context, name string) (*nfdv1alpha1.NodeFeatureRuleSpec, error)
	Secret(ctx context.Context, name string) (*corev1.Secret, error)
	ConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error)
}

// Assembler puts objects together. It is safe for concurrent use if its Source is.
type Assembler struct {
	opt    Options
	source Source
}

// New returns an Assembler that looks things up in a source.
func New(opt Options, source Source) *Assembler { return &Assembler{opt: opt, source: source} }

// Object is the compiled form of an object with rules. It is immutable.
type Object struct {
	UID        types.UID
	Generation int64
	Created    time.Time
	Sensitive  bool

	// Refused is the reason why none of its rules are used; nil: they are.
	Refused *Problem
	// Unresolved describes a reference that cannot be resolved; nil: all are.
	Unresolved *Problem
	// Suspicion describes a possible error that cannot be confirmed.
	Suspicion string
	// Errors are the errors of rules that are left out, Warnings describe valid fields that were probably not intended.
	Errors   field.ErrorList
	Warnings []rules.Warning

	// Rules are the active rules; Set is nil if there are none. Spec may be that of the object itself. Hash identifies them to
	// users, and Origins lists the documents that they come from.
	Rules
	Hash    string
	Origins []nfdv1alpha1.RuleOrigin

	// Excess says that it does not fit into the compiled size of a cluster: it needs more than Room, what older objects leave.
	Excess bool
	Room   int

	// Good is the part to keep if a referenced object is deleted; nil: it refers to nothing.
	Good *Kept
	// Refs are all references, whether their targets exist or not: when one changes, the object must be assembled again.
	Refs []Ref
}

// Settled reports whether what is used of the object follows from what is written in it and what it refers to. If something of
// that is missing, or the API server may have dropped fields, it is unknown what its rules are meant to be; and where other objects
// leave no room for them, it is not the object that has changed.
func (o *Object) Settled() bool {
	return o.Unresolved == nil && !o.Excess && (o.Refused == nil || o.Refused.Reason != reasonSchema && o.Refused.Reason != reasonDropped)
}

// Problem is a reason and a message of a condition.
type Problem struct{ Reason, Message string }

// Waits reports whether the problem goes away without a change of the object itself, as soon as what it refers to is applied.
// Objects may be applied in any order.
func (p *Problem) Waits() bool {
	return p.Reason == reasonBase || p.Reason == reasonDigest || p.Reason == reasonMissing
}

// Error implements error.
func (p *Problem) Error() string { return p.Message }

// Assemble resolves the references of an object and compiles the result. If a reference cannot be resolved, the last active rules
// stay: those of this object, not of another one with its name. Last is what Assemble returned for this name before, or nil.
//
// Room is the memory in bytes that older objects have left, see Sum. An object that needs more than that, and no more than every object may, is
// refused and not compiled to its end.
//
// An error is none of the object: the source could not be asked.
func (a *Assembler) Assemble(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule, last *Object, room int) (*Object, error) {
	out := &Object{
		UID: obj.UID, Generation: obj.Generation, Created: obj.CreationTimestamp.Time, Room: room, Sensitive: ptr.Deref(obj.Spec.Sensitive, false), Suspicion: a.suspicion(),
	}
	if last != nil && last.UID != obj.UID {
		last = nil
	}
	if out.Refused = a.refuses(obj, last); out.Refused != nil {
		return out, nil //nolint:nilerr // what is wrong with it is a part of the object, here and below
	}
	// Before anything else: what a newer version refers to may be nothing that this one knows.
	if out.Refused = a.tooOld(&obj.Spec); out.Refused != nil {
		return out, nil //nolint:nilerr // see above
	}
	whole, err := a.resolve(ctx, obj)
	out.Refs = whole.refs
	out.Sensitive = out.Sensitive || whole.sensitive
	if missing := (*Problem)(nil); errors.As(err, &missing) {
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
	if len(whole.refs) > 0 {
		out.Good = &Kept{UID: obj.UID, Spec: whole.keep, Hash: out.Hash, Origins: out.Origins}
	}
	return out, nil
}

// stand keeps the last active rules: those that this process knows, or those that another process has kept.
func (a *Assembler) stand(ctx context.Context, obj *nfdv1alpha1.NodeFeatureRule, out, last *Object) error {
	if last != nil && last.Set != nil {
		out.Rules, out.Good, out.Hash, out.Origins = last.Rules, last.Good, last.Hash, last.Origins
		return nil
	}
	out.Refs = append(out.Refs, Ref{ConfigMapRef, a.keptName()}) // which another process may write any moment
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

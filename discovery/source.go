// Package discovery discovers the features of a host.
package discovery

import (
	"context"
	"errors"
	"time"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/host"
)

// Source discovers the features of one domain, such as cpu or pci, on a host.
//
// A Source is used by one goroutine at a time. It must read the host through the given Host only.
type Source interface {
	// Name returns the domain: the part of a feature's name before the dot, and the prefix of the source's labels.
	Name() string
	// Discover reads the host. If the host lacks something, its features are absent, without an error. An error means that the
	// whole source failed; a part that could not be read is a Problem of the Result.
	Discover(ctx context.Context, h host.Host) (Result, error)
}

// Deriver is a Source that computes its result from the features of other sources, as custom rules do. A Runner calls Derive
// instead of Discover, after all other sources, with the features of all sources that have run. Derive must not modify them.
type Deriver interface {
	Source
	Derive(ctx context.Context, h host.Host, found *nfdv1alpha1.Features) (Result, error)
}

// Glancer is a Source most of whose changes are announced by kernel events, and which can check the rest at a fraction of the cost
// of a discovery. A poll of an idle machine then takes dozens of system calls, not thousands.
type Glancer interface {
	Source
	// Glance returns features that can change without an event: a Runner only compares them with those of the previous poll. It
	// returns false if only a discovery can detect changes.
	Glance(ctx context.Context, h host.Host) (Result, bool)
}

// Prioritized is a Source whose labels override those of sources with a lower priority. A Source without this method has priority
// BuiltinPriority.
type Prioritized interface {
	LabelPriority() int
}

// Priorities of labels, as in NFD: files that an administrator wrote on a node override rules, and rules override hardware.
const (
	BuiltinPriority = 0
	CustomPriority  = 10
	LocalPriority   = 20
)

// Patient is a Source that can take longer than SourceTimeout, because it runs programs.
type Patient interface {
	Timeout() time.Duration
}

// Supplemental marks a Source that "all" does not select: it only runs if it is named.
type Supplemental interface {
	Supplemental()
}

// Result is the result of a Source. The maps in it must not be modified, since a Source can return the same ones again.
type Result struct {
	// Features have full names, such as "kernel.version".
	Features nfdv1alpha1.Features
	// Labels have full names without the default namespace, such as "kernel-version.major". A Runner drops invalid ones, with a
	// Problem.
	Labels map[string]string
	// Problems are the parts that could not be read; the rest of the Result is valid.
	Problems []error
}

// NewResult returns an empty Result.
func NewResult() Result {
	return Result{
		Features: nfdv1alpha1.Features{
			Flags:      map[string]nfdv1alpha1.FlagFeatureSet{},
			Attributes: map[string]nfdv1alpha1.AttributeFeatureSet{},
			Instances:  map[string]nfdv1alpha1.InstanceFeatureSet{},
		},
		Labels: map[string]string{},
	}
}

// Flags sets a flag feature to the given names.
func (r *Result) Flags(feature string, names []string) {
	set := make(map[string]nfdv1alpha1.Nil, len(names))
	for _, n := range names {
		set[n] = nfdv1alpha1.Nil{}
	}
	r.Features.Flags[feature] = nfdv1alpha1.FlagFeatureSet{Elements: set}
}

// Attributes sets an attribute feature; without elements it exists and is empty, so that a rule can test for absence. The Result
// keeps the map.
func (r *Result) Attributes(feature string, elements map[string]string) {
	if elements == nil {
		elements = map[string]string{}
	}
	r.Features.Attributes[feature] = nfdv1alpha1.AttributeFeatureSet{Elements: elements}
}

// Instances sets an instance feature; without instances it exists and is empty, which distinguishes "none" from "unknown". The
// Result keeps the maps.
func (r *Result) Instances(feature string, instances []map[string]string) {
	list := make([]nfdv1alpha1.InstanceFeature, len(instances))
	for i, attrs := range instances {
		list[i].Attributes = attrs
	}
	r.Features.Instances[feature] = nfdv1alpha1.InstanceFeatureSet{Elements: list}
}

// Problem adds a part that could not be read. It ignores nil, and what is unknown because /proc or /sys is not mounted: a Runner
// reports that once.
func (r *Result) Problem(err error) {
	if err != nil && !errors.Is(err, host.ErrNotMounted) {
		r.Problems = append(r.Problems, err)
	}
}

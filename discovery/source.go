// Package discovery turns a host into facts.
package discovery

import (
	"context"
	"time"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery/host"
)

// Source finds the features of one domain, such as cpu or pci, on a host.
//
// A Source is used by one goroutine at a time. It reads the host through the Host it is given and nowhere else.
type Source interface {
	// Name is the domain: the part of a feature's name before the dot, and the prefix of the source's labels.
	Name() string
	// Discover reads the host. What a host does not have is not an error: its features are just absent. An error means
	// that the source as a whole could not look; a part that could not be read is a Problem of the Result.
	Discover(ctx context.Context, h host.Host) (Result, error)
}

// Deriver is a Source that computes from what the other sources found, as custom rules do. A Runner calls Derive instead
// of Discover, after all the other sources, with the features of all sources that ran or have run before. Derive must not
// modify them.
type Deriver interface {
	Source
	Derive(ctx context.Context, h host.Host, found *nfdv1alpha1.Features) (Result, error)
}

// Glancer is a Source of which little can change without an event of the kernel, and which can look at that little at a
// fraction of the cost of a discovery. A poll of an idle machine is then some dozens of system calls, not thousands.
type Glancer interface {
	Source
	// Glance returns what may have changed, in whatever features describe it: a Runner only compares them with those of the
	// poll before. It returns false if nothing less than a discovery can tell.
	Glance(ctx context.Context, h host.Host) (Result, bool)
}

// Prioritized is a Source whose labels win over those of sources of a lower priority. A Source without the method has
// priority BuiltinPriority.
type Prioritized interface {
	LabelPriority() int
}

// Priorities of labels, as NFD has them: what an administrator wrote on a node wins over rules, rules win over hardware.
const (
	BuiltinPriority = 0
	CustomPriority  = 10
	LocalPriority   = 20
)

// Patient is a Source that may take longer than SourceTimeout, because it runs programs.
type Patient interface {
	Timeout() time.Duration
}

// Supplemental marks a Source that "all" does not select: it runs only where it is named.
type Supplemental interface {
	Supplemental()
}

// Result is what a Source found. The maps inside belong to whoever holds the Result, but a Source may hand out the same
// ones again, so they must not be modified.
type Result struct {
	// Features have full names, such as "kernel.version".
	Features nfdv1alpha1.Features
	// Labels have full names without the default namespace, such as "kernel-version.major". A Runner drops those that no
	// Node can have, with a Problem.
	Labels map[string]string
	// Problems are the parts that could not be read; the rest of the Result is valid.
	Problems []error
}

// NewResult returns an empty Result, ready to be added to.
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

// Attributes sets an attribute feature; without elements it is there and empty, so that a rule can ask for what is absent.
// The Result keeps the map.
func (r *Result) Attributes(feature string, elements map[string]string) {
	if elements == nil {
		elements = map[string]string{}
	}
	r.Features.Attributes[feature] = nfdv1alpha1.AttributeFeatureSet{Elements: elements}
}

// Instances sets an instance feature; without instances it is there and empty, which tells "none" from "not looked".
// The Result keeps the maps.
func (r *Result) Instances(feature string, instances []map[string]string) {
	list := make([]nfdv1alpha1.InstanceFeature, len(instances))
	for i, attrs := range instances {
		list[i].Attributes = attrs
	}
	r.Features.Instances[feature] = nfdv1alpha1.InstanceFeatureSet{Elements: list}
}

// Problem adds a part that could not be read; nil is ignored.
func (r *Result) Problem(err error) {
	if err != nil {
		r.Problems = append(r.Problems, err)
	}
}

// Package publish keeps one object of a node in the cluster up to date: a NodeFeature with the discovered features, or a
// NodeResourceTopology with the resources of the NUMA nodes.
//
// It is the only package under discovery that sends requests to a Kubernetes API server. In steady state it sends none: it keeps
// what it wrote last, writes differences only, and has one watch on its own object, by name, to detect changes by other clients and
// deletion without polling. What all kinds have in common is the keeper.
package publish

import (
	"context"
	"slices"

	"k8s.io/utils/clock"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
)

// Content is what to publish: features, labels, and the errors of a configuration that the worker has rejected. The Publisher shares it: do
// not modify its maps after passing it on.
type Content struct {
	Features nfdv1alpha1.Features
	Labels   map[string]string
	Rejected string
}

// maxRejectedBytes is the maximum size of the errors of a configuration that are published. They become the message of an Event, of which
// Kubernetes' own recorders write at most 1024 bytes.
const maxRejectedBytes = 960

// Options configure a Publisher. The zero value of each field is a useful default, except for Namespace and Identify.
type Options struct {
	// Namespace of the NodeFeature.
	Namespace string
	// Identify returns the node and the pod of the worker. It is called again before each write that follows a lost object, because
	// a bound token changes with its node.
	Identify func(context.Context) (Identity, error)
	// Version is the version of the worker, for an annotation.
	Version string
	// Owners of the NodeFeature; nil: the Node, an empty list: no owner.
	Owners []Owner
	// MaxBytes is the maximum size of the JSON of spec; 0: DefaultMaxBytes, negative: no limit.
	MaxBytes int
	// Share publishes large features as NodeFeatureSets, if the cluster has a controller that reads them.
	Share bool
	// Observe is called with each event, from the goroutine of Run or Publish; can be nil.
	Observe func(Event)
	// Clock and Rand are for tests.
	Clock clock.WithTicker
	Rand  func() float64
}

// Publisher keeps one NodeFeature up to date with the latest Content. It is not safe for concurrent use: either Run uses it, or its
// caller calls Publish.
type Publisher struct {
	keeper[Content, nfdv1alpha1.NodeFeatureSpec]
	opt Options

	leftOut []string // features that the object built last lacks
	dropped string   // those that the last write lacked, to report them once
	shared  shared
}

// object is an observed or desired NodeFeature.
type object = stored[nfdv1alpha1.NodeFeatureSpec]

// New returns a Publisher that has not read its object yet.
func New(client *Client, opt Options) *Publisher {
	if opt.Owners == nil {
		opt.Owners = []Owner{OwnerNode}
	}
	if opt.MaxBytes == 0 {
		opt.MaxBytes = DefaultMaxBytes
	}
	p := &Publisher{}
	p.keeper = newKeeper(client, p, common{
		identify: opt.Identify, owners: opt.Owners, observe: opt.Observe, clock: opt.Clock, rand: opt.Rand,
	})
	opt.Observe, opt.Clock, opt.Rand = p.common.observe, p.common.clock, p.common.rand
	p.opt = opt
	return p
}

func (p *Publisher) name() string { return "NodeFeature" }

func (p *Publisher) path(name string) string { return nodeFeature(p.opt.Namespace, name) }

func (p *Publisher) title(name string) string { return p.opt.Namespace + "/" + name }

// strict reports whether the API server must reject unknown fields instead of dropping them.
func (p *Publisher) strict(want *object) bool { return len(want.spec.FeatureSets) > 0 }

// pruned reports whether the API server dropped a field, so that what is stored differs from what was written.
func (p *Publisher) pruned() bool {
	return p.shared.on && slices.Contains(p.missing(), assayv1alpha1.PrunedFeatureSets)
}

// complete adds the features that were dropped to an event, if they are others than before.
func (p *Publisher) complete(e *Event) {
	if now := join(p.leftOut); now != p.dropped {
		p.dropped = now
		e.Dropped = p.leftOut
	}
}

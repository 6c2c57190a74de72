// Package fake publishes made-up features, for tests of rules and clusters.
package fake

import (
	"context"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "fake"

// Config is sources.fake of the worker's configuration.
type Config struct {
	Labels           map[string]string
	FlagFeatures     []string
	AttributeFeature map[string]string
	InstanceFeatures []map[string]string
}

// DefaultConfig returns NFD's fake features, which its end-to-end tests expect.
func DefaultConfig() Config {
	return Config{
		Labels:           map[string]string{"fakefeature1": "true", "fakefeature2": "true", "fakefeature3": "true"},
		FlagFeatures:     []string{"flag_1", "flag_2", "flag_3"},
		AttributeFeature: map[string]string{"attr_1": "true", "attr_2": "false", "attr_3": "10"},
		InstanceFeatures: []map[string]string{
			{"name": "instance_1", "attr_1": "true", "attr_2": "false", "attr_3": "10", "attr_4": "foobar"},
			{"name": "instance_2", "attr_1": "true", "attr_2": "true", "attr_3": "100"},
			{"name": "instance_3"},
		},
	}
}

// Source publishes made-up features. It is Supplemental: it only runs if it is selected by name.
type Source struct{ config Config }

// New returns the source.
func New(config Config) *Source { return &Source{config: config} }

// Name returns "fake".
func (*Source) Name() string { return Name }

// Supplemental excludes the source from "all".
func (*Source) Supplemental() {}

var _ discovery.Supplemental = (*Source)(nil)

// Discover returns the configured features; it does not read the host.
func (s *Source) Discover(context.Context, host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	r.Flags("fake.flag", s.config.FlagFeatures)
	r.Features.Attributes["fake.attribute"] = nfdv1alpha1.AttributeFeatureSet{Elements: s.config.AttributeFeature}
	r.Instances("fake.instance", s.config.InstanceFeatures)
	for name, value := range s.config.Labels {
		r.Labels[Name+"-"+name] = value
	}
	return r, nil
}

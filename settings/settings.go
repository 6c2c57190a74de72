// Package settings declares the settings of Assay's control plane, each in one place: list.go.
//
// The declarations give the flags of assay-manager and of the command line, the keys of the configuration file, their JSON Schema, and the
// documentation of the chart's values. The functions of Settings are what the settings mean: controller, webhook, extender and command line
// get the options of rules, of inputs and of plans from them.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/rules/keys"
)

// DefaultFile is the path at which NFD's charts mount the configuration of nfd-master. It need not exist.
const DefaultFile = "/etc/kubernetes/node-feature-discovery/nfd-master.conf"

// The feature gates that have an effect. NFD's NodeFeatureAPI is always enabled.
const (
	GateBare        = "DisableAutoPrefix"
	GateGroups      = "NodeFeatureGroupAPI"
	GateScheduling  = "FeatureScheduling"
	gateNodeFeature = "NodeFeatureAPI"
)

// Default returns the default settings, which equal those of NFD.
func Default() *Settings {
	s := &Settings{}
	for i := range list {
		list[i].reset(s)
	}
	return s
}

// Load returns the default settings, changed by the file of the flags, then by their inline options, and then by the flags. It reports
// all errors at once.
func (f *Flags) Load() (s *Settings, warnings []string, err error) {
	s = Default()
	warnings, err = f.Change(s)
	return s, warnings, err
}

// Change is like Load for settings that already have values.
func (f *Flags) Change(s *Settings) (warnings []string, err error) {
	optional := DefaultFile
	if f.File == "" {
		optional = ""
	}
	warnings, err = config.Load(f.File, optional, f.Options, func() config.Keys { return keysOf(s) })
	errs := []error{err}
	for _, set := range f.given {
		errs = append(errs, set(s))
	}
	return append(warnings, s.advice()...), errors.Join(append(errs, s.Check())...)
}

// Read reads a configuration into s. Origin is its name in messages.
func (s *Settings) Read(origin string, data []byte) (warnings []string, err error) {
	return config.Read(origin, data, keysOf(s))
}

// Equal reports whether two Settings are equal.
func (s *Settings) Equal(other *Settings) bool {
	a, b := *s, *other
	for _, same := range [][2]**regexp.Regexp{{&a.LabelWhiteList, &b.LabelWhiteList}, {&a.FeatureSources, &b.FeatureSources}} {
		if patternText(*same[0]) != patternText(*same[1]) {
			return false
		}
		*same[0], *same[1] = nil, nil
	}
	return equality.Semantic.DeepEqual(a, b)
}

// advice returns warnings about values that have no effect.
func (s *Settings) advice() (warnings []string) {
	warnings = s.unknownGates()
	if text := config.AdviseWhiteList(patternText(s.LabelWhiteList)); text != "" {
		warnings = append(warnings, "labelWhiteList: "+text)
	}
	for key, list := range map[string][]string{"extraLabelNs": s.ExtraLabelNs, "denyLabelNs": s.DenyLabelNs} {
		for _, namespace := range list {
			name := namespace
			if key == "denyLabelNs" {
				name = strings.TrimPrefix(name, "*")
			}
			if why := keys.WhyProtected(name); why != "" && key == "extraLabelNs" {
				warnings = append(warnings, fmt.Sprintf("%s: %s stays closed whatever is set: %s; remove it", key, name, why))
			}
			if strings.ContainsAny(name, "/*= ") {
				warnings = append(warnings, fmt.Sprintf("%s: no label has the namespace %q: write what is before the slash, for example vendor.example.com", key, namespace))
			}
		}
	}
	slices.Sort(warnings)
	return warnings
}

func (s *Settings) unknownGates() (warnings []string) {
	for _, name := range slices.Sorted(maps.Keys(s.FeatureGates)) {
		switch name {
		case GateBare, GateGroups, GateScheduling:
		case gateNodeFeature:
			if !s.FeatureGates[name] {
				warnings = append(warnings, "feature gate NodeFeatureAPI cannot be disabled: there is no other API")
			}
		default:
			warnings = append(warnings, fmt.Sprintf("unknown feature gate %s is ignored", name))
		}
	}
	return warnings
}

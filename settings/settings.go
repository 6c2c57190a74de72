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
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/internal/config"
)

// DefaultFile is the path at which NFD's charts mount the configuration of nfd-master. It need not exist.
const DefaultFile = "/etc/kubernetes/node-feature-discovery/nfd-master.conf"

// Settings are the values of all settings. list.go describes each.
type Settings struct {
	Strict               bool
	Instance             string
	NoPublish            bool
	ExtraLabelNs         []string
	DenyLabelNs          []string
	EnableTaints         bool
	LabelWhiteList       *regexp.Regexp // nil allows all
	ResyncPeriod         time.Duration
	LeaderElection       LeaderElection
	Parallelism          int
	InformerPageSize     int
	Restrictions         Restrictions
	RemovalGracePeriod   time.Duration
	RemovalBudget        RemovalBudget
	NoExecuteBudget      NoExecuteBudget
	MaskSecrets          string
	MaskedElements       []string // nil: the default
	DefaultScope         string
	DefaultNodeScope     string
	FeatureSources       *regexp.Regexp // nil selects all
	DefaultTemplate      string
	BuiltInRules         string
	ProtectedKeys        []string
	MaterializedRequests MaterializedRequests
	AllowFail            bool
	FailTaint            string
	LossTaint            string
	FeaturesReady        bool
	StartupTaint         string
	FailOpenAfter        time.Duration
	NodeShapeLabels      []string
	GcInterval           time.Duration
	GcGracePeriod        time.Duration
	FeatureGates         map[string]bool
}

// LeaderElection holds the durations of leader election.
type LeaderElection struct{ LeaseDuration, RenewDeadline, RetryPeriod time.Duration }

// Restrictions limit what rules and NodeFeatures may do.
type Restrictions struct {
	NodeFeatureNamespaceSelector              *metav1.LabelSelector // nil: all
	DisableLabels, DisableExtendedResources   bool
	DisableAnnotations, DenyNodeFeatureLabels bool
	AllowOverwrite                            bool
}

// RemovalBudget limits how many nodes lose keys within a time.
type RemovalBudget struct {
	Nodes        int
	Share        float64
	Window, Hold time.Duration
}

// NoExecuteBudget limits how fast nodes get taints that evict pods.
type NoExecuteBudget struct {
	Every, Canary time.Duration
	Share         float64
	OneZone       bool
}

// MaterializedRequests limits the NodeFeatureRequests whose nodes are labeled.
type MaterializedRequests struct{ Total, PerNamespace int }

// The number of requests that are labels of Nodes by default: enough for the requirements that a cluster has a name for. A Node has
// about 100 labels without them.
const (
	DefaultMaterializedTotal        = 50
	DefaultMaterializedPerNamespace = 5
)

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
	return append(warnings, s.unknownGates()...), errors.Join(append(errs, s.Check())...)
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

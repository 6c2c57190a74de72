package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/controller/orphan"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// defaultConfigFile is where NFD's charts mount the configuration of the master. It need not exist.
const defaultConfigFile = "/etc/kubernetes/node-feature-discovery/nfd-master.conf"

// settings are the keys of the configuration file: NFD's, and ours behind them. A field is its key, whatever the case.
type settings struct {
	NoPublish         bool
	ExtraLabelNs      []string
	DenyLabelNs       []string
	EnableTaints      bool
	LabelWhiteList    pattern
	ResyncPeriod      duration
	LeaderElection    leaderElection
	NfdApiParallelism int //nolint:staticcheck // the names are the keys of the file, as NFD spells them
	// InformerPageSize is how many NodeFeatures an API server that cannot stream them lists at once; 0: all.
	InformerPageSize int
	Restrictions     restrictions

	Klog                 ignored
	AutoDefaultNs        ignored
	EnableNodeFeatureApi ignored //nolint:staticcheck // see NfdApiParallelism
	ResourceLabels       ignored
	FeatureRulesController,
	NodeFeatureApi ignored //nolint:staticcheck // see NfdApiParallelism

	// RemovalGracePeriod is how long labels outlive their worker's NodeFeature.
	RemovalGracePeriod duration
	RemovalBudget      removalBudget
	// NoExecuteBudget is how fast and how far nodes get taints that evict pods; without "every" there are no bounds, as in NFD.
	NoExecuteBudget noExecuteBudget
	// MaskSecrets is always, sensitive or never; MaskedElements are the names of what is masked, nil for the default.
	MaskSecrets    string
	MaskedElements []string
	// DefaultScope is that of rules that set neither scope nor nodeSelector, DefaultNodeScope that of nodes without a scope.
	DefaultScope     string
	DefaultNodeScope string
	// FeatureSources chooses, by namespace/name, the NodeFeatures that rules of objects without featureSources see.
	FeatureSources pattern
	// DefaultTemplate is a NodeFeatureRuleTemplate that every rule is based on.
	DefaultTemplate string
	// BuiltInRules is a directory of rules that are always in force.
	BuiltInRules string
	// ProtectedKeys are keys that no rule may write, besides those that never may be.
	ProtectedKeys []string
	AllowFail     bool
	// FailTaint is put on nodes that the action fail keeps as they were: key=value:effect; empty: none.
	FailTaint  string
	GcInterval duration
	// GcGracePeriod is how long a NodeFeature outlives its Node.
	GcGracePeriod duration
	FeatureGates  map[string]bool
}

type leaderElection struct{ LeaseDuration, RenewDeadline, RetryPeriod duration }

type restrictions struct {
	NodeFeatureNamespaceSelector              *metav1.LabelSelector
	DisableLabels, DisableExtendedResources   bool
	DisableAnnotations, DenyNodeFeatureLabels bool
	AllowOverwrite                            bool
	DisableTaints                             ignored
}

type removalBudget struct {
	Nodes  int
	Share  float64
	Window duration
	Hold   duration
}

type noExecuteBudget struct {
	Every, Canary duration
	Share         float64
	OneZone       bool
}

// pattern is a regular expression; nil if it was never set.
type pattern struct{ *regexp.Regexp }

func (p *pattern) set(text string) (err error) {
	if text == "" {
		p.Regexp = nil
		return nil
	}
	p.Regexp, err = regexp.Compile(text)
	return err
}

func (p pattern) text() string {
	if p.Regexp == nil {
		return ""
	}
	return p.String()
}

func defaults() *settings {
	b := budget.Default
	return &settings{
		ResyncPeriod: duration(time.Hour), NfdApiParallelism: 10,
		LeaderElection:     leaderElection{duration(15 * time.Second), duration(10 * time.Second), duration(2 * time.Second)},
		Restrictions:       restrictions{AllowOverwrite: true},
		RemovalGracePeriod: duration(node.DefaultGrace),
		RemovalBudget:      removalBudget{b.Nodes, b.Share, duration(b.Window), duration(b.Hold)},
		NoExecuteBudget:    noExecuteBudget{Share: budget.DefaultShare, OneZone: true},
		MaskSecrets:        string(rules.MaskAlways), AllowFail: true,
		GcInterval: duration(orphan.DefaultInterval), GcGracePeriod: duration(orphan.DefaultGrace),
		FeatureGates: map[string]bool{gateGroups: true},
	}
}

// The feature gates that mean something. NFD's NodeFeatureAPI is always on.
const (
	gateBare       = "DisableAutoPrefix"
	gateGroups     = "NodeFeatureGroupAPI"
	gateScheduling = "FeatureScheduling"
	gateNodeFeatur = "NodeFeatureAPI"
)

// load reads the file and the inline text over it, and lays the flags over both. A missing file is an empty one, as long as it
// is the default one. All mistakes are reported at once.
func (f *ruleFlags) load() (*settings, []string, error) {
	data, err := os.ReadFile(f.configFile)
	if err != nil && !(errors.Is(err, os.ErrNotExist) && f.configFile == defaultConfigFile) {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	s := defaults()
	var warnings []string
	var errs []error
	for _, doc := range []struct {
		origin string
		data   []byte
	}{{f.configFile, data}, {"-options", []byte(f.override)}} {
		r := &reader{origin: doc.origin}
		r.read(doc.data, s)
		warnings, errs = append(warnings, r.warnings...), append(errs, r.errs...)
	}
	for _, set := range f.overrides {
		if err := set(s); err != nil {
			errs = append(errs, err)
		}
	}
	return s, append(warnings, s.unknownGates()...), errors.Join(append(errs, s.check()...)...)
}

// equal reports whether two configurations say the same.
func (s *settings) equal(other *settings) bool {
	if s.LabelWhiteList.text() != other.LabelWhiteList.text() || s.FeatureSources.text() != other.FeatureSources.text() {
		return false
	}
	a, b := *s, *other
	a.LabelWhiteList, b.LabelWhiteList = pattern{}, pattern{}
	a.FeatureSources, b.FeatureSources = pattern{}, pattern{}
	return equality.Semantic.DeepEqual(a, b)
}

// check finds what is wrong with single values, whoever set them.
func (s *settings) check() (errs []error) {
	if s.NfdApiParallelism < 1 {
		errs = append(errs, fmt.Errorf("nfdApiParallelism is %d; it must be at least 1", s.NfdApiParallelism))
	}
	if s.InformerPageSize < 0 {
		errs = append(errs, fmt.Errorf("informerPageSize is %d; it must not be negative", s.InformerPageSize))
	}
	if s.RemovalBudget.Nodes < 0 || s.RemovalBudget.Share < 0 || s.RemovalBudget.Share > 1 {
		errs = append(errs, errors.New("removalBudget: nodes must not be negative, and share lies between 0 and 1"))
	}
	if b := s.NoExecuteBudget; b.Every < 0 || b.Canary < 0 || b.Share < 0 || b.Share > 1 {
		errs = append(errs, errors.New("noExecuteBudget: every and canary must not be negative, and share lies between 0 and 1"))
	}
	switch rules.MaskMode(s.MaskSecrets) {
	case rules.MaskAlways, rules.MaskNever, rules.MaskSensitive:
	default:
		errs = append(errs, fmt.Errorf("maskSecrets is %q; write always, sensitive or never", s.MaskSecrets))
	}
	if s.FailTaint != "" {
		if _, err := s.failTaint(); err != nil {
			errs = append(errs, err)
		}
	}
	if l := s.LeaderElection; l.LeaseDuration <= l.RenewDeadline || l.RenewDeadline <= l.RetryPeriod || l.RetryPeriod <= 0 {
		errs = append(errs, errors.New("leaderElection: leaseDuration must exceed renewDeadline, and that retryPeriod"))
	}
	return errs
}

// failTaint reads the taint of failed nodes; nil if there is none.
func (s *settings) failTaint() (*corev1.Taint, error) {
	if s.FailTaint == "" {
		return nil, nil
	}
	list := plan.ParseTaints(s.FailTaint)
	if len(list) != 1 {
		return nil, fmt.Errorf("failTaint is %q; write KEY=VALUE:EFFECT", s.FailTaint)
	}
	if verdict := (&keys.Policy{}).Taint(list[0]); !verdict.OK() {
		return nil, fmt.Errorf("failTaint: %s", verdict.Message())
	}
	return &list[0], nil
}

func (s *settings) unknownGates() (warnings []string) {
	for _, name := range sortedKeys(s.FeatureGates) {
		switch name {
		case gateBare, gateGroups, gateScheduling:
		case gateNodeFeatur:
			if !s.FeatureGates[name] {
				warnings = append(warnings, "feature gate NodeFeatureAPI cannot be switched off: there is no other way any more")
			}
		default:
			warnings = append(warnings, fmt.Sprintf("feature gate %s is not known and has no effect", name))
		}
	}
	return warnings
}

// config is what the settings mean for the controllers.
func (f *controllerFlags) config(s *settings) controller.Config {
	options := f.ruleOptions(s)
	policy := options.Keys
	c := controller.Config{
		Rules:   options,
		Sources: node.Sources{Namespace: f.namespace, IgnoreLabels: s.Restrictions.DenyNodeFeatureLabels},
		Policy: plan.Policy{
			Record: plan.Record{Instance: f.instance, Bare: policy.DisableAutoPrefix},
			Taints: s.EnableTaints, KeepForeign: !s.Restrictions.AllowOverwrite, Keys: &policy,
		},
		Disable: node.Disable{
			Labels: s.Restrictions.DisableLabels, Annotations: s.Restrictions.DisableAnnotations,
			ExtendedResources: s.Restrictions.DisableExtendedResources,
		},
		DryRun: s.NoPublish,
		Grace:  time.Duration(s.RemovalGracePeriod),
		Budget: budget.Budget{
			Nodes: s.RemovalBudget.Nodes, Share: s.RemovalBudget.Share,
			Window: time.Duration(s.RemovalBudget.Window), Hold: time.Duration(s.RemovalBudget.Hold),
		},
		Evictions: budget.Evictions{
			Every: time.Duration(s.NoExecuteBudget.Every), Canary: time.Duration(s.NoExecuteBudget.Canary),
			Share: s.NoExecuteBudget.Share, OneZone: s.NoExecuteBudget.OneZone,
		},
		Parallel:        s.NfdApiParallelism,
		Resync:          time.Duration(s.ResyncPeriod),
		DefaultTemplate: s.DefaultTemplate,
		Version:         build.Version(),
		BuiltInRules:    s.BuiltInRules,
		Groups:          s.FeatureGates[gateGroups],
		Scheduling:      s.FeatureGates[gateScheduling],
		Orphans: orphan.Options{
			Interval: time.Duration(s.GcInterval), Grace: time.Duration(s.GcGracePeriod),
		},
	}
	c.FailTaint, _ = s.failTaint() // it was checked when it was read
	if s.Restrictions.NodeFeatureNamespaceSelector != nil {
		// It was checked when it was read.
		c.Sources.Namespaces, _ = metav1.LabelSelectorAsSelector(s.Restrictions.NodeFeatureNamespaceSelector)
	}
	return c
}

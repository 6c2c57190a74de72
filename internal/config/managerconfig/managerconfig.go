// Package managerconfig holds the settings of the manager.
package managerconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/controller/orphan"
	"github.com/assay-project/assay/controller/shape"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
	"github.com/assay-project/assay/rules/yamltree"
)

// DefaultFile is the path at which NFD's charts mount the configuration of nfd-master. It need not exist.
const DefaultFile = "/etc/kubernetes/node-feature-discovery/nfd-master.conf"

// Settings are the manager's configuration: NFD's keys and Assay's own.
type Settings struct {
	NoPublish      bool
	ExtraLabelNs   []string
	DenyLabelNs    []string
	EnableTaints   bool
	LabelWhiteList *regexp.Regexp // nil allows all
	ResyncPeriod   time.Duration
	LeaderElection LeaderElection
	Parallelism    int // nfdApiParallelism
	// InformerPageSize is the page size for listing NodeFeatures if the API server does not support streaming lists; 0 means one
	// page.
	InformerPageSize int
	Restrictions     Restrictions

	// RemovalGracePeriod is the time for which labels stay after the worker's NodeFeature is deleted.
	RemovalGracePeriod time.Duration
	RemovalBudget      budget.Budget
	// NoExecuteBudget limits the rate and number of nodes that get NoExecute taints. Without "every" there is no limit, as in NFD.
	NoExecuteBudget budget.Evictions
	// MaskSecrets is always, sensitive or never. MaskedElements are the names of masked elements; nil means the default.
	MaskSecrets    string
	MaskedElements []string
	// DefaultScope is the scope of rules that set neither scope nor nodeSelector. DefaultNodeScope is the scope of nodes without
	// one.
	DefaultScope     string
	DefaultNodeScope string
	// FeatureSources selects, by namespace/name, the NodeFeatures that rules without featureSources read.
	FeatureSources *regexp.Regexp
	// DefaultTemplate is a NodeFeatureRuleTemplate on which every rule is based.
	DefaultTemplate string
	// BuiltInRules is a directory with built-in rules.
	BuiltInRules string
	// ProtectedKeys are additional keys that no rule may write.
	ProtectedKeys []string
	// MaterializedRequests limits the NodeFeatureRequests whose nodes are labeled; none by default.
	MaterializedRequests compile.RequestLimits
	AllowFail            bool
	// FailTaint is the taint for nodes on which a rule's fail action prevents changes, as key=value:effect. Empty means none.
	FailTaint string
	// LossTaint is the taint of nodes that no longer have what their pods require, as key:effect, for objects with onLoss: Taint. Empty
	// means none.
	LossTaint string
	// FeaturesReady writes the condition of that name on Nodes.
	FeaturesReady bool
	// StartupTaint is the key of the taint that is removed from Nodes with that condition; empty means none. It is removed
	// FailOpenAfter the creation of the Node in any case.
	StartupTaint  string
	FailOpenAfter time.Duration
	// NodeShapeLabels are the names of the labels that make a NodeShape; none disables NodeShapes.
	NodeShapeLabels []string
	GcInterval      time.Duration
	// GcGracePeriod is the time for which a NodeFeature stays after its Node is deleted.
	GcGracePeriod time.Duration
	FeatureGates  map[string]bool
}

// LeaderElection holds the durations of leader election.
type LeaderElection struct{ LeaseDuration, RenewDeadline, RetryPeriod time.Duration }

// Restrictions limit what rules and NodeFeatures may do.
type Restrictions struct {
	NodeFeatureNamespaceSelector              *metav1.LabelSelector
	DisableLabels, DisableExtendedResources   bool
	DisableAnnotations, DenyNodeFeatureLabels bool
	AllowOverwrite                            bool
}

// Default returns the default settings, which equal those of NFD.
func Default() *Settings {
	return &Settings{
		ResyncPeriod: time.Hour, Parallelism: 10,
		LeaderElection:     LeaderElection{15 * time.Second, 10 * time.Second, 2 * time.Second},
		Restrictions:       Restrictions{AllowOverwrite: true},
		RemovalGracePeriod: inputs.DefaultGrace,
		RemovalBudget:      budget.Default,
		NoExecuteBudget:    budget.Evictions{Share: budget.DefaultShare, OneZone: true},
		MaskSecrets:        string(rules.MaskAlways), AllowFail: true, FeaturesReady: true,
		FailOpenAfter: node.DefaultFailOpenAfter, NodeShapeLabels: shape.DefaultLabels(),
		GcInterval: orphan.DefaultInterval, GcGracePeriod: orphan.DefaultGrace,
		FeatureGates: map[string]bool{GateGroups: true},
	}
}

// The feature gates that have an effect. NFD's NodeFeatureAPI is always enabled.
const (
	GateBare        = "DisableAutoPrefix"
	GateGroups      = "NodeFeatureGroupAPI"
	GateScheduling  = "FeatureScheduling"
	gateNodeFeature = "NodeFeatureAPI"
)

// Load reads the file, then the inline options, and then applies overrides; later values win. It reports all errors at once.
func Load(file, options string, overrides []func(*Settings) error) (s *Settings, warnings []string, err error) {
	s = Default()
	warnings, err = config.Load(file, DefaultFile, options, s.Keys)
	errs := []error{err}
	for _, set := range overrides {
		errs = append(errs, set(s))
	}
	return s, append(warnings, s.unknownGates()...), errors.Join(append(errs, s.check()...)...)
}

// Keys declares the keys of the file.
func (s *Settings) Keys() config.Keys {
	lease, limits, removals, evictions := &s.LeaderElection, &s.Restrictions, &s.RemovalBudget, &s.NoExecuteBudget
	noMaster := config.Ignored("workers always publish NodeFeatures")
	return config.Keys{
		"noPublish":      config.Into(&s.NoPublish),
		"extraLabelNs":   config.Into(&s.ExtraLabelNs),
		"denyLabelNs":    config.Into(&s.DenyLabelNs),
		"enableTaints":   config.Into(&s.EnableTaints),
		"labelWhiteList": config.Parsed(s.SetLabelWhiteList),
		"resyncPeriod":   config.Into(&s.ResyncPeriod),
		"leaderElection": config.Section(config.Keys{
			"leaseDuration": config.Into(&lease.LeaseDuration),
			"renewDeadline": config.Into(&lease.RenewDeadline),
			"retryPeriod":   config.Into(&lease.RetryPeriod),
		}),
		"nfdApiParallelism": config.Into(&s.Parallelism),
		"informerPageSize":  config.Into(&s.InformerPageSize),
		"restrictions": config.Section(config.Keys{
			"nodeFeatureNamespaceSelector": config.Tree(s.setNamespaces),
			"disableLabels":                config.Into(&limits.DisableLabels),
			"disableExtendedResources":     config.Into(&limits.DisableExtendedResources),
			"disableAnnotations":           config.Into(&limits.DisableAnnotations),
			"denyNodeFeatureLabels":        config.Into(&limits.DenyNodeFeatureLabels),
			"allowOverwrite":               config.Into(&limits.AllowOverwrite),
			"disableTaints":                config.Ignored("use enableTaints"),
		}),

		"klog":                   config.Ignored("use the flags -v and --log-format"),
		"autoDefaultNs":          config.Ignored("use the feature gate " + GateBare),
		"enableNodeFeatureApi":   noMaster,
		"nodeFeatureApi":         noMaster,
		"resourceLabels":         config.Ignored("write a rule with extendedResources"),
		"featureRulesController": config.Ignored("rules are always evaluated"),

		"removalGracePeriod": config.Into(&s.RemovalGracePeriod),
		"removalBudget": config.Section(config.Keys{
			"nodes":  config.Into(&removals.Nodes),
			"share":  config.Into(&removals.Share),
			"window": config.Into(&removals.Window),
			"hold":   config.Into(&removals.Hold),
		}),
		"noExecuteBudget": config.Section(config.Keys{
			"every":   config.Into(&evictions.Every),
			"canary":  config.Into(&evictions.Canary),
			"share":   config.Into(&evictions.Share),
			"oneZone": config.Into(&evictions.OneZone),
		}),
		"maskSecrets":      config.Into(&s.MaskSecrets),
		"maskedElements":   config.Into(&s.MaskedElements),
		"defaultScope":     config.Into(&s.DefaultScope),
		"defaultNodeScope": config.Into(&s.DefaultNodeScope),
		"featureSources":   config.Parsed(s.SetFeatureSources),
		"defaultTemplate":  config.Into(&s.DefaultTemplate),
		"builtInRules":     config.Into(&s.BuiltInRules),
		"protectedKeys":    config.Into(&s.ProtectedKeys),
		"materializedRequests": config.Section(config.Keys{
			"total":        config.Into(&s.MaterializedRequests.Total),
			"perNamespace": config.Into(&s.MaterializedRequests.PerNamespace),
		}),
		"allowFail":       config.Into(&s.AllowFail),
		"failTaint":       config.Into(&s.FailTaint),
		"lossTaint":       config.Into(&s.LossTaint),
		"featuresReady":   config.Into(&s.FeaturesReady),
		"startupTaint":    config.Into(&s.StartupTaint),
		"failOpenAfter":   config.Into(&s.FailOpenAfter),
		"nodeShapeLabels": config.Into(&s.NodeShapeLabels),
		"gcInterval":      config.Into(&s.GcInterval),
		"gcGracePeriod":   config.Into(&s.GcGracePeriod),
		"featureGates": config.Parsed(func(gates map[string]bool) error {
			maps.Copy(s.FeatureGates, gates)
			return nil
		}),
	}
}

// SetLabelWhiteList sets a regular expression. An empty one allows all labels.
func (s *Settings) SetLabelWhiteList(pattern string) error {
	return setPattern(&s.LabelWhiteList, pattern)
}

// SetFeatureSources sets a regular expression. An empty one selects all NodeFeatures.
func (s *Settings) SetFeatureSources(pattern string) error {
	return setPattern(&s.FeatureSources, pattern)
}

func setPattern(dst **regexp.Regexp, pattern string) (err error) {
	*dst = nil
	if pattern != "" {
		*dst, err = regexp.Compile(pattern)
	}
	return err
}

func (s *Settings) setNamespaces(n *yaml.Node) error {
	if n == nil {
		return nil
	}
	selector := &metav1.LabelSelector{}
	d := json.NewDecoder(bytes.NewReader(yamltree.JSON(n)))
	d.DisallowUnknownFields()
	err := d.Decode(selector)
	if err == nil {
		_, err = metav1.LabelSelectorAsSelector(selector)
	}
	if err != nil {
		return fmt.Errorf("invalid label selector: %w", err)
	}
	s.Restrictions.NodeFeatureNamespaceSelector = selector
	return nil
}

// Equal reports whether two configurations are equal.
func (s *Settings) Equal(other *Settings) bool {
	a, b := *s, *other
	for _, same := range [][2]**regexp.Regexp{{&a.LabelWhiteList, &b.LabelWhiteList}, {&a.FeatureSources, &b.FeatureSources}} {
		if text(*same[0]) != text(*same[1]) {
			return false
		}
		*same[0], *same[1] = nil, nil
	}
	return equality.Semantic.DeepEqual(a, b)
}

func text(pattern *regexp.Regexp) string {
	if pattern == nil {
		return ""
	}
	return pattern.String()
}

// check returns the errors of values from the file and from flags.
func (s *Settings) check() (errs []error) {
	if s.Parallelism < 1 {
		errs = append(errs, fmt.Errorf("nfdApiParallelism is %d; it must be at least 1", s.Parallelism))
	}
	if s.InformerPageSize < 0 {
		errs = append(errs, fmt.Errorf("informerPageSize is %d; it must not be negative", s.InformerPageSize))
	}
	if m := s.MaterializedRequests; m.Total < 0 || m.PerNamespace < 0 {
		errs = append(errs, errors.New("materializedRequests: total and perNamespace must not be negative"))
	}
	if s.RemovalBudget.Nodes < 0 || s.RemovalBudget.Share < 0 || s.RemovalBudget.Share > 1 {
		errs = append(errs, errors.New("removalBudget: nodes must not be negative, and share must be between 0 and 1"))
	}
	if share := s.NoExecuteBudget.Share; share < 0 || share > 1 {
		errs = append(errs, fmt.Errorf("noExecuteBudget.share is %g; write a number from 0 to 1", share))
	}
	switch rules.MaskMode(s.MaskSecrets) {
	case rules.MaskAlways, rules.MaskNever, rules.MaskSensitive:
	default:
		errs = append(errs, fmt.Errorf("maskSecrets is %q; write always, sensitive or never", s.MaskSecrets))
	}
	if _, err := s.failTaint(); err != nil {
		errs = append(errs, err)
	}
	if _, err := s.lossTaint(); err != nil {
		errs = append(errs, err)
	}
	if s.StartupTaint != "" {
		if verdict := keys.StartupTaint(s.StartupTaint); !verdict.OK() {
			errs = append(errs, fmt.Errorf("startupTaint: %s", verdict.Message()))
		}
		if !s.FeaturesReady {
			errs = append(errs, errors.New("startupTaint is removed from nodes with the condition FeaturesReady; do not set featuresReady to false"))
		}
		if s.FailOpenAfter <= 0 {
			errs = append(errs, fmt.Errorf("failOpenAfter is %s; it must be positive, for example 10m", s.FailOpenAfter))
		}
	}
	for _, name := range s.NodeShapeLabels {
		if found := validation.IsQualifiedName(name); len(found) > 0 {
			errs = append(errs, fmt.Errorf("nodeShapeLabels: invalid label name %q: %s", name, strings.Join(found, "; ")))
		}
	}
	if l := s.LeaderElection; l.LeaseDuration <= l.RenewDeadline || l.RenewDeadline <= l.RetryPeriod || l.RetryPeriod <= 0 {
		errs = append(errs, errors.New("leaderElection: leaseDuration must exceed renewDeadline, and that retryPeriod"))
	}
	return errs
}

// failTaint returns the taint for failed nodes, or nil if there is none.
func (s *Settings) failTaint() (*corev1.Taint, error) {
	return parseTaint("failTaint", s.FailTaint, "KEY=VALUE:EFFECT", func(corev1.Taint) bool { return true })
}

// lossTaint returns the taint for nodes that lost features, without its value, or nil if there is none.
func (s *Settings) lossTaint() (*corev1.Taint, error) {
	taint, err := parseTaint("lossTaint", s.LossTaint, "KEY:NoExecute or KEY:NoSchedule, without a value", func(t corev1.Taint) bool {
		return t.Value == "" && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == corev1.TaintEffectNoSchedule)
	})
	if taint == nil {
		return nil, err
	}
	if fail, _ := s.failTaint(); fail != nil && taint.MatchTaint(fail) || taint.Key == s.StartupTaint {
		return nil, fmt.Errorf("lossTaint %q is also failTaint or startupTaint; write another key", s.LossTaint)
	}
	return taint, nil
}

// parseTaint returns the taint in a setting, or nil if it is empty.
func parseTaint(setting, value, form string, valid func(corev1.Taint) bool) (*corev1.Taint, error) {
	if value == "" {
		return nil, nil
	}
	list := plan.ParseTaints(value)
	if len(list) != 1 || !valid(list[0]) {
		return nil, fmt.Errorf("%s is %q; write %s", setting, value, form)
	}
	if verdict := (&keys.Policy{}).Taint(list[0]); !verdict.OK() {
		return nil, fmt.Errorf("%s: %s", setting, verdict.Message())
	}
	return &list[0], nil
}

// protected returns the keys that no rule may write, with that of the taint that the controller removes.
func (s *Settings) protected() []string {
	if s.StartupTaint == "" {
		return s.ProtectedKeys
	}
	return append(slices.Clone(s.ProtectedKeys), s.StartupTaint)
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

// RuleOptions returns the options for compiling rules. strict selects NFD's behavior.
func (s *Settings) RuleOptions(strict bool) rules.Options {
	return rules.Options{
		Strict: strict,
		Keys: keys.Policy{
			ExtraNamespaces: s.ExtraLabelNs, DenyNamespaces: s.DenyLabelNs, LabelWhiteList: s.LabelWhiteList,
			DisableAutoPrefix: s.FeatureGates[GateBare], Protected: s.protected(), Strict: strict,
		},
		DefaultScope: s.DefaultScope, DefaultNodeScope: s.DefaultNodeScope, IgnoreFail: !s.AllowFail,
		FeatureSources: s.FeatureSources,
		Mask:           rules.Masking{Mode: rules.MaskMode(s.MaskSecrets), Elements: s.MaskedElements},
	}
}

// Controllers returns the configuration of the controllers for a namespace and an instance name.
func (s *Settings) Controllers(namespace, instance string, strict bool) controller.Config {
	options := s.RuleOptions(strict)
	policy := options.Keys
	c := controller.Config{
		Rules:   options,
		Sources: gather.Policy{Namespace: namespace, IgnoreLabels: s.Restrictions.DenyNodeFeatureLabels},
		Policy: plan.Policy{
			Record: plan.Record{Instance: instance, Bare: policy.DisableAutoPrefix},
			Taints: s.EnableTaints, KeepForeign: !s.Restrictions.AllowOverwrite, Keys: &policy,
		},
		Disable: node.Disable{
			Labels: s.Restrictions.DisableLabels, Annotations: s.Restrictions.DisableAnnotations,
			ExtendedResources: s.Restrictions.DisableExtendedResources,
		},
		DryRun: s.NoPublish, Grace: s.RemovalGracePeriod,
		Budget: s.RemovalBudget, Evictions: s.NoExecuteBudget,
		Parallel:        s.Parallelism,
		Ready:           s.FeaturesReady,
		Startup:         node.Startup{Key: s.StartupTaint, FailOpenAfter: s.FailOpenAfter},
		Resync:          s.ResyncPeriod,
		DefaultTemplate: s.DefaultTemplate,
		Version:         build.Version(),
		BuiltInRules:    s.BuiltInRules,
		Groups:          s.FeatureGates[GateGroups],
		Scheduling:      s.FeatureGates[GateScheduling],
		Requests:        s.MaterializedRequests,
		Shapes:          s.NodeShapeLabels,
		Orphans: orphan.Options{
			Interval: s.GcInterval, Grace: s.GcGracePeriod,
		},
	}
	c.FailTaint, _ = s.failTaint() // checked before, as the next one
	c.LossTaint, _ = s.lossTaint()
	if s.Restrictions.NodeFeatureNamespaceSelector != nil {
		// Checked before.
		c.Sources.Namespaces, _ = metav1.LabelSelectorAsSelector(s.Restrictions.NodeFeatureNamespaceSelector)
	}
	return c
}

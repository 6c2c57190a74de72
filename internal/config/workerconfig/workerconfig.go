// Package workerconfig holds the settings of the worker.
package workerconfig

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/fake"
	"github.com/assay-project/assay/discovery/local"
	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/rules/yamltree"
)

const (
	// Dir is the directory of NFD's configuration, so that Assay's chart can replace NFD's and use the same files.
	Dir = "/etc/kubernetes/node-feature-discovery"
	// DefaultFile need not exist.
	DefaultFile = Dir + "/nfd-worker.conf"

	// defaultSleepInterval is the interval of discovery, as in NFD. Changes usually cause events, so it is a fallback.
	defaultSleepInterval = 60 * time.Second
	// minSleepInterval is the minimum interval, as in NFD.
	minSleepInterval = time.Second
)

// Settings are the worker's configuration: NFD's keys and Assay's own.
type Settings struct {
	SleepInterval     time.Duration // 0: discover once, and then only on events
	FeatureSources    []string
	LabelSources      []string
	LabelWhiteList    *regexp.Regexp // nil allows all
	NoPublish         bool
	NoPublishFeatures []string
	Owners            []publish.Owner
	MaxFeatureBytes   int
	ShareFeatures     bool // publish large features as NodeFeatureSets
	LogLevel          string

	Builtin builtin.Config
	Local   local.Config
	Fake    fake.Config
	Custom  []byte // a YAML list of rules
}

// Override holds the flags that override the configuration. Nil means that a flag is not set.
type Override struct {
	NoPublish         *bool
	FeatureSources    *[]string
	LabelSources      *[]string
	NoPublishFeatures *[]string
	OwnerRefs         *[]string
	SleepInterval     *time.Duration
	LabelWhiteList    *string
}

// Default returns the default settings.
func Default() *Settings {
	return &Settings{
		SleepInterval:  defaultSleepInterval,
		FeatureSources: []string{"all"}, LabelSources: []string{"all"}, ShareFeatures: true,
		Builtin: builtin.DefaultConfig(), Fake: fake.DefaultConfig(),
	}
}

// Load reads the file, then the inline options, and then applies the flags; later values win. It reports all errors at once.
func Load(file, options string, flags Override) (s *Settings, warnings []string, err error) {
	s = Default()
	warnings, err = config.Load(file, DefaultFile, options, s.Keys)
	err = errors.Join(err, flags.apply(s))
	warnings = append(warnings, flags.advise()...)
	for _, message := range s.conflicts() {
		warnings = append(warnings, customKey+": "+message)
	}
	if s.SleepInterval > 0 {
		s.SleepInterval = max(s.SleepInterval, minSleepInterval)
	}
	return s, warnings, err
}

// Keys declares the keys of the file.
func (s *Settings) Keys() config.Keys {
	owned := false // ownerRefs overrides its old name, in any order
	return config.Keys{
		"core": config.Section(config.Keys{
			"sleepInterval":     config.Parsed(s.setSleepInterval),
			"featureSources":    config.Advised(config.Into(&s.FeatureSources), adviseSource),
			"labelSources":      config.Advised(config.Into(&s.LabelSources), adviseSource),
			"sources":           config.Deprecated("core.labelSources", config.Into(&s.LabelSources)),
			"labelWhiteList":    config.Advised(config.Parsed(s.setWhiteList), config.AdviseWhiteList),
			"noPublish":         config.Into(&s.NoPublish),
			"noPublishFeatures": config.Into(&s.NoPublishFeatures),
			"ownerRefs": config.Parsed(func(names []string) error {
				owned = true
				return s.setOwners(names)
			}),
			"noOwnerRefs": config.Deprecated("core.ownerRefs: []", config.Parsed(func(none bool) error {
				if none && !owned {
					s.Owners = []publish.Owner{}
				}
				return nil
			})),
			"maxFeatureBytes": config.Into(&s.MaxFeatureBytes),
			"shareFeatures":   config.Into(&s.ShareFeatures),
			"logLevel":        config.Advised(config.Into(&s.LogLevel), adviseLevel),
			"klog":            config.Ignored("the log goes to stderr; its level is core.logLevel"),
		}),
		"sources": config.Section(s.sources()),
	}
}

// sources returns the keys under sources. It includes sources without options, so that an empty section causes no warning.
func (s *Settings) sources() config.Keys {
	b := &s.Builtin
	ofPCI, ofUSB := s.devices()
	keys := config.Keys{}
	for _, name := range sourceNames() {
		keys[name] = config.Section(nil)
	}
	maps.Copy(keys, config.Keys{
		"cpu": config.Section(config.Keys{"cpuid": config.Section(config.Keys{
			"attributeBlacklist": config.Advised(config.Into(&b.CPU.CPUID.AttributeBlacklist), adviseCapability),
			"attributeWhitelist": config.Advised(config.Into(&b.CPU.CPUID.AttributeWhitelist), adviseCapability),
			"machineAttributes":  config.Into(&b.CPU.CPUID.MachineAttributes),
		})}),
		"kernel": config.Section(config.Keys{
			"kconfigFile": config.Into(&b.Kernel.KconfigFile),
			"configOpts":  config.Advised(config.Into(&b.Kernel.ConfigOpts), adviseOption),
		}),
		"pci": config.Section(ofPCI),
		"usb": config.Section(ofUSB),
		"local": config.Section(config.Keys{
			"hooksEnabled": config.Into(&s.Local.HooksEnabled),
			"hookTimeout":  config.Into(&s.Local.HookTimeout),
			"strict":       config.Into(&s.Local.Strict),
			"filePrefixes": config.Parsed(s.setFilePrefixes),
		}),
		"fake": config.Section(config.Keys{
			"labels":            config.Into(&s.Fake.Labels),
			"flagFeatures":      config.Into(&s.Fake.FlagFeatures),
			"attributeFeatures": config.Into(&s.Fake.AttributeFeature),
			"instanceFeatures":  config.Into(&s.Fake.InstanceFeatures),
		}),
		"custom": config.Tree(s.setCustom),
	})
	return keys
}

// setSleepInterval treats 0 and negative numbers as never, as NFD does.
func (s *Settings) setSleepInterval(text string) error {
	if text == "-1" {
		text = "0"
	}
	d, err := config.Duration(text)
	if err == nil {
		s.SleepInterval = d
	}
	return err
}

func (s *Settings) setWhiteList(pattern string) (err error) {
	s.LabelWhiteList = nil
	if pattern != "" {
		s.LabelWhiteList, err = regexp.Compile(pattern)
	}
	return err
}

func (s *Settings) setOwners(names []string) error {
	owners, err := publish.ParseOwners(strings.Join(names, ","))
	if err == nil {
		s.Owners = owners
	}
	return err
}

func (s *Settings) setFilePrefixes(prefixes map[string][]string) error {
	for _, pattern := range slices.Sorted(maps.Keys(prefixes)) {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("invalid pattern of file names %q: use for example driver-*", pattern)
		}
	}
	s.Local.FilePrefixes = prefixes
	return nil
}

// setCustom stores the rules as YAML.
func (s *Settings) setCustom(rules *yaml.Node) (err error) {
	s.Custom = nil
	if rules != nil && rules.Kind != yaml.SequenceNode {
		return fmt.Errorf("expected a list of rules, found %s", yamltree.Describe(rules))
	}
	if rules != nil {
		s.Custom, err = yaml.Marshal(rules)
	}
	return err
}

// apply applies the flags to the settings.
func (o *Override) apply(s *Settings) error {
	set(&s.NoPublish, o.NoPublish)
	set(&s.FeatureSources, o.FeatureSources)
	set(&s.LabelSources, o.LabelSources)
	set(&s.NoPublishFeatures, o.NoPublishFeatures)
	set(&s.SleepInterval, o.SleepInterval)
	if o.LabelWhiteList != nil {
		if err := s.setWhiteList(*o.LabelWhiteList); err != nil {
			return fmt.Errorf("-label-whitelist: %w", err)
		}
	}
	if o.OwnerRefs != nil {
		if err := s.setOwners(*o.OwnerRefs); err != nil {
			return fmt.Errorf("-owner-refs: %w", err)
		}
	}
	return nil
}

// advise returns warnings about flags that can match nothing.
func (o *Override) advise() (warnings []string) {
	add := func(flag, text string) {
		if text != "" {
			warnings = append(warnings, flag+": "+text)
		}
	}
	if o.LabelWhiteList != nil {
		add("-label-whitelist", config.AdviseWhiteList(*o.LabelWhiteList))
	}
	for flag, list := range map[string]*[]string{"-feature-sources": o.FeatureSources, "-label-sources": o.LabelSources} {
		if list == nil {
			continue
		}
		for _, name := range *list {
			add(flag, adviseSource(name))
		}
	}
	slices.Sort(warnings)
	return warnings
}

func set[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}

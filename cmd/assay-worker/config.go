package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
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
)

const (
	// defaultSleepInterval is how often everything is discovered, as in NFD. With events, it is a safety net.
	defaultSleepInterval = 60 * time.Second
	// minSleepInterval is the shortest, as in NFD.
	minSleepInterval = time.Second
)

// config is the worker's configuration: NFD's keys, and ours beside them.
type config struct {
	sleepInterval     time.Duration // 0 discovers once and then only on events
	featureSources    []string
	labelSources      []string
	labelWhiteList    *regexp.Regexp
	noPublish         bool
	noPublishFeatures []string
	owners            []publish.Owner
	maxFeatureBytes   int
	logLevel          string

	builtin builtin.Config
	local   local.Config
	fake    fake.Config
	custom  []byte // a YAML list of rules
}

// loadConfig reads the file and the inline text over it, and lays the flags over both. A missing file is an empty one, as
// long as it is the default one. All mistakes are reported at once.
func loadConfig(opt *options) (*config, []string, error) {
	c := &config{
		sleepInterval:  defaultSleepInterval,
		featureSources: []string{"all"}, labelSources: []string{"all"},
		builtin: builtin.DefaultConfig(), fake: fake.DefaultConfig(),
	}
	data, err := os.ReadFile(opt.configFile)
	if err != nil && !(errors.Is(err, os.ErrNotExist) && opt.configFile == defaultConfigFile) {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	var warnings []string
	var errs []error
	for _, doc := range []struct {
		origin string
		data   []byte
	}{{opt.configFile, data}, {"-options", []byte(opt.options)}} {
		r := &reader{origin: doc.origin}
		c.read(r, doc.data)
		warnings, errs = append(warnings, r.warnings...), append(errs, r.errs...)
	}
	if err := opt.override.apply(c); err != nil {
		errs = append(errs, err)
	}
	if c.sleepInterval > 0 {
		c.sleepInterval = max(c.sleepInterval, minSleepInterval)
	}
	return c, warnings, errors.Join(errs...)
}

// read lays one document over the configuration.
func (c *config) read(r *reader, data []byte) {
	root := r.parse(data)
	if root == nil {
		return
	}
	var whiteList *yaml.Node
	var owners *yaml.Node
	noOwners := false
	keep := func(dst **yaml.Node) func(*reader, *yaml.Node, string) {
		return func(_ *reader, n *yaml.Node, _ string) { *dst = n }
	}
	r.mapping(root, "", fields{
		"core": section(fields{
			"sleepInterval":     duration(&c.sleepInterval),
			"featureSources":    texts(&c.featureSources),
			"labelSources":      texts(&c.labelSources),
			"sources":           deprecated("core.labelSources", texts(&c.labelSources)),
			"labelWhiteList":    keep(&whiteList),
			"noPublish":         flagValue(&c.noPublish),
			"noPublishFeatures": texts(&c.noPublishFeatures),
			"ownerRefs":         keep(&owners),
			"noOwnerRefs":       deprecated("core.ownerRefs: []", flagValue(&noOwners)),
			"maxFeatureBytes":   integer(&c.maxFeatureBytes),
			"logLevel":          text(&c.logLevel),
			"klog":              ignored("the log goes to stderr; its level is core.logLevel"),
		}),
		"sources": section(c.sources()),
	})
	for _, pattern := range slices.Sorted(maps.Keys(c.local.FilePrefixes)) {
		if _, err := path.Match(pattern, ""); err != nil {
			r.errs = append(r.errs, fmt.Errorf("%s: sources.local.filePrefixes: %q is no pattern of file names; write one such as driver-*", r.origin, pattern))
		}
	}
	c.readWhiteList(r, whiteList)
	c.readOwners(r, owners, noOwners)
}

// sources are the keys under sources. Sources without options are known all the same, so that an empty section is no typo.
func (c *config) sources() fields {
	none := section(fields{})
	b := &c.builtin
	return fields{
		"cpu": section(fields{"cpuid": section(fields{
			"attributeBlacklist": texts(&b.CPU.CPUID.AttributeBlacklist),
			"attributeWhitelist": texts(&b.CPU.CPUID.AttributeWhitelist),
		})}),
		"kernel": section(fields{
			"kconfigFile": text(&b.Kernel.KconfigFile),
			"configOpts":  texts(&b.Kernel.ConfigOpts),
		}),
		"pci": section(fields{
			"deviceClassWhitelist": texts(&b.PCI.DeviceClassWhitelist),
			"deviceLabelFields":    texts(&b.PCI.DeviceLabelFields),
			"deviceLabelForms":     textLists(&b.PCI.DeviceLabelForms),
		}),
		"usb": section(fields{
			"deviceClassWhitelist": texts(&b.USB.DeviceClassWhitelist),
			"deviceLabelFields":    texts(&b.USB.DeviceLabelFields),
			"deviceLabelForms":     textLists(&b.USB.DeviceLabelForms),
		}),
		"local": section(fields{
			"hooksEnabled": flagValue(&c.local.HooksEnabled),
			"hookTimeout":  duration(&c.local.HookTimeout),
			"strict":       flagValue(&c.local.Strict),
			"filePrefixes": textListMap(&c.local.FilePrefixes),
		}),
		"fake": section(fields{
			"labels":            textMap(&c.fake.Labels),
			"flagFeatures":      texts(&c.fake.FlagFeatures),
			"attributeFeatures": textMap(&c.fake.AttributeFeature),
			"instanceFeatures":  textMaps(&c.fake.InstanceFeatures),
		}),
		"custom": raw(&c.custom),
		"gpu":    none, "memory": none, "network": none, "rdma": none, "storage": none, "system": none,
	}
}

func (c *config) readWhiteList(r *reader, n *yaml.Node) {
	if n == nil {
		return
	}
	var pattern string
	text(&pattern)(r, n, "core.labelWhiteList")
	c.labelWhiteList = nil
	if pattern == "" {
		return
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		r.errorf(n, "core.labelWhiteList: %v", err)
		return
	}
	c.labelWhiteList = re
}

func (c *config) readOwners(r *reader, n *yaml.Node, none bool) {
	if none {
		c.owners = []publish.Owner{}
	}
	if n == nil {
		return
	}
	var list []string
	texts(&list)(r, n, "core.ownerRefs")
	owners, err := publish.ParseOwners(strings.Join(list, ","))
	if err != nil {
		r.errorf(n, "core.ownerRefs: %v", err)
		return
	}
	c.owners = owners
}

// deprecated reads a key under its old name.
func deprecated(instead string, read func(*reader, *yaml.Node, string)) func(*reader, *yaml.Node, string) {
	return func(r *reader, n *yaml.Node, path string) {
		r.warnf(n, "%s is deprecated: write %s", path, instead)
		read(r, n, path)
	}
}

// apply lays the flags over a configuration.
func (o *override) apply(c *config) error {
	set(&c.noPublish, o.noPublish)
	set(&c.featureSources, o.featureSources)
	set(&c.labelSources, o.labelSources)
	set(&c.noPublishFeatures, o.noPublishFeatures)
	set(&c.sleepInterval, o.sleepInterval)
	if o.labelWhiteList != nil {
		re, err := regexp.Compile(*o.labelWhiteList)
		if err != nil {
			return fmt.Errorf("-label-whitelist: %w", err)
		}
		c.labelWhiteList = re
	}
	if o.ownerRefs != nil {
		owners, err := publish.ParseOwners(strings.Join(*o.ownerRefs, ","))
		if err != nil {
			return fmt.Errorf("-owner-refs: %w", err)
		}
		c.owners = owners
	}
	return nil
}

func set[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}

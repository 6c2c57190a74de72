package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/review"
)

const (
	// webhookSelector selects the Deployments of the webhook.
	webhookSelector = "app.kubernetes.io/part-of=assay,app.kubernetes.io/component=webhook"
	// configKey is the key of the configuration file in the ConfigMap.
	configKey = "nfd-master.conf"
)

// configFile holds the keys of the configuration file that reviews depend on.
type configFile struct {
	ExtraLabelNs, DenyLabelNs, ProtectedKeys, MaskedElements []string

	LabelWhiteList, FeatureSources, DefaultScope, DefaultNodeScope, DefaultTemplate, MaskSecrets, LossTaint string

	NoPublish, EnableTaints bool
	AllowFail               *bool
	FeatureGates            map[string]bool
	Restrictions            struct{ DisableLabels, DisableExtendedResources, DisableAnnotations bool }
}

// installed holds the settings of a webhook: its flags, and its configuration file for settings without a flag.
type installed struct {
	policyFlags
	strictAdmission, nodeWarnings bool
	options, tolerations          string
	defaultTemplate, sources      string
	lossTaint                     string
	gates                         map[string]string
	masked, protected             []string
	withholding                   rules.Withholding
	flags                         *pflag.FlagSet
}

// readInstalled returns the settings of the webhook in a cluster, or nil if there is none. An empty namespace means all namespaces.
// Flags of the user override these settings.
func readInstalled(ctx context.Context, c *cluster.Client, namespace string, given *pflag.FlagSet) (*installed, error) {
	list, err := c.Deployments(ctx, namespace, webhookSelector)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	d := &list[0]
	s := &installed{flags: pflag.NewFlagSet("webhook", pflag.ContinueOnError)}
	s.register()
	for _, container := range d.Spec.Template.Spec.Containers {
		if len(container.Args) > 0 && container.Args[0] == "webhook" {
			err = s.flags.Parse(container.Args[1:])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("arguments of Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	given.Visit(func(f *pflag.Flag) {
		same := s.flags.Lookup(f.Name)
		if same == nil {
			return
		}
		same.Changed = true
		if list, ok := same.Value.(pflag.SliceValue); ok {
			_ = list.Replace(f.Value.(pflag.SliceValue).GetSlice()) // a list of strings accepts any value
			return
		}
		_ = same.Value.Set(f.Value.String()) // valid, since both flags have the same type
	})
	file := &configFile{}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		m, err := c.ConfigMap(ctx, d.Namespace, v.ConfigMap.Name)
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal([]byte(m.Data[configKey]), file); err != nil {
			return nil, fmt.Errorf("ConfigMap %s/%s: %w", d.Namespace, m.Name, err)
		}
	}
	if err := yaml.Unmarshal([]byte(s.options), file); err != nil {
		return nil, fmt.Errorf("--options of Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	s.read(file)
	return s, nil
}

func (s *installed) register() {
	s.flags.ParseErrorsAllowlist.UnknownFlags = true
	s.policyFlags.register(s.flags)
	s.flags.BoolVar(&s.strictAdmission, "strict-admission", false, "")
	s.flags.BoolVar(&s.nodeWarnings, "node-warnings", true, "")
	s.flags.StringVar(&s.options, "options", "", "")
	s.flags.StringVar(&s.tolerations, "worker-tolerations", "", "")
	s.flags.StringVar(&s.defaultTemplate, "default-template", "", "")
	s.flags.StringVar(&s.lossTaint, "loss-taint", "", "")
	s.flags.StringVar(&s.sources, "feature-sources", "", "")
	s.flags.StringToStringVar(&s.gates, "feature-gates", nil, "")
}

// read applies the settings of the configuration file that no flag sets.
func (s *installed) read(file *configFile) {
	text := func(flag string, to *string, from string) {
		if !s.flags.Changed(flag) && from != "" {
			*to = from
		}
	}
	text("label-whitelist", &s.labelWhitelist, file.LabelWhiteList)
	text("default-scope", &s.defaultScope, file.DefaultScope)
	text("default-node-scope", &s.nodeScope, file.DefaultNodeScope)
	text("default-template", &s.defaultTemplate, file.DefaultTemplate)
	text("feature-sources", &s.sources, file.FeatureSources)
	text("loss-taint", &s.lossTaint, file.LossTaint)
	text("mask-secrets", &s.mask, file.MaskSecrets)
	if !s.flags.Changed("extra-label-ns") {
		s.extraLabelNs = file.ExtraLabelNs
	}
	if !s.flags.Changed("deny-label-ns") {
		s.denyLabelNs = file.DenyLabelNs
	}
	if !s.flags.Changed("enable-taints") {
		s.taints = file.EnableTaints
	}
	if !s.flags.Changed("allow-fail") && file.AllowFail != nil {
		s.allowFail = *file.AllowFail
	}
	const bare = "DisableAutoPrefix"
	if !s.flags.Changed("disable-auto-prefix") {
		s.disableAutoPrefix = file.FeatureGates[bare]
		if on, ok := s.gates[bare]; ok {
			s.disableAutoPrefix = on == "true"
		}
	}
	s.masked, s.protected = file.MaskedElements, file.ProtectedKeys
	s.withholding = rules.Withholding{
		All: file.NoPublish, Taints: !s.taints, Labels: file.Restrictions.DisableLabels,
		Annotations: file.Restrictions.DisableAnnotations, ExtendedResources: file.Restrictions.DisableExtendedResources,
		Losses: s.lossTaint == "",
	}
}

// known sets the fields of known that depend on the webhook's settings.
func (s *installed) known(known *review.Known) (err error) {
	if known.Rules, err = s.policyFlags.options(); err != nil {
		return err
	}
	known.Rules.Keys.Protected, known.Rules.Mask.Elements = s.protected, s.masked
	if s.sources != "" {
		if known.Rules.FeatureSources, err = regexp.Compile(s.sources); err != nil {
			return fmt.Errorf("featureSources: %w", err)
		}
	}
	known.Strict = known.Strict || s.strictAdmission
	known.Withholding, known.DefaultTemplate = s.withholding, s.defaultTemplate
	known.Tolerations = []corev1.Toleration{}
	return yaml.Unmarshal([]byte(s.tolerations), &known.Tolerations)
}

// publishedIn returns a function that reports whether a node of the cluster publishes a feature, as in the webhook.
func publishedIn(ctx context.Context, c *cluster.Client, own string, opt rules.Options) (func(string) (published, known bool), error) {
	list, err := c.Features(ctx, own, "")
	if err != nil {
		return nil, err
	}
	objects, err := c.Rules(ctx)
	if err != nil {
		return nil, err
	}
	features := map[string]bool{}
	for i := range list {
		for _, name := range list[i].Spec.Features.Names() {
			features[strings.ToLower(name)] = true
		}
	}
	derived := map[string]bool{}
	for i := range objects {
		set, _ := rules.Compile(&objects[i], opt)
		for _, name := range set.Derives() {
			derived[name] = true
		}
	}
	return func(feature string) (bool, bool) {
		if len(features) == 0 {
			return false, false // the workers may not have published yet
		}
		return features[feature] || derived[feature] || facts.IsKubernetes(feature), true
	}, nil
}

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/internal/config/managerconfig"
	"github.com/assay-project/assay/rules"
)

// processFlags are the flags of all subcommands.
type processFlags struct {
	kubeconfig, namespace string
	port, metricsPort     int
	metricsSecure         bool
	metricsCertDir        string
}

func (f *processFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")
	flags.StringVar(&f.namespace, "namespace", ownNamespace(), "namespace of Assay's own objects")
	flags.IntVar(&f.port, "port", 8080, "port of /healthz and /readyz; 0: do not serve them")
	flags.IntVar(&f.metricsPort, "metrics-port", 8081, "port of /metrics; 0: do not serve it")
	flags.BoolVar(&f.metricsSecure, "metrics-secure", false,
		"serve /metrics over TLS, to clients whose bearer token may get the path /metrics (TokenReview and SubjectAccessReview)")
	flags.StringVar(&f.metricsCertDir, "metrics-cert-dir", "",
		"directory of tls.crt and tls.key for --metrics-secure; empty: a self-signed certificate")
}

// ruleFlags are the flags that affect the meaning of rules. All commands that compile rules have them and must have the same values
// in one installation: the webhook must not accept rules that the controller rejects. Flags that also exist in NFD have the same
// names.
type ruleFlags struct {
	strict               bool
	instance             string
	configFile, override string
	pciIDs, usbIDs       string

	// overrides are the flags that override the configuration file, in the order of the command line.
	overrides []func(*managerconfig.Settings) error
}

func (f *ruleFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.strict, "nfd-strict", false, "follow NFD where Assay deliberately differs")
	flags.StringVar(&f.instance, "instance", "", "name of this controller, if several run in one cluster")
	flags.StringVar(&f.configFile, "config", managerconfig.DefaultFile, "configuration file; flags override it")
	flags.StringVar(&f.override, "options", "", "configuration in JSON or YAML that overrides the file")
	flags.StringVar(&f.pciIDs, "pci-ids", "", "file pci.ids that replaces the built-in names in warnings")
	flags.StringVar(&f.usbIDs, "usb-ids", "", "file usb.ids that replaces the built-in names in warnings")

	f.setting(flags, "label-whitelist", "regular expression that label names must match",
		(*managerconfig.Settings).SetLabelWhiteList)
	f.setting(flags, "extra-label-ns", "namespaces that labels may use although they are denied, separated by commas",
		toList(func(s *managerconfig.Settings) *[]string { return &s.ExtraLabelNs }))
	f.setting(flags, "deny-label-ns", "namespaces that labels must not use, separated by commas; *.example.com for all subdomains",
		toList(func(s *managerconfig.Settings) *[]string { return &s.DenyLabelNs }))
	f.setting(flags, "default-scope", "scope of rules that set neither scope nor nodeSelector",
		toText(func(s *managerconfig.Settings) *string { return &s.DefaultScope }))
	f.setting(flags, "default-node-scope", "scope of nodes without the label assay.dev/scope",
		toText(func(s *managerconfig.Settings) *string { return &s.DefaultNodeScope }))
	f.setting(flags, "feature-sources", "regular expression on namespace/name of the NodeFeatures that rules of objects without featureSources see",
		(*managerconfig.Settings).SetFeatureSources)
	f.setting(flags, "default-template", "NodeFeatureRuleTemplate that every rule is based on",
		toText(func(s *managerconfig.Settings) *string { return &s.DefaultTemplate }))
	f.setting(flags, "built-in-rules", "directory of rules that are evaluated in addition to those of the cluster",
		toText(func(s *managerconfig.Settings) *string { return &s.BuiltInRules }))
	f.setting(flags, "removal-grace-period", "duration for which labels, and features for the extender, remain after their worker's NodeFeature is gone (default 10m)",
		toDuration(func(s *managerconfig.Settings) *time.Duration { return &s.RemovalGracePeriod }))
	f.toggle(flags, "enable-taints", "let rules create taints (default false)", toBool(func(s *managerconfig.Settings) *bool { return &s.EnableTaints }))
	f.setting(flags, "startup-taint", "key of the taint that the controller removes from Nodes with the condition FeaturesReady; rules must not write it",
		toText(func(s *managerconfig.Settings) *string { return &s.StartupTaint }))
	f.setting(flags, "loss-taint", "taint, as KEY:EFFECT, of nodes that no longer have what their pods require, for objects with onLoss: Taint; needs noExecuteBudget",
		toText(func(s *managerconfig.Settings) *string { return &s.LossTaint }))
	f.toggle(flags, "allow-fail", "let the action fail keep the labels of a node unchanged (default true)",
		toBool(func(s *managerconfig.Settings) *bool { return &s.AllowFail }))
	f.toggle(flags, "disable-auto-prefix", "do not add a namespace to names without one",
		func(s *managerconfig.Settings, text string) error {
			return setGates(s, managerconfig.GateBare+"="+text)
		})
	f.setting(flags, "feature-gates", "NAME=true or NAME=false, separated by commas", setGates)
}

// setting registers a flag that overrides the configuration file.
func (f *ruleFlags) setting(flags *pflag.FlagSet, name, usage string, set func(*managerconfig.Settings, string) error) {
	flags.Func(name, usage, func(text string) error {
		f.overrides = append(f.overrides, func(s *managerconfig.Settings) error { return set(s, text) })
		return set(managerconfig.Default(), text) // return errors while flags are parsed, like other flags
	})
}

// toggle is like setting, for a flag whose value is optional.
func (f *ruleFlags) toggle(flags *pflag.FlagSet, name, usage string, set func(*managerconfig.Settings, string) error) {
	f.setting(flags, name, usage, set)
	flags.Lookup(name).NoOptDefVal = "true"
}

// load reads the configuration file and applies the flags.
func (f *ruleFlags) load() (*managerconfig.Settings, []string, error) {
	s, warnings, err := managerconfig.Load(f.configFile, f.override, f.overrides)
	if err == nil && f.instance != "" && s.StartupTaint != "" {
		return nil, nil, fmt.Errorf("startupTaint %q: the taint is removed from nodes with the condition FeaturesReady, which only the controller without an instance name writes; "+
			"set startupTaint on that controller, or remove --instance=%s", s.StartupTaint, f.instance)
	}
	return s, warnings, err
}

// options returns the options for compiling rules, from the configuration file and the flags.
func (f *ruleFlags) options() (rules.Options, error) {
	s, _, err := f.load()
	if err != nil {
		return rules.Options{}, err
	}
	return s.RuleOptions(f.strict), nil
}

// likeController returns the configuration of the controller in a namespace, which applies to all commands that evaluate rules.
func (f *ruleFlags) likeController(s *managerconfig.Settings, namespace string) controller.Config {
	return s.Controllers(namespace, f.instance, f.strict)
}

func toBool(at func(*managerconfig.Settings) *bool) func(*managerconfig.Settings, string) error {
	return func(s *managerconfig.Settings, text string) (err error) {
		*at(s), err = strconv.ParseBool(text)
		return err
	}
}

func toText(at func(*managerconfig.Settings) *string) func(*managerconfig.Settings, string) error {
	return func(s *managerconfig.Settings, text string) error {
		*at(s) = text
		return nil
	}
}

func toList(at func(*managerconfig.Settings) *[]string) func(*managerconfig.Settings, string) error {
	return func(s *managerconfig.Settings, text string) error {
		*at(s) = nil
		for _, item := range strings.Split(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*at(s) = append(*at(s), item)
			}
		}
		return nil
	}
}

func setGates(s *managerconfig.Settings, text string) error {
	for _, pair := range strings.Split(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, on, _ := strings.Cut(strings.TrimSpace(pair), "=")
		enabled, err := strconv.ParseBool(on)
		if err != nil {
			return fmt.Errorf("%q: write NAME=true or NAME=false", pair)
		}
		s.FeatureGates[name] = enabled
	}
	return nil
}

// restConfig returns the client configuration for the API server, without a client-side rate limit: API Priority and Fairness
// limits requests better than a constant.
func restConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the API server: %w", err)
	}
	config.QPS = -1
	return config, nil
}

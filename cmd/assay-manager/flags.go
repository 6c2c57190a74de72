package main

import (
	"fmt"
	"regexp"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// processFlags are the flags that every subcommand has.
type processFlags struct {
	kubeconfig, namespace string
	port, metricsPort     int
}

func (f *processFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; without it, the service account of the pod")
	flags.StringVar(&f.namespace, "namespace", ownNamespace(), "namespace of Assay's own objects")
	flags.IntVar(&f.port, "port", 8080, "port of /healthz and /readyz; 0: none")
	flags.IntVar(&f.metricsPort, "metrics-port", 8081, "port of /metrics; 0: none")
}

// ruleFlags are the flags that say what rules mean. Whoever compiles rules has them, and an installation gives the same ones
// to all: the webhook must not let pass what the controller then refuses. Those that NFD has bear NFD's names.
type ruleFlags struct {
	strict                       bool
	instance                     string
	labelWhitelist               string
	extraLabelNs, denyLabelNs    []string
	defaultScope, nodeScope      string
	allowFail, disableAutoPrefix bool
}

func (f *ruleFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.strict, "nfd-strict", false, "do as NFD does where Assay differs from it on purpose")
	flags.StringVar(&f.instance, "instance", "", "name that keeps this controller apart from others in the cluster")
	flags.StringVar(&f.labelWhitelist, "label-whitelist", "", "regular expression that names of labels must match")
	flags.StringSliceVar(&f.extraLabelNs, "extra-label-ns", nil, "namespaces that labels may use although they are denied")
	flags.StringSliceVar(&f.denyLabelNs, "deny-label-ns", nil, "namespaces that labels may not use; *.example.com for all below")
	flags.StringVar(&f.defaultScope, "default-scope", "", "scope of rules that set neither scope nor nodeSelector")
	flags.StringVar(&f.nodeScope, "default-node-scope", "", "scope of nodes without the label assay.dev/scope")
	flags.BoolVar(&f.allowFail, "allow-fail", true, "let the action fail keep a node as it is")
	flags.BoolVar(&f.disableAutoPrefix, "disable-auto-prefix", false, "leave names without a namespace as they are")
}

// options turns the flags into the options that rules are compiled under.
func (f *ruleFlags) options() (rules.Options, error) {
	policy := keys.Policy{
		ExtraNamespaces: f.extraLabelNs, DenyNamespaces: f.denyLabelNs, DisableAutoPrefix: f.disableAutoPrefix, Strict: f.strict,
	}
	if f.labelWhitelist != "" {
		re, err := regexp.Compile(f.labelWhitelist)
		if err != nil {
			return rules.Options{}, fmt.Errorf("--label-whitelist: %w", err)
		}
		policy.LabelWhiteList = re
	}
	return rules.Options{
		Strict: f.strict, Keys: policy, DefaultScope: f.defaultScope, DefaultNodeScope: f.nodeScope, IgnoreFail: !f.allowFail,
	}, nil
}

// restConfig returns how to reach the API server, without a limit of our own on requests: the API server's priority and
// fairness knows better than a constant.
func restConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("no way to the API server: %w", err)
	}
	config.QPS = -1
	return config, nil
}

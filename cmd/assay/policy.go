package main

import (
	"fmt"
	"regexp"

	"github.com/spf13/pflag"

	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
)

// policyFlags are the settings of the controller that affect the results of rules. They have the same names as the controller's
// flags, so that users can copy them from its manifest.
type policyFlags struct {
	strict, disableAutoPrefix, allowFail, taints bool
	labelWhitelist                               string
	extraLabelNs, denyLabelNs                    []string
	defaultScope, nodeScope                      string
	mask                                         string
}

func (f *policyFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.strict, "nfd-strict", false, "follow NFD where Assay deliberately differs")
	flags.BoolVar(&f.taints, "enable-taints", true, "show the taints that rules create; --enable-taints=false is the controller's default")
	flags.StringVar(&f.labelWhitelist, "label-whitelist", "", "regular expression that label names must match")
	flags.StringSliceVar(&f.extraLabelNs, "extra-label-ns", nil, "namespaces that labels may use although they are denied, separated by commas")
	flags.StringSliceVar(&f.denyLabelNs, "deny-label-ns", nil, "namespaces that labels must not use, separated by commas; *.example.com for all subdomains")
	flags.StringVar(&f.defaultScope, "default-scope", "", "scope of rules that set neither scope nor nodeSelector")
	flags.StringVar(&f.nodeScope, "default-node-scope", "", "scope of nodes without the label assay.dev/scope")
	flags.BoolVar(&f.allowFail, "allow-fail", true, "let the action fail keep the labels of a node unchanged")
	flags.BoolVar(&f.disableAutoPrefix, "disable-auto-prefix", false, "do not add a namespace to names without one")
	flags.StringVar(&f.mask, "mask-secrets", string(rules.MaskAlways), "hide elements with names like *password*: always, never, sensitive")
}

func (f *policyFlags) options() (rules.Options, error) {
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
	mode := rules.MaskMode(f.mask)
	if mode != rules.MaskAlways && mode != rules.MaskNever && mode != rules.MaskSensitive {
		return rules.Options{}, fmt.Errorf("--mask-secrets is %q; use always, never or sensitive", f.mask)
	}
	return rules.Options{
		Strict: f.strict, Keys: policy, DefaultScope: f.defaultScope, DefaultNodeScope: f.nodeScope, IgnoreFail: !f.allowFail,
		Mask: rules.Masking{Mode: mode},
	}, nil
}

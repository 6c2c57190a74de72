package settings

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/gather"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// Primary reports whether the controller has no instance name: it alone writes the condition FeaturesReady, the labels of
// NodeFeatureRequests, and the status of kinds that has one writer.
func (s *Settings) Primary() bool { return s.Instance == "" }

// Materialized returns the limits of the NodeFeatureRequests whose nodes are labeled.
func (s *Settings) Materialized() MaterializedRequests {
	if !s.Primary() {
		return MaterializedRequests{} // two controllers would write the same labels
	}
	return s.MaterializedRequests
}

// Rules returns the options for compiling rules.
func (s *Settings) Rules() rules.Options {
	return rules.Options{
		Strict: s.Strict, Keys: s.Keys(),
		DefaultScope: s.DefaultScope, DefaultNodeScope: s.DefaultNodeScope, IgnoreFail: !s.AllowFail,
		FeatureSources: s.FeatureSources,
		Mask:           rules.Masking{Mode: rules.MaskMode(s.MaskSecrets), Elements: s.MaskedElements},
	}
}

// Keys returns which keys rules may write.
func (s *Settings) Keys() keys.Policy {
	return keys.Policy{
		ExtraNamespaces: s.ExtraLabelNs, DenyNamespaces: s.DenyLabelNs, LabelWhiteList: s.LabelWhiteList,
		DisableAutoPrefix: s.FeatureGates[GateBare], Protected: s.protected(), Strict: s.Strict,
	}
}

// protected returns the keys that no rule may write, with that of the taint that the controller removes.
func (s *Settings) protected() []string {
	if s.StartupTaint == "" {
		return s.ProtectedKeys
	}
	return append(slices.Clone(s.ProtectedKeys), s.StartupTaint)
}

// Record returns how the controller records what it has written on a Node.
func (s *Settings) Record() plan.Record {
	return plan.Record{Instance: s.Instance, Bare: s.FeatureGates[GateBare]}
}

// Gather returns which NodeFeatures count and how they are merged. Namespace is Assay's own.
func (s *Settings) Gather(namespace string) gather.Policy {
	p := gather.Policy{
		Namespace: namespace, Drivers: s.DRADrivers, IgnoreLabels: s.Restrictions.DenyNodeFeatureLabels, Keys: s.Keys(), Record: s.Record(),
	}
	if selector := s.Restrictions.NodeFeatureNamespaceSelector; selector != nil {
		p.Namespaces, _ = metav1.LabelSelectorAsSelector(selector) // checked when it was read
	}
	return p
}

// Plan returns how outcomes are compared with a Node.
func (s *Settings) Plan() plan.Policy {
	policy := s.Keys()
	return plan.Policy{Record: s.Record(), Taints: s.EnableTaints, KeepForeign: !s.Restrictions.AllowOverwrite, Keys: &policy}
}

// Desired returns what decides what is desired of Nodes.
func (s *Settings) Desired() desired.Settings {
	out := desired.Settings{Policy: s.Plan(), Withholding: s.Withholding()}
	out.FailTaint, _ = s.FailTaintOf() // checked when they were read
	out.LossTaint, _ = s.LossTaintOf()
	return out
}

// Withholding returns which outputs of rules the controller does not write to Nodes.
func (s *Settings) Withholding() rules.Withholding {
	return rules.Withholding{
		All: s.NoPublish, Taints: !s.EnableTaints, Labels: s.Restrictions.DisableLabels, Annotations: s.Restrictions.DisableAnnotations,
		ExtendedResources: s.Restrictions.DisableExtendedResources, Losses: s.LossTaint == "",
	}
}

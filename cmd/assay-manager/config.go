package main

import (
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/controller/orphan"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/settings"
)

// controllerConfig returns the configuration of the controller in a namespace, which applies to all commands that evaluate rules.
func controllerConfig(s *settings.Settings, namespace string) controller.Config {
	c := controller.Config{
		Rules: s.Rules(), Sources: s.Gather(namespace), Policy: s.Plan(),
		Disable: node.Disable{
			Labels: s.Restrictions.DisableLabels, Annotations: s.Restrictions.DisableAnnotations,
			ExtendedResources: s.Restrictions.DisableExtendedResources,
		},
		DryRun: s.NoPublish, Grace: s.RemovalGracePeriod,
		Budget: budget.Budget(s.RemovalBudget), Evictions: budget.Evictions(s.NoExecuteBudget),
		Parallel:        s.Parallelism,
		Ready:           s.FeaturesReady,
		Startup:         node.Startup{Key: s.StartupTaint, FailOpenAfter: s.FailOpenAfter},
		Resync:          s.ResyncPeriod,
		DefaultTemplate: s.DefaultTemplate,
		Version:         build.Version(),
		BuiltInRules:    s.BuiltInRules,
		Groups:          s.FeatureGates[settings.GateGroups],
		Scheduling:      s.FeatureGates[settings.GateScheduling],
		Requests:        compile.RequestLimits(s.MaterializedRequests),
		Shapes:          s.NodeShapeLabels,
		Orphans:         orphan.Options{Interval: s.GcInterval, Grace: s.GcGracePeriod},
		Topologies:      s.GcTopologies,
	}
	if s.Instance != "" {
		c.Requests = compile.RequestLimits{} // two controllers would write the same labels
	}
	c.FailTaint, _ = s.FailTaintOf() // checked when they were read
	c.LossTaint, _ = s.LossTaintOf()
	return c
}

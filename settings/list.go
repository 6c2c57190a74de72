package settings

import (
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/rules"
)

// Settings are the values of all settings. The list below declares each.
type Settings struct {
	Strict               bool
	Instance             string
	NoPublish            bool
	ExtraLabelNs         []string
	DenyLabelNs          []string
	EnableTaints         bool
	LabelWhiteList       *regexp.Regexp // nil allows all
	ResyncPeriod         time.Duration
	LeaderElection       LeaderElection
	Parallelism          int
	InformerPageSize     int
	Restrictions         Restrictions
	DRADrivers           []string
	RemovalGracePeriod   time.Duration
	RemovalBudget        RemovalBudget
	HealthBudget         HealthBudget
	NoExecuteBudget      NoExecuteBudget
	MaskSecrets          string
	MaskedElements       []string // nil: the default
	DefaultScope         string
	DefaultNodeScope     string
	FeatureSources       *regexp.Regexp // nil selects all
	DefaultTemplate      string
	BuiltInRules         string
	ProtectedKeys        []string
	MaterializedRequests MaterializedRequests
	AllowFail            bool
	FailTaint            string
	LossTaint            string
	FeaturesReady        bool
	StartupTaint         string
	FailOpenAfter        time.Duration
	NodeShapeLabels      []string
	GcInterval           time.Duration
	GcGracePeriod        time.Duration
	GcTopologies         bool
	FeatureGates         map[string]bool
}

// LeaderElection holds the durations of leader election.
type LeaderElection struct{ LeaseDuration, RenewDeadline, RetryPeriod time.Duration }

// Restrictions limit what rules and NodeFeatures may do.
type Restrictions struct {
	NodeFeatureNamespaceSelector              *metav1.LabelSelector // nil: all
	DisableLabels, DisableExtendedResources   bool
	DisableAnnotations, DenyNodeFeatureLabels bool
	AllowOverwrite                            bool
}

// RemovalBudget is the number of nodes that can lose keys in a time window without human attention.
type RemovalBudget struct {
	// Nodes is an absolute number, Share a fraction of all nodes. The larger of the two is allowed per Window.
	Nodes int
	Share float64
	// Window is the duration over which removals are counted.
	Window time.Duration
	// Hold is the duration after which a removal over the budget is carried out anyway.
	Hold time.Duration
}

// HealthBudget limits how many nodes get taints, and conditions another status, because of their health. Nodes, Share and Window are as in
// RemovalBudget; Share is that of the nodes whose health is known.
type HealthBudget struct {
	Nodes  int
	Share  float64
	Window time.Duration
}

// NoExecuteBudget limits how fast nodes get taints that evict pods, and how many nodes have them. The zero value has no limits, as in NFD.
type NoExecuteBudget struct {
	// Every is the minimum time between two nodes; 0 disables all limits.
	Every time.Duration
	// Canary is the time between the first node of a wave and the second.
	Canary time.Duration
	// Share is the share of all nodes that can have such taints at the same time; one node always can.
	Share float64
	// OneZone allows such taints in one zone at a time only.
	OneZone bool
}

// MaterializedRequests limits the number of NodeFeatureRequests that are materialized, because one request can cause a write of every
// Node. The oldest requests come first.
type MaterializedRequests struct {
	// Total is the limit of the cluster; 0: no request is materialized.
	Total int
	// PerNamespace is the limit of each namespace; 0: Total.
	PerNamespace int
}

// The number of requests that are labels of Nodes by default: enough for the requirements that a cluster has a name for. A Node has
// about 100 labels without them.
const (
	DefaultMaterializedTotal        = 50
	DefaultMaterializedPerNamespace = 5
)

// list declares all settings, in the order of the documentation.
var list = []Setting{
	declare("", func(s *Settings) *bool { return &s.Strict }, false,
		"Follow NFD where Assay deliberately differs.", flag("nfd-strict"), inAssay),
	declare("", func(s *Settings) *string { return &s.Instance }, "",
		"Name of the controller, if several run in one cluster.", flag("instance"), inAssay,
		form(`^$|^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`, "lower-case letters, digits, - and ., for example gpu-nodes")),
	declare("noPublish", func(s *Settings) *bool { return &s.NoPublish }, false,
		"Evaluate rules and report their status without writing to Nodes.", controllerFlag("no-publish")),
	declare("extraLabelNs", func(s *Settings) *[]string { return &s.ExtraLabelNs }, nil,
		"Namespaces that labels may use although they are denied.", flag("extra-label-ns"), inAssay),
	declare("denyLabelNs", func(s *Settings) *[]string { return &s.DenyLabelNs }, nil,
		"Namespaces that labels must not use; *.example.com for all subdomains.", flag("deny-label-ns"), inAssay),
	declare("enableTaints", func(s *Settings) *bool { return &s.EnableTaints }, false,
		"Let rules create taints.", flag("enable-taints"), inAssay),
	declare("labelWhiteList", func(s *Settings) **regexp.Regexp { return &s.LabelWhiteList }, nil,
		"Regular expression that label names must match.", flag("label-whitelist"), inAssay),
	declare("resyncPeriod", func(s *Settings) *time.Duration { return &s.ResyncPeriod }, time.Hour,
		"Interval at which all nodes are evaluated again without a change; 0: never.", controllerFlag("resync-period")),
	declare("leaderElection.leaseDuration", func(s *Settings) *time.Duration { return &s.LeaderElection.LeaseDuration }, 15*time.Second,
		"Time after which another replica may take over."),
	declare("leaderElection.renewDeadline", func(s *Settings) *time.Duration { return &s.LeaderElection.RenewDeadline }, 10*time.Second,
		"Time after which the leader gives up."),
	declare("leaderElection.retryPeriod", func(s *Settings) *time.Duration { return &s.LeaderElection.RetryPeriod }, 2*time.Second,
		"Time between two attempts."),
	declare("nfdApiParallelism", func(s *Settings) *int { return &s.Parallelism }, 10,
		"Maximum number of nodes that are evaluated at once.", controllerFlag("nfd-api-parallelism"), atLeast(1)),
	declare("informerPageSize", func(s *Settings) *int { return &s.InformerPageSize }, 0,
		"Page size for listing NodeFeatures from API servers before 1.34; 0: no paging.", controllerFlag("informer-page-size"), atLeast(0)),
	declare("restrictions.nodeFeatureNamespaceSelector", func(s *Settings) **metav1.LabelSelector { return &s.Restrictions.NodeFeatureNamespaceSelector }, nil,
		"Label selector of the namespaces whose NodeFeatures count, in addition to Assay's own; all by default.",
		example(map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "assay-system"}})),
	declare("restrictions.disableLabels", func(s *Settings) *bool { return &s.Restrictions.DisableLabels }, false, "Write no labels."),
	declare("restrictions.disableExtendedResources", func(s *Settings) *bool { return &s.Restrictions.DisableExtendedResources }, false,
		"Write no extended resources."),
	declare("restrictions.disableAnnotations", func(s *Settings) *bool { return &s.Restrictions.DisableAnnotations }, false, "Write no annotations."),
	declare("restrictions.denyNodeFeatureLabels", func(s *Settings) *bool { return &s.Restrictions.DenyNodeFeatureLabels }, false,
		"Ignore spec.labels of NodeFeatures other than the workers'."),
	declare("restrictions.allowOverwrite", func(s *Settings) *bool { return &s.Restrictions.AllowOverwrite }, true,
		"Take over keys that other clients own when a rule names them."),
	declare("draDrivers", func(s *Settings) *[]string { return &s.DRADrivers }, nil,
		"DRA drivers whose devices are features; all by default.", example([]any{"gpu.nvidia.com"})),
	declare("removalGracePeriod", func(s *Settings) *time.Duration { return &s.RemovalGracePeriod }, DefaultRemovalGracePeriod,
		"Duration for which labels, and features for the extender, remain after their worker's NodeFeature is gone; 0: not at all.", flag("removal-grace-period")),
	// Ten nodes or 5 % of all nodes, whichever is more, may lose keys within ten minutes. A cluster that loses more at once has more likely
	// lost its publishers than its hardware. Five minutes are enough to investigate, and short enough that intended removals need no
	// confirmation.
	declare("removalBudget.nodes", func(s *Settings) *int { return &s.RemovalBudget.Nodes }, 10,
		"Number of nodes that may always lose keys within the window.", atLeast(0)),
	declare("removalBudget.share", func(s *Settings) *float64 { return &s.RemovalBudget.Share }, 0.05,
		"Share of all nodes that may lose keys within the window, if that is more.", share),
	declare("removalBudget.window", func(s *Settings) *time.Duration { return &s.RemovalBudget.Window }, 10*time.Minute,
		"Time over which removals are counted."),
	declare("removalBudget.hold", func(s *Settings) *time.Duration { return &s.RemovalBudget.Hold }, 5*time.Minute,
		"Time after which a removal over the budget is carried out anyway."),
	// A kernel or a driver whose counters mean something else must not take the fleet. One node in twenty is more than what breaks within an
	// hour, and few enough for jobs to go on.
	declare("healthBudget.nodes", func(s *Settings) *int { return &s.HealthBudget.Nodes }, 1,
		"Number of nodes that may always be hit within the window.", atLeast(0)),
	declare("healthBudget.share", func(s *Settings) *float64 { return &s.HealthBudget.Share }, 0.05,
		"Share of the nodes whose health is known that may be hit within the window, if that is more; 1: no limit.", share),
	declare("healthBudget.window", func(s *Settings) *time.Duration { return &s.HealthBudget.Window }, time.Hour,
		"Time over which such nodes are counted."),
	declare("noExecuteBudget.every", func(s *Settings) *time.Duration { return &s.NoExecuteBudget.Every }, 0,
		"Time between two nodes; without it there is no limit, as in NFD.", example("1m")),
	declare("noExecuteBudget.canary", func(s *Settings) *time.Duration { return &s.NoExecuteBudget.Canary }, 0,
		"Time between the first node and the second.", example("10m")),
	// If more nodes were evicted, the remaining ones could not run their pods.
	declare("noExecuteBudget.share", func(s *Settings) *float64 { return &s.NoExecuteBudget.Share }, 0.05,
		"Share of all nodes that may have such taints at once.", share),
	declare("noExecuteBudget.oneZone", func(s *Settings) *bool { return &s.NoExecuteBudget.OneZone }, true, "Taint nodes of one zone at a time only."),
	declare("maskSecrets", func(s *Settings) *string { return &s.MaskSecrets }, string(rules.MaskAlways),
		"Hide elements with names like *password*.", flag("mask-secrets"), inAssay,
		oneOf(string(rules.MaskAlways), string(rules.MaskSensitive), string(rules.MaskNever))),
	declare("maskedElements", func(s *Settings) *[]string { return &s.MaskedElements }, nil,
		"Names of elements that are hidden, with * for any characters; a built-in list by default.", example([]any{"*serial*"})),
	declare("defaultScope", func(s *Settings) *string { return &s.DefaultScope }, "",
		"Scope of rules that set neither scope nor nodeSelector.", flag("default-scope"), inAssay),
	declare("defaultNodeScope", func(s *Settings) *string { return &s.DefaultNodeScope }, "",
		"Scope of nodes without the label assay.dev/scope.", flag("default-node-scope"), inAssay),
	declare("defaultTemplate", func(s *Settings) *string { return &s.DefaultTemplate }, "",
		"NodeFeatureRuleTemplate that every rule is based on.", flag("default-template"), inAssay),
	declare("builtInRules", func(s *Settings) *string { return &s.BuiltInRules }, "",
		"Directory of rules that are evaluated in addition to those of the cluster.", flag("built-in-rules")),
	declare("protectedKeys", func(s *Settings) *[]string { return &s.ProtectedKeys }, nil, "Additional keys that no rule may write."),
	declare("materializedRequests.total", func(s *Settings) *int { return &s.MaterializedRequests.Total }, DefaultMaterializedTotal,
		"Limit of the cluster; 0 disables the labels.", atLeast(0)),
	declare("materializedRequests.perNamespace", func(s *Settings) *int { return &s.MaterializedRequests.PerNamespace }, DefaultMaterializedPerNamespace,
		"Limit of each namespace; 0: total.", atLeast(0)),
	declare("allowFail", func(s *Settings) *bool { return &s.AllowFail }, true,
		"Let the action fail keep the labels of a node unchanged.", flag("allow-fail"), inAssay),
	declare("failTaint", func(s *Settings) *string { return &s.FailTaint }, "",
		"Taint, as KEY=VALUE:EFFECT, of nodes that the action fail keeps unchanged.", controllerFlag("fail-taint"),
		form(`^$|^[^:=]+(=[^:=]*)?:(NoSchedule|PreferNoSchedule|NoExecute)$`,
			"KEY=VALUE:EFFECT with the effect NoSchedule, PreferNoSchedule or NoExecute"), example("example.com/failed=true:NoSchedule")),
	declare("lossTaint", func(s *Settings) *string { return &s.LossTaint }, "",
		"Taint, as KEY:EFFECT, of nodes that no longer have what their pods require, for objects with onLoss: Taint; needs noExecuteBudget.",
		flag("loss-taint"), inAssay, example("example.com/features-lost:NoExecute"),
		form(`^$|^[^/:=]+/[^/:=]+:(NoSchedule|NoExecute)$`, "KEY:NoExecute or KEY:NoSchedule, without a value")),
	declare("featuresReady", func(s *Settings) *bool { return &s.FeaturesReady }, true,
		"Write the condition assay.dev/FeaturesReady on Nodes.", controllerFlag("features-ready")),
	declare("startupTaint", func(s *Settings) *string { return &s.StartupTaint }, "",
		"Key of the taint that the controller removes from Nodes with the condition FeaturesReady; rules must not write it.",
		flag("startup-taint"), inAssay, example("startup-taint.cluster-autoscaler.kubernetes.io/features"),
		form(`^$|^[^/:=]+/[^/:=]+$`, "the key of a taint with a prefix, for example example.com/starting")),
	declare("failOpenAfter", func(s *Settings) *time.Duration { return &s.FailOpenAfter }, DefaultFailOpenAfter,
		"Time after the creation of a Node at which the start-up taint is removed in any case.", controllerFlag("fail-open-after")),
	declare("nodeShapeLabels", func(s *Settings) *[]string { return &s.NodeShapeLabels }, DefaultNodeShapeLabels,
		"Labels that make a NodeShape: those that autoscalers know before a node exists. An empty list disables NodeShapes."),
	declare("gcInterval", func(s *Settings) *time.Duration { return &s.GcInterval }, DefaultGcInterval,
		"Interval at which objects without a Node are deleted; 0: never.", controllerFlag("gc-interval")),
	declare("gcGracePeriod", func(s *Settings) *time.Duration { return &s.GcGracePeriod }, DefaultGcGracePeriod,
		"Time that a NodeFeature outlives its Node."),
	declare("gcTopologies", func(s *Settings) *bool { return &s.GcTopologies }, false,
		"Delete NodeResourceTopologies without a Node, too: those that another publisher has left behind.", controllerFlag("gc-topologies")),
	declare("featureSources", func(s *Settings) **regexp.Regexp { return &s.FeatureSources }, nil,
		"Regular expression on namespace/name of the NodeFeatures that rules of objects without featureSources see.",
		flag("feature-sources"), inAssay),
	declare("featureGates", func(s *Settings) *map[string]bool { return &s.FeatureGates }, map[string]bool{GateGroups: true},
		"Feature gates: NAME=true or NAME=false.", flag("feature-gates")),
	gate("disable-auto-prefix", GateBare, "Do not add a namespace to names without one."),
}

// sections describes the groups of keys in the file.
var sections = map[string]string{
	"leaderElection":       "Times of the Lease that one replica holds.",
	"restrictions":         "What rules and NodeFeatures may do.",
	"removalBudget":        "How many nodes may lose labels or resources before removals are held.",
	"healthBudget":         "How many nodes may get a taint or another condition by rules that read their health before these are held.",
	"noExecuteBudget":      "How fast nodes get taints that evict pods.",
	"materializedRequests": "How many NodeFeatureRequests are kept as labels of Nodes; none by a controller with an instance name. Each can cause a write of every Node.",
}

// ignored are keys of NFD without an effect, and why.
var ignored = map[string]string{
	"klog":                       "use the flags -v and --log-format",
	"autoDefaultNs":              "use the feature gate " + GateBare,
	"enableNodeFeatureApi":       "workers always publish NodeFeatures",
	"nodeFeatureApi":             "workers always publish NodeFeatures",
	"resourceLabels":             "write a rule with extendedResources",
	"featureRulesController":     "rules are always evaluated",
	"restrictions.disableTaints": "use enableTaints",
}

// Defaults that more than their setting depends on.
const (
	// DefaultRemovalGracePeriod is time to reinstall a DaemonSet, or to notice the deletion of a namespace.
	DefaultRemovalGracePeriod = 10 * time.Minute
	// DefaultFailOpenAfter is enough to pull the image of the worker over a slow network, and for an autoscaler not to give the node up.
	DefaultFailOpenAfter = 10 * time.Minute
	// DefaultGcInterval is that of NFD.
	DefaultGcInterval = time.Hour
	// DefaultGcGracePeriod: a machine that is reinstalled comes back under the same name.
	DefaultGcGracePeriod = 10 * time.Minute
)

// DefaultNodeShapeLabels are what autoscalers know of a node before it exists.
var DefaultNodeShapeLabels = []string{
	assayv1alpha1.NodePoolLabel,
	"eks.amazonaws.com/nodegroup",
	"cloud.google.com/gke-nodepool",
	"kubernetes.azure.com/agentpool",
	assayv1alpha1.MachineDeploymentLabel,
	corev1.LabelInstanceTypeStable, corev1.LabelArchStable, corev1.LabelOSStable,
}

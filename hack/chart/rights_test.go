package chart

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestRightsFollowTheValues checks the permissions in roles with and without optional components.
func TestRightsFollowTheValues(t *testing.T) {
	const (
		off     = `{}`
		service = `{scheduler: {enabled: true, useService: true}, extender: {enabled: true, certManager: {enabled: true}}}`
	)
	type right struct{ role, group, resource, name, verb string }
	for name, test := range map[string]struct {
		values  string
		right   right
		allowed bool
	}{
		"TaintsOfRules":       {`{controller: {enableTaints: true}}`, right{"ClusterRole/assay-controller", "", "nodes", "", "patch"}, true},
		"TaintsOfFailedNodes": {`{controller: {failTaint: "a.b/c=d:NoSchedule"}}`, right{"ClusterRole/assay-controller", "", "nodes", "", "patch"}, true},
		"TaintsInTheConfiguration": {
			`{master: {config: {failTaint: "a.b/c=d:NoSchedule"}}}`, right{"ClusterRole/assay-controller", "", "nodes", "", "patch"}, true,
		},
		"TaintsOfLostFeatures": {
			`{scheduling: {enabled: true}, controller: {lossTaint: "a.b/c:NoExecute", config: {noExecuteBudget: {every: 5m}}}}`,
			right{"ClusterRole/assay-controller", "", "nodes", "", "patch"}, true,
		},
		"SharesFeatures":          {off, right{"Role/assay-worker", "assay.dev", "nodefeaturesets", "", "create"}, true},
		"SetsStayAsTheyAre":       {off, right{"Role/assay-worker", "assay.dev", "nodefeaturesets", "", "patch"}, false},
		"WorkersDeleteNoSet":      {off, right{"Role/assay-worker", "assay.dev", "nodefeaturesets", "", "delete"}, false},
		"WorkersCreateNoEvents":   {off, right{"Role/assay-worker", "", "events", "", "create"}, false},
		"WorkersReadNoEvents":     {off, right{"Role/assay-worker", "", "events", "", "list"}, false},
		"SeesTheMarker":           {off, right{"Role/assay-worker", "", "configmaps", "assay-feature-sets", "get"}, true},
		"SeesTheLeader":           {off, right{"Role/assay-worker", "coordination.k8s.io", "leases", "", "get"}, true},
		"TakesNoLease":            {off, right{"Role/assay-worker", "coordination.k8s.io", "leases", "", "update"}, false},
		"ReadsNoOtherConfigMap":   {off, right{"Role/assay-worker", "", "configmaps", "other", "get"}, false},
		"WritesTheMarker":         {off, right{"Role/assay-controller", "", "configmaps", "assay-feature-sets", "patch"}, true},
		"AsksWorkersForSets":      {off, right{"Role/assay-controller", "nfd.k8s-sigs.io", "nodefeatures", "", "patch"}, true},
		"AsksNobodyElse":          {off, right{"ClusterRole/assay-controller", "nfd.k8s-sigs.io", "nodefeatures", "", "patch"}, false},
		"TriesToCreateSets":       {off, right{"Role/assay-controller", "assay.dev", "nodefeaturesets", "", "create"}, true},
		"DeletesSets":             {off, right{"Role/assay-controller", "assay.dev", "nodefeaturesets", "", "delete"}, true},
		"CountsNodesOfSets":       {off, right{"Role/assay-controller", "assay.dev", "nodefeaturesets/status", "", "patch"}, true},
		"CreatesShapes":           {off, right{"ClusterRole/assay-controller", "assay.dev", "nodeshapes", "", "create"}, true},
		"CleansUpShapes":          {off, right{"ClusterRole/assay-cleanup", "assay.dev", "nodeshapes", "", "deletecollection"}, true},
		"PublishesTopologies":     {`{topology: {enabled: true}}`, right{"ClusterRole/assay-topology", "topology.node.k8s.io", "noderesourcetopologies", "", "patch"}, true},
		"DeletesNoTopology":       {`{topology: {enabled: true}}`, right{"ClusterRole/assay-topology", "topology.node.k8s.io", "noderesourcetopologies", "", "delete"}, false},
		"TopologyReadsNoPods":     {`{topology: {enabled: true}}`, right{"ClusterRole/assay-topology", "", "pods", "", "get"}, false},
		"TopologyReadsNoNodes":    {`{topology: {enabled: true}}`, right{"ClusterRole/assay-topology", "", "nodes", "", "get"}, false},
		"NoConfigzByDefault":      {`{topology: {enabled: true}}`, right{"ClusterRole/assay-topology", "", "nodes/configz", "", "get"}, false},
		"Configz":                 {`{topology: {enabled: true, kubelet: {configz: {enabled: true}}}}`, right{"ClusterRole/assay-topology", "", "nodes/configz", "", "get"}, true},
		"ConfigzWithoutTheProxy":  {`{topology: {enabled: true, kubelet: {configz: {enabled: true}}}}`, right{"ClusterRole/assay-topology", "", "nodes/proxy", "", "get"}, false},
		"CleansUpTopologies":      {off, right{"ClusterRole/assay-cleanup", "topology.node.k8s.io", "noderesourcetopologies", "", "deletecollection"}, true},
		"CleansUpSets":            {off, right{"Role/assay-cleanup", "assay.dev", "nodefeaturesets", "", "deletecollection"}, true},
		"StartupTaint":            {`{controller: {startupTaint: "a.b/c"}}`, right{"ClusterRole/assay-controller", "", "nodes", "", "patch"}, true},
		"NoTaints":                {off, right{"ClusterRole/assay-controller", "", "nodes", "", "patch"}, false},
		"ConfirmsRemovals":        {off, right{"Role/assay-controller", "apps", "deployments", "", "list"}, true},
		"FollowsPods":             {`{scheduling: {enabled: true}}`, right{"ClusterRole/assay-controller", "", "pods", "", "watch"}, true},
		"FollowsPodsByGate":       {`{featureGates: {FeatureScheduling: true}}`, right{"ClusterRole/assay-controller", "", "pods", "", "watch"}, true},
		"FollowsPodsByConfig":     {`{controller: {config: {featureGates: {FeatureScheduling: true}}}}`, right{"ClusterRole/assay-controller", "", "pods", "", "watch"}, true},
		"GateWins":                {`{scheduling: {enabled: true}, featureGates: {FeatureScheduling: false}}`, right{"ClusterRole/assay-controller", "", "pods", "", "watch"}, false},
		"NoPods":                  {off, right{"ClusterRole/assay-controller", "", "pods", "", "watch"}, false},
		"ReviewsRequests":         {`{scheduling: {enabled: true}}`, right{"ClusterRole/assay-webhook-scheduling", "assay.dev", "nodefeaturerequests", "", "watch"}, true},
		"RequestsByPolicy":        {off, right{"ClusterRole/assay-webhook", "assay.dev", "nodefeaturerequests", "", "watch"}, false},
		"RequestsByWebhook":       {`{scheduling: {requests: webhook}}`, right{"ClusterRole/assay-webhook-requests", "assay.dev", "nodefeaturerequests", "", "watch"}, true},
		"FillsItsSelectors":       {`{scheduling: {requests: webhook}}`, right{"ClusterRole/assay-webhook-requests", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "assay-feature-requests", "patch"}, true},
		"ReviewNeedsFeatures":     {`{scheduling: {enabled: true}, webhook: {nodeWarnings: false}}`, right{"ClusterRole/assay-webhook", "nfd.k8s-sigs.io", "nodefeatures", "", "list"}, true},
		"WebhookForPods":          {`{scheduling: {enabled: true}}`, right{"ClusterRole/assay-webhook-scheduling", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "assay-scheduling", "patch"}, true},
		"WebhookForWorkloads":     {`{scheduling: {enabled: true}}`, right{"ClusterRole/assay-webhook-scheduling", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "assay-scheduling", "patch"}, true},
		"NoNewWebhook":            {`{scheduling: {enabled: true}}`, right{"ClusterRole/assay-webhook-scheduling", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "assay-scheduling", "create"}, false},
		"FillsItsWebhook":         {off, right{"ClusterRole/assay-webhook", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "assay", "patch"}, true},
		"FillsItsSecret":          {off, right{"Role/assay-webhook", "", "secrets", "assay-webhook-cert", "update"}, true},
		"NoNewSecret":             {off, right{"Role/assay-webhook", "", "secrets", "assay-webhook-cert", "create"}, false},
		"NoOtherWebhook":          {`{scheduling: {enabled: true}}`, right{"ClusterRole/assay-webhook-scheduling", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "other", "patch"}, false},
		"NoWebhookForPods":        {off, right{"ClusterRole/assay-webhook", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "assay-scheduling", "patch"}, false},
		"ReadsWhatRulesReferTo":   {off, right{"Role/assay-webhook", "", "secrets", "", "list"}, true},
		"LooksAtNoNode":           {`{webhook: {nodeWarnings: false}}`, right{"Role/assay-webhook", "", "secrets", "", "list"}, false},
		"ExtenderBesideIt":        {`{scheduler: {enabled: true}}`, right{"Role/assay-scheduler", "", "secrets", "", "list"}, true},
		"SchedulerAlone":          {service, right{"Role/assay-scheduler", "", "secrets", "", "list"}, false},
		"ExtenderBehindService":   {service, right{"Role/assay-extender", "", "secrets", "", "list"}, true},
		"ExtenderKnowsRules":      {service, right{"ClusterRole/assay-extender", "nfd.k8s-sigs.io", "nodefeaturerules", "", "watch"}, true},
		"ExtenderWritesNothing":   {service, right{"ClusterRole/assay-extender", "", "nodes", "", "patch"}, false},
		"ReviewsTokens":           {`{extender: {enabled: true, certificateSecret: c, tokenReview: true}}`, right{"ClusterRole/assay-extender", "authentication.k8s.io", "tokenreviews", "", "create"}, true},
		"ReviewsNoTokens":         {service, right{"ClusterRole/assay-extender", "authentication.k8s.io", "tokenreviews", "", "create"}, false},
		"ReviewsClientsOfMetrics": {`{prometheus: {secure: {enabled: true}}}`, right{"ClusterRole/assay-metrics-review", "authorization.k8s.io", "subjectaccessreviews", "", "create"}, true},
		"GivenCertificateKeeps":   {`{scheduling: {enabled: true}, webhook: {certManager: {enabled: true}}}`, right{"ClusterRole/assay-webhook-scheduling", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "assay-scheduling", "patch"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := test.right
			rules := roles(t, objects(t, mustRender(t, set(t, test.values))))[r.role]
			if rules == nil {
				t.Fatalf("there is no %s", r.role)
			}
			if got := allows(rules, r.group, r.resource, r.name, r.verb); got != test.allowed {
				t.Errorf("%s: may %s %s/%s %s: %t, want %t", r.role, r.verb, r.group, r.resource, r.name, got, test.allowed)
			}
		})
	}
}

// TestWebhookIsFilledNotCreated checks the objects that Helm creates and the webhook updates: they have neither data nor webhooks,
// and are deleted with the release or with scheduling.
func TestWebhookIsFilledNotCreated(t *testing.T) {
	const secret, scheduling = "Secret/assay-system/assay-webhook-cert", "WebhookConfiguration//assay-scheduling"
	own := []string{"Mutating" + "WebhookConfiguration//assay", secret, "Validating" + "WebhookConfiguration//assay"}
	for values, want := range map[string][]string{
		`{}`:                            own,
		`{scheduling: {enabled: true}}`: append([]string{"Mutating" + scheduling, "Validating" + scheduling}, own...),
		`{scheduling: {enabled: true}, webhook: {enabled: false}}`: nil,
	} {
		var got []string
		for _, object := range objects(t, mustRender(t, set(t, values))) {
			kind, _ := object["kind"].(string)
			if kind != "Secret" && !strings.HasSuffix(kind, "WebhookConfiguration") {
				continue
			}
			got = append(got, identity(object))
			for _, key := range []string{"data", "stringData", "webhooks"} {
				if _, ok := object[key]; ok {
					t.Errorf("%s: %s has the key %s, which an upgrade would reset", values, identity(object), key)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: there are %v, want %v", values, got, want)
		}
	}
}

// TestNoTokenObtainsAnother: a permission for one of these resources without names gives access to every token in the namespace or
// the cluster.
func TestNoTokenObtainsAnother(t *testing.T) {
	forbidden := map[string][]string{
		"secrets":                         {"create"},
		"validatingwebhookconfigurations": {"create"}, "mutatingwebhookconfigurations": {"create"},
		"validatingadmissionpolicies": {"create", "update", "patch", "delete"}, "serviceaccounts/token": {"create"},
		"serviceaccounts": {"create", "impersonate"}, "users": {"impersonate"}, "groups": {"impersonate"},
		"pods": {"create", "patch", "update"}, "deployments": {"create", "patch", "update"}, "daemonsets": {"create", "patch", "update"},
		"jobs": {"create", "patch", "update"}, "pods/exec": {"create", "get"}, "nodes/proxy": {"create", "get"},
		"roles": {"escalate", "bind", "create", "update", "patch"}, "clusterroles": {"escalate", "bind", "create", "update", "patch"},
		"rolebindings": {"create", "update", "patch"}, "clusterrolebindings": {"create", "update", "patch"},
		"certificatesigningrequests": {"create"}, "certificatesigningrequests/approval": {"update", "patch"},
	}
	for _, dir := range cases(t) {
		rendered := objects(t, mustRender(t, readValues(t, filepath.Join(dir, "values.yaml"))))
		for role, rules := range roles(t, rendered) {
			for _, rule := range rules {
				for resource, verbs := range forbidden {
					for _, verb := range verbs {
						if slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb) {
							t.Errorf("%s: %s may %s %s", filepath.Base(dir), role, verb, resource)
						}
					}
				}
			}
		}
	}
}

// TestExtenderNeedsCertificates: rendering fails for a release that could not start, or that would serve unauthenticated clients.
func TestExtenderNeedsCertificates(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"NoneToServeWith": {`{extender: {enabled: true}}`, "set extender.certManager.enabled, or extender.certificateSecret"},
		"NoneToShow": {
			`{extender: {enabled: true, certificateSecret: c}, scheduler: {enabled: true, useService: true}}`,
			"set extender.certManager.enabled, or extender.clientSecret",
		},
		"NoService": {`{scheduler: {enabled: true, useService: true}}`, "scheduler.useService needs extender.enabled"},
	} {
		_, err := render(t, load(t), rendering{release: "assay", namespace: "x", kubernetes: "v1.37.2", values: set(t, test.values)})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

// TestPoliciesHaveTheSettingsOfTheChart checks the variables of the policies; a test of package charts has the same expressions.
func TestPoliciesHaveTheSettingsOfTheChart(t *testing.T) {
	defaults := map[string]string{"startupTaint": "''", "ownTaints": "[]", "namespaces": "[]", "hardened": "false", "publishers": "[]", "ownedByNode": "variables.worker"}
	for values, differences := range map[string]map[string]string{
		`{}`: {},
		`{hardened: true, policies: {namespaces: [vendor.io, .example.com, ""], publishers: [topograph/topograph]}}`: {
			"hardened": "true", "namespaces": "['vendor.io', '.example.com', '']", "publishers": "['system:serviceaccount:topograph:topograph']",
		},
		`{scheduling: {enabled: true}, controller: {failTaint: "a.b/c=d:NoSchedule", startupTaint: assay.dev/pending, config: {lossTaint: "e.f/g:NoExecute", noExecuteBudget: {every: 5m}}}}`: {
			"ownTaints": "['a.b/c', 'e.f/g']", "startupTaint": "'assay.dev/pending'",
		},
		`{worker: {ownerRefs: [pod]}}`: {"ownedByNode": "false"},
	} {
		want := maps.Clone(defaults)
		maps.Copy(want, differences)
		got := map[string]string{}
		for _, object := range objects(t, mustRender(t, set(t, values))) {
			list, _ := at(object, "spec.variables").([]any)
			for _, v := range list {
				if v := v.(map[string]any); object["kind"] == "ValidatingAdmissionPolicy" && want[v["name"].(string)] != "" {
					got[v["name"].(string)] = v["expression"].(string)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the variables (-want +got):\n%s", values, diff)
		}
	}
}

// TestHardenedNeedsNamespaces: a stolen token of the controller could write keys of every owner otherwise.
func TestHardenedNeedsNamespaces(t *testing.T) {
	_, err := render(t, load(t), rendering{release: "assay", namespace: "x", kubernetes: "v1.37.2", values: set(t, `{hardened: true}`)})
	if err == nil || !strings.Contains(err.Error(), "hardened needs policies.namespaces") {
		t.Errorf("got error %v", err)
	}
}

// TestAnInstanceHasNoStartupTaint: no controller would remove it.
func TestAnInstanceHasNoStartupTaint(t *testing.T) {
	const values = `{controller: {instance: blue, startupTaint: example.com/pending}}`
	_, err := render(t, load(t), rendering{release: "assay", namespace: "x", kubernetes: "v1.37.2", values: set(t, values)})
	if err == nil || !strings.Contains(err.Error(), "controller.startupTaint needs the condition FeaturesReady") {
		t.Errorf("got %v", err)
	}
}

// TestPodMonitorNeedsAToken: only a ServiceMonitor can use the token of the Prometheus pod.
func TestPodMonitorNeedsAToken(t *testing.T) {
	for values, want := range map[string]string{
		`{prometheus: {enable: true, secure: {enabled: true}}}`:                          "prometheus.secure needs prometheus.secure.tokenSecret",
		`{prometheus: {enable: true, secure: {enabled: true, tokenSecret: t}}}`:          "",
		`{prometheus: {enable: true, monitor: ServiceMonitor, secure: {enabled: true}}}`: "",
		`{prometheus: {secure: {enabled: true}}}`:                                        "",
	} {
		_, err := render(t, load(t), rendering{release: "assay", namespace: "x", kubernetes: "v1.37.2", values: set(t, values)})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", values, err, want)
		}
	}
}

// TestSchedulerMayHoldItsLease renders releases with several names: the Lease in the scheduler's configuration must always be the
// one that `assay doctor` reads, that its role allows, and that is deleted with the release.
func TestSchedulerMayHoldItsLease(t *testing.T) {
	const lease = "assay-scheduler"
	for name, r := range map[string]rendering{
		"Default":    {release: "assay", namespace: "assay-system"},
		"OtherName":  {release: "nfd", namespace: "kube-features"},
		"Number":     {release: "1", namespace: "2"},
		"LongName":   {release: strings.Repeat("release-", 6), namespace: "n"},
		"Overridden": {release: "x", namespace: "y", values: map[string]any{"fullnameOverride": "features", "namespaceOverride": "elsewhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			r.kubernetes = "v1.37.2"
			if r.values == nil {
				r.values = map[string]any{}
			}
			r.values["scheduler"] = map[string]any{"enabled": true}
			files, err := render(t, load(t), r)
			if err != nil {
				t.Fatal(err)
			}
			var config struct {
				LeaderElection struct{ ResourceName, ResourceNamespace string }
			}
			namespace := ""
			all := objects(t, files)
			for _, object := range all {
				data, _ := object["data"].(map[string]any)
				if text, ok := data["config.yaml"].(string); ok {
					if err := yaml.Unmarshal([]byte(text), &config); err != nil {
						t.Fatal(err)
					}
					namespace, _ = object["metadata"].(map[string]any)["namespace"].(string)
				}
			}
			if got := config.LeaderElection; got.ResourceName != lease || got.ResourceNamespace != namespace {
				t.Errorf("the scheduler takes Lease %s/%s, want %s/%s", got.ResourceNamespace, got.ResourceName, namespace, lease)
			}
			may := map[string]bool{}
			for role, rules := range roles(t, all) {
				for _, verb := range []string{"update", "delete"} {
					if strings.HasPrefix(role, "Role/") && allows(rules, "coordination.k8s.io", "leases", lease, verb) {
						may[role[strings.LastIndex(role, "-")+1:]+" "+verb] = true
					}
				}
			}
			if !may["scheduler update"] || !may["cleanup delete"] || len(may) != 2 {
				t.Errorf("who may do what with the Lease: %v", may)
			}
		})
	}
}

// roles returns the rules of roles by kind and name.
func roles(t *testing.T, all []map[string]any) map[string][]rbacv1.PolicyRule {
	t.Helper()
	out := map[string][]rbacv1.PolicyRule{}
	for _, object := range all {
		kind, _ := object["kind"].(string)
		if kind != "Role" && kind != "ClusterRole" {
			continue
		}
		data, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(data, &role); err != nil {
			t.Fatal(err)
		}
		out[kind+"/"+role.Name] = role.Rules
	}
	return out
}

func allows(rules []rbacv1.PolicyRule, group, resource, name, verb string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name))
	})
}

// wordOf is what docs/security.md calls a resource in the permissions of a part.
var wordOf = map[string]string{
	"nodes": "Nodes", "nodes/status": "`nodes/status`", "nodes/configz": "`nodes/configz`", "namespaces": "namespaces", "pods": "pods", "events": "Events",
	"configmaps": "ConfigMap", "secrets": "Secret", "leases": "Lease", "deployments": "Deployments", "deviceclasses": "DeviceClasses",
	"resourceslices": "ResourceSlices", "devicetaintrules": "DeviceTaintRules", "customresourcedefinitions": "CustomResourceDefinition", "noderesourcetopologies": "NodeResourceTopologies",
	"mutatingwebhookconfigurations": "webhook configurations", "validatingwebhookconfigurations": "webhook configurations",
	"tokenreviews": "TokenReviews", "subjectaccessreviews": "SubjectAccessReviews",
	"nodefeatures": "NodeFeatures", "nodefeaturesets": "NodeFeatureSets", "nodefeaturerules": "ules", "nodefeaturegroups": "groups",
	"nodefeatureruletemplates": "templates", "nodefeaturerequests": "equests", "nodefeatureschedulingpolicies": "policies", "nodebaselines": "baselines",
	"nodeshapes": "NodeShapes",
}

// everyRight are the values of an installation with all parts.
const everyRight = `{library: [nvidia-gpu], topology: {enabled: true, collectForeign: true, kubelet: {configz: {enabled: true}}}, prometheus: {secure: {enabled: true}},
  scheduling: {enabled: true, requests: webhook}, scheduler: {enabled: true}, worker: {ownerRefs: [ds]}, controller: {enableTaints: true},
  extender: {enabled: true, tokenReview: true, certificateSecret: c, extraArgs: [--publisher-leases]}}`

// securityTable returns the rows of the table of docs/security.md whose first line begins so.
func securityTable(t *testing.T, begins string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), begins)
	table, _, _ = strings.Cut(table, "\n\n")
	return table
}

// TestSecurityPageBoundsEveryCreate compares the table of what tokens can create in docs/security.md with the roles of an installation with
// all parts: no row is missing, none is too many, and each says what bounds the size and the number.
func TestSecurityPageBoundsEveryCreate(t *testing.T) {
	table := securityTable(t, "| part | creates | ")
	var got []string
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) < 5 {
			continue
		}
		for _, part := range strings.Split(cells[0], ", ") {
			for _, word := range strings.Split(cells[1], ", ") {
				got = append(got, part+" "+word)
			}
		}
		if !strings.Contains(cells[4], "](") {
			t.Errorf("no test shows what bounds %s of the %s", cells[1], cells[0])
		}
	}
	want := map[string]bool{}
	for role, rules := range roles(t, objects(t, mustRender(t, set(t, everyRight)))) {
		_, part, _ := strings.Cut(role, "/assay-")
		part, _, _ = strings.Cut(part, "-")
		if part == "edit" { // of users
			continue
		}
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				if slices.Contains(rule.Verbs, "create") {
					want[part+" "+resource] = true
				}
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), got); diff != "" {
		t.Errorf("what tokens can create (-roles +page):\n%s", diff)
	}
}

// TestSecurityPageNamesEveryRight compares the table of permissions in docs/security.md with the roles of an installation with all parts: the
// rows of a part name each resource that the part may read or write.
func TestSecurityPageNamesEveryRight(t *testing.T) {
	table := securityTable(t, "| part | may | why |")
	rows, parts := map[string]string{}, []string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) < 3 {
			continue
		}
		if first := strings.Trim(cells[0], "| "); first != "" {
			parts = strings.Split(first, ", ")
		}
		for _, part := range parts {
			rows[part] += cells[1] + "\n"
		}
	}
	checked := 0
	for role, rules := range roles(t, objects(t, mustRender(t, set(t, everyRight)))) {
		_, part, _ := strings.Cut(role, "/assay-")
		part, _, _ = strings.Cut(part, "-")
		text := rows[part]
		switch part {
		case "view", "edit": // of users
			continue
		case "metrics":
			text = rows["controller"]
		case "scheduler":
			text = rows["second scheduler"] + rows["extender"]
		}
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				word := wordOf[resource]
				if _, ok := strings.CutSuffix(resource, "/status"); ok && word == "" {
					word = "status"
				}
				checked++
				if word == "" || !strings.Contains(text, word) {
					t.Errorf("%s may %s %s, which docs/security.md does not say of this part", role, strings.Join(rule.Verbs, ", "), resource)
				}
			}
		}
	}
	if checked < 80 {
		t.Errorf("only %d rights were compared", checked)
	}
}

// TestNumberOfFeatureSetsIsLimited asks the quota, which zero leaves out.
func TestNumberOfFeatureSetsIsLimited(t *testing.T) {
	for values, want := range map[string]any{`{}`: "300", `{worker: {maxFeatureSets: 200}}`: "200", `{worker: {maxFeatureSets: 0}}`: nil} {
		var got any
		for _, object := range objects(t, mustRender(t, set(t, values))) {
			if object["kind"] == "ResourceQuota" {
				got = object["spec"].(map[string]any)["hard"].(map[string]any)["count/nodefeaturesets.assay.dev"]
			}
		}
		if got != want {
			t.Errorf("%s: quota %v, want %v", values, got, want)
		}
	}
}

package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	corev1 "k8s.io/api/core/v1"
)

// allParts enables every component that is a Deployment.
const allParts = `topology: {enabled: true}, scheduler: {enabled: true}, extender: {enabled: true, certificateSecret: c}, prometheus: {enabled: true, monitor: ServiceMonitor}, library: [coral]`

// deployments lists the components that are Deployments.
var deployments = []string{"controller", "webhook", "scheduler", "extender"}

// TestEveryPartHasItsSettings renders the settings that every component has.
func TestEveryPartHasItsSettings(t *testing.T) {
	for _, part := range append(deployments, "worker", "topology") {
		t.Run(part, func(t *testing.T) {
			key := map[string]string{"controller": "master"}[part] // NFD's name has them too
			if key == "" {
				key = part
			}
			kind := map[bool]string{true: "DaemonSet", false: "Deployment"}[part == "worker" || part == "topology"]
			values := map[string]any{}
			merge(values, set(t, "{"+allParts+"}"))
			merge(values, set(t, `{`+key+`: {
  podAnnotations: {a.example/one: "1"}, annotations: {a.example/two: "2"}, podLabels: {b.example/one: "1"}, labels: {b.example/two: "2"},
  extraVolumes: [{name: more, emptyDir: {}}], extraVolumeMounts: [{name: more, mountPath: /more, readOnly: true}]}}`))
			name := fmt.Sprintf("%s/assay-%s ", kind, part)
			template := name + "spec.template."
			all := objects(t, mustRender(t, values))
			checkFields(t, all, map[string]any{
				template + "metadata.annotations.a.example/one": "1", template + "metadata.annotations.a.example/two": "2",
				template + "metadata.labels.b.example/one": "1", template + "metadata.labels.b.example/two": "2",
			})
			for _, object := range all {
				_, spec := pod(t, object)
				if fmt.Sprintf("%v/%v ", object["kind"], object["metadata"].(map[string]any)["name"]) != name {
					continue
				}
				if last := spec.Volumes[len(spec.Volumes)-1]; last.Name != "more" || last.EmptyDir == nil {
					t.Errorf("the last volume is %v", last)
				}
				mounts := spec.Containers[0].VolumeMounts
				if last := mounts[len(mounts)-1]; last.MountPath != "/more" {
					t.Errorf("the last mount is %v", last)
				}
			}
		})
	}
}

// merge merges values, one level deep.
func merge(into, from map[string]any) {
	for key, value := range from {
		if below, ok := into[key].(map[string]any); ok {
			maps.Copy(below, value.(map[string]any))
		} else {
			into[key] = value
		}
	}
}

// TestPodsSpread renders a constraint without a selector, which would apply to no pods, and one with a selector.
func TestPodsSpread(t *testing.T) {
	for _, part := range deployments {
		values := set(t, "{"+allParts+"}")
		merge(values, set(t, `{`+part+`: {topologySpreadConstraints: [
  {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway},
  {maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {own: "true"}}}]}}`))
		spread := "Deployment/assay-" + part + " spec.template.spec.topologySpreadConstraints."
		own := map[string]any{"app.kubernetes.io/name": "assay", "app.kubernetes.io/instance": "assay", "app.kubernetes.io/component": part}
		checkFields(t, objects(t, mustRender(t, values)), map[string]any{
			spread + "0":               map[string]any{"maxSkew": 1.0, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": map[string]any{"matchLabels": own}},
			spread + "1.labelSelector": map[string]any{"matchLabels": map[string]any{"own": "true"}},
		})
	}
}

// TestCommonLabels checks that they are on every object and pod, and not in selectors.
func TestCommonLabels(t *testing.T) {
	const labels = `commonLabels: {team: nodes, app.kubernetes.io/name: other, release: common}, prometheus: {enabled: true, labels: {release: monitoring}}`
	for _, values := range []string{"{" + labels + "}", `{` + labels + `, scheduler: {enabled: true}, scheduling: {enabled: true}, library: [coral], webhook: {certManager: {enabled: true}}}`} {
		for _, object := range objects(t, mustRender(t, set(t, values))) {
			if got := at(object, "metadata.labels.team"); got != "nodes" {
				t.Errorf("%s: label team is %v", identity(object), got)
			}
			if got := at(object, "metadata.labels.app.kubernetes.io/name"); got != "assay" {
				t.Errorf("%s: label app.kubernetes.io/name is %v", identity(object), got)
			}
			want := map[bool]string{true: "monitoring", false: "common"}[object["kind"] == "PodMonitor"]
			if got := at(object, "metadata.labels.release"); got != want {
				t.Errorf("%s: label release is %v, want %s", identity(object), got, want)
			}
			if meta, _ := pod(t, object); meta != nil && meta.Labels["team"] != "nodes" {
				t.Errorf("%s: its pods have the labels %v", identity(object), meta.Labels)
			}
			if selector, ok := at(object, "spec.selector.matchLabels").(map[string]any); ok && selector["team"] != nil {
				t.Errorf("%s: it selects by %v", identity(object), selector)
			}
		}
	}
}

func TestServicesHaveAnnotations(t *testing.T) {
	files := mustRender(t, set(t, `{webhook: {service: {annotations: {a: b}}}, prometheus: {enabled: true, monitor: ServiceMonitor, serviceAnnotations: {c: d}}}`))
	checkFields(t, objects(t, files), map[string]any{
		"Service/assay-webhook metadata.annotations":            map[string]any{"a": "b"},
		"Service/assay-controller-metrics metadata.annotations": map[string]any{"c": "d"},
	})
}

// TestJobsLackWhatBelongsToTheController renders the pods of Jobs. They have the controller's annotations and labels, with which a
// service mesh can exclude them, but not its init containers, network and topology spread settings.
func TestJobsLackWhatBelongsToTheController(t *testing.T) {
	jobs := 0
	for _, object := range objects(t, mustRender(t, set(t, `{library: [coral], controller: {hostNetwork: true, initContainers: [{name: first, image: i}],
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}], podAnnotations: {mesh/inject: "false"}, podLabels: {mesh/inject: "false"}}}`))) {
		meta, spec := pod(t, object)
		if spec == nil || object["kind"] != "Job" && object["kind"] != "Pod" {
			continue
		}
		jobs++
		if spec.HostNetwork || len(spec.InitContainers) > 0 || len(spec.TopologySpreadConstraints) > 0 {
			t.Errorf("%s: host network %t, init containers %v, constraints %v", identity(object), spec.HostNetwork, spec.InitContainers, spec.TopologySpreadConstraints)
		}
		if meta.Annotations["mesh/inject"] != "false" || meta.Labels["mesh/inject"] != "false" {
			t.Errorf("%s: annotations %v, labels %v", identity(object), meta.Annotations, meta.Labels)
		}
	}
	if jobs != 4 {
		t.Errorf("there are %d pods that run once, want 4", jobs)
	}
}

// TestEnabledIsSpelledInTwoWays renders NFD's spelling, which is equivalent.
func TestEnabledIsSpelledInTwoWays(t *testing.T) {
	unset := mustRender(t, map[string]any{})
	for old, current := range map[string]string{
		`{worker: {enable: false}}`:                                                       `{worker: {enabled: false}}`,
		`{master: {enable: false}}`:                                                       `{controller: {enabled: false}}`,
		`{controller: {enable: false}}`:                                                   `{master: {enabled: false}}`,
		`{tests: {enable: false}}`:                                                        `{tests: {enabled: false}}`,
		`{prometheus: {enable: true, rules: {enable: true}}}`:                             `{prometheus: {enabled: true, rules: {enabled: true}}}`,
		`{prometheus: {dashboard: {enable: true}}}`:                                       `{prometheus: {dashboard: {enabled: true}}}`,
		`{webhook: {podDisruptionBudget: {enable: false}}}`:                               `{webhook: {podDisruptionBudget: {enabled: false}}}`,
		`{master: {replicaCount: 2, podDisruptionBudget: {enable: false}}}`:               `{controller: {replicaCount: 2, podDisruptionBudget: {enabled: false}}}`,
		`{topologyUpdater: {enable: true, podSetFingerprint: false}}`:                     `{topology: {enabled: true, fingerprint: false}}`,
		`{worker: {enable: null}, topologyUpdater: {enable: false}, gc: {enable: false}}`: `{}`,
	} {
		var rendered [2]map[string]string
		for i, values := range []string{old, current} {
			rendered[i] = mustRender(t, set(t, values))
		}
		if diff := cmp.Diff(rendered[1], rendered[0]); diff != "" {
			t.Errorf("%s differs from %s:\n%s", old, current, diff)
		}
		if old != current && current != `{}` && cmp.Equal(rendered[0], unset) {
			t.Errorf("%s changes nothing", old)
		}
	}
}

// TestNotesWarnOfUnknownValues renders unknown values below mappings that accept any key.
func TestNotesWarnOfUnknownValues(t *testing.T) {
	const warning = "these values are unknown and ignored"
	for values, want := range map[string][]string{
		`{}`: nil,
		`{master: {replicaCuont: 2, serviceAccount: {nmae: x}, image: {tag: v1}}}`:                                                                          {warning, "- master.replicaCuont\n", "- master.serviceAccount.nmae\n"},
		`{gc: {intervall: 1h}, topologyUpdater: {updateIntervall: 1s}}`:                                                                                     {warning, "- gc.intervall\n", "- topologyUpdater.updateIntervall\n"},
		`{master: {crdController: true, healthPort: 8082, service: {port: 1}}}`:                                                                             {"- master.crdController, master.healthPort, master.service\n"},
		`{worker: {metricsPort: 8081, healthPort: 8082}}`:                                                                                                   {"- worker.metricsPort: health and metrics have one port, worker.port\n"},
		`{master: {podDisruptionBudget: {enable: true, unhealthyPodEvictionPolicy: AlwaysAllow}, networkPolicy: {enabled: false}, podAnnotations: {a: b}}}`: nil,
		`{topologyUpdater: {enable: true, watchNamespace: research}}`:                                                                                       {"- topologyUpdater.watchNamespace: pods of all namespaces hold resources of the nodes\n"},
		`{topologyUpdater: {createCRDs: true, watchNamespace: "*", kubeletStateDir: /var/lib/kubelet}, gc: {port: 8080, podSecurityContext: {}}}`: {
			"- gc.podSecurityContext, gc.port: the controller itself removes what Nodes leave behind\n",
		},
	} {
		notes := mustRender(t, set(t, values))["assay/templates/NOTES.txt"] + "\n"
		for _, line := range want {
			if !strings.Contains(notes, line) {
				t.Errorf("%s: the notes lack %q:\n%s", values, line, notes)
			}
		}
		if !slices.Contains(want, warning) && strings.Contains(notes, warning) {
			t.Errorf("%s: the notes warn:\n%s", values, notes)
		}
	}
}

// TestWorkerHasAnAccountOfItsOwn renders the values of operators that bundle NFD with one ServiceAccount for all components,
// directly and as a sub-chart, whose notes Helm does not print.
func TestWorkerHasAnAccountOfItsOwn(t *testing.T) {
	const operator = `{gc: {serviceAccount: {name: shared, create: false}}, worker: {serviceAccount: {name: shared, create: false}}, master: {serviceAccount: {name: shared, create: true}}}`
	child := load(t)
	parent := &chartv2.Chart{Metadata: &chartv2.Metadata{APIVersion: chartv2.APIVersionV2, Name: "operator", Version: "1.0.0",
		Dependencies: []*chartv2.Dependency{{Name: "assay", Version: child.Metadata.Version}}}}
	parent.AddDependency(child)
	below, err := render(t, parent, rendering{release: "op", namespace: "n", kubernetes: "v1.37.2", values: map[string]any{"assay": set(t, operator)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		files             map[string]string
		worker, namespace string
	}{
		"Alone":    {mustRender(t, set(t, operator)), "assay-worker", "assay-system"},
		"SubChart": {below, "op-assay-worker", "n"},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := strings.TrimSuffix(test.worker, "-worker")
			user := "system:serviceaccount:" + test.namespace + ":"
			all := objects(t, test.files)
			checkFields(t, all, map[string]any{
				"ServiceAccount/" + test.worker + " metadata.namespace":                             test.namespace,
				"ServiceAccount/shared metadata.namespace":                                          test.namespace,
				"DaemonSet/" + prefix + "-worker spec.template.spec.serviceAccountName":             test.worker,
				"Deployment/" + prefix + "-controller spec.template.spec.serviceAccountName":        "shared",
				"RoleBinding/" + prefix + "-worker subjects.0.name":                                 test.worker,
				"ClusterRoleBinding/" + prefix + "-controller subjects":                             []any{map[string]any{"kind": "ServiceAccount", "name": "shared", "namespace": test.namespace}},
				"ValidatingAdmissionPolicy/assay-node-bound-publishing spec.variables.2.expression": "request.userInfo.username == '" + user + test.worker + "'",
				"ValidatingAdmissionPolicy/assay-node-bound-publishing spec.variables.3.expression": "request.userInfo.username == '" + user + "shared'",
				"ValidatingAdmissionPolicy/assay-node-bound-sets spec.variables.2.expression":       "request.userInfo.username == '" + user + test.worker + "'",
				"ValidatingAdmissionPolicyBinding/assay-node-writes spec.policyName":                "assay-node-writes",
			})
			webhook := commands(t, all)[prefix+"-webhook/webhook"]
			for _, arg := range []string{"--worker-service-account=" + test.worker + " ", "--controller-service-account=shared "} {
				if !strings.Contains(webhook, arg) {
					t.Errorf("the webhook lacks %s: %s", arg, webhook)
				}
			}
		})
	}
	for values, want := range map[string]string{
		`{worker: {serviceAccount: {create: false}}, controller: {serviceAccount: {create: false}}}`:                  `worker and controller have the same ServiceAccount "default"`,
		`{worker: {serviceAccount: {create: false, name: a}}, webhook: {serviceAccount: {create: false, name: a}}}`:   `worker and webhook have the same ServiceAccount "a"`,
		`{controller: {serviceAccount: {name: assay-worker}}}`:                                                        `worker and controller have the same ServiceAccount "assay-worker"`,
		`{worker: {enabled: false, serviceAccount: {create: false}}, controller: {serviceAccount: {create: false}}}`:  "",
		`{worker: {serviceAccount: {create: false, name: a}}, scheduler: {serviceAccount: {create: false, name: a}}}`: "", // no scheduler
	} {
		_, err := render(t, load(t), rendering{release: "assay", namespace: "x", kubernetes: "v1.37.2", values: set(t, values)})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", values, err, want)
		}
	}
}

// TestTeamsReadKindsAndWriteRequests checks the ClusterRoles that are aggregated to those of Kubernetes.
func TestTeamsReadKindsAndWriteRequests(t *testing.T) {
	all := append(objects(t, mustRender(t, nil)), definitions(t)...)
	const to = "rbac.authorization.k8s.io/aggregate-to-"
	included := map[string][]string{} // by ClusterRole of Kubernetes
	for _, object := range all {
		labels, _ := at(object, "metadata.labels").(map[string]any)
		for label, value := range labels {
			if role, ok := strings.CutPrefix(label, to); ok && value == "true" {
				included[role] = append(included[role], "ClusterRole/"+at(object, "metadata.name").(string))
			}
		}
	}
	may := func(role, group, resource, verb string) bool {
		return slices.ContainsFunc(included[role], func(name string) bool { return allows(roles(t, all)[name], group, resource, "", verb) })
	}
	for _, object := range all {
		if object["kind"] == "CustomResourceDefinition" {
			group, resource := at(object, "spec.group").(string), at(object, "spec.names.plural").(string)
			if !may("edit", group, resource, "list") || !may("admin", group, resource, "list") {
				t.Errorf("editors and administrators may not list %s.%s", resource, group)
			}
		}
	}
	for _, role := range []string{"view", "edit", "admin"} {
		for resource, group := range map[string]string{
			"nodefeaturerules": "nfd.k8s-sigs.io", "nodefeaturegroups": "nfd.k8s-sigs.io",
			"nodefeatureruletemplates": "assay.dev", "nodefeaturerequests": "assay.dev", "nodefeatureschedulingpolicies": "assay.dev",
			"nodebaselines": "assay.dev",
		} {
			if !may(role, group, resource, "get") || !may(role, group, resource, "watch") {
				t.Errorf("%s may not read %s", role, resource)
			}
			if want := role != "view" && resource == "nodefeaturerequests"; may(role, group, resource, "create") != want || may(role, group, resource, "delete") != want {
				t.Errorf("%s may write %s: %t, want %t", role, resource, !want, want)
			}
		}
		for resource, group := range map[string]string{"nodefeatures": "nfd.k8s-sigs.io", "nodefeaturesets": "assay.dev"} {
			if may(role, group, resource, "get") != (role != "view") || may(role, group, resource, "create") {
				t.Errorf("%s: wrong rights to %s", role, resource)
			}
		}
	}
	for _, object := range objects(t, mustRender(t, set(t, `{rbac: {aggregate: false}}`))) {
		if strings.Contains(toYAML(t, at(object, "metadata.labels")), to) {
			t.Errorf("%s: is included although rbac.aggregate is false", identity(object))
		}
	}
}

// TestInstancesHaveLeasesOfTheirOwn renders two releases for one namespace: their controllers must not share a Lease.
func TestInstancesHaveLeasesOfTheirOwn(t *testing.T) {
	for values, lease := range map[string]string{
		`{}`:                               "nfd-master.nfd.kubernetes.io",
		`{controller: {instance: second}}`: "second.nfd-master.nfd.kubernetes.io",
		`{master: {instance: third}}`:      "third.nfd-master.nfd.kubernetes.io",
	} {
		all := objects(t, mustRender(t, set(t, values)))
		for _, verb := range []string{"get", "update", "patch"} {
			if !allows(roles(t, all)["Role/assay-controller"], "coordination.k8s.io", "leases", lease, verb) {
				t.Errorf("%s: the controller may not %s Lease %s", values, verb, lease)
			}
		}
		if prune := commands(t, all)["assay-cleanup/prune"]; !strings.Contains(prune, "--leases="+lease+",") || !allows(roles(t, all)["Role/assay-cleanup"], "coordination.k8s.io", "leases", lease, "delete") {
			t.Errorf("%s: the clean-up leaves Lease %s: %s", values, lease, prune)
		}
	}
}

// TestSettingsOfTheKubelet renders each way to learn them: only one is used, and the file is mounted only if it is read.
func TestSettingsOfTheKubelet(t *testing.T) {
	for values, want := range map[string]struct {
		uri   string
		file  bool
		ports int // of egress
	}{
		`{}`:                                     {"-kubelet-config-uri=file:///host-kubelet/config.yaml", true, 2},
		`{settings: {cpuManagerPolicy: static}}`: {"-kubelet-config-uri=file:///etc/kubernetes/node-feature-discovery/kubelet.yaml", false, 2},
		`{configz: {enabled: true}}`:             {"-kubelet-config-uri=https://$(HOST_IP):10250/configz", false, 3},
		`{configz: {enabled: true, insecure: true}}`: {"-kubelet-config-uri=https://$(HOST_IP):10250/configz -kubelet-insecure", false, 3},
	} {
		for _, object := range objects(t, mustRender(t, set(t, `{topology: {enabled: true, kubelet: `+values+`}}`))) {
			switch identity(object) {
			case "DaemonSet/assay-system/assay-topology":
				_, spec := pod(t, object)
				var args []string
				for _, arg := range spec.Containers[0].Args {
					if strings.HasPrefix(arg, "-kubelet-") {
						args = append(args, arg)
					}
				}
				if got := strings.Join(args, " "); got != want.uri {
					t.Errorf("%s: arguments %s, want %s", values, got, want.uri)
				}
				file := slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == "kubelet-config" })
				address := slices.ContainsFunc(spec.Containers[0].Env, func(e corev1.EnvVar) bool { return e.Name == "HOST_IP" })
				if file != want.file || address != strings.Contains(want.uri, "HOST_IP") {
					t.Errorf("%s: file mounted %t, address of the node %t", values, file, address)
				}
			case "NetworkPolicy/assay-system/assay-topology":
				if ports, _ := at(object, "spec.egress.0.ports").([]any); len(ports) != want.ports {
					t.Errorf("%s: ports of egress %v, want %d", values, ports, want.ports)
				}
			}
		}
	}
	_, err := render(t, load(t), rendering{release: "assay", namespace: "assay-system", kubernetes: "v1.37.2",
		values: set(t, `{topology: {enabled: true, kubelet: {settings: {cpuManagerPolicy: static}, configz: {enabled: true}}}}`)})
	if err == nil || !strings.Contains(err.Error(), "set settings or configz.enabled, not both") {
		t.Errorf("error %v for two ways", err)
	}
}

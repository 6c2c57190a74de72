package chart

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// expected is the user-visible result of a case in testdata. TestRenders compares "everything" as a whole.
type expected struct {
	// commands are the arguments of containers, by pod and container.
	commands map[string]string
	// fields are values by object and path: "Kind/name path".
	fields map[string]any
	// notes are lines in the notes.
	notes []string
}

var expectations = map[string]expected{
	"default": {
		commands: map[string]string{
			"assay-worker/worker":         "-port=8080",
			"assay-controller/controller": "controller --port=8082 --metrics-port=8081 --enable-leader-election",
			"assay-webhook/webhook": "webhook --port=8083 --metrics-port=8084 --webhook-port=9443 --cert-secret=assay-webhook-cert --service=assay-webhook --configuration=assay" +
				" --failure-policy=Ignore --worker-service-account=assay-worker --controller-service-account=assay-controller" +
				` --worker-tolerations=[{"operator":"Exists"}]`,
			"assay-cleanup/prune": "prune --leases=nfd-master.nfd.kubernetes.io,assay-scheduler",
			"assay-test/verify":   "verify",
		},
		fields: map[string]any{
			"DaemonSet/assay-worker spec.template.spec.tolerations.0.operator":                    "Exists",
			"DaemonSet/assay-worker spec.template.spec.priorityClassName":                         "assay",
			"DaemonSet/assay-worker spec.updateStrategy.rollingUpdate.maxUnavailable":             "10%",
			"DaemonSet/assay-worker spec.template.spec.containers.0.env.0.name":                   "NODE_NAME",
			"Deployment/assay-controller spec.replicas":                                           1.0,
			"Deployment/assay-controller spec.template.spec.containers.0.readinessProbe.httpGet":  map[string]any{"path": "/readyz", "port": "http"},
			"Deployment/assay-webhook spec.replicas":                                              2.0,
			"PodDisruptionBudget/assay-webhook spec.maxUnavailable":                               1.0,
			"PodDisruptionBudget/assay-controller":                                                nil,
			"Role/assay-controller rules.1.resourceNames.0":                                       "nfd-master.nfd.kubernetes.io",
			"Service/assay-webhook spec.ports.0.port":                                             443.0,
			"ConfigMap/assay-worker data":                                                         map[string]any{"nfd-worker.conf": "{}\n"},
			"ConfigMap/assay-manager data":                                                        map[string]any{"nfd-master.conf": "{}\n"},
			"ValidatingAdmissionPolicyBinding/assay-node-bound-publishing spec.validationActions": []any{"Deny"},
			"ValidatingAdmissionPolicyBinding/assay-node-writes spec.validationActions":           []any{"Deny"},
			"NetworkPolicy/assay-worker spec.policyTypes":                                         []any{"Ingress", "Egress"},
			"NetworkPolicy/assay-worker spec.ingress":                                             nil,
			"NetworkPolicy/assay-webhook spec.ingress.0.ports.0.port":                             "webhook",
		},
		notes: []string{
			"Assay v0.1.0 is installed in namespace assay-system as assay:",
			"- 1 controller, which evaluates rules and updates Nodes",
			"- 2 admission webhooks, which reject invalid rules",
			"- pods with the label assay.dev/feature-request get the label of the request in their node selector, by a MutatingAdmissionPolicy",
			"helm test assay --namespace assay-system",
		},
	},
	"nfd": {
		commands: map[string]string{
			"assay-worker/worker": "-port=8080 -owner-refs=pod,ds",
			"assay-topology/topology": "topology -port=8085 -podresources-socket=/host-kubelet/pod-resources/k.sock -device-plugins=/host-kubelet/device-plugins" +
				" -kubelet-config-uri=file:///host-kubelet/config.yaml -kubelet-state-dir=/host-kubelet/state -sleep-interval=60s -pods-fingerprint=false",
			"assay-controller/controller": "controller --port=8082 --metrics-port=8081 --enable-leader-election --resync-period=2h --nfd-api-parallelism=4" +
				" --gc-interval=30m --instance=operator --extra-label-ns=example.com --deny-label-ns=*.secret.example.com --feature-gates=NodeFeatureGroupAPI=true",
			"assay-cleanup/prune": "prune --leases=operator.nfd-master.nfd.kubernetes.io,assay-scheduler --instance=operator",
		},
		fields: map[string]any{
			"Deployment/assay-controller spec.replicas":                                             2.0,
			"Deployment/assay-controller metadata.annotations":                                      map[string]any{"example.com/owner": "team"},
			"Deployment/assay-controller spec.template.spec.serviceAccountName":                     "node-feature-discovery",
			"Deployment/assay-controller spec.template.spec.containers.0.resources.limits.memory":   "1Gi",
			"Deployment/assay-controller spec.template.spec.containers.0.resources.requests.memory": "64Mi",
			"Deployment/assay-controller spec.template.spec.priorityClassName":                      "system-node-critical",
			"Deployment/assay-controller spec.template.spec.imagePullSecrets":                       []any{map[string]any{"name": "registry"}},
			"PodDisruptionBudget/assay-controller spec.maxUnavailable":                              1.0,
			"ClusterRole/assay-controller rules.2":                                                  map[string]any{"apiGroups": []any{""}, "resources": []any{"nodes"}, "verbs": []any{"patch"}},
			"Role/assay-controller rules.1.resourceNames.0":                                         "operator.nfd-master.nfd.kubernetes.io",
			"Role/assay-worker rules.3.resources":                                                   []any{"pods"},
			"ConfigMap/assay-manager data":                                                          map[string]any{"nfd-master.conf": "enableTaints: true\nklog:\n  v: \"4\"\nrestrictions:\n  disableAnnotations: true\n"},
			"DaemonSet/assay-worker spec.template.spec.serviceAccountName":                          "assay-worker",
			"DaemonSet/assay-worker spec.template.spec.tolerations.0.key":                           "nvidia.com/gpu",
			"DaemonSet/assay-worker spec.template.spec.volumes.5":                                   map[string]any{"name": "host-usr-src", "hostPath": map[string]any{"path": "/usr/src"}},
			"DaemonSet/assay-worker metadata.annotations":                                           map[string]any{"example.com/owner": "team"},
			"ServiceAccount/node-feature-discovery metadata.namespace":                              "assay-system",
			"ServiceAccount/assay-worker metadata.namespace":                                        "assay-system",
			"DaemonSet/assay-topology spec.template.spec.volumes.1":                                 map[string]any{"name": "pod-resources", "hostPath": map[string]any{"path": "/run/k/pod-resources", "type": "Directory"}},
			"DaemonSet/assay-topology spec.template.spec.volumes.3":                                 map[string]any{"name": "kubelet-state", "hostPath": map[string]any{"path": "/var/lib/kubelet", "type": "Directory"}},
			"DaemonSet/assay-topology spec.template.spec.volumes.4":                                 map[string]any{"name": "kubelet-config", "hostPath": map[string]any{"path": "/etc/kubelet.yaml", "type": "File"}},
			"ConfigMap/assay-topology data":                                                         map[string]any{"nfd-topology-updater.conf": "excludeList:\n  '*':\n  - memory\n"},
			"ValidatingAdmissionPolicy/assay-node-bound-topology spec.matchConditions.0.expression": "request.userInfo.username == 'system:serviceaccount:assay-system:assay-topology'",
			"ValidatingAdmissionPolicy/assay-node-bound-publishing spec.variables.2.expression":     "request.userInfo.username == 'system:serviceaccount:assay-system:assay-worker'",
			"ValidatingAdmissionPolicy/assay-node-bound-publishing spec.variables.3.expression":     "request.userInfo.username == 'system:serviceaccount:assay-system:node-feature-discovery'",
			"ValidatingAdmissionPolicy/assay-node-bound-publishing spec.variables.6":                map[string]any{"name": "ownedByNode", "expression": "false"},
			"ValidatingAdmissionPolicyBinding/assay-node-writes spec.policyName":                    "assay-node-writes",
		},
		notes: []string{
			"- 2 controllers, one of which evaluates rules and updates Nodes, taints included",
			"- image.repository, image.tag: those images hold Node Feature Discovery's programs; Assay's own are used",
			"- gc.replicaCount, gc.serviceAccount: the controller itself removes what Nodes leave behind",
			"- enableNodeFeatureApi: features are always published as NodeFeatures",
			"- master.config.klog",
			"NOTE: the values assign the ServiceAccount node-feature-discovery to the worker and to another component. The worker uses the ServiceAccount",
		},
	},
	"scheduling": {
		commands: map[string]string{
			"placement-controller/controller": "controller --port=8082 --metrics-port=8081 --enable-leader-election" +
				" --fail-taint=example.com/rejected=true:NoSchedule --fail-open-after=5m --feature-gates=FeatureScheduling=true --built-in-rules=/etc/assay/rules --startup-taint=startup-taint.cluster-autoscaler.kubernetes.io/features --loss-taint=example.com/features-lost:NoExecute",
			"placement-webhook/webhook": "webhook --port=8083 --metrics-port=8084 --webhook-port=9443 --cert-secret=placement-webhook-cert" +
				" --service=placement-webhook --configuration=assay --failure-policy=Ignore --worker-service-account=placement-worker" +
				" --controller-service-account=placement-controller --scheduling --node-warnings=false --built-in-rules=/etc/assay/rules --startup-taint=startup-taint.cluster-autoscaler.kubernetes.io/features --loss-taint=example.com/features-lost:NoExecute",
			"placement-scheduler/scheduler": "kube-scheduler --config=/etc/assay/config.yaml --secure-port=10259",
			"placement-scheduler/extender":  "extender --address=127.0.0.1:8888 --built-in-rules=/etc/assay/rules --startup-taint=startup-taint.cluster-autoscaler.kubernetes.io/features --loss-taint=example.com/features-lost:NoExecute",
			"placement-worker/worker":       "-port=8080 -sandbox=off",
		},
		fields: map[string]any{
			"ConfigMap/placement-rules data.racks.yaml": "---\napiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\nmetadata:\n  name: racks\nspec:\n  rules:\n" +
				"  - labels:\n      example.com/rack: \"12\"\n    matchFeatures:\n    - feature: system.name\n      matchExpressions:\n        nodename:\n" +
				"          op: InRegexp\n          value:\n          - ^r12\n    name: rack\n---\napiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\n" +
				"metadata:\n  name: rooms\nspec:\n  rules:\n  - labels:\n      example.com/room: \"1\"\n    name: room\n",
			"ConfigMap/placement-rules data.text.yaml": "apiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeatureRule\nmetadata: {name: site}\nspec:\n  rules:\n" +
				"    - name: site\n      labels: {example.com/site: \"a\"}\n",
			"ConfigMap/placement-worker data.nfd-worker.conf": "sources:\n  local:\n    filePrefixes:\n      rack*:\n      - example.com/\n  pci:\n" +
				"    deviceLabelForms:\n    - - class\n      - vendor\n    - - class\n      - vendor\n      - device\n",
			"Deployment/placement-scheduler spec.template.spec.containers.0.image":          "registry.k8s.io/kube-scheduler:v1.37.2",
			"RoleBinding/placement-scheduler-authentication metadata.namespace":             "kube-system",
			"ClusterRoleBinding/placement-scheduler-volume-scheduler roleRef.name":          "system:volume-scheduler",
			"MutatingAdmissionPolicyBinding/assay-pod-scheduler spec.policyName":            "assay-pod-scheduler",
			"NetworkPolicy/placement-scheduler spec.egress.0.ports.1.port":                  6443.0,
			"Deployment/placement-controller spec.template.spec.volumes.1.configMap.name":   "placement-rules",
			"Deployment/placement-scheduler spec.template.spec.containers.1.volumeMounts.1": map[string]any{"name": "rules", "mountPath": "/etc/assay/rules", "readOnly": true},
		},
		notes: []string{
			"Assay v0.1.0 is installed in namespace assay-system as placement:",
			"- a second scheduler: pods with schedulerName: assay are placed by the features that they require",
			"- pods can require features, and the webhook reviews such pods",
		},
	},
	"service": {
		commands: map[string]string{
			"assay-extender/extender": "extender --address=:8443 --tls-cert=/certificate/tls.crt --tls-key=/certificate/tls.key --client-ca=/certificate/ca.crt" +
				" --allowed-users=system:kube-scheduler,system:serviceaccount:monitoring:prometheus --token-review --publisher-leases",
			"assay-scheduler/scheduler": "kube-scheduler --config=/etc/assay/config.yaml --secure-port=10259",
			"assay-scheduler/extender":  "",
			"assay-controller/controller": "controller --port=8082 --metrics-port=8081 --enable-leader-election --metrics-secure" +
				" --metrics-cert-dir=/metrics-certificate --feature-gates=FeatureScheduling=true",
		},
		fields: map[string]any{
			"Service/assay-extender spec.clusterIP":                                     "10.96.0.77",
			"Service/assay-extender metadata.annotations":                               map[string]any{"example.com/owner": "team"},
			"PodDisruptionBudget/assay-extender spec.maxUnavailable":                    1.0,
			"Certificate/assay-extender-server spec.dnsNames.0":                         "assay-extender.assay-system.svc",
			"Certificate/assay-extender-server spec.ipAddresses":                        []any{"10.96.0.77"},
			"Certificate/assay-extender-client spec.commonName":                         "system:kube-scheduler",
			"Certificate/assay-extender-ca spec.isCA":                                   true,
			"ServiceMonitor/assay-extender spec.endpoints.0.tlsConfig.serverName":       "assay-extender.assay-system.svc",
			"ServiceMonitor/assay-controller spec.endpoints.0.tlsConfig.serverName":     "assay-metrics.assay-system.svc",
			"ServiceMonitor/assay-controller spec.endpoints.0.bearerTokenFile":          "/var/run/secrets/kubernetes.io/serviceaccount/token",
			"ServiceMonitor/assay-worker spec.endpoints.0.port":                         "http",
			"Service/assay-worker-metrics spec.ports.0.port":                            8080.0,
			"Service/assay-controller-metrics spec.clusterIP":                           "None",
			"ClusterRoleBinding/assay-metrics-review-webhook roleRef.name":              "assay-metrics-review",
			"PrometheusRule/assay-rules spec.groups.0.name":                             "assay",
			"NetworkPolicy/assay-scheduler spec.egress.1.ports.0.port":                  "https",
			"Deployment/assay-scheduler spec.template.spec.volumes.1.secret.secretName": "assay-extender-client",
		},
		notes: []string{
			"- 2 extenders behind the Service assay-extender, port 8443, for schedulers with a client certificate for system:kube-scheduler or system:serviceaccount:monitoring:prometheus",
		},
	},
}

// TestCasesRender compares the cases in testdata with their user-visible results.
func TestCasesRender(t *testing.T) {
	for _, dir := range cases(t) {
		name := filepath.Base(dir)
		want, ok := expectations[name]
		if !ok && name != "everything" {
			t.Errorf("%s: nothing is expected of this case", name)
		}
		t.Run(name, func(t *testing.T) {
			files := mustRender(t, readValues(t, filepath.Join(dir, "values.yaml")))
			all := objects(t, files)
			got := commands(t, all)
			for container, command := range want.commands {
				if diff := cmp.Diff(command, got[container]); diff != "" {
					t.Errorf("command of %s (-want +got):\n%s", container, diff)
				}
			}
			checkFields(t, all, want.fields)
			notes := files["assay/templates/NOTES.txt"]
			for _, line := range want.notes {
				if !strings.Contains(notes, line) {
					t.Errorf("the notes lack %q:\n%s", line, notes)
				}
			}
		})
	}
}

// commands returns the commands of all containers, by pod and container.
func commands(t *testing.T, all []map[string]any) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, object := range all {
		_, spec := pod(t, object)
		if spec == nil {
			continue
		}
		for _, c := range spec.Containers {
			out[fmt.Sprintf("%v/%s", object["metadata"].(map[string]any)["name"], c.Name)] = strings.Join(append(c.Command, c.Args...), " ")
		}
	}
	return out
}

// checkFields compares values by "Kind/name path"; nil means absent.
func checkFields(t *testing.T, all []map[string]any, fields map[string]any) {
	t.Helper()
	byName := map[string]any{}
	for _, object := range all {
		byName[fmt.Sprintf("%v/%v", object["kind"], object["metadata"].(map[string]any)["name"])] = object
	}
	for field, want := range fields {
		object, path, _ := strings.Cut(field, " ")
		if diff := cmp.Diff(want, at(byName[object], path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}
}

// at returns the value at a path of keys and indices; a key can contain dots.
func at(value any, path string) any {
	if path == "" || value == nil {
		return value
	}
	key, rest, _ := strings.Cut(path, ".")
	switch v := value.(type) {
	case map[string]any:
		if below, ok := v[path]; ok {
			return below
		}
		return at(v[key], rest)
	case []any:
		if i, err := strconv.Atoi(key); err == nil && i < len(v) {
			return at(v[i], rest)
		}
	}
	return nil
}

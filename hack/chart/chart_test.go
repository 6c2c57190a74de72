package chart

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/hack/chart/schemas"
)

var update = flag.Bool("update", false, "write the rendered charts to testdata")

func newReader(text string) *bufio.Reader { return bufio.NewReader(strings.NewReader(text)) }

// TestRenders compares the case with all components with its golden file. CRDs are omitted: they are files of the chart. TestCasesRender
// covers the other cases.
func TestRenders(t *testing.T) {
	files := mustRender(t, readValues(t, "testdata/everything/values.yaml"))
	var out strings.Builder
	for _, object := range objects(t, files) {
		if object["kind"] != "CustomResourceDefinition" {
			write(t, &out, object)
		}
	}
	fmt.Fprintf(&out, "--- # NOTES.txt\n%s", commented(files["assay/templates/NOTES.txt"]))
	compareGolden(t, "everything", out.String())
}

// TestRendersTheService compares the objects of the extender behind a Service and of its scheduler, of which the manager's tests read
// roles, arguments and configuration. It lists the other objects that this case has and the case with all components does not.
func TestRendersTheService(t *testing.T) {
	names := func(name string, parts ...string) (other []string, text string) {
		values := readValues(t, filepath.Join("testdata", name, "values.yaml"))
		delete(values, "fullnameOverride")
		delete(values, "namespaceOverride")
		var out strings.Builder
		for _, object := range objects(t, mustRender(t, values)) {
			component, _ := at(object, "metadata.labels.app.kubernetes.io/component").(string)
			if slices.Contains(parts, component) || object["kind"] == "ClusterRole" {
				write(t, &out, object)
			} else {
				other = append(other, identity(object))
			}
		}
		return other, out.String()
	}
	everything, _ := names("everything", "extender", "scheduler")
	service, text := names("service", "extender", "scheduler")
	compareGolden(t, "service", text)
	var more []string
	for _, name := range service {
		if !slices.Contains(everything, name) {
			more = append(more, name)
		}
	}
	slices.Sort(more)
	want := []string{
		"Secret/assay-system/assay-webhook-cert", // no certManager in this case
		"Service/assay-system/assay-controller-metrics",
		"Service/assay-system/assay-webhook-metrics",
		"Service/assay-system/assay-worker-metrics",
		"ServiceMonitor/assay-system/assay-controller",
		"ServiceMonitor/assay-system/assay-webhook",
		"ServiceMonitor/assay-system/assay-worker",
	}
	if diff := cmp.Diff(want, more); diff != "" {
		t.Errorf("objects of other components that only the service has (-want +got):\n%s", diff)
	}
}

func write(t *testing.T, out *strings.Builder, object map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(out, "---\n%s", text)
}

// compareGolden compares a rendering with the golden file of a case.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name, "rendered.yaml")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(filepath.Clean(golden))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("rendered (-want +got); go test -update accepts it:\n%s", diff)
	}
}

func cases(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("testdata/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	return dirs
}

func commented(text string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		out.WriteString("# " + line)
	}
	return out.String()
}

func TestLintsStrictly(t *testing.T) {
	for _, dir := range cases(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			result := lint.RunAll(chartDir, readValues(t, filepath.Join(dir, "values.yaml")), "assay-system")
			for _, message := range result.Messages {
				if message.Severity > support.InfoSev {
					t.Error(message)
				}
			}
		})
	}
}

func TestSchemaRefuses(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"Misspelled":             {`{worker: {toleration: []}}`, "/worker"},
		"MisspeltAtRoot":         {`{controler: {}}`, "controler"},
		"WrongType":              {`{controller: {replicaCount: two}}`, "/controller/replicaCount"},
		"NoSuchPolicy":           {`{webhook: {failurePolicy: Deny}}`, "/webhook/failurePolicy"},
		"NoneAtOnce":             {`{controller: {nfdApiParallelism: 0}}`, "/controller/nfdApiParallelism"},
		"NoSuchPort":             {`{worker: {port: 70000}}`, "/worker/port"},
		"TextForBool":            {`{hardened: "yes"}`, "/hardened"},
		"PercentTooLarge":        {`{scheduler: {percentageOfNodesToScore: 101}}`, "/scheduler/percentageOfNodesToScore"},
		"RelativeFiles":          {`{worker: {featuresDir: features.d}}`, "/worker/featuresDir"},
		"FilesAbove":             {`{worker: {featuresDir: /etc/../root}}`, "/worker/featuresDir"},
		"FilesAboveAtEnd":        {`{worker: {featuresDir: /etc/..}}`, "/worker/featuresDir"},
		"AllFiles":               {`{worker: {featuresDir: /}}`, "/worker/featuresDir"},
		"HooksAbove":             {`{worker: {hooksDir: /../hooks}}`, "/worker/hooksDir"},
		"TaintNoEffect":          {`{controller: {failTaint: "example.com/a=b"}}`, "/controller/failTaint"},
		"LossTaintWithValue":     {`{controller: {lossTaint: "example.com/a=b:NoExecute"}}`, "/controller/lossTaint"},
		"NamespaceWithSlash":     {`{policies: {namespaces: [vendor.io/]}}`, "/policies/namespaces/0"},
		"NamespaceWithQuote":     {`{policies: {namespaces: ["a'"]}}`, "/policies/namespaces/0"},
		"PublisherWithoutSpace":  {`{policies: {publishers: [topograph]}}`, "/policies/publishers/0"},
		"SettingOfWrongType":     {`{controller: {config: {restrictions: {disableLabels: maybe}}}}`, "/controller/config/restrictions/disableLabels"},
		"SettingWithoutUnit":     {`{controller: {config: {noExecuteBudget: {every: often}}}}`, "/controller/config/noExecuteBudget/every"},
		"SettingOutOfRange":      {`{controller: {config: {removalBudget: {share: 5}}}}`, "/controller/config/removalBudget/share"},
		"UnknownSetting":         {`{controller: {config: {resyncPerod: 1h}}}`, "resyncPerod"},
		"UnitInWords":            {`{controller: {config: {resyncPeriod: 1hour}}}`, "/controller/config/resyncPeriod': value must be 'a duration such as 90s, 10m or 1h'"},
		"IntegerWithoutUnit":     {`{controller: {config: {gcInterval: 60}}}`, "/controller/config/gcInterval': value must be 'a duration"},
		"UnitInWordsOfValue":     {`{controller: {resyncPeriod: 1hour}}`, "/controller/resyncPeriod': value must be 'a duration"},
		"IntervalOfTopology":     {`{topology: {interval: 30sec}}`, "/topology/interval"},
		"IntervalOfNFD":          {`{topologyUpdater: {updateInterval: 1min}}`, "/topologyUpdater/updateInterval"},
		"IntervalOfCollection":   {`{gc: {interval: 4hours}}`, "/gc/interval"},
		"InstanceWithBlank":      {`{controller: {instance: Foo Bar}}`, "/controller/instance': value must be 'lower-case letters"},
		"InstanceOfNFD":          {`{master: {instance: Foo Bar}}`, "/master/instance"},
		"SettingOfNFD":           {`{master: {config: {resyncPeriod: soon}}}`, "/master/config/resyncPeriod"},
		"NoQuantity":             {`{worker: {resources: {limits: {memory: lots}}}}`, "/worker/resources/limits/memory': value must be 'a quantity such as 100m, 1 or 128Mi'"},
		"QuantityWithWrongUnit":  {`{webhook: {resources: {requests: {memory: 64MB}}}}`, "/webhook/resources/requests/memory"},
		"SelectorOfNamespaces":   {`{controller: {config: {restrictions: {nodeFeatureNamespaceSelector: {matchLabel: {a: b}}}}}}`, "matchLabel"},
		"TaintInConfiguration":   {`{controller: {config: {failTaint: example.com/a=b}}}`, "/controller/config/failTaint': value must be 'KEY=VALUE:EFFECT with the effect NoSchedule"},
		"WorkerInterval":         {`{worker: {config: {core: {sleepInterval: 60}}}}`, "/worker/config/core/sleepInterval': value must be 'a duration"},
		"WorkerSources":          {`{worker: {config: {core: {labelSources: cpu}}}}`, "/worker/config/core/labelSources"},
		"WorkerWhiteListAsMap":   {`{worker: {config: {core: {labelWhiteList: {a: b}}}}}`, "/worker/config/core/labelWhiteList"},
		"WorkerClasses":          {`{worker: {config: {sources: {pci: {deviceClassWhitelist: "0200"}}}}}`, "/worker/config/sources/pci/deviceClassWhitelist"},
		"WorkerOctalClass":       {`{worker: {config: {sources: {pci: {deviceClassWhitelist: [0200]}}}}}`, "/worker/config/sources/pci/deviceClassWhitelist/0"},
		"WorkerOwner":            {`{worker: {config: {core: {ownerRefs: [cluster]}}}}`, "/worker/config/core/ownerRefs/0"},
		"UnknownWorkerSetting":   {`{worker: {config: {core: {sleepIntervall: 5s}}}}`, "sleepIntervall"},
		"StartupTaintWithEffect": {`{controller: {startupTaint: "example.com/a:NoSchedule"}}`, "/controller/startupTaint"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, load(t), rendering{release: "assay", namespace: "x", kubernetes: "v1.37.2", values: set(t, test.values)})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one that says where: %s", err, test.want)
			}
		})
	}
}

// TestTemplatesRefuse has values with which a program would not start, and which the schema cannot express.
func TestTemplatesRefuse(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"WorkerWhiteList":       {`{worker: {config: {core: {labelWhiteList: "("}}}}`, `worker.config.core.labelWhiteList: invalid regular expression "("`},
		"WhiteList":             {`{controller: {labelWhiteList: "*"}}`, `controller.labelWhiteList: invalid regular expression "*"`},
		"WhiteListInFile":       {`{controller: {config: {labelWhiteList: "[a"}}}`, `controller.config.labelWhiteList: invalid regular expression "[a"`},
		"FeatureSources":        {`{master: {config: {featureSources: "a\\"}}}`, `controller.config.featureSources: invalid regular expression`},
		"NeverReady":            {`{controller: {startupTaint: example.com/a, featuresReady: false}}`, "do not set controller.featuresReady to false"},
		"UnknownKubeletSetting": {`{topology: {enabled: true, kubelet: {settings: {topologyManagerPolcy: restricted}}}}`, `topology.kubelet.settings: unknown setting "topologyManagerPolcy": use cpuManagerPolicy, memory`},
		"OpensWithoutFeatures":  {`{controller: {startupTaint: example.com/a, failOpenAfter: 0s}}`, "controller.failOpenAfter must be a positive duration"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, load(t), rendering{release: "assay", namespace: "x", kubernetes: "v1.37.2", values: set(t, test.values)})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one that says where: %s", err, test.want)
			}
		})
	}
}

// TestAcceptsWhatProgramsAccept has values that the schemas of the configurations must not reject.
func TestAcceptsWhatProgramsAccept(t *testing.T) {
	mustRender(t, set(t, `{
controller: {instance: gpu-nodes.1, resyncPeriod: 1.5h, labelWhiteList: "^(pci|cpu)-", config: {resyncPeriod: 0, gcInterval: "0", removalGracePeriod: 1h30m, restrictions: null,
  klog: {v: "4"}, failTaint: "example.com/a:NoSchedule", featureGates: {Unknown: true}}},
master: {config: {noSuchKeyYet: 1, restrictions: {newToo: true}}, instance: null, resyncPeriod: null},
gc: {interval: null, other: 1}, topologyUpdater: {updateInterval: 60s, watchNamespace: "*"},
worker: {config: {core: {sleepInterval: -1, klog: {}, sources: null, labelSources: [all, -usb], ownerRefs: [none]}, sources: {pci: null, cpu: {cpuid: null}, custom: [{name: a}]}},
  resources: {limits: {cpu: 1, memory: 1.5Gi, example.com/gpu: "2"}, requests: {cpu: 5m, memory: 1e6}}}}`))
}

// TestNotesNameSettingsThatMatchNothing has a setting of each kind; values that match something cause no warning.
func TestNotesNameSettingsThatMatchNothing(t *testing.T) {
	notes := func(values string) string {
		return mustRender(t, set(t, values))["assay/templates/NOTES.txt"]
	}
	const heading = "WARNING: these settings match nothing or have no effect:"
	if text := notes(`{controller: {labelWhiteList: "^(pci|cpu)-", extraLabelNs: [vendor.example.com, kubernetes.io, extra.kubernetes.io], denyLabelNs: ["*.example.com", node-role.kubernetes.io],
config: {extraLabelNs: [below.node.kubernetes.io]}}, worker: {config: {core: {labelWhiteList: "model|pci", labelSources: [all, -usb], featureSources: [cpu]},
sources: {pci: {deviceClassWhitelist: ["03", "0B40"], deviceLabelFields: [class, vendor], deviceLabelForms: [[vendor]]}, usb: {deviceClassWhitelist: [ef]},
kernel: {configOpts: [NO_HZ]}, cpu: {cpuid: {attributeBlacklist: [AVX10, HTM-NO-SUSPEND, X86_64_V3]}}}}}}`); strings.Contains(text, heading) {
		t.Errorf("a warning without a reason:\n%s", text)
	}
	text := notes(`{controller: {labelWhiteList: amd.com, extraLabelNs: [vendor.example.com, node-role.kubernetes.io], denyLabelNs: [vendor.example.com/gpu],
config: {labelWhiteList: "feature.node.kubernetes.io/", extraLabelNs: [zone.topology.kubernetes.io, "*.example.com"]}}, worker: {config: {core: {labelWhiteList: 'vendor\.io',
labelSources: [pcie], featureSources: [all, -disk]}, sources: {pci: {deviceClassWhitelist: ["0x03", "0300,0302", "03*", "03000"], deviceLabelFields: [klass]}, usb: {deviceLabelForms: [[pid]]},
kernel: {configOpts: [CONFIG_HZ, NO_HZ=y]}, cpu: {cpuid: {attributeWhitelist: [AVX-512, avx512f]}}}}}}`)
	for _, want := range []string{heading, "controller.labelWhiteList: amd.com:", "controller.config.labelWhiteList: feature", `worker.config.core.labelWhiteList: vendor\.io`,
		"controller.extraLabelNs: node-role.kubernetes.io stays closed whatever is set: it marks control plane nodes; remove it",
		"controller.config.extraLabelNs: zone.topology.kubernetes.io stays closed whatever is set: volumes and topology spread constraints depend on it; remove it",
		`controller.config.extraLabelNs: no label has the namespace "*.example.com"`, `controller.denyLabelNs: no label has the namespace "vendor.example.com/gpu": write what`,
		`labelSources: unknown source "pcie"`, `featureSources: unknown source "disk"`, `"0x03"`, `"0300,0302"`, `"03*"`, `"03000"`, `no field "klass"`, `no field "pid"`,
		`"CONFIG_HZ"`, `"NO_HZ=y"`, `"AVX-512"`, `"avx512f"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the notes lack %s:\n%s", want, text)
		}
	}
}

// TestObjectsAreWhatKubernetesKnows validates each object with the schema of each version of Kubernetes: unknown kinds and fields
// are errors. Objects are also decoded strictly, which validates quantities.
func TestObjectsAreWhatKubernetesKnows(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, source := range schemas.Sources {
		known, err := schemas.Load(source)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range cases(t) {
			t.Run(source.Version+"/"+filepath.Base(dir), func(t *testing.T) {
				files, err := render(t, load(t), rendering{release: "1", namespace: "n", kubernetes: source.Version, values: readValues(t, filepath.Join(dir, "values.yaml"))})
				if err != nil {
					t.Fatal(err)
				}
				seen := map[string]bool{}
				for _, object := range objects(t, files) {
					id := identity(object)
					if seen[id] {
						t.Errorf("%s: there are two", id)
					}
					seen[id] = true
					kind := schema.FromAPIVersionAndKind(object["apiVersion"].(string), object["kind"].(string))
					if err := known.Validate(kind, asJSON(t, object)); err != nil {
						t.Errorf("%s: %v", id, err)
					}
					if !scheme.Recognizes(kind) {
						continue // the kind of an operator
					}
					data, err := yaml.Marshal(object)
					if err != nil {
						t.Fatal(err)
					}
					if _, _, err := decoder.Decode(data, nil, nil); err != nil {
						t.Errorf("%s: %v", id, err)
					}
				}
			})
		}
	}
}

// TestSchemasRefuse checks that the schemas reject what a version does not support.
func TestSchemasRefuse(t *testing.T) {
	for name, test := range map[string]struct{ object, refusedBefore string }{
		"UnknownField":      {`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {port: []}}`, "v9"},
		"UnknownBelowList":  {`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: b, imagePullSecret: c}]}}`, "v9"},
		"WrongType":         {`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: "1", selector: {}, template: {}}}`, "v9"},
		"MissingField":      {`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 1}}`, "v9"},
		"NoSuchKind":        {`{apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: a}}`, "v9"},
		"KindOfAnother":     {`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: a}}`, "v1.36"},
		"UnknownOfOperator": {`{apiVersion: monitoring.coreos.com/v1, kind: PodMonitor, metadata: {name: a}, spec: {selector: {}, endpoints: []}}`, "v9"},
		"IntOrString":       {`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a}, spec: {maxUnavailable: 1, minAvailable: 10%}}`, ""},
		"FieldOfAllPresent": {`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {hostUsers: false, containers: [{name: b}]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, source := range schemas.Sources {
				known, err := schemas.Load(source)
				if err != nil {
					t.Fatal(err)
				}
				object := set(t, test.object)
				err = known.Validate(schema.FromAPIVersionAndKind(object["apiVersion"].(string), object["kind"].(string)), asJSON(t, object))
				if refused := source.Version < test.refusedBefore; refused != (err != nil) {
					t.Errorf("%s: got error %v", source.Version, err)
				}
			}
		})
	}
}

// TestTakesVersionsAsProvidersWriteThem renders for clusters whose version has a suffix of the provider.
func TestTakesVersionsAsProvidersWriteThem(t *testing.T) {
	for version, want := range map[string]string{
		"v1.30.0":                "",
		"v1.34.0-eks-abc123":     "",
		"v1.35.0+k3s1":           "",
		"v1.33.5-gke.1201000":    "",
		"v1.36.0-alpha.1":        "",
		"v1.29.15":               "kubeVersion",
		"v1.29.15-eks-113cf36":   "kubeVersion",
		"v1.28.15+rke2r1":        "kubeVersion",
		"v1.30.0-rc.1":           "",
		"v1.31.0-gke.1+variant2": "",
	} {
		_, err := render(t, load(t), rendering{release: "a", namespace: "n", kubernetes: version, values: map[string]any{}})
		if got := fmt.Sprint(err); (err != nil) != (want != "") || !strings.Contains(got, want) && want != "" {
			t.Errorf("%s: got error %v, want one about %q", version, err, want)
		}
	}
}

func identity(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	return fmt.Sprintf("%v/%s/%v", object["kind"], namespace, metadata["name"])
}

// TestPodsMeetRestricted evaluates pods with the code of Pod Security admission. Only the worker may mount host directories, and
// may do nothing else. The publisher of topologies also runs as root, to which the kubelet's socket belongs.
func TestPodsMeetRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range cases(t) {
		for _, object := range objects(t, mustRender(t, readValues(t, filepath.Join(dir, "values.yaml")))) {
			meta, spec := pod(t, object)
			if spec == nil {
				continue
			}
			t.Run(filepath.Base(dir)+"/"+identity(object), func(t *testing.T) {
				var broken []string
				for _, result := range evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, meta, spec) {
					if !result.Allowed {
						broken = append(broken, result.ForbiddenReason+": "+result.ForbiddenDetail)
					}
				}
				var allowed []string
				if object["kind"] == "DaemonSet" {
					allowed = append(allowed, "hostPath")
				}
				if meta.Labels["app.kubernetes.io/component"] == "topology" {
					allowed = append(allowed, "runAsNonRoot", "runAsUser")
				}
				for _, reason := range broken {
					if !slices.ContainsFunc(allowed, func(part string) bool { return strings.Contains(reason, part) }) {
						t.Error(reason)
					}
				}
				checkMounts(t, spec)
			})
		}
	}
}

// checkMounts checks that all host mounts are read-only, and that only the explicit token volume is mounted.
func checkMounts(t *testing.T, spec *corev1.PodSpec) {
	t.Helper()
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		t.Error("a token is mounted by itself")
	}
	hosts := 0
	for _, volume := range spec.Volumes {
		if volume.HostPath != nil {
			hosts++
		}
	}
	if hosts > 8 {
		t.Errorf("%d directories of the host are mounted", hosts)
	}
	for _, container := range spec.Containers {
		for _, mount := range container.VolumeMounts {
			if !mount.ReadOnly {
				t.Errorf("%s: %s can be written", container.Name, mount.MountPath)
			}
		}
		if container.Resources.Requests.Memory().IsZero() || container.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: no request or limit of memory", container.Name)
		}
	}
}

// pod returns the pod template of an object, if any.
func pod(t *testing.T, object map[string]any) (*metav1.ObjectMeta, *corev1.PodSpec) {
	t.Helper()
	type template struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     corev1.PodSpec    `json:"spec"`
	}
	var out struct {
		Spec struct {
			Template *template `json:"template"`
		} `json:"spec"`
	}
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	switch object["kind"] {
	case "DaemonSet", "Deployment", "Job":
		if err := yaml.Unmarshal(data, &out); err != nil {
			t.Fatal(err)
		}
		return &out.Spec.Template.Metadata, &out.Spec.Template.Spec
	case "Pod":
		var p template
		if err := yaml.Unmarshal(data, &p); err != nil {
			t.Fatal(err)
		}
		return &p.Metadata, &p.Spec
	}
	return nil, nil
}

// TestRolesAreNarrow checks that no role has wildcard permissions, and that access to Secrets is limited to one namespace.
func TestRolesAreNarrow(t *testing.T) {
	for _, dir := range cases(t) {
		for _, object := range objects(t, mustRender(t, readValues(t, filepath.Join(dir, "values.yaml")))) {
			kind, _ := object["kind"].(string)
			if kind != "Role" && kind != "ClusterRole" {
				continue
			}
			rules, _ := object["rules"].([]any)
			for _, rule := range rules {
				text, err := yaml.Marshal(rule)
				if err != nil {
					t.Fatal(err)
				}
				for _, wrong := range []string{"'*'", "escalate", "impersonate", "bind", "nodes/proxy", "pods/exec"} {
					if strings.Contains(string(text), wrong) {
						t.Errorf("%s: %s: a rule with %s:\n%s", filepath.Base(dir), identity(object), wrong, text)
					}
				}
				if kind == "ClusterRole" && strings.Contains(string(text), "secrets") {
					t.Errorf("%s: %s reaches all Secrets:\n%s", filepath.Base(dir), identity(object), text)
				}
			}
		}
	}
}

// TestWorksAsSubChart renders the chart as a dependency with another name, as operators do.
func TestWorksAsSubChart(t *testing.T) {
	child := load(t)
	parent := &chartv2.Chart{Metadata: &chartv2.Metadata{
		APIVersion: chartv2.APIVersionV2, Name: "operator", Version: "1.0.0",
		Dependencies: []*chartv2.Dependency{{Name: "assay", Alias: "node-feature-discovery", Version: child.Metadata.Version, Condition: "nfd.enabled"}},
	}}
	parent.AddDependency(child)
	files, err := render(t, parent, rendering{release: "op", namespace: "operators", kubernetes: "v1.37.2", values: set(t, `
nfd: {enabled: true}
global: {imagePullSecrets: [{name: everywhere}], unknown: {key: value}}
node-feature-discovery:
  enabled: true
  enableNodeFeatureApi: true
  worker: {config: null, serviceAccount: {name: node-feature-discovery, create: false}}
  master: {serviceAccount: {name: node-feature-discovery, create: true}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, object := range objects(t, files) {
		if kind := object["kind"]; kind == "DaemonSet" || kind == "Deployment" || kind == "ServiceAccount" || kind == "ValidatingAdmissionPolicy" {
			names = append(names, identity(object))
		}
	}
	slices.Sort(names)
	want := []string{
		"DaemonSet/operators/op-node-feature-discovery-worker",
		"Deployment/operators/op-node-feature-discovery-controller",
		"Deployment/operators/op-node-feature-discovery-webhook",
		"ServiceAccount/operators/node-feature-discovery",
		"ServiceAccount/operators/op-node-feature-discovery-cleanup",
		"ServiceAccount/operators/op-node-feature-discovery-crds",
		"ServiceAccount/operators/op-node-feature-discovery-webhook",
		"ServiceAccount/operators/op-node-feature-discovery-worker",
		"ValidatingAdmissionPolicy//assay-holds",
		"ValidatingAdmissionPolicy//assay-node-bound-publishing",
		"ValidatingAdmissionPolicy//assay-node-bound-sets",
		"ValidatingAdmissionPolicy//assay-node-writes",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestPartsCanBeLeftOut(t *testing.T) {
	for name, test := range map[string]struct{ values, part string }{
		"Worker":      {`{worker: {enabled: false}}`, "component: worker"},
		"Controller":  {`{controller: {enabled: false}}`, "component: controller"},
		"Webhook":     {`{webhook: {enabled: false}}`, "component: webhook"},
		"Definitions": {`{crds: {upgrade: false}}`, "apply-definitions"},
		"Policies":    {`{policies: {install: false}}`, "kind: ValidatingAdmissionPolicy"},
		"Cleanup":     {`{postDeleteCleanup: false}`, "post-delete"},
		"Test":        {`{tests: {enabled: false}}`, "hook: test"},
		"Scheduler":   {`{}`, "component: scheduler"},
		"Library":     {`{}`, "component: library"},
		"Topology":    {`{}`, "topology.node.k8s.io/v1"},
		"TopologyCRD": {`{topology: {enabled: true, createCRD: false}}`, "listKind: NodeResourceTopologyList"},
		"Scheduling":  {`{scheduler: {enabled: true}, webhook: {certManager: {enabled: true}}}`, "pods.assay.dev"},
	} {
		t.Run(name, func(t *testing.T) {
			files := mustRender(t, set(t, test.values))
			for _, file := range slices.Sorted(maps.Keys(files)) {
				if strings.HasSuffix(file, ".yaml") && strings.Contains(files[file], test.part) {
					t.Errorf("%s has %q", file, test.part)
				}
			}
		})
	}
}

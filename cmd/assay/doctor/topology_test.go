package doctor

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The objects of an installation with one node, whose kubelet has the published settings and no pods.
const (
	goodTopology = `{"metadata": {"name": "n1"}, "attributes": [
  {"name": "topologyManagerPolicy", "value": "single-numa-node"}, {"name": "topologyManagerScope", "value": "container"},
  {"name": "nodeTopologyPodsFingerprint", "value": "pfp0v001ef46db3751d8e999"}, {"name": "nodeTopologyPodsFingerprintMethod", "value": "all"}],
  "zones": [{"name": "node-0", "type": "Node", "resources": [
  {"name": "cpu", "capacity": "8", "allocatable": "7", "available": "7"}, {"name": "memory", "capacity": "8", "allocatable": "8", "available": "8"}]}]}`
	goodKubelet = `{"kubeletconfig": {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "container"}}`
	updater     = `{"metadata": {"namespace": "nfd", "name": "updater"}, "spec": {"template": {"spec": {"containers": [{"command": ["/usr/bin/nfd-topology-updater"]}]}}}}`
)

func TestTopologyOfAnInstallation(t *testing.T) {
	for name, tt := range map[string]struct {
		changed map[string]string // answers by the end of the path
		want    []string
	}{
		"Good": {nil, []string{"ok 1 NodeResourceTopology object published"}},
		"NoDefinition": {map[string]string{"/noderesourcetopologies": ""}, []string{
			"error CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io does not exist or does not serve v1alpha2; Upgrade the release with topology.createCRD=true"}},
		"DefinitionOfAnother": {map[string]string{"/noderesourcetopologies.topology.node.k8s.io": `{"metadata": {"name": "noderesourcetopologies.topology.node.k8s.io"}}`}, []string{
			"ok CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io belongs to another program: uninstalling that deletes all objects",
			"ok 1 NodeResourceTopology object published"}},
		"UpdaterOfNFD": {map[string]string{"/daemonsets": `{"items": [` + updater + `]}`}, []string{
			"error DaemonSet nfd/updater of Node Feature Discovery writes the same NodeResourceTopologies; " +
				"Disable its topology updater: topologyUpdater.enable=false in the values of its chart",
			"ok 1 NodeResourceTopology object published"}},
		"MemoryManagerIsOff": {map[string]string{"/noderesourcetopologies": strings.Replace(`{"items": [`+goodTopology+`]}`, `"memory"`, `"hugepages-2Mi"`, 1)}, []string{
			"warning NodeResourceTopology of n1: topologyManagerPolicy is single-numa-node, and no zone has allocatable memory: " +
				"the scheduler plug-in places no guaranteed pod that requests it; Set memoryManagerPolicy: Static in the kubelet's configuration"}},
		"FlagsOfTheKubelet": {map[string]string{"/configz": strings.Replace(goodKubelet, "single-numa-node", "restricted", 1)}, []string{
			"warning NodeResourceTopology of n1: topologyManagerPolicy is single-numa-node, and the kubelet runs with restricted; " +
				"Flags of the kubelet override its file: set topology.kubelet.configz.enabled, or topology.kubelet.settings"}},
		"KubeletThatIsNotReached": {map[string]string{"/configz": ""}, []string{"ok 1 NodeResourceTopology object published"}},
		"OtherPods": {map[string]string{"/pods": `{"items": [{"metadata": {"namespace": "default", "name": "p"}, "status": {"phase": "Running"}}]}`}, []string{
			"warning the fingerprint in the NodeResourceTopology of n1 is of other pods than schedulers count: those with a cache ignore new numbers; " +
				"If pods are starting, run this again; else: assay topology fingerprint n1"}},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[string]string{
				"/noderesourcetopologies": `{"items": [` + goodTopology + `]}`, "/daemonsets": `{}`, "/pods": `{}`, "/configz": goodKubelet,
				"/noderesourcetopologies.topology.node.k8s.io": `{"metadata": {"labels": {"app.kubernetes.io/part-of": "assay"}}}`,
			}
			for path, answer := range tt.changed {
				answers[path] = answer
			}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := answers[r.URL.Path[strings.LastIndex(r.URL.Path, "/"):]]
				if answer == "" {
					w.WriteHeader(http.StatusNotFound)
					_ = json.NewEncoder(w).Encode(metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
					return
				}
				_, _ = w.Write([]byte(answer))
			}))
			t.Cleanup(s.Close)
			own := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{component: "topology"}}}
			e := &examination{c: clientOf(t, s.URL), daemonSets: []appsv1.DaemonSet{own}}
			if err := e.topology(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range e.found {
				line := string(f.Level) + " " + f.Message
				if f.Fix != "" {
					line += "; " + f.Fix
				}
				got = append(got, line)
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

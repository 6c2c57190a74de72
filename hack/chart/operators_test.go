package chart

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestOperatorsPage renders the values of docs/gpu-operators.md.
func TestOperatorsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/gpu-operators.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)rendered by TestOperatorsPage -->\n```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 4 {
		t.Fatalf("the page has %d blocks of values, want 4", len(blocks))
	}
	all := map[string]any{}
	for _, block := range blocks {
		merge(all, set(t, block[1]))
		mustRender(t, set(t, block[1]))
	}
	rendered := objects(t, mustRender(t, all))
	for _, o := range rendered {
		if identity(o) == "ConfigMap/assay-system/assay-worker" {
			if config := fmt.Sprint(o["data"]); !strings.Contains(config, "deviceLabelFields") || !strings.Contains(config, "vendor") {
				t.Errorf("the configuration of the worker is %s", config)
			}
		}
	}
	for _, row := range hostPorts(t, `{webhook: {hostNetwork: true}, worker: {hostNetwork: true}, controller: {hostNetwork: true},
  topology: {enabled: true, hostNetwork: true}, extender: {enabled: true, certificateSecret: c, hostNetwork: true}}`) {
		if !strings.Contains(string(page), fmt.Sprint(" ", row)) {
			t.Errorf("the page does not name the port %d", row)
		}
	}
}

// TestTheWorkerToleratesTheStartupTaint renders tolerations as operators set them: without the one of the taint, the node waits for the
// worker and the worker for the node.
func TestTheWorkerToleratesTheStartupTaint(t *testing.T) {
	const key = "startup-taint.cluster-autoscaler.kubernetes.io/features"
	for _, values := range []string{
		`{controller: {startupTaint: ` + key + `}}`,
		`{controller: {config: {startupTaint: ` + key + `}}, worker: {tolerations: [{key: nvidia.com/gpu, operator: Exists}]}}`,
		`{master: {startupTaint: ` + key + `, tolerations: [{key: a, operator: Exists}]}, worker: {tolerations: [{key: nvidia.com/gpu, operator: Exists}]}}`,
	} {
		found := 0
		for _, o := range objects(t, mustRender(t, set(t, values))) {
			name := identity(o)
			if !strings.HasSuffix(name, "/assay-worker") && !strings.HasSuffix(name, "/assay-controller") || o["kind"] != "DaemonSet" && o["kind"] != "Deployment" {
				continue
			}
			found++
			_, spec := pod(t, o)
			taint := &corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
			if !slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) }) {
				t.Errorf("%s: %s tolerates %v", values, name, spec.Tolerations)
			}
		}
		if found != 2 {
			t.Errorf("%s: %d of worker and controller are rendered", values, found)
		}
	}
}

// tolerates is the rule of Kubernetes for tolerations without a value.
func tolerates(t corev1.Toleration, taint *corev1.Taint) bool {
	return t.Operator == corev1.TolerationOpExists && (t.Key == "" || t.Key == taint.Key) && (t.Effect == "" || t.Effect == taint.Effect)
}

// TestPartsShareTheNetworkOfAHost renders all parts in the network of the host: their ports differ, and equal ones draw a warning.
func TestPartsShareTheNetworkOfAHost(t *testing.T) {
	const all = `worker: {hostNetwork: true}, controller: {hostNetwork: true}, webhook: {hostNetwork: true}, topology: {enabled: true, hostNetwork: true},
  scheduling: {enabled: true}, extender: {enabled: true, certificateSecret: c, hostNetwork: true}`
	ports := hostPorts(t, "{"+all+"}")
	slices.Sort(ports)
	if len(ports) != 8 || len(slices.Compact(slices.Clone(ports))) != len(ports) {
		t.Errorf("the ports are %d, want 8 that differ", ports)
	}
	const warning = "- worker.port and controller.port are both 8080"
	if got := notes(t, "{"+all+"}"); strings.Contains(got, "are both") {
		t.Errorf("the notes are %s", got)
	}
	if got := notes(t, `{worker: {hostNetwork: true}, controller: {hostNetwork: true, port: 8080}}`); !strings.Contains(got, warning) {
		t.Errorf("the notes lack %q: %s", warning, got)
	}
	if got := notes(t, `{worker: {hostNetwork: true}, controller: {port: 8080}}`); strings.Contains(got, "are both") {
		t.Errorf("the notes are %s", got)
	}
}

// hostPorts returns the ports of all pods in the network of the host.
func hostPorts(t *testing.T, values string) (ports []int32) {
	t.Helper()
	for _, o := range objects(t, mustRender(t, set(t, values))) {
		if o["kind"] != "DaemonSet" && o["kind"] != "Deployment" {
			continue
		}
		_, spec := pod(t, o)
		if !spec.HostNetwork {
			t.Errorf("%s is not in the network of the host", identity(o))
		}
		if spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
			t.Errorf("%s does not resolve names of the cluster", identity(o))
		}
		for _, c := range spec.Containers {
			for _, p := range c.Ports {
				ports = append(ports, p.ContainerPort)
			}
		}
	}
	return ports
}

// notes returns the notes of a release.
func notes(t *testing.T, values string) string {
	t.Helper()
	for name, text := range mustRender(t, set(t, values)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			return text
		}
	}
	t.Fatal("there are no notes")
	return ""
}

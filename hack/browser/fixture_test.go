package browser

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type object = map[string]any

// feature returns a NodeFeature.
func feature(node string, features object) object {
	return object{
		"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
		"metadata": object{"name": node, "namespace": "assay-system", "labels": object{"nfd.node.kubernetes.io/node-name": node}},
		"spec":     object{"features": features, "labels": object{"cpu-cpuid.AVX2": "true"}},
	}
}

// write writes a file in a directory.
func write(t *testing.T, dir, name string, content any) {
	t.Helper()
	data, ok := content.([]byte)
	if !ok {
		var err error
		if data, err = json.Marshal(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// subdirectory creates a subdirectory.
func subdirectory(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
}

// library copies rules of the library to the subdirectory rules.
func library(t *testing.T, dir string, names ...string) {
	t.Helper()
	subdirectory(t, dir, "rules")
	for _, name := range names {
		data, err := os.ReadFile("../../library/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, "rules/"+name+".yaml", data)
	}
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// perFile is the number of nodes per file: files above 16 MiB are not read.
const perFile = 5000

// fleet writes the given number of nodes of a data center to the subdirectory fleet, the same ones each time. Of each hundred, some have a
// problem.
func fleet(t *testing.T, dir string, count int) {
	t.Helper()
	nodes(t, dir, count, true)
}

// nodes writes nodes, of which some have problems if they are faulty.
func nodes(t *testing.T, dir string, count int, faulty bool) {
	t.Helper()
	subdirectory(t, dir, "fleet")
	r := rand.New(rand.NewPCG(1, 2))
	type cpu struct {
		name, vendor, count string
		flags               []string
	}
	cpus := []cpu{
		{"Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz", "Intel", "128", []string{"AVX", "AVX2", "AVX512F", "AVX512BW", "AVX512VL"}},
		{"AMD EPYC 9654 96-Core Processor", "AMD", "192", []string{"AVX", "AVX2", "AVX512F"}},
		{"Intel(R) Xeon(R) Platinum 8480+", "Intel", "224", []string{"AVX", "AVX2", "AVX512F", "AVX512BW", "AVX512VL", "AMXBF16"}},
	}
	var items, nodes []object
	for i := range count {
		c := pick(r, cpus[0], cpus[0], cpus[0], cpus[1], cpus[1], cpus[2])
		kernel := pick(r, "6.8.0-45-generic", "6.8.0-45-generic", "6.8.0-45-generic", "6.8.0-47-generic", "5.15.0-122-generic")
		gpu := pick(r, nil, nil, nil, []string{"10de", "2330", "nvidia"}, []string{"1002", "740f", "amdgpu"})
		devices := []object{
			{"attributes": object{"class": "0200", "vendor": "15b3", "device": "1017", "subsystem_vendor": "15b3"}},
			{"attributes": object{"class": "0108", "vendor": "144d", "device": "a824", "subsystem_vendor": "1028"}},
		}
		flags := object{}
		for _, flag := range c.flags {
			flags[flag] = object{}
		}
		instances := object{}
		if gpu != nil {
			var cards []object
			for n := range 4 {
				devices = append(devices, object{"attributes": object{"class": "0302", "vendor": gpu[0], "device": gpu[1], "subsystem_vendor": gpu[0]}})
				cards = append(cards, object{"attributes": object{"name": fmt.Sprint("card", n), "driver": gpu[2], "vendor": gpu[0], "device": gpu[1]}})
			}
			instances["gpu.drm"] = object{"elements": cards}
		}
		instances["pci.device"] = object{"elements": devices}
		attributes := object{}
		for name, elements := range map[string]object{
			"kernel.version":   {"full": kernel, "major": kernel[:1], "minor": "8"},
			"cpu.model":        {"name": c.name, "vendor_id": c.vendor, "family": "6"},
			"cpu.topology":     {"cpu_count": c.count, "socket_count": "2", "hardware_multithreading": "true"},
			"memory.total":     {"mib": pick(r, "515000", "1031000"), "bytes": "540016640000"},
			"system.osrelease": {"ID": "ubuntu", "VERSION_ID": pick(r, "22.04", "22.04", "24.04")},
			"system.dmiid":     {"bios_version": pick(r, "2.12.4", "2.10.0"), "sys_vendor": "Dell Inc.", "product_name": "PowerEdge R760"},
		} {
			attributes[name] = object{"elements": elements}
		}
		name := fmt.Sprintf("node-%05d", i)
		f := feature(name, object{"flags": object{"cpu.cpuid": object{"elements": flags}}, "attributes": attributes, "instances": instances})
		f["metadata"].(object)["managedFields"] = []object{{"manager": "assay-worker", "time": time.Now().Add(-time.Duration(i+1) * 37 * time.Minute).UTC().Format(time.RFC3339)}}
		items = append(items, f)
		nodes = append(nodes, nodeObject(name, i, faulty, gpu, attributes["system.dmiid"].(object)["elements"].(object)["bios_version"]))
	}
	for from := 0; from < count; from += perFile {
		write(t, dir, fmt.Sprintf("fleet/nodes-%d.json", from/perFile), object{"apiVersion": "v1", "kind": "List", "items": items[from:min(count, from+perFile)]})
		write(t, dir, fmt.Sprintf("fleet/objects-%d.json", from/perFile), object{"apiVersion": "v1", "kind": "List", "items": nodes[from:min(count, from+perFile)]})
	}
}

// nodeObject returns a Node with the labels of the rules of the library. Of each hundred, one is not ready, one is cordoned, one has
// features of an earlier boot, and one lacks its labels.
func nodeObject(name string, i int, faulty bool, gpu []string, firmware any) object {
	if !faulty {
		firmware = ""
	}
	labels := object{
		"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": fmt.Sprint("eu-", i%3+1), "node.kubernetes.io/instance-type": "bare-metal",
		"feature.node.kubernetes.io/cpu-cpuid.AVX2": "true",
	}
	if firmware == "2.10.0" {
		labels["feature.node.kubernetes.io/nvidia-gpu"] = "old-firmware"
	}
	if gpu != nil && (!faulty || i%100 != 8) {
		vendor, series, model := "nvidia-gpu", "architecture", "hopper"
		if gpu[0] == "1002" {
			vendor, series, model = "amd-gpu", "instinct", "mi200"
		}
		prefix := "feature.node.kubernetes.io/" + vendor
		labels[prefix], labels[prefix+".driver"], labels[prefix+"."+series] = "true", "true", model
	}
	ready := object{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
	features := object{"type": "assay.dev/FeaturesReady", "status": "True", "reason": "FeaturesApplied", "message": "All rules are applied to the features of this boot."}
	switch {
	case !faulty:
	case i%100 == 5:
		ready = object{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime network not ready: cni plugin not initialized"}
	case i%100 == 7:
		features = object{"type": "assay.dev/FeaturesReady", "status": "False", "reason": "StaleBoot", "message": "The features are of an earlier boot."}
	}
	return object{
		"apiVersion": "v1", "kind": "Node", "metadata": object{"name": name, "labels": labels}, "spec": object{"unschedulable": i%100 == 6 || !faulty && i == 77},
		"status": object{"conditions": []object{ready, features}},
	}
}

// conflicting is a rule whose outputs are in part withheld and in part conflict with those of the library.
const conflicting = `apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: firmware}
spec:
  rules:
  - name: old-firmware
    labels: {feature.node.kubernetes.io/nvidia-gpu: "old-firmware"}
    taints: [{key: example.com/old-firmware, effect: NoSchedule}]
    matchFeatures:
    - feature: system.dmiid
      matchExpressions: {bios_version: {op: In, value: ["2.10.0"]}}
status:
  conditions:
  - {type: Ready, status: "True", reason: Accepted, message: The rules are used., lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: Withheld, status: "True", reason: TaintsDisabled, message: 'taints of rule "old-firmware" are not written: taints are disabled; set enableTaints in the configuration of the controller', lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: Conflicted, status: "True", reason: KeyWrittenTwice, message: 'rule nvidia-gpu/gpu sets another value of label feature.node.kubernetes.io/nvidia-gpu on 7 nodes', lastTransitionTime: "2026-01-01T00:00:00Z"}
`

// broken writes objects of a cluster with holds, deviating nodes and waiting pods to the subdirectory fleet.
func broken(t *testing.T, dir string) {
	t.Helper()
	now := time.Now()
	at := func(ago time.Duration) string { return now.Add(-ago).UTC().Format(time.RFC3339) }
	event := func(node, reason, kind, message string, ago time.Duration, hold object) object {
		e := object{
			"apiVersion": "v1", "kind": "Event", "metadata": object{"name": fmt.Sprintf("%s.%s", node, reason), "namespace": "default"},
			"involvedObject": object{"kind": "Node", "name": node}, "type": kind, "reason": reason, "message": message, "firstTimestamp": at(ago), "lastTimestamp": at(ago),
			"count": 1, "source": object{"component": "assay-controller"}, "reportingComponent": "assay.dev/controller",
		}
		if hold != nil {
			text, err := json.Marshal([]object{hold})
			if err != nil {
				t.Fatal(err)
			}
			e["metadata"].(object)["annotations"] = object{"assay.dev/holds": string(text)}
		}
		return e
	}
	var items []object
	for i := range 12 {
		node := fmt.Sprintf("node-%05d", 3*i)
		items = append(items, event(node, "RemovalHeld", "Warning", "Removal held: removalBudget: 12 nodes would lose labels at once", time.Duration(i)*7*time.Second,
			object{"reason": "RemovalHeld", "until": at(-4*time.Minute - 12*time.Second), "why": "removalBudget: 12 nodes would lose labels at once", "keys": []string{"label feature.node.kubernetes.io/nvidia-gpu"}}))
	}
	items = append(items,
		event("node-00021", "DevicesHeld", "Warning", "Devices held: the driver gpu.nvidia.com restarts", 40*time.Second,
			object{"reason": "DevicesHeld", "until": at(-95 * time.Second), "why": "the driver gpu.nvidia.com restarts; its last 8 devices still count"}),
		event("node-00014", "KeyContested", "Warning", "Not corrected: another client keeps reverting it", 3*time.Minute,
			object{"reason": "KeyContested", "until": at(-27 * time.Minute), "why": "kubectl-edit keeps reverting it", "keys": []string{"label example.com/rack"}}),
		event("node-00008", "FeaturesLost", "Normal", "Removed label feature.node.kubernetes.io/amd-gpu: the node lost features", 11*time.Minute, nil),
	)
	for i, name := range []string{"train-0", "train-1", "render-7f9c"} {
		items = append(items, object{
			"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "namespace": "ml", "creationTimestamp": at(time.Duration(i+1) * 9 * time.Minute), "labels": object{"assay.dev/feature-request": "h100"}},
			"spec":   object{"schedulerName": "default-scheduler", "containers": []object{{"name": "main", "image": "busybox"}}},
			"status": object{"phase": "Pending", "conditions": []object{{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/240 nodes are available: 240 node(s) didn't match Pod's node affinity/selector."}}},
		})
	}
	var deviations []object
	for i := range 9 {
		deviations = append(deviations, object{"node": fmt.Sprintf("node-%05d", 11*i+2), "check": "bios", "message": "2.10.0; 231 of 240 nodes have 2.12.4", "since": at(2 * time.Hour)})
	}
	baseline := func(name string, status object) object {
		return object{"apiVersion": "assay.dev/v1alpha1", "kind": "NodeBaseline", "metadata": object{"name": name},
			"spec": object{"uniform": []object{{"name": "bios", "value": `{@"system.dmiid.bios_version"}`}}}, "status": status}
	}
	items = append(items,
		baseline("firmware", object{"nodes": 240, "deviating": 9, "conforming": 231, "unknown": 0, "checks": []object{{"name": "bios", "deviating": 9}}, "deviations": deviations}),
		baseline("memory", object{"nodes": 240, "deviating": 0, "conforming": 240, "unknown": 0}),
		object{"apiVersion": "assay.dev/v1alpha1", "kind": "NodeFeatureRequest", "metadata": object{"name": "h100", "namespace": "ml"},
			"spec":   object{"required": object{"matchFeatures": []object{{"feature": "gpu.drm", "matchExpressions": object{"device": object{"op": "In", "value": []string{"2331"}}}}}}},
			"status": object{"matchingNodes": 0, "conditions": []object{{"type": "Satisfiable", "status": "False", "reason": "NoNodeMatches", "message": "No node meets the requirements.", "lastTransitionTime": at(time.Hour)}}}},
	)
	write(t, dir, "fleet/cluster.json", object{"apiVersion": "v1", "kind": "List", "items": items})
}

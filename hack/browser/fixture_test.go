package browser

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
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

// fleet writes the given number of nodes of a data center to the subdirectory fleet, the same ones each time.
func fleet(t *testing.T, dir string, count int) {
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
	var items []object
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
		items = append(items, feature(fmt.Sprintf("node-%05d", i), object{
			"flags": object{"cpu.cpuid": object{"elements": flags}}, "attributes": attributes, "instances": instances,
		}))
	}
	for from := 0; from < count; from += perFile {
		write(t, dir, fmt.Sprintf("fleet/nodes-%d.json", from/perFile), object{"apiVersion": "v1", "kind": "List", "items": items[from:min(count, from+perFile)]})
	}
}

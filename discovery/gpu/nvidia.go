package gpu

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// NVIDIAFeature holds the NVIDIA driver that is loaded as attributes, and its GPUs as instances. It needs neither NVML nor a container
// with GPUs, so it is known while the user space of the driver is broken.
const NVIDIAFeature = "gpu.nvidia"

// nvidiaDir is written by the driver's kernel module, see kernel-open/nvidia/nv-procfs.c of github.com/NVIDIA/open-gpu-kernel-modules.
const nvidiaDir = "proc/driver/nvidia"

// nvidiaVersion matches the version of a driver, such as 580.95.05, and none of the other words of the line.
var nvidiaVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+$`)

// nvidiaElements are the fields of the file information of a GPU that are published. It has identifying ones too.
var nvidiaElements = map[string]string{
	"Model": "model", "Video BIOS": "vbios", "GPU Firmware": "firmware", "GPU Excluded": "excluded",
}

// nvidia publishes the driver and its GPUs; both are empty without the driver.
func nvidia(r *discovery.Result, h host.Host) error {
	driver := map[string]string{}
	switch data, err := h.ReadPrefix(nvidiaDir+"/version", host.MaxAttributeSize); {
	case host.Present(err) != nil:
		return err
	case err == nil:
		if driver, err = parseNVIDIAVersion(string(host.Text(data))); err != nil {
			return err
		}
	}
	names, err := discovery.ListDevices(h, nvidiaDir+"/gpus")
	if err != nil {
		return err
	}
	gpus := []map[string]string{}
	for _, name := range names {
		gpus = append(gpus, readNVIDIA(r, h, name))
	}
	r.Attributes(NVIDIAFeature, driver)
	r.Instances(NVIDIAFeature, gpus)
	return nil
}

// parseNVIDIAVersion returns the attributes of a driver. The first line is that of the kernel module:
//
//	NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.135  Fri Jan 10 20:00:00 UTC 2025
//	NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (…)
func parseNVIDIAVersion(text string) (map[string]string, error) {
	line, _, _ := strings.Cut(text, "\n")
	module := ""
	switch {
	case strings.Contains(line, "Open Kernel Module"):
		module = "open"
	case strings.Contains(line, "Kernel Module"):
		module = "proprietary"
	}
	for word := range strings.FieldsSeq(line) {
		if module != "" && nvidiaVersion.MatchString(word) {
			return map[string]string{"version": word, "module": module}, nil
		}
	}
	return nil, discovery.NotA("version of the NVIDIA driver", nvidiaDir+"/version", text)
}

// readNVIDIA returns the attributes of the GPU at a PCI address. Its model is unknown if the driver cannot wake it up: then the file is
// empty.
func readNVIDIA(r *discovery.Result, h host.Host, address string) map[string]string {
	gpu := map[string]string{"location": host.Clean([]byte(address)), "model": discovery.Unknown}
	file := nvidiaDir + "/gpus/" + address + "/information"
	data, err := h.ReadPrefix(file, host.MaxAttributeSize)
	if err != nil {
		r.Problem(err)
		return gpu
	}
	for line := range strings.Lines(string(host.Text(data))) {
		field, value, _ := strings.Cut(line, ":")
		value = host.Clean([]byte(value))
		// The driver reports ??.??.??.??.?? for the BIOS of a GPU that no program has used yet.
		if name := nvidiaElements[strings.TrimSpace(field)]; name != "" && value != "" && !strings.Contains(value, "??") {
			gpu[name] = value
		}
	}
	if gpu["model"] == discovery.Unknown {
		r.Problem(fmt.Errorf("/%s has no model: the driver does not reach the GPU", file))
	}
	switch gpu["excluded"] {
	case "Yes":
		gpu["excluded"] = "true"
	case "No":
		gpu["excluded"] = "false"
	default:
		delete(gpu, "excluded")
	}
	return gpu
}

package cpu

import (
	"strconv"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// cstate reports whether the driver intel_idle can use sleep states, see Documentation/admin-guide/pm/intel_idle.rst. Its parameter
// max_cstate is 0 if the driver is disabled; with another driver or none the feature is empty.
func cstate(r *discovery.Result, h host.Host) {
	const file = "sys/module/intel_idle/parameters/max_cstate"
	driver, err := h.ReadAttribute(devicesDir + "/cpuidle/current_driver")
	if err == nil && (driver == "" || strings.ContainsAny(driver, " <>")) {
		err = discovery.NotA("driver", devicesDir+"/cpuidle/current_driver", driver)
	}
	if host.Present(err) != nil {
		r.Problem(err)
		return
	}
	if driver != "intel_idle" {
		r.Attributes(CStateFeature, nil)
		return
	}
	text, err := h.ReadAttribute(file)
	if err != nil {
		r.Problem(err)
		return
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		r.Problem(discovery.NotA("number", file, text))
		return
	}
	enabled := strconv.FormatBool(n > 0)
	r.Attributes(CStateFeature, map[string]string{"enabled": enabled})
	r.Labels["cpu-cstate.enabled"] = enabled
}

// pstate reads the state of the driver intel_pstate, see Documentation/admin-guide/pm/intel_pstate.rst. The governor is published
// if the driver is active (it selects the frequencies itself) and all CPUs have the same governor.
func pstate(r *discovery.Result, h host.Host) {
	const dir = devicesDir + "/intel_pstate"
	status, err := h.ReadAttribute(dir + "/status")
	switch {
	case host.Present(err) != nil:
		r.Problem(err)
		return
	case err != nil || status == "off":
		r.Attributes(PStateFeature, nil)
		return
	case status != "active" && status != "passive":
		r.Problem(discovery.NotA("mode of intel_pstate", dir+"/status", status))
		return
	}
	attributes := map[string]string{"status": status}
	switch off, err := h.ReadAttribute(dir + "/no_turbo"); {
	case err == nil && (off == "0" || off == "1"):
		attributes["turbo"] = strconv.FormatBool(off == "0")
	case err == nil:
		r.Problem(discovery.NotA("switch, 0 or 1", dir+"/no_turbo", off))
	case !host.Unanswered(err):
		r.Problem(err)
	}
	if status == "active" {
		governor, err := commonGovernor(h)
		r.Problem(err)
		if governor != "" {
			attributes["scaling_governor"] = governor
		}
	}
	for k, v := range attributes {
		r.Labels["cpu-pstate."+k] = v
	}
	if governor, ok := attributes["scaling_governor"]; ok {
		// The name in NFD's documentation until v0.14, for rules written according to it.
		attributes["scaling"] = governor
	}
	r.Attributes(PStateFeature, attributes)
}

// commonGovernor returns the scaling governor of all CPUs, or an empty string if they differ.
func commonGovernor(h host.Host) (string, error) {
	common := ""
	err := eachPolicy(h, func(dir string) (bool, error) {
		governor, err := h.ReadAttribute(dir + "/scaling_governor")
		if err == nil && (governor == "" || strings.Trim(governor, "abcdefghijklmnopqrstuvwxyz_") != "") {
			err = discovery.NotA("governor", dir+"/scaling_governor", governor)
		}
		if err != nil {
			common = ""
			return true, host.Present(err)
		}
		if common != "" && governor != common {
			common = ""
			return false, nil
		}
		common = governor
		return true, nil
	})
	return common, err
}

// eachPolicy calls f with the directory of each frequency policy, until it returns false or an error, see
// Documentation/admin-guide/pm/cpufreq.rst. CPUs that change frequency together share a policy.
func eachPolicy(h host.Host, f func(dir string) (more bool, err error)) error {
	const dir = devicesDir + "/cpufreq"
	names, err := discovery.ListDevices(h, dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "policy") {
			continue
		}
		if more, err := f(dir + "/" + name); err != nil || !more {
			return err
		}
	}
	return nil
}

// sst reports whether Intel Speed Select Base Frequency is enabled: some cores then have a guaranteed frequency above the
// processor's nominal one, and others below, see Documentation/admin-guide/pm/intel-speed-select.rst. Hybrid processors are
// excluded, since their kinds of cores have different base frequencies too.
func sst(r *discovery.Result, h host.Host, facts host.CPUFacts) {
	if facts.Arch == "" {
		return // it is not known which processor this is
	}
	if facts.Vendor != "Intel" || facts.BaseHz == 0 || hybrid(h) {
		r.Attributes(SSTFeature, nil)
		return
	}
	nominal := facts.BaseHz / 1000
	above, below := false, false
	err := eachPolicy(h, func(dir string) (bool, error) {
		text, err := h.ReadAttribute(dir + "/base_frequency")
		if err != nil {
			return false, host.Present(err)
		}
		kHz, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return false, discovery.NotA("frequency", dir+"/base_frequency", text)
		}
		// Frequencies are multiples of 100 MHz; the nominal frequency computed from the crystal clock differs by less than half of
		// that.
		above = above || kHz > nominal+50_000
		below = below || kHz < nominal-50_000
		return !above || !below, nil
	})
	if err != nil {
		r.Problem(err)
		return
	}
	r.Attributes(SSTFeature, nil)
	if above && below {
		r.Attributes(SSTFeature, map[string]string{"bf.enabled": "true"})
		r.Labels["cpu-power.sst_bf.enabled"] = "true"
	}
}

// hybrid reports whether a processor has two kinds of cores: the kernel then has a performance monitor for each.
func hybrid(h host.Host) bool {
	ok, _ := h.Exists("sys/devices/cpu_atom")
	return ok
}

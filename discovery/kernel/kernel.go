// Package kernel discovers the running kernel: its version, configuration, modules and security.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/host"
)

// Name is the domain of the source.
const Name = "kernel"

// Features of the source.
const (
	ConfigFeature        = "kernel.config"
	LoadedModuleFeature  = "kernel.loadedmodule"
	EnabledModuleFeature = "kernel.enabledmodule"
	SelinuxFeature       = "kernel.selinux"
	KVMFeature           = "kernel.kvm"
	VersionFeature       = "kernel.version"
	CgroupFeature        = "kernel.cgroup"
	IOMMUFeature         = "kernel.iommu"
	SecureBootFeature    = "kernel.secureboot"
)

// Config is sources.kernel of the worker's configuration.
type Config struct {
	// KconfigFile is the absolute path of the kernel's configuration on the host; empty: the default paths.
	KconfigFile string `json:"kconfigFile,omitempty"`
	// ConfigOpts lists the options of the kernel's configuration that become labels.
	ConfigOpts []string `json:"configOpts,omitempty"`
}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{ConfigOpts: []string{"NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT"}}
}

// Source discovers the kernel. It caches the parsed configuration: thousands of options that cannot change until the machine
// reboots.
type Source struct {
	config  Config
	kconfig kconfigCache
}

// New returns the source.
func New(config Config) *Source { return &Source{config: config} }

// Name returns "kernel".
func (s *Source) Name() string { return Name }

// Discover reads the kernel's features.
func (s *Source) Discover(_ context.Context, h host.Host) (discovery.Result, error) {
	r := discovery.NewResult()
	uts, err := h.System.Uname()
	if err != nil {
		return r, fmt.Errorf("kernel version: %w", err)
	}
	s.version(&r, uts.Release)
	s.configuration(&r, h, uts.Release)
	modules(&r, h, uts.Release)
	selinux(&r, h)
	kvm(&r, h)
	cgroup(&r, h)
	iommu(&r, h)
	secureBoot(&r, h)
	return r, nil
}

// Glance reads whether SELinux is enforcing. The kernel sends events for modules, and the rest is fixed until the next boot.
func (s *Source) Glance(_ context.Context, h host.Host) (discovery.Result, bool) {
	r := discovery.NewResult()
	selinux(&r, h)
	return r, true
}

func (s *Source) version(r *discovery.Result, release string) {
	v := ParseVersion(release)
	r.Attributes(VersionFeature, v)
	for k, value := range v {
		r.Labels["kernel-version."+k] = value
	}
}

func (s *Source) configuration(r *discovery.Result, h host.Host, release string) {
	options, err := s.kconfig.read(h, release, s.config.KconfigFile)
	if err != nil {
		r.Problem(fmt.Errorf("kernel configuration: %w", err))
		return
	}
	r.Attributes(ConfigFeature, options)
	for _, opt := range s.config.ConfigOpts {
		value, ok := options[opt]
		if !ok {
			continue
		}
		// The label is true for options that are built in and for modules; rules can tell them apart.
		if value == "y" || value == "m" {
			value = "true"
		}
		r.Labels["kernel-config."+opt] = value
	}
}

// modules reads loaded modules, and those built into the kernel image. A kernel without module support has no /proc/modules, and
// therefore no loaded modules.
func modules(r *discovery.Result, h host.Host, release string) {
	data, err := h.ReadFile("proc/modules")
	if host.Present(err) != nil {
		r.Problem(err)
		return
	}
	loaded := ParseModules(data)
	r.Flags(LoadedModuleFeature, loaded)

	data, err = h.ReadFile("lib/modules/" + release + "/modules.builtin")
	if errors.Is(err, fs.ErrNotExist) {
		data, err = h.ReadFile("usr/lib/modules/" + release + "/modules.builtin")
	}
	if err != nil {
		// Without the list of built-in modules, "enabled" would be wrong for each of them, so the feature is omitted.
		r.Problem(host.Present(err))
		return
	}
	r.Flags(EnabledModuleFeature, append(loaded, ParseBuiltin(data)...))
}

// selinux reports whether SELinux is enforcing. A kernel without SELinux has no selinuxfs.
func selinux(r *discovery.Result, h host.Host) {
	value, err := h.ReadAttribute("sys/fs/selinux/enforce")
	if host.Present(err) != nil {
		r.Problem(err)
		return
	}
	enabled := value == "1"
	r.Attributes(SelinuxFeature, map[string]string{"enabled": strconv.FormatBool(enabled)})
	if enabled {
		r.Labels["kernel-selinux.enabled"] = "true"
	}
}

// kvm reports whether the kernel supports KVM. It reads the device's sysfs entry and not /dev/kvm, which is not visible in a
// container.
func kvm(r *discovery.Result, h host.Host) {
	enabled, err := h.Exists("sys/devices/virtual/misc/kvm")
	if err != nil {
		r.Problem(err)
		return
	}
	r.Attributes(KVMFeature, map[string]string{"enabled": strconv.FormatBool(enabled)})
}

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
	// KconfigFile is the file of the kernel's configuration, an absolute path on the host; empty searches the usual places.
	KconfigFile string `json:"kconfigFile,omitempty"`
	// ConfigOpts are the options of the kernel's configuration that become labels.
	ConfigOpts []string `json:"configOpts,omitempty"`
}

// DefaultConfig returns the configuration of a worker without one.
func DefaultConfig() Config {
	return Config{ConfigOpts: []string{"NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT"}}
}

// Source discovers the kernel. It remembers the configuration it has parsed: thousands of options that cannot change
// until the machine boots another kernel.
type Source struct {
	config  Config
	kconfig kconfigCache
}

// New returns the source.
func New(config Config) *Source { return &Source{config: config} }

// Name is "kernel".
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

// Glance reads whether SELinux enforces its policy. The kernel announces modules that come and go, and the rest is settled
// when the machine boots.
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
		// A label says that an option is there; whether it is built in or a module is a matter for rules.
		if value == "y" || value == "m" {
			value = "true"
		}
		r.Labels["kernel-config."+opt] = value
	}
}

// modules reads the modules that are loaded, and those built into the kernel image. A kernel without support for modules
// has no /proc/modules and has loaded none.
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
		// Without the list of built-in modules "enabled" would be a wrong no for each of them, so the feature is left out.
		r.Problem(host.Present(err))
		return
	}
	r.Flags(EnabledModuleFeature, append(loaded, ParseBuiltin(data)...))
}

// selinux tells whether SELinux enforces its policy. A kernel without SELinux has no selinuxfs.
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

// kvm tells whether the kernel offers virtual machines. It looks at the device's entry in sysfs and not at /dev/kvm,
// which a container does not see.
func kvm(r *discovery.Result, h host.Host) {
	enabled, err := h.Exists("sys/devices/virtual/misc/kvm")
	if err != nil {
		r.Problem(err)
		return
	}
	r.Attributes(KVMFeature, map[string]string{"enabled": strconv.FormatBool(enabled)})
}

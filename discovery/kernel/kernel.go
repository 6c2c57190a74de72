// Package kernel discovers the running kernel: its version, configuration, modules and security.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

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
	ModuleFeature        = "kernel.module"
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
	if err == nil && uts.Release == "" {
		err = errors.New("the release is empty")
	}
	if err != nil {
		r.Problem(fmt.Errorf("kernel version: %w", err))
	} else {
		s.version(&r, uts.Release)
	}
	options := s.configuration(&r, h, uts.Release)
	modules(&r, h, uts.Release, options)
	moduleVersions(&r, h)
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

// configuration publishes the options of the kernel, and returns them: nil if they are unknown.
func (s *Source) configuration(r *discovery.Result, h host.Host, release string) map[string]string {
	options, err := s.kconfig.read(h, release, s.config.KconfigFile)
	if err != nil {
		r.Problem(fmt.Errorf("kernel configuration: %w", err))
		return nil
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
	return options
}

// modules reads loaded modules, and those built into the kernel image.
func modules(r *discovery.Result, h host.Host, release string, options map[string]string) {
	loaded, err := loadedModules(h, options)
	if err != nil {
		r.Problem(err)
		return
	}
	r.Flags(LoadedModuleFeature, loaded)
	if release == "" {
		return // which list of built-in modules is that of this kernel is not known, as is reported above
	}
	builtin, err := builtinModules(h, release)
	if err != nil {
		// Without the list of built-in modules, "enabled" would be wrong for each of them, so the feature is omitted.
		r.Problem(err)
		return
	}
	r.Flags(EnabledModuleFeature, append(loaded, builtin...))
}

// loadedModules returns the modules in /proc/modules. Only a kernel without support for modules lacks the file, and its configuration
// says so; a sandbox can hide it too.
func loadedModules(h host.Host, options map[string]string) ([]string, error) {
	const file = "proc/modules"
	data, err := h.ReadText(file)
	if errors.Is(err, fs.ErrNotExist) && options != nil && options["MODULES"] == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	loaded, err := ParseModules(data)
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", file, err)
	}
	return loaded, nil
}

// builtinModules returns the modules in the list that is installed with the kernel.
func builtinModules(h host.Host, release string) ([]string, error) {
	files := []string{"lib/modules/" + release + "/modules.builtin", "usr/lib/modules/" + release + "/modules.builtin"}
	for _, file := range files {
		data, err := h.ReadText(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		builtin := ParseBuiltin(data)
		if len(builtin) == 0 || data[len(data)-1] != '\n' {
			return nil, fmt.Errorf("/%s is not the list of the modules that are built into a kernel, or not all of it", file)
		}
		return builtin, nil
	}
	return nil, fmt.Errorf("modules that are built into the kernel: found neither /%s", strings.Join(files, " nor /"))
}

// moduleVersions lists the modules that have a version of their own, as drivers that are built outside of the kernel do: see
// Documentation/ABI/stable/sysfs-module. Modules that are built into the kernel are included.
func moduleVersions(r *discovery.Result, h host.Host) {
	const dir = "sys/module"
	names, err := discovery.ListDevices(h, dir)
	if err != nil {
		r.Problem(err)
		return
	}
	modules := []map[string]string{}
	for _, name := range names {
		version, err := h.ReadAttribute(dir + "/" + name + "/version")
		if host.Unanswered(err) {
			continue
		}
		if err == nil && version == "" {
			err = discovery.NotA("version", dir+"/"+name+"/version", version)
		}
		if err != nil {
			r.Problem(err)
			version = discovery.Unknown
		}
		modules = append(modules, map[string]string{"name": host.Clean([]byte(name)), "version": version})
	}
	r.Instances(ModuleFeature, modules)
}

// selinux reports whether SELinux is enforcing. A kernel without SELinux has no selinuxfs.
func selinux(r *discovery.Result, h host.Host) {
	const file = "sys/fs/selinux/enforce"
	value, err := h.ReadAttribute(file)
	if host.Present(err) != nil {
		r.Problem(err)
		return
	}
	if err == nil && value != "0" && value != "1" {
		r.Problem(fmt.Errorf("/%s: %q is neither 0 nor 1", file, value))
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

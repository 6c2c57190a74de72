package topology

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Values of the kubelet's settings.
const (
	policyNone         = "none"
	policyStatic       = "static"
	policySingleNUMA   = "single-numa-node"
	memoryPolicyStatic = "Static"
	scopeContainer     = "container"
	scopePod           = "pod"
)

// maxKubeletBytes is the maximum size of one of the kubelet's configuration files; real ones have about 1 KiB.
const maxKubeletBytes = 1 << 20

// Kubelet is the part of a kubelet's configuration that decides how resources of NUMA nodes are given to pods.
type Kubelet struct {
	CPUManagerPolicy      string
	MemoryManagerPolicy   string
	TopologyManagerPolicy string
	TopologyManagerScope  string
	// TopologyManagerPolicyOptions are options such as max-allowable-numa-nodes and prefer-closest-numa-nodes.
	TopologyManagerPolicyOptions map[string]string
}

// DefaultKubelet returns the defaults of a kubelet (kubelet.config.k8s.io/v1beta1).
func DefaultKubelet() Kubelet {
	return Kubelet{
		CPUManagerPolicy: policyNone, MemoryManagerPolicy: "None", TopologyManagerPolicy: policyNone, TopologyManagerScope: scopeContainer,
	}
}

// static reports whether the kubelet lists the CPUs and the memory of all pods that have exclusive ones.
func (k *Kubelet) static() bool {
	return k.CPUManagerPolicy == policyStatic && k.MemoryManagerPolicy == memoryPolicyStatic
}

// ReadKubelet reads a kubelet's configuration file, and if dropIns is not empty, the *.conf files in that directory and below it, in
// alphabetical order (kubelet --config and --config-dir). Flags of the kubelet, which override both, are not known here.
func ReadKubelet(file, dropIns string) (*Kubelet, error) {
	files := []string{file}
	if dropIns != "" {
		err := filepath.WalkDir(dropIns, func(name string, e fs.DirEntry, err error) error { // sorted
			if err == nil && filepath.Ext(name) == ".conf" && !e.IsDir() {
				files = append(files, name)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("kubelet's drop-in configuration: %w", err)
		}
	}
	k := DefaultKubelet()
	for _, name := range files {
		if err := k.add(name); err != nil {
			return nil, fmt.Errorf("kubelet's configuration: %w", err)
		}
	}
	return &k, k.check()
}

// add overrides settings with those in a file.
func (k *Kubelet) add(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.Size() > maxKubeletBytes {
		return fmt.Errorf("%s has %d bytes, more than %d", name, info.Size(), maxKubeletBytes)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if len(data) == 0 { // as the kubelet: a program that replaces the file has not written it yet, or the disk is full
		return fmt.Errorf("%s is empty", name)
	}
	var file kubeletFile
	if err := yaml.Unmarshal(data, &file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := k.override(&file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// kubeletFile is a part of a kubelet's configuration. Fields that are absent and fields that are null are not the same.
type kubeletFile struct {
	CPUManagerPolicy             yaml.Node `yaml:"cpuManagerPolicy"`
	MemoryManagerPolicy          yaml.Node `yaml:"memoryManagerPolicy"`
	TopologyManagerPolicy        yaml.Node `yaml:"topologyManagerPolicy"`
	TopologyManagerScope         yaml.Node `yaml:"topologyManagerScope"`
	TopologyManagerPolicyOptions yaml.Node `yaml:"topologyManagerPolicyOptions"`
}

// override replaces the settings that a file has, as a JSON merge patch, which is how the kubelet adds drop-ins: null removes what earlier
// files have set. An empty string is the default, too.
func (k *Kubelet) override(file *kubeletFile) error {
	defaults := DefaultKubelet()
	for _, s := range []struct {
		node      *yaml.Node
		to        *string
		otherwise string
	}{
		{&file.CPUManagerPolicy, &k.CPUManagerPolicy, defaults.CPUManagerPolicy},
		{&file.MemoryManagerPolicy, &k.MemoryManagerPolicy, defaults.MemoryManagerPolicy},
		{&file.TopologyManagerPolicy, &k.TopologyManagerPolicy, defaults.TopologyManagerPolicy},
		{&file.TopologyManagerScope, &k.TopologyManagerScope, defaults.TopologyManagerScope},
	} {
		if s.node.IsZero() {
			continue
		}
		var value string
		if err := s.node.Decode(&value); err != nil {
			return err
		}
		*s.to = cmp.Or(value, s.otherwise)
	}
	if file.TopologyManagerPolicyOptions.IsZero() {
		return nil
	}
	var options map[string]*string
	if err := file.TopologyManagerPolicyOptions.Decode(&options); err != nil {
		return err
	}
	if options == nil || k.TopologyManagerPolicyOptions == nil {
		k.TopologyManagerPolicyOptions = map[string]string{}
	}
	for name, value := range options {
		delete(k.TopologyManagerPolicyOptions, name)
		if value != nil {
			k.TopologyManagerPolicyOptions[name] = *value
		}
	}
	return nil
}

func (k *Kubelet) check() error {
	for _, s := range []struct {
		name, value string
		known       []string
	}{
		{"cpuManagerPolicy", k.CPUManagerPolicy, []string{policyNone, policyStatic}},
		{"memoryManagerPolicy", k.MemoryManagerPolicy, []string{"None", memoryPolicyStatic, "BestEffort"}},
		{"topologyManagerPolicy", k.TopologyManagerPolicy, []string{policyNone, "best-effort", "restricted", policySingleNUMA}},
		{"topologyManagerScope", k.TopologyManagerScope, []string{scopeContainer, scopePod}},
	} {
		if !slices.Contains(s.known, s.value) {
			return fmt.Errorf("kubelet's configuration: unknown %s %.40q: the kubelet knows %s", s.name, s.value, strings.Join(s.known, ", "))
		}
	}
	if text, ok := k.TopologyManagerPolicyOptions[optionMaxNodes]; ok {
		if n, err := strconv.Atoi(text); err != nil || n < 1 {
			return fmt.Errorf("kubelet's configuration: invalid topologyManagerPolicyOptions.%s %.40q: a number is expected", optionMaxNodes, text)
		}
	}
	return nil
}

// Options of the topology manager's policy.
const (
	optionMaxNodes = "max-allowable-numa-nodes"
	optionClosest  = "prefer-closest-numa-nodes"
)

// policyWord returns the policy and the scope in one word, as topologyPolicies has it.
func (k *Kubelet) policyWord() string {
	word := map[string]string{policySingleNUMA: "SingleNUMANode", "restricted": "Restricted", "best-effort": "BestEffort"}[k.TopologyManagerPolicy]
	level := map[string]string{scopePod: "PodLevel", scopeContainer: "ContainerLevel"}[k.TopologyManagerScope]
	if word == "" || level == "" {
		return "None"
	}
	return word + level
}

// Excludes are resources not to publish, as in Node Feature Discovery's configuration: lists of names or patterns such as
// "hugepages-*" by node name; "*" is for all nodes.
type Excludes map[string][]string

// of returns the patterns for a node.
func (e Excludes) of(node string) []string { return slices.Concat(e["*"], e[node]) }

// Check returns an error for invalid patterns, and for resources that the scheduler needs: with single-numa-node, the plug-in rejects
// every pod that requests CPUs or memory if no zone of the node has them.
func (e Excludes) Check(node string, k *Kubelet) error {
	var errs []error
	for _, pattern := range e.of(node) {
		if _, err := filepath.Match(pattern, ""); err != nil {
			errs = append(errs, fmt.Errorf("excludeList: invalid pattern %.80q", pattern))
			continue
		}
		for _, native := range []string{"cpu", "memory"} {
			if k.TopologyManagerPolicy == policySingleNUMA && excluded([]string{pattern}, native) {
				errs = append(errs, fmt.Errorf("excludeList: %q excludes %s, and the kubelet's topologyManagerPolicy is %s: the scheduler would place no "+
					"pod that requests %s on this node; remove the entry", pattern, native, policySingleNUMA, native))
			}
		}
	}
	return errors.Join(errs...)
}

func excluded(patterns []string, resource string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := filepath.Match(p, resource)
		return p == resource || ok && err == nil
	})
}

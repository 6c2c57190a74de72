package worker

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/assay-project/assay/discovery"
	"github.com/assay-project/assay/discovery/builtin"
	"github.com/assay-project/assay/discovery/custom"
	"github.com/assay-project/assay/discovery/fake"
	"github.com/assay-project/assay/discovery/host"
	"github.com/assay-project/assay/discovery/local"
	"github.com/assay-project/assay/discovery/watch"
	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/internal/worker/customrules"
)

// Directories of configDir, as NFD has them; they are of this process, mounted there in a container.
const (
	featuresDir = "features.d"
	hooksDir    = "source.d"
	customDir   = "custom.d"
)

// configSource is what is announced when the configuration may have changed.
const configSource = "configuration"

// sources returns the sources of a worker.
func sources(opt *Options, c *workerconfig.Settings, log *slog.Logger) []discovery.Source {
	own := host.Real(host.Paths{})
	l := c.Local
	l.Directory, l.HooksDirectory, l.Files = inTree(opt.dir(featuresDir)), opt.dir(hooksDir), &own
	l.Stderr = func(hook, line string) { log.Info("Hook output", "hook", hook, "line", line) }
	return append(builtin.Sources(c.Builtin),
		local.New(l),
		fake.New(c.Fake),
		custom.New(custom.Config{
			Rules:     custom.Document{Origin: "sources.custom", Data: c.Custom},
			Directory: inTree(opt.dir(customDir)),
			Files:     &own,
		}, customrules.Engine{}),
	)
}

// dir is one of the directories beside the configuration.
func (opt *Options) dir(name string) string { return filepath.Join(opt.ConfigDir, name) }

// inTree is the name of an absolute path in a tree rooted at "/".
func inTree(path string) string { return strings.TrimPrefix(path, "/") }

// targets lists the files that matter while the worker runs.
func targets(opt *Options) []watch.Target {
	return []watch.Target{
		{Path: opt.dir(featuresDir), Source: local.Name},
		{Path: opt.dir(hooksDir), Source: local.Name},
		{Path: opt.dir(customDir), Source: custom.Name, Deep: true},
		{Path: filepath.Dir(opt.ConfigFile), Source: configSource},
	}
}

// hostPaths says where the host's directories are. In a container they are mounted as NFD's manifests do it, which is
// recognized by /host-sys.
func hostPaths(opt *Options) host.Paths {
	paths := host.Paths{}
	_, err := os.Stat("/host-sys")
	if opt.HostPaths == "container" || opt.HostPaths == "auto" && opt.HostRoot == "" && err == nil {
		paths = host.ContainerPaths()
	}
	paths.Root = opt.HostRoot
	return paths
}

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

// Subdirectories of configDir, as in NFD. Paths are those of this process; in a container they are mounted.
const (
	featuresDir = "features.d"
	hooksDir    = "source.d"
	customDir   = "custom.d"
)

// configSource is the name in events that the configuration may have changed.
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

// dir returns a subdirectory of ConfigDir.
func (opt *Options) dir(name string) string { return filepath.Join(opt.ConfigDir, name) }

// inTree returns an absolute path as a path in a tree rooted at "/".
func inTree(path string) string { return strings.TrimPrefix(path, "/") }

// targets returns the files to watch while the worker runs.
func targets(opt *Options) []watch.Target {
	return []watch.Target{
		{Path: opt.dir(featuresDir), Source: local.Name},
		{Path: opt.dir(hooksDir), Source: local.Name},
		{Path: opt.dir(customDir), Source: custom.Name, Deep: true},
		{Path: filepath.Dir(opt.ConfigFile), Source: configSource},
	}
}

// hostPaths returns the paths of the host's directories. A container with NFD's mounts is recognized by /host-sys.
func hostPaths(opt *Options) host.Paths {
	paths := host.Paths{}
	_, err := os.Stat("/host-sys")
	if opt.HostPaths == "container" || opt.HostPaths == "auto" && opt.HostRoot == "" && err == nil {
		paths = host.ContainerPaths()
	}
	paths.Root = opt.HostRoot
	return paths
}

package main

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
)

// Where NFD has them; they are directories of this process, mounted there in a container.
const (
	featuresDir = configDir + "/features.d"
	hooksDir    = configDir + "/source.d"
	customDir   = configDir + "/custom.d"
)

// configSource is what is announced when the configuration may have changed.
const configSource = "configuration"

// sources lists what a worker looks at.
func sources(c *config, log *slog.Logger) []discovery.Source {
	own := host.Real(host.Paths{})
	l := c.local
	l.Directory, l.HooksDirectory, l.Files = strings.TrimPrefix(featuresDir, "/"), hooksDir, &own
	l.Stderr = func(hook, line string) { log.Info("hook says", "hook", hook, "line", line) }
	return append(builtin.Sources(c.builtin),
		local.New(l),
		fake.New(c.fake),
		custom.New(custom.Config{
			Rules:     custom.Document{Origin: "sources.custom", Data: c.custom},
			Directory: strings.TrimPrefix(customDir, "/"),
			Files:     &own,
		}, engine{}),
	)
}

// targets lists the files that matter while the worker runs.
func targets(opt *options) []watch.Target {
	return []watch.Target{
		{Path: featuresDir, Source: local.Name},
		{Path: hooksDir, Source: local.Name},
		{Path: customDir, Source: custom.Name, Deep: true},
		{Path: filepath.Dir(opt.configFile), Source: configSource},
	}
}

// hostPaths says where the host's directories are. In a container they are mounted as NFD's manifests do it, which is
// recognised by /host-sys.
func hostPaths(opt *options) host.Paths {
	paths := host.Paths{}
	_, err := os.Stat("/host-sys")
	if opt.hostPaths == "container" || opt.hostPaths == "auto" && opt.hostRoot == "" && err == nil {
		paths = host.ContainerPaths()
	}
	paths.Root = opt.hostRoot
	return paths
}

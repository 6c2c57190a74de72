// Package build provides the version of the program.
package build

import (
	"runtime"
	"runtime/debug"
)

// Set by the linker: -X github.com/assay-project/assay/internal/build.version=v1.2.3, and the same for commit.
var (
	version string
	commit  string
)

// unknown is the value of variables that the linker has not set.
const unknown = "unknown"

// Version returns the version set by the linker, or the version of the module for a program installed with `go install
// module@version`, or "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Commit returns the commit of the source, with the suffix "-dirty" if there were uncommitted changes, or "unknown".
func Commit() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	return revision(info.Settings)
}

func revision(settings []debug.BuildSetting) string {
	found, dirty := unknown, ""
	for _, setting := range settings {
		switch {
		case setting.Key == "vcs.revision" && setting.Value != "":
			found = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			dirty = "-dirty"
		}
	}
	if found == unknown {
		return unknown
	}
	return found + dirty
}

// Platform returns the platform of the program, such as linux/amd64.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// String returns one line for --version and for the start of a log: version, commit, Go version and platform.
func String() string {
	return Version() + " (" + Commit() + ", " + runtime.Version() + " " + Platform() + ")"
}

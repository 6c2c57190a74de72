// Package build says which build of Assay a program is.
package build

import (
	"runtime"
	"runtime/debug"
)

// Set by the linker: -X github.com/assay-project/assay/internal/build.version=v1.2.3, and likewise commit.
var (
	version string
	commit  string
)

// unknown is the value of what the linker was not given.
const unknown = "unknown"

// Version returns the version that was given to the linker, or that of the module for a program made by `go install module@version`,
// or "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Commit is the commit of the source, with "-dirty" if the working tree differed, or "unknown".
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

// Platform is what the program was compiled for, such as linux/amd64.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// String is one line for --version and for the first line of a log: version, commit, Go version and platform.
func String() string {
	return Version() + " (" + Commit() + ", " + runtime.Version() + " " + Platform() + ")"
}

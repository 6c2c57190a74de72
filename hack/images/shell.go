package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// shellModule is the module of the shell, whose tools are what scripts call besides.
const shellModule = "hack/shell"

// shell is what makes an image one that can run scripts.
type shell struct {
	files    []file
	programs []string // their paths on this machine
}

// applets are the programs that the shell itself is when it is called so. Scripts begin with #!/bin/sh or #!/bin/bash, and mean
// this one.
var applets = []string{"bash", "cut", "grep", "head", "sed", "sort", "tail", "tee", "tr"}

// renamed are the programs whose names in the image are others than those of their packages.
var renamed = map[string]string{"shell": "sh", "goawk": "awk"}

// buildShell compiles the shell and its tools into a directory. They come with the licences that ask for it.
func buildShell(module, dir string, platform v1.Platform) (shell, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return shell{}, err
	}
	if err := compile(module, dir+"/", "-s -w", platform, ".", "tool"); err != nil {
		return shell{}, err
	}
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return shell{}, err
	}
	out := shell{files: []file{{name: "bin", mode: 0o777, target: "usr/bin"}}}
	for _, name := range applets {
		out.files = append(out.files, file{name: "usr/bin/" + name, mode: 0o777, target: "sh"})
	}
	var linked []debug.Module
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return shell{}, err
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return shell{}, err
		}
		linked = append(append(linked, info.Main), modules(info)...)
		name := entry.Name()
		if other := renamed[name]; other != "" {
			name = other
		}
		out.files = append(out.files, file{name: "usr/bin/" + name, mode: 0o755, data: data})
		out.programs = append(out.programs, path)
	}
	notices, err := licences(module, distinct(linked))
	if err != nil {
		return shell{}, err
	}
	out.files = append(out.files,
		file{name: "usr/share/", mode: 0o755}, file{name: "usr/share/licenses/", mode: 0o755}, file{name: "usr/share/licenses/shell", mode: 0o644, data: notices})
	return out, nil
}

// licences returns the text of the licences of modules, which have to accompany what is made of them.
func licences(dir string, list []debug.Module) ([]byte, error) {
	var out bytes.Buffer
	for _, m := range list {
		cmd := exec.Command("go", "mod", "download", "-json", m.Path+"@"+m.Version)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		data, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", m.Path, err)
		}
		var found struct{ Dir string }
		if err := json.Unmarshal(data, &found); err != nil {
			return nil, err
		}
		texts, err := filepath.Glob(filepath.Join(found.Dir, "LICEN[CS]E*"))
		if err != nil {
			return nil, err
		}
		if len(texts) == 0 {
			return nil, fmt.Errorf("%s has no licence in %s", m.Path, found.Dir)
		}
		slices.Sort(texts)
		for _, path := range texts {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&out, "== %s %s\n\n%s\n", m.Path, m.Version, strings.TrimSpace(string(text))+"\n")
		}
	}
	return out.Bytes(), nil
}

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/assay-project/assay/test/cluster/kube"
)

// version is the tag of the images.
const version = "v0.0.0-test"

// stamp sets the version of the programs.
const stamp = "-s -w -X github.com/assay-project/assay/internal/build.version=" + version

// imageDir contains image archives, binDir programs; both are in the directory of the run.
const (
	imageDir = "images"
	binDir   = "bin"
)

// pauseImage is the image that holds a pod's namespaces.
const pauseImage = "docker.io/assay-test/pause:1"

// build compiles everything that the test runs, with Go's build cache.
func build(ctx context.Context, dir string) error {
	// The flags of the Makefile, if this program was started without it: with other flags everything would be compiled again.
	for name, value := range map[string]string{"CGO_ENABLED": "0", "GOFLAGS": "-trimpath -buildvcs=false"} {
		if _, set := os.LookupEnv(name); !set {
			_ = os.Setenv(name, value) // only fails for invalid names
		}
	}
	root, err := kube.Root()
	if err != nil {
		return err
	}
	programs, err := kube.Find(ctx, os.Stdout)
	if err != nil {
		return err
	}
	fmt.Println("node: building Helm (the first time compiles it: some minutes)")
	helm, err := output(ctx, root, "go", "tool", "-n", "-modfile=hack/chart/go.mod", "helm")
	if err != nil {
		return err
	}
	links := map[string]string{"helm": strings.TrimSpace(helm)}
	bin, images := filepath.Join(dir, binDir), filepath.Join(dir, imageDir)
	for _, d := range []string{bin, images} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for name, path := range programs {
		links[name] = path
	}
	for name, path := range links {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	fmt.Println("node: building images")
	for _, args := range [][]string{
		{"-o", filepath.Join(bin, "assay"), "./cmd/assay"}, {"-C", "hack/deviceplugin", "-o", filepath.Join(bin, "deviceplugin"), "."},
		{"-C", "hack/dra", "-o", filepath.Join(bin, draProgram), "."},
	} {
		if args[0] == "-o" {
			args = append([]string{"-ldflags=" + stamp}, args...)
		}
		if _, err := output(ctx, root, "go", append([]string{"build"}, args...)...); err != nil {
			return err
		}
	}
	pause := filepath.Join(dir, "pause")
	if _, err := output(ctx, root, "go", "build", "-ldflags=-s -w", "-o", pause, "./test/node/pause"); err != nil {
		return err
	}
	scheduler, err := filepath.EvalSymlinks(programs[kube.Scheduler])
	if err != nil {
		return err
	}
	platform := "linux/" + runtime.GOARCH
	for _, args := range [][]string{
		{"-version", version, "-ldflags", stamp, "assay-worker", "assay-manager", "assay-cli"},
		{"pack", pauseImage, pause},
		{"-fast", "pack", "registry.k8s.io/kube-scheduler:" + kube.Version, scheduler},
	} {
		args = append([]string{"run", "-C", "hack/images", ".", "-root", root, "-out", images, "-platforms", platform}, args...)
		out, err := output(ctx, root, "go", args...)
		if err != nil {
			return err
		}
		fmt.Print(out)
	}
	return nil
}

// output runs a program in a directory and returns its output.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return stdout.String(), nil
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// release is one version of Assay: a commit, and the directory with what was made of it.
type release struct {
	root, out  string
	version    string // v1.2.3
	commit     string
	date       time.Time // of the commit
	ldflags    string
	platforms  string // of the images
	repository string // of the images
	builder    string
}

// platform is what the command line is compiled for.
type platform struct{ OS, Arch string }

func (p platform) String() string { return p.OS + "-" + p.Arch }

// commandLine lists where the command line runs. The other programs run in pods, and are delivered as images.
var commandLine = []platform{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"},
}

// semantic is what Helm, krew and Go take for a version. Without build metadata: a tag of an image has no "+".
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// build makes everything but what vouches for it.
func (r *release) build(ctx context.Context) error {
	if !semantic.MatchString(r.version) {
		return fmt.Errorf("%q is no version of a release: tag the commit, or make release VERSION=v1.2.3", r.version)
	}
	if err := r.findCommit(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{r.images, r.commandLines, r.chart, r.krew} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// findCommit refuses what is not exactly one commit: provenance of anything else would be a lie.
func (r *release) findCommit(ctx context.Context) error {
	changed, err := r.output(ctx, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		first, _, _ := strings.Cut(string(changed), "\n")
		return fmt.Errorf("the tree differs from its commit (%s): commit, or make the release in a clone", strings.TrimSpace(first))
	}
	head, err := r.output(ctx, "git", "rev-parse", "HEAD")
	r.commit = strings.TrimSpace(string(head))
	return err
}

// images runs hack/images, a module of its own.
func (r *release) images(ctx context.Context) error {
	return r.command(ctx, nil, "go", "run", "-C", "hack/images", ".", "-root", r.root, "-out", r.out, "-version", r.version,
		"-commit", r.commit, "-ldflags", r.linkerFlags(), "-platforms", r.platforms, "-repository", r.repository)
}

// commandLines compiles the command line for each platform and packs it with its manual.
func (r *release) commandLines(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "assay-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	manual, err := r.manual(ctx, dir)
	if err != nil {
		return err
	}
	for _, p := range commandLine {
		name := "assay-" + p.String()
		program := filepath.Join(dir, name)
		if err := r.compile(ctx, p, program); err != nil {
			return err
		}
		if err := r.command(ctx, nil, "go", "run", "-C", "hack/images", ".", "-out", r.out, "-version", r.version, "sbom", name, program); err != nil {
			return err
		}
		data, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		if p.OS == "windows" {
			err = writeZip(filepath.Join(r.out, name+".zip"), r.date, append([]file{{"assay.exe", 0o755, data}}, manual...))
		} else {
			err = writeTarGz(filepath.Join(r.out, name+".tar.gz"), r.date, append([]file{{"assay", 0o755, data}}, manual...))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// manual returns what goes with the command line: its pages, completion for the usual shells, the licence.
func (r *release) manual(ctx context.Context, dir string) ([]file, error) {
	program := filepath.Join(dir, "assay")
	if err := r.compile(ctx, platform{}, program); err != nil {
		return nil, err
	}
	pages := filepath.Join(dir, "man")
	if err := r.command(ctx, nil, program, "docs", "man", pages); err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	files := []file{{"LICENSE", 0o644, license}}
	for shell, name := range map[string]string{"bash": "assay.bash", "zsh": "_assay", "fish": "assay.fish", "powershell": "assay.ps1"} {
		text, err := r.output(ctx, program, "completion", shell)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"completion/" + name, 0o644, text})
	}
	// kubectl asks an executable of this name to complete a plugin.
	files = append(files, file{"completion/kubectl_complete-assay", 0o755, []byte("#!/bin/sh\nexec assay __complete \"$@\"\n")})
	found, err := readTree(pages, "man/man1/")
	if err != nil {
		return nil, err
	}
	return sorted(append(files, found...)), nil
}

// compile builds the command line for a platform; for this machine if that is empty. Nothing of this machine goes into it.
func (r *release) compile(ctx context.Context, p platform, out string) error {
	env := []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false"}
	if p != (platform{}) {
		// The baseline of each architecture, whatever the builder's own environment prefers.
		env = append(env, "GOOS="+p.OS, "GOARCH="+p.Arch, "GOAMD64=v1", "GOARM64=v8.0")
	}
	return r.command(ctx, env, "go", "build", "-ldflags", r.linkerFlags(), "-o", out, "./cmd/assay")
}

// linkerFlags tell the programs which build they are.
func (r *release) linkerFlags() string {
	const build = "github.com/assay-project/assay/internal/build"
	return fmt.Sprintf("%s -X %s.version=%s -X %s.commit=%s", r.ldflags, build, r.version, build, r.commit)
}

// command runs a program in the root of the project.
func (r *release) command(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = r.root, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(name), args[0], err)
	}
	return nil
}

// output runs a program in the root of the project and returns what it prints.
func (r *release) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.root
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", filepath.Base(name), args[0], err)
	}
	return out, nil
}

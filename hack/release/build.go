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

// release is one version of Assay: a commit, and the directory of its release files.
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

// platform is a platform of the command line.
type platform struct{ OS, Arch string }

func (p platform) String() string { return p.OS + "-" + p.Arch }

// commandLine lists the platforms of the command line. The other programs run in pods, and are released as images.
var commandLine = []platform{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"},
}

// semantic matches versions that Helm, krew and Go accept. Build metadata is excluded, since the tag of an image cannot contain
// "+".
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// build creates all files except provenance, checksums and signatures.
func (r *release) build(ctx context.Context) error {
	if !semantic.MatchString(r.version) {
		return fmt.Errorf("invalid version %q: tag the commit, or run make release VERSION=v1.2.3", r.version)
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

// findCommit returns an error unless the tree is exactly one commit: otherwise provenance would be wrong.
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

// images runs hack/images, which is a separate module.
func (r *release) images(ctx context.Context) error {
	return r.command(ctx, nil, "go", "run", "-C", "hack/images", ".", "-root", r.root, "-out", r.out, "-version", r.version,
		"-commit", r.commit, "-ldflags", r.linkerFlags(), "-platforms", r.platforms, "-repository", r.repository)
}

// commandLines compiles the command line for each platform and packs it with its documentation.
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

// manual returns the files that are packed with the command line: man pages, shell completions, the license.
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
	// kubectl calls an executable with this name for the completion of a plugin.
	files = append(files, file{"completion/kubectl_complete-assay", 0o755, []byte("#!/bin/sh\nexec assay __complete \"$@\"\n")})
	found, err := readTree(pages, "man/man1/")
	if err != nil {
		return nil, err
	}
	return sorted(append(files, found...)), nil
}

// compile builds the command line for a platform; for this machine if that is empty. The result is independent of the machine.
func (r *release) compile(ctx context.Context, p platform, out string) error {
	env := []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false"}
	if p != (platform{}) {
		// The baseline of each architecture, independent of the environment.
		env = append(env, "GOOS="+p.OS, "GOARCH="+p.Arch, "GOAMD64=v1", "GOARM64=v8.0")
	}
	return r.command(ctx, env, "go", "build", "-ldflags", r.linkerFlags(), "-o", out, "./cmd/assay")
}

// linkerFlags returns the flags that set the version of the programs.
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

// output runs a program in the root of the project and returns its output.
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

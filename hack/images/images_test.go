package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

var amd64, arm64 = v1.Platform{OS: "linux", Architecture: "amd64"}, v1.Platform{OS: "linux", Architecture: "arm64"}

// buildHello builds the image of a small program whose source lies in a directory that is new each time.
func buildHello(t *testing.T) (v1.ImageIndex, options) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.com/hello\n\ngo 1.26.0\n",
		"main.go": "package main\n\nfunc main() { println(\"hello\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := options{
		root: root, out: t.TempDir(), repository: "example.com/test", version: "v1.2.3+dirty", ldflags: "-s -w",
		platforms: []v1.Platform{amd64, arm64}, created: time.Unix(1700000000, 0).UTC(),
	}
	if err := o.build(component{Name: "hello", Package: ".", About: "says hello"}); err != nil {
		t.Fatal(err)
	}
	return unpack(t, filepath.Join(o.out, "hello.oci.tar")), o
}

// unpack reads an archive as an importer does.
func unpack(t *testing.T, path string) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o700)
		} else {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(name, data, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func only(t *testing.T, index v1.ImageIndex) (v1.Descriptor, v1.ImageIndex) {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("the archive holds %d images, want 1", len(manifest.Manifests))
	}
	inner, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return manifest.Manifests[0], inner
}

func TestSameSourceSameDigest(t *testing.T) {
	first, a := buildHello(t)
	second, b := buildHello(t)
	one, _ := only(t, first)
	two, _ := only(t, second)
	if one.Digest != two.Digest {
		t.Errorf("the same source gave %s and %s", one.Digest, two.Digest)
	}
	for _, name := range []string{"hello.oci.tar", "hello-linux-amd64.spdx.json", "hello-linux-arm64.spdx.json"} {
		x, err := os.ReadFile(filepath.Join(a.out, name))
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(filepath.Join(b.out, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(x) != string(y) {
			t.Errorf("%s differs between two builds of the same source", name)
		}
	}
}

func TestArchiveIsNamedForImporters(t *testing.T) {
	index, _ := buildHello(t)
	descriptor, _ := only(t, index)
	const want = "example.com/test/hello:v1.2.3_dirty"
	for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
		if got := descriptor.Annotations[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

func TestImageRunsUnprivileged(t *testing.T) {
	index, _ := buildHello(t)
	_, inner := only(t, index)
	manifest, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, descriptor := range manifest.Manifests {
		platforms = append(platforms, descriptor.Platform.String())
		image, err := inner.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/hello"}) {
			t.Errorf("%s: runs %v as %q, want /usr/bin/hello as 65532:65532", descriptor.Platform, config.Config.Entrypoint, config.Config.User)
		}
		if config.Architecture != descriptor.Platform.Architecture {
			t.Errorf("%s: the image says it is for %s", descriptor.Platform, config.Architecture)
		}
		checkFiles(t, image)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms are %v, want %v", platforms, want)
	}
}

// checkFiles looks at what is in an image: these files, owned by root, none writable by others or setuid.
func checkFiles(t *testing.T, image v1.Image) {
	t.Helper()
	want := []string{"etc/", "etc/group", "etc/passwd", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt", "usr/", "usr/bin/", "usr/bin/hello"}
	if names := fileNames(t, image); !slices.Equal(names, want) {
		t.Errorf("files are %v, want %v", names, want)
	}
}

// fileNames returns what is in an image, layer by layer, and complains of what does not belong to root alone.
func fileNames(t *testing.T, image v1.Image) []string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range layers {
		content, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(content); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, header.Name)
			if header.Uid != 0 || header.Gid != 0 || header.Mode&0o7022 != 0 && header.Typeflag != tar.TypeSymlink {
				t.Errorf("%s belongs to %d:%d with mode %o", header.Name, header.Uid, header.Gid, header.Mode)
			}
		}
	}
	return names
}

func TestSBOMNamesWhatIsLinked(t *testing.T) {
	_, o := buildHello(t)
	data, err := os.ReadFile(filepath.Join(o.out, "hello-linux-amd64.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range doc.Packages {
		names = append(names, p.Name)
		if strings.ContainsAny(p.ID, "/@_") {
			t.Errorf("%q is no SPDX identifier", p.ID)
		}
	}
	if want := []string{"hello", "stdlib"}; !slices.Equal(names, want) {
		t.Errorf("packages are %v, want %v", names, want)
	}
	if doc.Creation.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("created %s, want the date of the source", doc.Creation.Created)
	}
}

// hook is a script as they lie in source.d. What it prints is the format of features.d.
const hook = `#!/bin/bash
set -eu
names=(one two)
for name in "${names[@]}"; do
  printf '%s=%d\n' "$name" "${#name}"
done
grep -E '^cores' "$1/info" | awk -F: '{ gsub(/ /, "", $2); print "cores=" $2 }'
if [[ -r $1/info && ! -e $1/none ]]; then echo "readable=$(basename "$1/info" | tr a-z A-Z)"; fi
echo "lines=$(wc -l < "$1/info" | awk '{ print $1 }'), sorted $(sort "$1/info" | head -n 1)"
exit 3
`

// TestFullVariantRunsScripts unpacks what the full variant adds, for this machine, and runs a script with it and nothing else.
func TestFullVariantRunsScripts(t *testing.T) {
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	tools, err := buildShell(filepath.Join("..", "shell"), t.TempDir(), platform)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, dir := range []string{"usr/bin", "node"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	notices := false
	for _, f := range tools.files {
		path := filepath.Join(root, f.name)
		switch {
		case f.target != "":
			err = os.Symlink(f.target, path)
		case strings.HasSuffix(f.name, "/"):
			err = os.Mkdir(path, 0o700)
		default:
			err = os.WriteFile(path, f.data, os.FileMode(f.mode))
			notices = notices || strings.HasPrefix(f.name, "usr/share/licenses/") && strings.Contains(string(f.data), "mvdan.cc/sh/v3")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !notices {
		t.Error("the licences are missing")
	}
	if runtime.GOOS != "linux" {
		t.Skip("the programs are for Linux")
	}
	script := filepath.Join(root, "hook")
	for path, text := range map[string]string{script: hook, filepath.Join(root, "node/info"): "vendor: x\ncores : 8\nbits: 64\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin/bash"), script, filepath.Join(root, "node"))
	cmd.Env = []string{"PATH=" + filepath.Join(root, "usr/bin")}
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != 3 {
		t.Errorf("it ends with %d, want 3 (%v)", got, err)
	}
	if want := "one=3\ntwo=3\ncores=8\nreadable=INFO\nlines=3, sorted bits: 64\n"; string(out) != want {
		t.Errorf("it prints\n%s\nwant\n%s", out, want)
	}
	for name, code := range map[string]int{"exit 7": 7, "no-such-program": 127, "echo $(": 2} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin/sh"), "-ec", name)
		cmd.Env = []string{"PATH=" + filepath.Join(root, "usr/bin")}
		if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != code {
			t.Errorf("sh -ec %q ends with %d, want %d: %s (%v)", name, cmd.ProcessState.ExitCode(), code, out, err)
		}
	}
}

// TestFullVariantIsAnImageOfItsOwn builds both variants of a small program: they have one name and two tags, and the SBOM of the
// full one has what the shell is made of.
func TestFullVariantIsAnImageOfItsOwn(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                    "module example.com/hello\n\ngo 1.26.0\n",
		"main.go":                   "package main\n\nfunc main() { println(\"hello\") }\n",
		shellModule + "/go.mod":     "module example.com/shell\n\ngo 1.26.0\n\ntool example.com/shell/true\n",
		shellModule + "/main.go":    "package main\n\nfunc main() {}\n",
		shellModule + "/true/ok.go": "package main\n\nfunc main() {}\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := options{root: root, out: t.TempDir(), repository: "example.com/test", version: "v1", ldflags: "-s -w", platforms: []v1.Platform{amd64}}
	if err := o.build(component{Name: "hello", Package: ".", Full: true}); err != nil {
		t.Fatal(err)
	}
	descriptor, inner := only(t, unpack(t, filepath.Join(o.out, "hello-full.oci.tar")))
	if got, want := descriptor.Annotations["io.containerd.image.name"], "example.com/test/hello:v1-full"; got != want {
		t.Errorf("it is called %s, want %s", got, want)
	}
	manifest, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := inner.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	names := fileNames(t, image)
	for _, want := range []string{"bin", "usr/bin/bash", "usr/bin/sh", "usr/bin/true", "usr/bin/hello"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no %s in it: %v", want, names)
		}
	}
	if _, err := os.Stat(filepath.Join(o.out, "hello-full-linux-amd64.spdx.json")); err != nil {
		t.Error(err)
	}
}

func TestRefusesWhatItCannotBuild(t *testing.T) {
	for name, args := range map[string][]string{
		"NoSuchImage":    {"-out", t.TempDir(), "assay-wroker"},
		"NoSuchPlatform": {"-platforms", "plan9/amd64"},
		"PackOfNothing":  {"-out", t.TempDir(), "pack", "a:b"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(args); err == nil {
				t.Error("no error")
			}
		})
	}
}

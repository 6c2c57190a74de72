package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

var amd64, arm64 = v1.Platform{OS: "linux", Architecture: "amd64"}, v1.Platform{OS: "linux", Architecture: "arm64"}

// buildHello builds the image of a small program in a new source directory.
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
	if _, err := o.build(component{Name: "hello", Package: ".", About: "says hello"}); err != nil {
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

// checkFiles checks that an image contains exactly these files, owned by root, and none writable by others or setuid.
func checkFiles(t *testing.T, image v1.Image) {
	t.Helper()
	want := []string{"etc/", "etc/group", "etc/passwd", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt", "usr/", "usr/bin/", "usr/bin/hello"}
	if names := fileNames(t, image); !slices.Equal(names, want) {
		t.Errorf("files are %v, want %v", names, want)
	}
}

// fileNames returns the files in an image, layer by layer, and reports those that other users than root own or can change.
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
			t.Errorf("invalid SPDX identifier %q", p.ID)
		}
	}
	if want := []string{"hello", "stdlib"}; !slices.Equal(names, want) {
		t.Errorf("packages are %v, want %v", names, want)
	}
	if doc.Creation.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("created %s, want the date of the source", doc.Creation.Created)
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

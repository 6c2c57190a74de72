package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the user ID of programs, the same as "nonroot" in distroless images.
const user = "65532"

// spec describes an image except for its program.
type spec struct {
	Reference   string
	Program     string // name under /usr/bin
	Created     time.Time
	Annotations map[string]string
	Fast        bool
}

// variant is the program for one platform.
type variant struct {
	Platform v1.Platform
	Path     string
}

// assemble creates an image index with one image per platform.
func assemble(s spec, variants []variant) (v1.ImageIndex, error) {
	base, err := baseLayer()
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, variant := range variants {
		image, err := s.image(base, variant)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &variant.Platform},
		})
	}
	if len(s.Annotations) > 0 {
		index, _ = mutate.Annotations(index, s.Annotations).(v1.ImageIndex)
	}
	return index, nil
}

// image creates the image of one platform: the base layer, and the program above it.
func (s spec) image(base v1.Layer, variant variant) (v1.Image, error) {
	path := "/usr/bin/" + s.Program
	program, err := programLayer(path, variant.Path, s.level())
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: s.Created}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		Architecture: variant.Platform.Architecture,
		OS:           variant.Platform.OS,
		Created:      created,
		Config: v1.Config{
			Entrypoint: []string{path},
			User:       user + ":" + user,
			WorkingDir: "/",
			Env:        []string{"PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
			Labels:     s.Annotations,
		},
	})
	if err != nil {
		return nil, err
	}
	layers := []mutate.Addendum{
		{Layer: base, History: v1.History{Created: created, CreatedBy: "certificate authorities and the user nonroot"}},
		{Layer: program, History: v1.History{Created: created, CreatedBy: path}},
	}
	if image, err = mutate.Append(image, layers...); err != nil {
		return nil, err
	}
	if len(s.Annotations) > 0 {
		image, _ = mutate.Annotations(image, s.Annotations).(v1.Image)
	}
	return image, nil
}

// level is the compression level of the program.
func (s spec) level() int {
	if s.Fast {
		return gzip.BestSpeed
	}
	return gzip.BestCompression
}

// baseLayer contains the files that a program needs without a distribution.
func baseLayer() (v1.Layer, error) {
	return layer(gzip.BestCompression, []file{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnonroot:x:" + user + ":\n")},
		{name: "etc/passwd", mode: 0o644, data: []byte(
			"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:" + user + ":" + user + ":nonroot:/:/sbin/nologin\n")},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: authorities()},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
	})
}

func programLayer(name, path string, level int) (v1.Layer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return layer(level, []file{{name: strings.TrimPrefix(name, "/"), mode: 0o755, data: data}})
}

// file is an entry of a layer; a directory if its name ends in a slash.
type file struct {
	name string
	mode int64
	data []byte
}

// layer packs files in the given order. Owner and time are constant, so that builds of the same source have the same digest.
func layer(level int, files []file) (v1.Layer, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR, ModTime: time.Unix(0, 0)}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil }
	return tarball.LayerFromOpener(opener,
		tarball.WithCompressionLevel(level), tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// sizes returns the download size and the unpacked size of each platform's image.
func sizes(index v1.ImageIndex) (string, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", err
	}
	var parts []string
	for _, descriptor := range manifest.Manifests {
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			return "", err
		}
		layers, err := image.Layers()
		if err != nil {
			return "", err
		}
		var packed, unpacked int64
		for _, l := range layers {
			size, err := l.Size()
			if err != nil {
				return "", err
			}
			content, err := l.Uncompressed()
			if err != nil {
				return "", err
			}
			n, err := io.Copy(io.Discard, content)
			if err != nil {
				return "", err
			}
			packed, unpacked = packed+size, unpacked+n
		}
		parts = append(parts, fmt.Sprintf("%s %.1f MB (%.1f MB unpacked)", descriptor.Platform, float64(packed)/1e6, float64(unpacked)/1e6))
	}
	return strings.Join(parts, ", "), nil
}

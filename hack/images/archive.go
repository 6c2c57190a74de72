package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// archive writes an index as an OCI layout to a tar file. containerd and others read the name of the image from the two
// annotations.
func archive(path string, index v1.ImageIndex, reference string) error {
	dir, err := os.MkdirTemp("", "assay-layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	err = l.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          reference,
		"org.opencontainers.image.ref.name": reference,
	}))
	if err != nil {
		return err
	}
	return pack(path, dir)
}

// pack writes a directory to a tar file, sorted by name and without times.
func pack(path, dir string) (err error) {
	next, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(next.Name()) }() // does nothing after the rename
	w := tar.NewWriter(next)
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		return add(w, dir, name, d)
	})
	if err := errors.Join(err, w.Close(), next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}

func add(w *tar.Writer, dir, name string, d fs.DirEntry) error {
	relative, err := filepath.Rel(dir, name)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: filepath.ToSlash(relative), Mode: 0o644, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR, ModTime: time.Unix(0, 0)}
	if d.IsDir() {
		header.Name, header.Mode, header.Typeflag = header.Name+"/", 0o755, tar.TypeDir
		return w.WriteHeader(header)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

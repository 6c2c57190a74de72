package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is an entry of an archive.
type file struct {
	name string
	mode int64
	data []byte
}

func sorted(files []file) []file {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files
}

// readTree reads all files in a directory tree, sorted by name, and adds prefix to their names.
func readTree(dir, prefix string) ([]file, error) {
	var files []file
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		files = append(files, file{prefix + filepath.ToSlash(relative), 0o644, data})
		return err
	})
	return sorted(files), err
}

// writeTarGz packs files in the given order. Owner and time are constant, so that builds of the same commit have the same checksum.
func writeTarGz(target string, date time.Time, files []file) (err error) {
	out, err := os.Create(target)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR, ModTime: date}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), compressed.Close())
}

// writeZip is writeTarGz for platforms where zip files are usual.
func writeZip(target string, date time.Time, files []file) (err error) {
	out, err := os.Create(target)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := zip.NewWriter(out)
	for _, f := range files {
		header := &zip.FileHeader{Name: path.Clean(f.name), Method: zip.Deflate, Modified: date}
		header.SetMode(fs.FileMode(f.mode))
		entry, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.data); err != nil {
			return err
		}
	}
	return w.Close()
}

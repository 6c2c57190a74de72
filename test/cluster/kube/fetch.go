//go:build linux

package kube

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Index is the list of the programs that setup-envtest of controller-runtime offers, with checksums. It is a file of kubernetes-sigs/controller-tools.
const Index = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"

// Silence is how long Fetch waits for an answer, or for more of one, before it gives up: behind a firewall that drops packets the demo
// would otherwise wait for minutes before it compiles.
const Silence = 20 * time.Second

const (
	// maxIndex is the maximum size of the index in bytes, which has about 100 kB.
	maxIndex = 8 << 20
	// maxArchive is the maximum size in bytes of an archive and of each program in it. An archive has about 60 MB, kube-apiserver 110 MB.
	maxArchive = 512 << 20
)

// Fetcher downloads etcd, kube-apiserver and kubectl as setup-envtest does, and verifies their checksums.
type Fetcher struct {
	// Index is the URL of the list of archives; Index if empty.
	Index string
	// Silence is how long to wait for an answer, or for more of one; Silence if 0.
	Silence time.Duration
	// Dir is the directory to store the programs in, below which each version has a directory; that of the user's cache if empty.
	Dir string
}

// release is an archive in the index.
type release struct {
	Hash     string `json:"hash"` // SHA-512 in hexadecimal
	SelfLink string `json:"selfLink"`
}

// Fetch returns a directory with the three programs, of the newest version in the index that has the minor version of Version. It downloads
// them unless they are there.
func (f *Fetcher) Fetch(ctx context.Context, progress io.Writer) (dir string, err error) {
	cache := f.Dir
	if cache == "" {
		if cache, err = os.UserCacheDir(); err != nil {
			return "", err
		}
		cache = filepath.Join(cache, "assay", "envtest")
	}
	for _, name := range versions(cache) {
		if dir := filepath.Join(cache, name); complete(dir, core) {
			return dir, nil
		}
	}
	source := f.Index
	if source == "" {
		source = Index
	}
	fmt.Fprintf(progress, "kube: looking for etcd, kube-apiserver and kubectl in %s\n", source)
	index, err := f.get(ctx, source, maxIndex)
	if err != nil {
		return "", err
	}
	version, archive, err := choose(index)
	if err != nil {
		return "", fmt.Errorf("%s: %w", source, err)
	}
	fmt.Fprintf(progress, "kube: downloading %s\n", archive.SelfLink)
	data, err := f.get(ctx, archive.SelfLink, maxArchive)
	if err != nil {
		return "", err
	}
	if sum := sha512.Sum512(data); hex.EncodeToString(sum[:]) != strings.ToLower(archive.Hash) {
		return "", fmt.Errorf("%s has the SHA-512 %x, and %s says %s: it is not used", archive.SelfLink, sum[:8], source, archive.Hash)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	next, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(next) }() // does nothing after the rename
	if err := unpack(data, next); err != nil {
		return "", fmt.Errorf("%s: %w", archive.SelfLink, err)
	}
	if missing := absent(given(next, core.programs), core.programs); len(missing) > 0 {
		return "", fmt.Errorf("%s does not contain %s", archive.SelfLink, strings.Join(missing, ", "))
	}
	if err := os.Chmod(next, 0o755); err != nil {
		return "", err
	}
	dir = filepath.Join(cache, version)
	if err := os.RemoveAll(dir); err != nil { // leftovers of an interrupted run
		return "", err
	}
	return dir, os.Rename(next, dir)
}

// versions returns the directories of versions that Fetch has stored.
func versions(cache string) (out []string) {
	entries, _ := os.ReadDir(cache) // there are none if it does not exist
	for _, e := range entries {
		if e.IsDir() && patch(e.Name()) >= 0 {
			out = append(out, e.Name())
		}
	}
	return out
}

// patch returns the patch version of a version with the minor version of Version, or -1.
func patch(version string) int {
	minor := Version[:strings.LastIndex(Version, ".")+1]
	text, ok := strings.CutPrefix(version, minor)
	if n, err := strconv.Atoi(text); ok && err == nil && n >= 0 {
		return n
	}
	return -1 // another version, or a pre-release
}

// choose returns the newest version in the index that is of the wanted minor version, and its archive for this machine.
func choose(index []byte) (version string, archive release, err error) {
	var list struct {
		Releases map[string]map[string]release `json:"releases"`
	}
	if err := yaml.Unmarshal(index, &list); err != nil {
		return "", release{}, err
	}
	newest := -1
	for name, archives := range list.Releases {
		found, ok := archives[fmt.Sprintf("envtest-%s-%s-%s.tar.gz", name, runtime.GOOS, runtime.GOARCH)]
		if n := patch(name); ok && n > newest {
			newest, version, archive = n, name, found
		}
	}
	if newest < 0 {
		return "", release{}, fmt.Errorf("it has no version like %s for %s/%s", Version, runtime.GOOS, runtime.GOARCH)
	}
	return version, archive, nil
}

// get returns the content of a URL. It gives up if nothing arrives for a while.
func (f *Fetcher) get(ctx context.Context, url string, limit int64) ([]byte, error) {
	patience := f.Silence
	if patience == 0 {
		patience = Silence
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(patience, func() { cancel(fmt.Errorf("no answer for %s", patience)) })
	defer silent.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	failed := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("GET %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		var wrapped interface{ Unwrap() error }
		if errors.As(err, &wrapped) { // it repeats the URL
			err = wrapped.Unwrap()
		}
		return nil, failed(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(&heard{response.Body, func() { silent.Reset(patience) }}, limit+1))
	if err != nil {
		return nil, failed(err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("GET %s: more than %d bytes", url, limit)
	}
	return data, nil
}

// heard calls a function whenever something is read.
type heard struct {
	io.Reader
	call func()
}

// Read implements io.Reader.
func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.call()
	}
	return n, err
}

// unpack writes the programs in an archive to a directory, without those in it.
func unpack(data []byte, dir string) error {
	zipped, err := gzip.NewReader(strings.NewReader(string(data)))
	if err != nil {
		return err
	}
	files := tar.NewReader(zipped)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Base(header.Name)
		if header.Typeflag != tar.TypeReg || !isCore(name) {
			continue
		}
		if err := write(filepath.Join(dir, name), io.LimitReader(files, maxArchive)); err != nil {
			return err
		}
	}
}

func isCore(name string) bool { return slices.Contains(core.programs, name) }

// write creates an executable file.
func write(file string, content io.Reader) error {
	const mode fs.FileMode = 0o755
	out, err := os.OpenFile(filepath.Clean(file), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}

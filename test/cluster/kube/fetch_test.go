//go:build linux

package kube

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// archive returns an archive of setup-envtest's form.
func archive(t *testing.T, names ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	for _, name := range names {
		text := "#!/bin/sh\necho " + name
		if err := files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "controller-tools/envtest/" + name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestFetch downloads from a server with an index of setup-envtest's form: the right archive, a wrong checksum, one without a program, no
// version of this minor version, and a server that does not answer.
func TestFetch(t *testing.T) {
	whole := archive(t, "etcd", "kube-apiserver", "kubectl")
	minor := Version[:strings.LastIndex(Version, ".")]
	for name, test := range map[string]struct {
		version string
		content []byte
		hash    string // of the content, if empty
		silent  bool
		want    string // part of the error
	}{
		"Right":             {version: minor + ".7", content: whole},
		"WrongChecksum":     {version: minor + ".7", content: whole, hash: strings.Repeat("ab", 64), want: "it is not used"},
		"ProgramMissing":    {version: minor + ".7", content: archive(t, "etcd", "kubectl"), want: "does not contain kube-apiserver"},
		"AnotherVersion":    {version: "v1.2.3", content: whole, want: "it has no version like " + Version},
		"PreRelease":        {version: minor + ".0-rc.1", content: whole, want: "it has no version like " + Version},
		"NoArchive":         {version: minor + ".7", content: []byte("no archive"), want: "gzip"},
		"NoAnswer":          {silent: true, want: "no answer for 50ms"},
		"NothingAtThatPath": {want: "404 Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			mux := http.NewServeMux()
			server := httptest.NewServer(mux)
			t.Cleanup(func() { close(done); server.Close() })
			sum := test.hash
			if sum == "" {
				sum = fmt.Sprintf("%x", sha512.Sum512(test.content))
			}
			mux.HandleFunc("/index.yaml", func(w http.ResponseWriter, r *http.Request) {
				if test.silent {
					<-done
					return
				}
				if test.version == "" {
					http.NotFound(w, r)
					return
				}
				fmt.Fprintf(w, "releases:\n  v0.1.0: {}\n  %s:\n    envtest-%[1]s-%s-%s.tar.gz:\n      hash: %s\n      selfLink: %s/archive\n",
					test.version, runtime.GOOS, runtime.GOARCH, sum, server.URL)
			})
			mux.HandleFunc("/archive", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(test.content) })
			f := &Fetcher{Index: server.URL + "/index.yaml", Dir: t.TempDir()}
			if test.silent {
				f.Silence = 50 * time.Millisecond
			}
			var progress strings.Builder
			dir, err := f.Fetch(t.Context(), &progress)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("got %v, want %q", err, test.want)
				}
				if left, err := os.ReadDir(f.Dir); err != nil || len(left) > 0 {
					t.Errorf("it leaves %v (%v)", left, err)
				}
				return
			}
			if err != nil || filepath.Base(dir) != test.version || !complete(dir, core) {
				t.Fatalf("%s: %v", dir, err)
			}
			server.Close() // the second time it downloads nothing
			if again, err := f.Fetch(t.Context(), &progress); err != nil || again != dir {
				t.Errorf("the second time: %s: %v", again, err)
			}
		})
	}
}

// TestAssetsThatLackAProgramAreAnError: the programs were compiled for minutes, without a word about the directory.
func TestAssetsThatLackAProgramAreAnError(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"etcd", "kubectl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // it must be executable
			t.Fatal(err)
		}
	}
	t.Setenv(AssetsVar, dir)
	_, err := Find(t.Context(), &strings.Builder{}, Etcd, APIServer, Kubectl)
	if want := AssetsVar + "=" + dir + " lacks kube-apiserver"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

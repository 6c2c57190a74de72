package registry

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/assay-project/assay/internal/imagecompat/registrytest"
	"github.com/assay-project/assay/rules/imagespec"
)

const layerText = "version: v1alpha1\ncompatibilities: []\n"

// trust returns the certificate of a server.
func trust(s *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

// open returns a client for the image app:v1 of a registry, and the image. The error is that of the first request.
func open(t *testing.T, r *registrytest.Registry, opt Options) (*Client, *Image, error) {
	t.Helper()
	s, addr := registrytest.New(t, r)
	opt.Roots = trust(s)
	if r.Manifest("team/app", "v1") == nil {
		r.PutBlob(nil)
		r.PutImage("team/app", "v1", "image")
	}
	c, err := New(addr+"/team/app:v1", opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	image, err := c.Resolve(t.Context())
	return c, image, err
}

func mustOpen(t *testing.T, r *registrytest.Registry, opt Options) (*Client, *Image) {
	t.Helper()
	c, image, err := open(t, r, opt)
	if err != nil {
		t.Fatal(err)
	}
	return c, image
}

func TestPushReadAndDelete(t *testing.T) {
	for name, r := range map[string]*registrytest.Registry{
		"ReferrersAPI": {}, "NoFilter": {NoFilter: true}, "Pages": {PageSize: 2}, "TagFallback": {NoReferrers: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, image := mustOpen(t, r, Options{})
			if a, _, err := c.Newest(t.Context(), image.Descriptor); a != nil || err != nil {
				t.Fatalf("before the push: %v, %v", a, err)
			}
			for year := range 5 { // the third one is the newest
				text := fmt.Sprintf("%s# %d\n", layerText, year)
				if _, err := c.Push(t.Context(), image.Descriptor, []byte(text), time.Date(2030-(year-2)*(year-2), 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
					t.Fatal(err)
				}
			}
			list, err := c.Artifacts(t.Context(), image.Descriptor)
			if err != nil || len(list) != 5 {
				t.Fatalf("%d artifacts, %v", len(list), err)
			}
			a, data, err := c.Newest(t.Context(), image.Descriptor)
			if err != nil || string(data) != layerText+"# 2\n" || a.Created.Year() != 2030 {
				t.Fatalf("got %v, %q, %v; want the newest", a, data, err)
			}
			for range 5 {
				a, _, err := c.Newest(t.Context(), image.Descriptor)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Delete(t.Context(), image.Descriptor, *a); err != nil {
					t.Fatal(err)
				}
			}
			if list, err := c.Artifacts(t.Context(), image.Descriptor); err != nil || len(list) != 0 {
				t.Errorf("after the deletion: %v, %v", list, err)
			}
		})
	}
}

// TestADeletionThatIsRejectedSaysWhatIsLeft: without the referrers API, the list is a manifest of its own, and is changed first.
func TestADeletionThatIsRejectedSaysWhatIsLeft(t *testing.T) {
	for _, fallback := range []bool{false, true} {
		c, image := mustOpen(t, &registrytest.Registry{NoDelete: true, NoReferrers: fallback}, Options{})
		if _, err := c.Push(t.Context(), image.Descriptor, []byte(layerText), time.Now()); err != nil {
			t.Fatal(err)
		}
		list, err := c.Artifacts(t.Context(), image.Descriptor)
		if err != nil || len(list) != 1 {
			t.Fatalf("%d artifacts, %v", len(list), err)
		}
		err = c.Delete(t.Context(), image.Descriptor, list[0])
		left, unread := c.Artifacts(t.Context(), image.Descriptor)
		if err == nil || unread != nil || len(left) > 0 == strings.Contains(err.Error(), "the image no longer has the artifact") {
			t.Errorf("tag fallback %t: got %v, and %d artifacts are left (%v)", fallback, err, len(left), unread)
		}
	}
}

func TestArtifactsWithoutATimeAreTheOldest(t *testing.T) {
	r := &registrytest.Registry{}
	c, image := mustOpen(t, r, Options{})
	for _, created := range []string{"", "2020-01-01T00:00:00Z", "yesterday", "2021-01-01T00:00:00+01:00", "2021-01-01T00:00:00+02:00"} {
		put(r, "", artifact(image.Descriptor, func(m *ocispec.Manifest) {
			m.Annotations = map[string]string{ocispec.AnnotationCreated: created}
		}))
	}
	list, err := c.Artifacts(t.Context(), image.Descriptor)
	var got []string
	for _, a := range list {
		got = append(got, a.Descriptor.Annotations[ocispec.AnnotationCreated])
	}
	if want := "2021-01-01T00:00:00+01:00 2021-01-01T00:00:00+02:00 2020-01-01T00:00:00Z"; err != nil || !strings.HasPrefix(strings.Join(got, " "), want) || len(got) != 5 {
		t.Errorf("got %v, %v; want %s first", got, err, want)
	}
	if a, b := list[3].Descriptor.Digest, list[4].Descriptor.Digest; a > b {
		t.Errorf("%s comes before %s; of equally old ones, the lowest digest comes first", a, b)
	}
}

// artifact returns the manifest of an artifact of an image with changes.
func artifact(subject Descriptor, change ...func(*ocispec.Manifest)) ocispec.Manifest {
	m := ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, ArtifactType: imagespec.ArtifactType, Config: ocispec.DescriptorEmptyJSON,
		Layers: []Descriptor{content.NewDescriptorFromBytes(imagespec.LayerType, []byte(layerText))}, Subject: &subject,
	}
	m.SchemaVersion = 2
	for _, c := range change {
		c(&m)
	}
	return m
}

// TestOtherClients attaches an artifact with the functions that the oras program uses, and reads what Assay pushed with them.
func TestOtherClients(t *testing.T) {
	for name, r := range map[string]*registrytest.Registry{"ReferrersAPI": {}, "TagFallback": {NoReferrers: true}} {
		t.Run(name, func(t *testing.T) {
			c, image := mustOpen(t, r, Options{})
			s, addr := registrytest.New(t, r) // the same content
			repo, err := remote.NewRepository(addr + "/team/app")
			if err != nil {
				t.Fatal(err)
			}
			repo.Client = s.Client()
			exchange(t, c, image, repo)
		})
	}
}

// exchange attaches an artifact with oras and one with Assay, and reads each with the other.
func exchange(t *testing.T, c *Client, image *Image, repo *remote.Repository) {
	t.Helper()
	ctx := t.Context()
	theirs, ours := []byte(layerText+"# oras\n"), []byte(layerText+"# assay\n")
	layer, err := oras.PushBytes(ctx, repo, imagespec.LayerType, theirs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := oras.PackManifest(ctx, repo, oras.PackManifestVersion1_1, imagespec.ArtifactType, oras.PackManifestOptions{
		Subject: &image.Descriptor, Layers: []ocispec.Descriptor{layer},
	}); err != nil {
		t.Fatal(err)
	}
	if _, data, err := c.Newest(ctx, image.Descriptor); err != nil || string(data) != string(theirs) {
		t.Fatalf("Assay reads %q, %v", data, err)
	}
	desc, err := c.Push(ctx, image.Descriptor, ours, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var found []digest.Digest
	if err := repo.Referrers(ctx, image.Descriptor, imagespec.ArtifactType, func(list []ocispec.Descriptor) error {
		for _, d := range list {
			found = append(found, d.Digest)
		}
		return nil
	}); err != nil || len(found) != 2 {
		t.Fatalf("oras finds %v, %v", found, err)
	}
	children, err := content.Successors(ctx, repo, desc)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range children {
		if d.MediaType == imagespec.LayerType {
			if data, err := content.FetchAll(ctx, repo, d); err != nil || string(data) != string(ours) {
				t.Errorf("oras reads %q, %v", data, err)
			}
			return
		}
	}
	t.Errorf("oras finds no layer in %v", children)
}

// dockerRegistry starts Debian's docker-registry, which has no referrers API, and returns its address, without TLS.
func dockerRegistry(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		t.Skip("docker-registry is not installed: make test-registry")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yml")
	if err := os.WriteFile(config, []byte("version: 0.1\nlog: {level: error}\nstorage: {delete: {enabled: true}, filesystem: {rootdirectory: "+dir+"}}\nhttp: {addr: \""+addr+"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "serve", config)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	t.Cleanup(func() { stop(); <-exited })
	for poll := time.NewTicker(20 * time.Millisecond); ; {
		if resp, err := http.Get("http://" + addr + "/v2/"); err == nil {
			_ = resp.Body.Close()
			return addr
		}
		select {
		case <-exited:
			t.Fatalf("docker-registry stopped: %s", log.String())
		case <-poll.C:
		}
	}
}

func TestDockerRegistry(t *testing.T) {
	addr := dockerRegistry(t)
	ctx := t.Context()
	repo, err := remote.NewRepository(addr + "/team/app")
	if err != nil {
		t.Fatal(err)
	}
	repo.PlainHTTP = true
	image, err := oras.PackManifest(ctx, repo, oras.PackManifestVersion1_1, "application/vnd.example.app", oras.PackManifestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Tag(ctx, image, "v1"); err != nil {
		t.Fatal(err)
	}
	c, err := New(addr+"/team/app:v1", Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resolved, err := c.Resolve(ctx)
	if err != nil || resolved.Descriptor.Digest != image.Digest {
		t.Fatalf("got %v, %v", resolved, err)
	}
	exchange(t, c, resolved, repo)
	for {
		a, _, err := c.Newest(ctx, resolved.Descriptor)
		if err != nil {
			t.Fatal(err)
		}
		if a == nil {
			return
		}
		if err := c.Delete(ctx, resolved.Descriptor, *a); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIndex(t *testing.T) {
	r := &registrytest.Registry{}
	index, images := r.PutIndex("team/app", "v1", "amd64", "arm64")
	_, image := mustOpen(t, r, Options{})
	if string(image.Descriptor.Digest) != index || !image.Index || len(image.Platforms) != 2 || string(image.Platforms[1].Digest) != images[1] || image.Platforms[1].Platform.Architecture != "arm64" {
		t.Errorf("got %+v", image)
	}
}

func TestInvalidReferences(t *testing.T) {
	for _, ref := range []string{"", "ubuntu", "ubuntu:22.04", "host/UPPER:v1", "host/app@sha256:12", "https://host/app:v1", "host/app:v1 x"} {
		if _, err := New(ref, Options{}); err == nil || !strings.Contains(err.Error(), "registry.example.com/team/app:v1") {
			t.Errorf("%q: %v, want an error with an example", ref, err)
		}
	}
}

func TestCredentialsOfDocker(t *testing.T) {
	r := &registrytest.Registry{User: "me", Password: "hunter2"}
	if _, _, err := open(t, r, Options{}); err == nil || !strings.Contains(err.Error(), "docker login") {
		t.Errorf("without credentials: %v", err)
	}
	s, addr := registrytest.New(t, r)
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	helper := "#!/bin/sh\n[ \"$1\" = get ] && host=$(cat) && [ \"$host\" = " + addr + " ] && echo '{\"Username\": \"me\", \"Secret\": \"hunter2\"}'\n"
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-assaytest"), []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]string{
		"File":   `{"auths": {"` + addr + `": {"auth": "bWU6aHVudGVyMg=="}}}`,
		"Helper": `{"credHelpers": {"` + addr + `": "assaytest"}}`,
		"Store":  `{"credsStore": "assaytest"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			credential, err := DockerCredentials()
			if err != nil {
				t.Fatal(err)
			}
			c, err := New(addr+"/team/app:v1", Options{Credential: credential, Roots: trust(s)})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Resolve(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestToken gets a token from the realm of the registry, with the password and with a token of the user.
func TestToken(t *testing.T) {
	r := &registrytest.Registry{}
	r.Intercept = func(w http.ResponseWriter, req *http.Request) bool {
		user, password, _ := req.BasicAuth()
		switch {
		case req.URL.Path == "/token":
			if user != "me" || password != "hunter2" {
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			fmt.Fprint(w, `{"token": "t0ken"}`)
			return true
		case req.Header.Get("Authorization") == "Bearer t0ken":
			return false
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+req.Host+`/token",service="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	for name, tc := range map[string]struct{ user, secret, want string }{
		"Password":      {"me", "hunter2", ""},
		"Token":         {"", "t0ken", ""},
		"WrongPassword": {"me", "hunter3", "401 Unauthorized"},
		"WrongToken":    {"", "t1ken", "401 Unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := open(t, r, Options{Credential: StaticCredential(tc.user, tc.secret)})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), tc.secret) {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
}

func TestCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := &registrytest.Registry{}
	c, image := mustOpen(t, r, Options{})
	cancel()
	if _, _, err := c.Newest(ctx, image.Descriptor); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("got %v", err)
	}
}

// Package registrytest is an image registry in memory, for tests. It implements the parts of the OCI distribution specification 1.1 that
// artifacts need, with the referrers API or without it.
package registrytest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Media types of manifests.
const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

// Registry is the registry. Set its fields before the first request.
type Registry struct {
	// NoReferrers leaves out the referrers API, as registries before version 1.1 of the specification.
	NoReferrers bool
	// NoFilter ignores the artifactType in requests for referrers.
	NoFilter bool
	// PageSize is the number of referrers in a response; 0: all.
	PageSize int
	// NoDelete rejects deletions, as Debian's docker-registry does by default.
	NoDelete bool
	// User and Password are required with basic authentication, unless they are empty.
	User, Password string
	// Intercept handles a request and returns true, or leaves it to the registry.
	Intercept func(w http.ResponseWriter, r *http.Request) bool

	mu        sync.Mutex
	blobs     map[string][]byte // by digest
	manifests map[string]entry  // by repository@digest
	tags      map[string]string // by repository:tag
	requests  []*http.Request
}

type entry struct {
	mediaType string
	data      []byte
}

// New starts a registry with TLS, and stops it at the end of the test. The address is host:port.
func New(t testing.TB, r *Registry) (*httptest.Server, string) {
	s := httptest.NewTLSServer(r)
	t.Cleanup(s.Close)
	return s, s.Listener.Addr().String()
}

// Digest returns the digest of content.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// PutBlob stores a blob.
func (r *Registry) PutBlob(data []byte) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blobs == nil {
		r.blobs, r.manifests, r.tags = map[string][]byte{}, map[string]entry{}, map[string]string{}
	}
	r.blobs[Digest(data)] = data
	return Digest(data)
}

// PutManifest stores a manifest under a tag, which may be empty.
func (r *Registry) PutManifest(repository, tag, mediaType string, data []byte) string {
	r.PutBlob(data)
	r.mu.Lock()
	defer r.mu.Unlock()
	digest := Digest(data)
	r.manifests[repository+"@"+digest] = entry{mediaType, data}
	if tag != "" {
		r.tags[repository+":"+tag] = digest
	}
	return digest
}

// PutImage stores an image without layers, whose content depends on seed.
func (r *Registry) PutImage(repository, tag, seed string) string {
	config := []byte(`{"os": "linux", "seed": "` + seed + `"}`)
	r.PutBlob(config)
	return r.PutManifest(repository, tag, manifestType, fmt.Appendf(nil,
		`{"schemaVersion": 2, "mediaType": %q, "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": %q, "size": %d}, "layers": []}`,
		manifestType, Digest(config), len(config)))
}

// PutIndex stores an index with one image for each architecture, and an attestation. It returns the digests of the index and of the images.
func (r *Registry) PutIndex(repository, tag string, architectures ...string) (index string, images []string) {
	var list []map[string]any
	add := func(os, architecture string) {
		digest := r.PutImage(repository, "", os+architecture)
		images = append(images, digest)
		list = append(list, map[string]any{
			"mediaType": manifestType, "digest": digest, "size": len(r.manifests[repository+"@"+digest].data), "platform": map[string]string{"os": os, "architecture": architecture},
		})
	}
	for _, a := range architectures {
		add("linux", a)
	}
	add("unknown", "unknown")
	data, _ := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": list})
	return r.PutManifest(repository, tag, indexType, data), images[:len(architectures)]
}

// Manifest returns a stored manifest, by its digest or tag; nil: it does not exist.
func (r *Registry) Manifest(repository, reference string) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, _, _ := r.manifest(repository, reference)
	return e.data
}

// Requests returns the requests so far.
func (r *Registry) Requests() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*http.Request(nil), r.requests...)
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.PutBlob(nil) // creates the maps
	r.mu.Lock()
	r.requests = append(r.requests, req.Clone(req.Context()))
	r.mu.Unlock()
	if r.Intercept != nil && r.Intercept(w, req) {
		return
	}
	if user, password, _ := req.BasicAuth(); r.User != "" && (user != r.User || password != r.Password) {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		fail(w, http.StatusUnauthorized, "UNAUTHORIZED")
		return
	}
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	for _, route := range []struct {
		part   string
		handle func(http.ResponseWriter, *http.Request, string, string)
	}{{"/blobs/uploads/", r.upload}, {"/blobs/", r.blob}, {"/manifests/", r.serveManifest}, {"/referrers/", r.referrers}} {
		if i := strings.LastIndex(path, route.part); i > 0 {
			route.handle(w, req, path[:i], path[i+len(route.part):])
			return
		}
	}
	w.WriteHeader(http.StatusOK)
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors": [{"code": %q, "message": "body of the registry"}]}`, code)
}

func (r *Registry) upload(w http.ResponseWriter, req *http.Request, repository, _ string) {
	if req.Method == http.MethodPost {
		w.Header().Set("Location", "/v2/"+repository+"/blobs/uploads/1")
		w.WriteHeader(http.StatusAccepted)
		return
	}
	data, err := io.ReadAll(req.Body)
	if err != nil || Digest(data) != req.URL.Query().Get("digest") {
		fail(w, http.StatusBadRequest, "DIGEST_INVALID")
		return
	}
	r.PutBlob(data)
	w.WriteHeader(http.StatusCreated)
}

func (r *Registry) blob(w http.ResponseWriter, _ *http.Request, _, digest string) {
	r.mu.Lock()
	data, ok := r.blobs[digest]
	r.mu.Unlock()
	if !ok {
		fail(w, http.StatusNotFound, "BLOB_UNKNOWN")
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data)
}

// manifest returns a manifest. The caller holds the lock.
func (r *Registry) manifest(repository, reference string) (entry, string, bool) {
	digest := reference
	if !strings.HasPrefix(reference, "sha256:") {
		digest = r.tags[repository+":"+reference]
	}
	e, ok := r.manifests[repository+"@"+digest]
	return e, digest, ok
}

func (r *Registry) serveManifest(w http.ResponseWriter, req *http.Request, repository, reference string) {
	switch req.Method {
	case http.MethodPut:
		data, _ := io.ReadAll(req.Body)
		tag := reference
		if strings.HasPrefix(reference, "sha256:") {
			tag = ""
		}
		digest := r.PutManifest(repository, tag, req.Header.Get("Content-Type"), data)
		var m struct{ Subject *struct{ Digest string } }
		if _ = json.Unmarshal(data, &m); m.Subject != nil && !r.NoReferrers {
			w.Header().Set("OCI-Subject", m.Subject.Digest)
		}
		w.Header().Set("Docker-Content-Digest", digest)
		w.WriteHeader(http.StatusCreated)
		return
	case http.MethodDelete:
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.NoDelete {
			fail(w, http.StatusMethodNotAllowed, "UNSUPPORTED")
			return
		}
		delete(r.manifests, repository+"@"+reference)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	r.mu.Lock()
	e, digest, ok := r.manifest(repository, reference)
	r.mu.Unlock()
	if !ok {
		fail(w, http.StatusNotFound, "MANIFEST_UNKNOWN")
		return
	}
	w.Header().Set("Content-Type", e.mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", strconv.Itoa(len(e.data)))
	if req.Method == http.MethodGet {
		_, _ = w.Write(e.data)
	}
}

func (r *Registry) referrers(w http.ResponseWriter, req *http.Request, repository, subject string) {
	if r.NoReferrers {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := req.URL.Query().Get("artifactType")
	list := []map[string]any{}
	for key, e := range r.manifests {
		of, digest, _ := strings.Cut(key, "@")
		var m struct {
			ArtifactType string
			Subject      *struct{ Digest string }
			Annotations  map[string]string
		}
		if of != repository || json.Unmarshal(e.data, &m) != nil || m.Subject == nil || m.Subject.Digest != subject {
			continue
		}
		if r.NoFilter || wanted == "" || wanted == m.ArtifactType {
			list = append(list, map[string]any{"mediaType": e.mediaType, "digest": digest, "size": len(e.data), "artifactType": m.ArtifactType, "annotations": m.Annotations})
		}
	}
	slices.SortFunc(list, func(a, b map[string]any) int { // the same pages at each request
		return strings.Compare(a["digest"].(string), b["digest"].(string))
	})
	if from, _ := strconv.Atoi(req.URL.Query().Get("from")); r.PageSize > 0 {
		list = list[min(from, len(list)):]
		if len(list) > r.PageSize {
			list = list[:r.PageSize]
			w.Header().Set("Link", fmt.Sprintf(`</v2/%s/referrers/%s?artifactType=%s&from=%d>; rel="next"`, repository, subject, wanted, from+r.PageSize))
		}
	}
	if wanted != "" && !r.NoFilter {
		w.Header().Set("OCI-Filters-Applied", "artifactType")
	}
	w.Header().Set("Content-Type", indexType)
	_ = json.NewEncoder(w).Encode(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": list})
}

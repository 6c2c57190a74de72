package registry

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/net/dns/dnsmessage"
	"oras.land/oras-go/v2/content"

	"github.com/assay-project/assay/internal/imagecompat/registrytest"
	"github.com/assay-project/assay/rules/imagespec"
)

// names is a name server: the addresses of each name at the n-th query, of one kind, counted from 0.
type names func(name string, query int) string

// resolver starts the name server.
func (n names) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go n.serve(conn)
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (n names) serve(conn net.PacketConn) {
	queries := map[string]int{}
	for buf := make([]byte, 1500); ; {
		size, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		name := strings.TrimSuffix(q.Name.String(), ".")
		key := name + q.Type.String()
		addr, err := netip.ParseAddr(n(name, queries[key]))
		queries[key]++
		m.Response, m.Additionals = true, nil
		head := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}
		switch {
		case err != nil:
			m.RCode = dnsmessage.RCodeNameError
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: addr.As4()}}}
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}}}
		}
		if out, err := m.Pack(); err == nil {
			_, _ = conn.WriteTo(out, from)
		}
	}
}

// notPublicAddresses are addresses that a registry must not make the client connect to.
var notPublicAddresses = []string{
	"127.0.0.1", "169.254.169.254", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "100.100.100.200", "168.63.129.16", "0.0.0.0", "224.0.0.1",
	"255.255.255.255", "::1", "::", "fe80::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
	"64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::", "::127.0.0.1", "::ffff:0:127.0.0.1", "198.18.0.1", "240.0.0.1", "fec0::1",
}

func TestPublicAddresses(t *testing.T) {
	for _, a := range notPublicAddresses {
		if public(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
	for _, a := range []string{"1.1.1.1", "172.32.0.1", "192.169.0.1", "100.128.0.1", "2606:4700::1", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::"} {
		if !public(netip.MustParseAddr(a)) {
			t.Errorf("%s is not public", a)
		}
	}
}

// ways are how a registry makes a client connect to another host: host is a name or a literal address, with a port.
var ways = map[string]func(host string) func(http.ResponseWriter, *http.Request) bool{
	"Realm": func(host string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+host+`/token",service="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
	},
	"Redirect": func(host string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			http.Redirect(w, r, "https://"+host+"/data", http.StatusTemporaryRedirect)
			return true
		}
	},
}

// lured makes the registry send the client to another host, and returns the error of the client.
func lured(t *testing.T, way, host string, opt Options) error {
	t.Helper()
	r := &registrytest.Registry{}
	opt.Credential = StaticCredential("me", "hunter2")
	c, image := mustOpen(t, r, opt)
	r.PutBlob([]byte(layerText))
	put(r, "", artifact(image.Descriptor))
	r.Intercept = ways[way](host)
	_, _, err := c.Newest(t.Context(), image.Descriptor)
	if err == nil {
		t.Fatal("the client followed")
	}
	return err
}

func TestAddressesThatARegistryNames(t *testing.T) {
	for way := range ways {
		for _, addr := range notPublicAddresses {
			t.Run(way+"/"+addr, func(t *testing.T) {
				literal := net.JoinHostPort(addr, "4443")
				if addr == "127.0.0.1" {
					literal = "127.0.0.2:4443" // the registry itself is at 127.0.0.1
				}
				var refused *RefusedError
				if err := lured(t, way, literal, Options{}); !errors.As(err, &refused) {
					t.Errorf("literal: %v, want it refused", err)
				}
				if netip.MustParseAddr(addr).Is4In6() || addr == "fe80::1" || addr == "ff02::1" { // no resolver returns these
					return
				}
				opt := Options{resolver: names(func(string, int) string { return addr }).resolver(t)}
				err := lured(t, way, "evil.example.com:4443", opt)
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), "evil.example.com") || !strings.Contains(err.Error(), "--allow-host") {
					t.Errorf("name: %v, want it refused with the name", err)
				}
			})
		}
	}
}

// secretHost is another host at 127.0.0.1, by the name host.example.com. It records what it is sent.
type secretHost struct {
	*httptest.Server
	at       string
	resolver *net.Resolver
	mu       sync.Mutex
	handle   http.HandlerFunc
	headers  []http.Header
}

func newSecretHost(t *testing.T, handle http.HandlerFunc) *secretHost {
	h := &secretHost{handle: handle}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.headers = append(h.headers, r.Header.Clone())
		h.handle(w, r)
	}))
	t.Cleanup(h.Close)
	_, port, _ := net.SplitHostPort(h.Listener.Addr().String())
	h.at = "host.example.com:" + port
	h.resolver = names(func(string, int) string { return "127.0.0.1" }).resolver(t)
	return h
}

// TestNameThatChangesItsAddress resolves to a public address first, and then to a host at 127.0.0.1.
func TestNameThatChangesItsAddress(t *testing.T) {
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			h := newSecretHost(t, func(http.ResponseWriter, *http.Request) {})
			h.resolver = names(func(_ string, query int) string {
				if query == 0 {
					return "203.0.113.1" // reserved for documentation: nothing is there
				}
				return "127.0.0.1"
			}).resolver(t)
			r := &registrytest.Registry{}
			c, image := mustOpen(t, r, Options{resolver: h.resolver})
			r.PutBlob([]byte(layerText))
			put(r, "", artifact(image.Descriptor))
			r.Intercept = ways[way](h.at)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // connecting may take forever
			defer cancel()
			if _, _, err := c.Newest(ctx, image.Descriptor); err == nil {
				t.Error("the client got an answer")
			}
			if _, _, err := c.Newest(t.Context(), image.Descriptor); err == nil { // now it resolves to 127.0.0.1
				t.Error("the client got an answer")
			}
			if len(h.headers) > 0 {
				t.Error("the host was asked")
			}
		})
	}
}

func TestAllowedHostGetsNoCredentials(t *testing.T) {
	h := newSecretHost(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, layerText) })
	r := &registrytest.Registry{User: "me", Password: "hunter2"}
	c, image := mustOpen(t, r, Options{resolver: h.resolver, AllowHosts: []string{"host.example.com"}, Credential: StaticCredential("me", "hunter2")})
	c.guard.base.TLSClientConfig.RootCAs.AddCert(h.Certificate())
	r.PutBlob([]byte(layerText))
	put(r, "", artifact(image.Descriptor))
	r.Intercept = ways["Redirect"](h.at)
	if _, data, err := c.Newest(t.Context(), image.Descriptor); err != nil || string(data) != layerText {
		t.Fatalf("got %q, %v", data, err)
	}
	for name, handle := range map[string]http.HandlerFunc{
		"Basic": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"Bearer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+h.at+`/token"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h.mu.Lock()
			h.handle = handle
			h.mu.Unlock()
			if _, _, err := c.Newest(t.Context(), image.Descriptor); err == nil || !strings.Contains(err.Error(), "401") {
				t.Errorf("got %v", err)
			}
		})
	}
	if len(h.headers) != 3 {
		t.Errorf("%d requests to the other host, want 3", len(h.headers))
	}
	for _, header := range h.headers {
		if text := fmt.Sprint(header); header.Get("Authorization") != "" || strings.Contains(text, "hunter2") {
			t.Errorf("the other host got credentials: %v", header)
		}
	}
}

func TestRedirects(t *testing.T) {
	to := func(target string, when ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			for _, part := range when {
				if strings.Contains(r.URL.Path, part) {
					http.Redirect(w, r, target, http.StatusTemporaryRedirect)
					return true
				}
			}
			return false
		}
	}
	for name, tc := range map[string]struct {
		handle func(http.ResponseWriter, *http.Request) bool
		want   string
	}{
		"Manifest":  {to("https://host.example.com/x", "/manifests/"), "refused a redirect to host.example.com: only blobs"},
		"Referrers": {to("https://host.example.com/x", "/referrers/"), "refused a redirect to host.example.com: only blobs"},
		"NoTLS":     {to("http://host.example.com/x", "/blobs/"), "refused a redirect to host.example.com without TLS"},
		"Circle":    {to("/v2/team/app/blobs/sha256:x", "/blobs/"), "more than 3 redirects"},
		"Token": {func(w http.ResponseWriter, r *http.Request) bool {
			return to("https://host.example.com/x", "/token")(w, r) || ways["Realm"](r.Host)(w, r)
		}, "refused a redirect to host.example.com: only blobs"},
		"RealmWithoutTLS": {func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}, "uses http"},
		"NextPage": {func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/referrers/") {
				w.Header().Set("Link", `<https://host.example.com/next>; rel="next"`)
				page(w)
				return true
			}
			return false
		}, "not the same origin"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &registrytest.Registry{}
			c, image := mustOpen(t, r, Options{AllowHosts: []string{"host.example.com"}, Credential: StaticCredential("me", "hunter2")})
			r.PutBlob([]byte(layerText))
			put(r, "", artifact(image.Descriptor))
			r.Intercept = tc.handle
			if _, _, err := c.Newest(t.Context(), image.Descriptor); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// put stores an artifact. Tag is the tag of a list of referrers that contains it, for registries without the referrers API.
func put(r *registrytest.Registry, tag string, m ocispec.Manifest) Descriptor {
	data, _ := json.Marshal(m)
	r.PutManifest("team/app", "", ocispec.MediaTypeImageManifest, data)
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, data)
	desc.ArtifactType = imagespec.ArtifactType
	if tag != "" {
		index, _ := json.Marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []Descriptor{desc}})
		r.PutManifest("team/app", tag, ocispec.MediaTypeImageIndex, index)
	}
	return desc
}

// page writes a list of referrers.
func page(w http.ResponseWriter, list ...Descriptor) {
	w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
	_ = json.NewEncoder(w).Encode(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: list})
}

// on handles requests whose path contains a part.
func on(part string, handle http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, part) {
			return false
		}
		handle(w, r)
		return true
	}
}

// endless writes until the client closes the connection.
func endless(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
	for text := bytes.Repeat([]byte(" "), 64<<10); r.Context().Err() == nil; {
		if _, err := w.Write(text); err != nil {
			return
		}
	}
}

func TestBounds(t *testing.T) {
	many := func(n int) []Descriptor {
		out := make([]Descriptor, n)
		for i := range out {
			out[i] = Descriptor{MediaType: "a/b", Digest: digest.FromString(strconv.Itoa(i)), Size: 1, ArtifactType: imagespec.ArtifactType}
		}
		return out
	}
	for name, tc := range map[string]struct {
		handle func(http.ResponseWriter, *http.Request) bool
		want   string
	}{
		"EndlessList":     {on("/referrers/", endless), "sent more than 1048576 bytes"},
		"EndlessManifest": {on("/manifests/sha256", endless), "Content-Type"},
		"EndlessLayer":    {on("/blobs/", endless), "does not match its digest"},
		"MillionReferrers": {on("/referrers/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", `<?next>; rel="next"`)
			page(w, many(400)...)
		}), "more than 1000 referrers"},
		"LargePage": {on("/referrers/", func(w http.ResponseWriter, _ *http.Request) { page(w, many(10_000)...) }), "sent more than 1048576 bytes"},
		"LinksInACircle": {on("/referrers/", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "<"+r.URL.String()+`>; rel="next"`)
			page(w)
		}), "more than 10 pages"},
		"Gzip": {on("/referrers/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
			z := gzip.NewWriter(w)
			for range 1 << 10 {
				_, _ = z.Write(bytes.Repeat([]byte(" "), 64<<10)) // 64 MiB
			}
			_ = z.Close()
		}), "invalid character"},
		"EndlessError": {on("/referrers/", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			endless(w, r)
		}), "500 Internal Server Error"},
		"LargeHeader": {on("/referrers/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
			page(w)
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &registrytest.Registry{}
			c, image := mustOpen(t, r, Options{})
			r.PutBlob([]byte(layerText))
			put(r, "", artifact(image.Descriptor))
			r.Intercept = tc.handle
			if _, _, err := c.Newest(t.Context(), image.Descriptor); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if n := len(r.Requests()); n > 20 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestSlowBody(t *testing.T) {
	for _, part := range []string{"/referrers/", "/manifests/sha256", "/blobs/"} {
		r := &registrytest.Registry{}
		c, image := mustOpen(t, r, Options{})
		r.PutBlob([]byte(layerText))
		put(r, "", artifact(image.Descriptor))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		r.Intercept = on(part, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", map[bool]string{true: ocispec.MediaTypeImageIndex, false: ocispec.MediaTypeImageManifest}[part == "/referrers/"])
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // the rest never comes
		})
		if _, _, err := c.Newest(ctx, image.Descriptor); err == nil || !strings.Contains(err.Error(), "no answer in time") {
			t.Errorf("%s: %v", part, err)
		}
	}
}

func TestInvalidArtifacts(t *testing.T) {
	large := strings.Repeat("x", imagespec.MaxBytes+1)
	layer := func(text string, change func(*Descriptor)) func(*ocispec.Manifest) {
		return func(m *ocispec.Manifest) {
			m.Layers = []Descriptor{content.NewDescriptorFromBytes(imagespec.LayerType, []byte(text))}
			change(&m.Layers[0])
		}
	}
	for name, tc := range map[string]struct {
		change func(*ocispec.Manifest)
		want   string
	}{
		"TwoLayers":      {func(m *ocispec.Manifest) { m.Layers = append(m.Layers, m.Layers[0]) }, "it has 2 layers, not one"},
		"NoLayer":        {func(m *ocispec.Manifest) { m.Layers = nil }, "it has 0 layers"},
		"LayerType":      {layer(layerText, func(d *Descriptor) { d.MediaType = "text/plain" }), `its layer has the media type "text/plain"`},
		"LargeLayer":     {layer(large, func(*Descriptor) {}), "262145 bytes: at most 262144"},
		"LayerSaysSmall": {layer(large, func(d *Descriptor) { d.Size = 10 }), "Content-Length"},
		"LayerSaysLarge": {layer(layerText, func(d *Descriptor) { d.Size += 10 }), "Content-Length"},
		"NegativeSize":   {layer(layerText, func(d *Descriptor) { d.Size = -1 }), "-1 bytes"},
		"MissingLayer":   {layer("elsewhere", func(*Descriptor) {}), "not found"},
		"InvalidDigest":  {layer(layerText, func(d *Descriptor) { d.Digest = "sha256:../../x" }), "invalid digest"},
		"WeakDigest":     {layer(layerText, func(d *Descriptor) { d.Digest = "md5:d41d8cd98f00b204e9800998ecf8427e" }), "invalid digest"},
		"ArtifactType":   {func(m *ocispec.Manifest) { m.ArtifactType = "application/x" }, "its manifest says that its type is"},
		"ManifestType":   {func(m *ocispec.Manifest) { m.MediaType = ocispec.MediaTypeImageIndex }, "its manifest says that its media type"},
		"LargeManifest":  {func(m *ocispec.Manifest) { m.Annotations = map[string]string{"x": strings.Repeat("x", maxManifest)} }, "at most 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &registrytest.Registry{}
			c, image := mustOpen(t, r, Options{})
			r.PutBlob([]byte(layerText))
			r.PutBlob([]byte(large))
			put(r, "sha256-"+image.Descriptor.Digest.Encoded(), artifact(image.Descriptor, tc.change))
			r.NoReferrers = true // the list says what put writes
			a, data, err := c.Newest(t.Context(), image.Descriptor)
			if err == nil || !strings.Contains(err.Error(), tc.want) || a == nil || !strings.Contains(err.Error(), string(a.Descriptor.Digest)) {
				t.Errorf("got %q, %v; want an error that names the artifact, with %q", data, err, tc.want)
			}
		})
	}
}

func TestContentOfAnotherDigest(t *testing.T) {
	for _, part := range []string{"/blobs/", "/manifests/sha256"} {
		r := &registrytest.Registry{}
		c, image := mustOpen(t, r, Options{})
		r.PutBlob([]byte(layerText))
		put(r, "", artifact(image.Descriptor))
		r.Intercept = on(part, func(w http.ResponseWriter, req *http.Request) {
			data := []byte(strings.Replace(layerText, "alpha", "gamma", 1))
			if part != "/blobs/" {
				data = bytes.Replace(r.Manifest("team/app", req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]), []byte("nfd"), []byte("dfn"), 1)
				w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			}
			_, _ = w.Write(data)
		})
		if _, data, err := c.Newest(t.Context(), image.Descriptor); err == nil || !strings.Contains(err.Error(), "does not match its digest") {
			t.Errorf("%s: %q, %v", part, data, err)
		}
	}
}

// TestTagWithTheDigestOfAnotherImage: a registry says in a header of a tag that it is another image, which exists.
func TestTagWithTheDigestOfAnotherImage(t *testing.T) {
	r := &registrytest.Registry{}
	c, image := mustOpen(t, r, Options{})
	other := r.PutImage("team/app", "", "other")
	r.Intercept = on("/manifests/v1", func(w http.ResponseWriter, req *http.Request) {
		data := r.Manifest("team/app", string(image.Descriptor.Digest))
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		w.Header().Set("Docker-Content-Digest", other)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		if req.Method == http.MethodGet {
			_, _ = w.Write(data)
		}
	})
	if got, err := c.Resolve(t.Context()); err == nil || !strings.Contains(err.Error(), "does not match its digest") {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestArtifactOfAnotherImage: every client that may push a tag can write a list of referrers. An artifact counts only if it names the image.
func TestArtifactOfAnotherImage(t *testing.T) {
	r := &registrytest.Registry{NoReferrers: true}
	c, image := mustOpen(t, r, Options{})
	r.PutBlob([]byte(layerText))
	other := image.Descriptor
	other.Digest = digest.FromString("other")
	put(r, "sha256-"+image.Descriptor.Digest.Encoded(), artifact(other))
	if a, data, err := c.Newest(t.Context(), image.Descriptor); a != nil || err != nil {
		t.Errorf("got %v, %q, %v; want none", a, data, err)
	}
}

func TestStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		header string
		want   string
	}{
		"Unauthorized": {401, "", "401 Unauthorized; log in"},
		"Forbidden":    {403, "", "403 Forbidden"},
		"Limited":      {429, "3600", "asks to wait for 1h0m0s"},
		"LimitedDate":  {429, time.Now().Add(24 * time.Hour).UTC().Format(http.TimeFormat), "asks to wait for"},
		"LimitedTwice": {429, "0", "429 Too Many Requests"},
		"NoHeader":     {429, "", "429 Too Many Requests"},
		"Down":         {500, "", "500 Internal Server Error"},
		"Busy":         {503, "0", "503 Service Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &registrytest.Registry{}
			c, image := mustOpen(t, r, Options{Credential: StaticCredential("me", "hunter2")})
			r.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				if tc.header != "" {
					w.Header().Set("Retry-After", tc.header)
				}
				w.WriteHeader(tc.status)
				fmt.Fprint(w, `{"errors": [{"code": "DENIED", "message": "body of the registry"}]}`)
				return true
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _, err := c.Newest(ctx, image.Descriptor)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), c.Host()) {
				t.Fatalf("got %v, want the host and %q", err, tc.want)
			}
			if strings.Contains(err.Error(), "body of") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the body or the password: %v", err)
			}
		})
	}
	t.Run("NotFound", func(t *testing.T) {
		s, addr := registrytest.New(t, &registrytest.Registry{})
		c, err := New(addr+"/team/app:v2", Options{Roots: trust(s)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Resolve(t.Context()); err == nil || !strings.Contains(err.Error(), "team/app:v2") || !strings.HasSuffix(err.Error(), "not found") {
			t.Errorf("got %v", err)
		}
	})
}

func TestRegistryThatAsksToWaitIsAskedAgain(t *testing.T) {
	r := &registrytest.Registry{}
	c, image := mustOpen(t, r, Options{})
	var seen sync.Map
	r.Intercept = func(w http.ResponseWriter, req *http.Request) bool {
		if _, before := seen.LoadOrStore(req.Method+req.URL.Path, true); before {
			return false
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	if _, err := c.Push(t.Context(), image.Descriptor, []byte(layerText), time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, data, err := c.Newest(t.Context(), image.Descriptor); err != nil || string(data) != layerText {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestTLS(t *testing.T) {
	r := &registrytest.Registry{}
	s, addr := registrytest.New(t, r)
	s.Config.ErrorLog = nil
	plain := httptest.NewServer(r)
	t.Cleanup(plain.Close)
	for name, tc := range map[string]struct {
		host string
		opt  Options
		want string
	}{
		"UnknownCA": {addr, Options{}, "--ca-file"},
		"NoTLS":     {plain.Listener.Addr().String(), Options{}, "--plain-http"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(tc.host+"/team/app:v1", tc.opt)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Resolve(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := SystemRoots([]byte("none")); err == nil {
		t.Error("a file without certificates is accepted")
	}
}

// TestProxy: behind a proxy, the proxy connects. The client rejects literal addresses anyway, and the proxy may have any address.
func TestProxy(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Host)
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	r := &registrytest.Registry{}
	c, image := mustOpen(t, r, Options{})
	r.PutBlob([]byte(layerText))
	put(r, "", artifact(image.Descriptor))
	at, _ := url.Parse(proxy.URL)
	c.guard.proxy = func(req *http.Request) (*url.URL, error) {
		if req.URL.Host == c.Host() {
			return nil, nil
		}
		return at, nil
	}
	for _, host := range []string{"host.example.com:443", "169.254.169.254:443"} {
		r.Intercept = ways["Redirect"](host)
		if _, _, err := c.Newest(t.Context(), image.Descriptor); err == nil {
			t.Error("the client got an answer")
		}
	}
	if len(asked) != 1 || asked[0] != "host.example.com:443" {
		t.Errorf("the proxy was asked for %v", asked)
	}
}

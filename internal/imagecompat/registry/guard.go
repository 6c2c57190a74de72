package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// maxBody is the maximum size of a response: a page of referrers, an index, a layer.
	maxBody = 1 << 20
	// maxHeader is the maximum size of the headers of a response. Tokens, the largest, have up to 16 KiB.
	maxHeader = 128 << 10
	// maxRedirects is the maximum number of redirects of a request.
	maxRedirects = 3
	// maxTries is the maximum number of times that a request is sent while the registry asks to wait.
	maxTries = 3
	// dialTimeout is the maximum time to connect to an address.
	dialTimeout = 5 * time.Second
)

// RefusedError reports an address that the registry names and that it must not make the client use.
type RefusedError struct {
	Host string
	Addr netip.Addr
}

// Error implements error.
func (e *RefusedError) Error() string {
	at := e.Addr.String()
	if e.Host != at {
		at = e.Host + " (" + at + ")"
	}
	return fmt.Sprintf("refused to connect to %s, which the registry names: the address is not public; if you trust it, pass --allow-host %s", at, e.Host)
}

// guard is the transport for one registry. The user named the registry, so that it may be at any address. Hosts that the registry names, in
// redirects and as realms of tokens, must have public addresses unless they are allowed: the client may be in a network whose services
// trust it.
type guard struct {
	registry string // host:port, as in URLs
	allowed  map[string]bool
	proxy    func(*http.Request) (*url.URL, error)
	proxies  sync.Map // of host:port
	resolver *net.Resolver
	base     *http.Transport
}

func newGuard(registry string, opt *Options) *guard {
	g := &guard{registry: registry, allowed: map[string]bool{hostname(registry): true}, proxy: http.ProxyFromEnvironment, resolver: opt.resolver}
	for _, host := range opt.AllowHosts {
		g.allowed[strings.ToLower(host)] = true
	}
	g.base = &http.Transport{
		Proxy: g.viaProxy, DialContext: g.dial, ForceAttemptHTTP2: true, DisableCompression: true, // a small compressed body can be large
		MaxResponseHeaderBytes: maxHeader, TLSHandshakeTimeout: dialTimeout,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: opt.Roots},
	}
	return g
}

// hostname returns the name in host:port, in lower case.
func hostname(hostport string) string {
	u := url.URL{Host: hostport}
	return strings.ToLower(u.Hostname())
}

// client returns the HTTP client. The authorizing client of oras around it deletes credentials from redirects to another host.
func (g *guard) client() *http.Client {
	return &http.Client{Transport: g, CheckRedirect: g.redirect}
}

// dial connects to an address. The check is made for the address that the connection uses, after the name is resolved, so that a name
// that resolves to another address at each look-up does not pass.
func (g *guard) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout, Resolver: g.resolver}
	host := hostname(addr)
	if _, proxy := g.proxies.Load(addr); !proxy && !g.allowed[host] {
		d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("invalid address %q", address)
			}
			if !public(ap.Addr()) {
				return &RefusedError{host, ap.Addr()}
			}
			return nil
		}
	}
	return d.DialContext(ctx, network, addr)
}

// viaProxy returns the user's proxy for a request, and remembers its address. The proxy then resolves and connects to what the registry
// names.
func (g *guard) viaProxy(req *http.Request) (*url.URL, error) {
	u, err := g.proxy(req)
	if u != nil {
		g.proxies.Store(withPort(u), true)
	}
	return u, err
}

func withPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// notPublic are ranges that are not the Internet, in addition to those that package netip knows.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // carrier-grade NAT; a cloud has its metadata there
	netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("fec0::/10"),
}

var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4 = netip.MustParsePrefix("2002::/16")
)

// public reports whether an address is on the Internet. Of an address that contains an IPv4 address, that one counts.
func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		switch b := a.As16(); {
		case nat64.Contains(a):
			a = netip.AddrFrom4([4]byte(b[12:16]))
		case sixTo4.Contains(a):
			a = netip.AddrFrom4([4]byte(b[2:6]))
		}
	}
	if !a.IsGlobalUnicast() || a.IsPrivate() { // neither loopback, link-local, unspecified nor multicast
		return false
	}
	for _, p := range notPublic {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// redirect implements the check of http.Client. Only blobs are redirected to another host, such as a bucket.
func (g *guard) redirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case req.URL.Scheme == first.URL.Scheme && strings.EqualFold(req.URL.Host, first.URL.Host):
		return nil
	case !strings.EqualFold(first.URL.Host, g.registry) || !strings.Contains(first.URL.Path, "/blobs/sha") || first.Method != http.MethodGet:
		return fmt.Errorf("refused a redirect to %s: only blobs may be at another host", req.URL.Host)
	case req.URL.Scheme != "https":
		return fmt.Errorf("refused a redirect to %s without TLS", req.URL.Host)
	}
	req.Header.Del("Authorization")
	return nil
}

// RoundTrip implements http.RoundTripper. If the registry asks to wait, it waits and sends the request again, unless the wait is longer
// than the time that is left.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	host := hostname(req.URL.Host)
	if a, err := netip.ParseAddr(host); err == nil && !g.allowed[host] && !public(a) { // dial sees only the address of a proxy
		return nil, &RefusedError{host, a}
	}
	for try := 1; ; try++ {
		resp, err := g.base.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		wait, asked := retryAfter(resp)
		if !asked || try == maxTries {
			resp.Body = &body{ReadCloser: resp.Body, host: req.URL.Host, left: maxBody}
			return resp, nil
		}
		_ = resp.Body.Close()
		if err := pause(req.Context(), req.URL.Host, wait); err != nil {
			return nil, err
		}
		if req, err = again(req); err != nil {
			return nil, err
		}
	}
}

// again returns the request with its body from the start.
func again(req *http.Request) (*http.Request, error) {
	out := req.Clone(req.Context())
	if req.Body == nil {
		return out, nil
	}
	if req.GetBody == nil {
		return nil, errors.New("the registry asks to wait, and the request cannot be sent again")
	}
	var err error
	out.Body, err = req.GetBody()
	return out, err
}

// retryAfter returns how long the server asks to wait, and whether it does.
func retryAfter(resp *http.Response) (time.Duration, bool) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	text := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}

// WaitError reports that a registry asks to wait for longer than there is time.
type WaitError struct {
	Host string
	Wait time.Duration
}

// Error implements error.
func (e *WaitError) Error() string {
	return fmt.Sprintf("%s limits requests and asks to wait for %s: try again then", e.Host, e.Wait.Round(time.Second))
}

func pause(ctx context.Context, host string, wait time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return &WaitError{host, wait}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// body limits the size of a response.
type body struct {
	io.ReadCloser
	host string
	left int64
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("%s sent more than %d bytes", b.host, maxBody)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more shows that there is more
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n + int(b.left), fmt.Errorf("%s sent more than %d bytes", b.host, maxBody)
	}
	return n, err
}

// SystemRoots returns the certificates that the system trusts, with those of a PEM file.
func SystemRoots(pem []byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate found: expected PEM with BEGIN CERTIFICATE")
	}
	return pool, nil
}

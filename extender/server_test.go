package extender_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/fleet/index"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

// sign returns a certificate for a name that is valid until the given time.
func (a *authority) sign(t *testing.T, name string, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// serve runs a server until the test ends, and returns its address.
func serve(t *testing.T, d *extender.Decider, o extender.Options) (addr string, stop func() error) {
	t.Helper()
	o.Addr = "127.0.0.1:0"
	s, err := extender.New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for s.Addr() == "" {
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
	}
	end := func() error { cancel(); return <-done }
	t.Cleanup(func() { cancel() })
	return s.Addr(), end
}

func question(t testing.TB) []byte {
	names := []string{"n1", "n2"}
	return body(t, extenderv1.ExtenderArgs{Pod: pod("batch", nil, nil), NodeNames: &names})
}

func TestAuthenticatesClients(t *testing.T) {
	ours, foreign := newAuthority(t), newAuthority(t)
	serving := ours.sign(t, "extender", time.Now().Add(time.Hour))
	refusals := make(chan string, 10)
	addr, _ := serve(t, decider(t), extender.Options{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
		ClientCAs:      ours.pool,
		Refused:        func(_ string, why error) { refusals <- why.Error() },
		Authenticate:   extender.StaticToken("prometheus", func() (string, error) { return "secret\n", nil }),
		Allowed:        []string{"system:kube-scheduler", "prometheus"},
		Metrics:        http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }),
	})
	hour := time.Now().Add(time.Hour)
	const refused = -1 // in the handshake
	for name, test := range map[string]struct {
		cert          *tls.Certificate
		scheme, token string
		path          string
		max           uint16
		want          int
		log           string
	}{
		"scheduler":            {cert: ptr(ours.sign(t, "system:kube-scheduler", hour)), path: "/filter", want: 200},
		"another user":         {cert: ptr(ours.sign(t, "system:node:n1", hour)), path: "/filter", want: 403, log: `user "system:node:n1" is not allowed to use the extender`},
		"expired certificate":  {cert: ptr(ours.sign(t, "system:kube-scheduler", time.Now().Add(-time.Hour))), path: "/filter", want: refused, log: "certificate has expired"},
		"foreign certificate":  {cert: ptr(foreign.sign(t, "system:kube-scheduler", hour)), path: "/filter", want: refused, log: "signed by unknown authority"},
		"anonymous":            {path: "/filter", want: 401, log: "a client certificate or a bearer token is required"},
		"anonymous metrics":    {path: "/metrics", want: 401, log: "a client certificate or a bearer token is required"},
		"anonymous features":   {path: "/v1/nodes/n1/features", want: 401, log: "a client certificate or a bearer token is required"},
		"anonymous health":     {path: "/healthz", want: 200},
		"token":                {token: "secret", path: "/metrics", want: 200},
		"scheme in lower case": {scheme: "bearer", token: "secret", path: "/metrics", want: 200},
		"another scheme":       {scheme: "Basic", token: "secret", path: "/metrics", want: 401, log: "a client certificate or a bearer token is required"},
		"empty token":          {token: " ", path: "/metrics", want: 401, log: "a client certificate or a bearer token is required"},
		"wrong token":          {token: "guess", path: "/metrics", want: 401, log: "invalid bearer token"},
		"old TLS":              {path: "/healthz", max: tls.VersionTLS12, want: refused, log: "unsupported versions"},
	} {
		t.Run(name, func(t *testing.T) {
			config := &tls.Config{RootCAs: ours.pool(), MaxVersion: test.max} //nolint:gosec // on purpose
			if test.cert != nil {
				// Send the certificate whatever authorities the server names, as an attacker would.
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return test.cert, nil }
			}
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
			method := http.MethodGet
			if test.path == "/filter" {
				method = http.MethodPost
			}
			req, err := http.NewRequestWithContext(t.Context(), method, "https://"+addr+test.path, bytes.NewReader(question(t)))
			if err != nil {
				t.Fatal(err)
			}
			if test.token != "" {
				req.Header.Set("Authorization", cmp.Or(test.scheme, "Bearer")+" "+test.token)
			}
			got := refused
			if resp, err := c.Do(req); err == nil {
				got = resp.StatusCode
				resp.Body.Close()
			}
			if got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
			if test.log == "" {
				if len(refusals) > 0 {
					t.Errorf("the administrator reads %q", <-refusals)
				}
			} else if text := <-refusals; !strings.Contains(text, test.log) {
				t.Errorf("the administrator reads %q, want %q", text, test.log)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestTokensAreReviewedOncePerMinute(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	asked := 0
	a := extender.Reviewed(func(_ context.Context, r *authenticationv1.TokenReview) error {
		asked++
		r.Status.Authenticated, r.Status.User.Username = r.Spec.Token == "good", "alice"
		return nil
	}, clk)
	for range 3 {
		if user, err := a(t.Context(), "good"); user != "alice" || err != nil {
			t.Fatalf("got %q, %v", user, err)
		}
	}
	if _, err := a(t.Context(), "bad"); err == nil {
		t.Error("a bad token is accepted")
	}
	clk.SetTime(time.Unix(61, 0))
	if _, err := a(t.Context(), "good"); err != nil || asked != 3 {
		t.Errorf("the API server was asked %d times, want 3 (%v)", asked, err)
	}
}

// TestFewTokensAreReviewedAtOnce: a client that reaches the port can send any number of tokens; they must not all cause concurrent
// requests to the API server.
func TestFewTokensAreReviewedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		let := make(chan struct{})
		a := extender.Reviewed(func(_ context.Context, r *authenticationv1.TokenReview) error {
			asked.Add(1)
			<-let
			r.Status.Authenticated = true
			return nil
		}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var refused atomic.Int32
		for i := range 100 {
			go func() {
				if _, err := a(ctx, fmt.Sprint("token ", i)); err != nil {
					refused.Add(1)
				}
			}()
		}
		<-ctx.Done()
		synctest.Wait()
		if asked.Load() != 4 || refused.Load() != 96 {
			t.Errorf("the API server was asked %d times, %d were refused meanwhile", asked.Load(), refused.Load())
		}
		close(let)
		synctest.Wait()
	})
}

// TestTakesOverNewAuthorities: an authority is replaced at run time. Clients of the new one are allowed immediately, clients of the
// old one are rejected.
func TestTakesOverNewAuthorities(t *testing.T) {
	old, next := newAuthority(t), newAuthority(t)
	serving := old.sign(t, "extender", time.Now().Add(time.Hour))
	var signers atomic.Pointer[x509.CertPool]
	addr, _ := serve(t, decider(t), extender.Options{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
		ClientCAs:      signers.Load,
	})
	ask := func(by *authority) bool {
		cert := by.sign(t, "system:kube-scheduler", time.Now().Add(time.Hour))
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			RootCAs: old.pool(), MinVersion: tls.VersionTLS13,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
		}}}
		resp, err := c.Post("https://"+addr+"/filter", "application/json", bytes.NewReader(question(t)))
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	for _, step := range []struct {
		name          string
		signers       *x509.CertPool
		byOld, byNext bool
	}{{"none", nil, false, false}, {"old", old.pool(), true, false}, {"next", next.pool(), false, true}} {
		signers.Store(step.signers)
		if o, n := ask(old), ask(next); o != step.byOld || n != step.byNext {
			t.Errorf("with %s: the old authority's is accepted: %t, the next one's: %t", step.name, o, n)
		}
	}
}

// A replica that shuts down becomes unready immediately, and answers until the load balancer has removed it.
func TestAnswersDuringTheShutdownDelay(t *testing.T) {
	const delay = 5 * time.Second
	synctest.Test(t, func(t *testing.T) {
		p, cancel, done := startSlowly(t, extender.Options{Addr: "127.0.0.1:0", ShutdownDelay: delay})
		answered(t, p)
		cancel()
		start := time.Now()
		synctest.Wait()
		answered(t, p)
		c := p.dial()
		go func() { _, _ = io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n") }()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("it is %s", resp.Status)
		}
		_, _ = resp.Body.Close(), c.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < delay || took > delay+time.Second {
			t.Errorf("it went on for %s, want %s", took, delay)
		}
	})
}

// TestPortScansAreNotReported: port scanners and load balancer probes are not reported; a scheduler with a wrong certificate is.
func TestPortScansAreNotReported(t *testing.T) {
	for line, want := range map[string]string{
		"http: TLS handshake error from 10.0.0.1:4711: remote error: tls: bad certificate":                                    "10.0.0.1 refused: TLS handshake: remote error: tls: bad certificate",
		"http: TLS handshake error from [fd00::1]:4711: tls: client offered only unsupported versions: [303]":                 "fd00::1 refused: TLS handshake: tls: client offered only unsupported versions: [303]",
		"http: TLS handshake error from 10.0.0.1:4711: EOF":                                                                   "",
		"http: TLS handshake error from 10.0.0.1:4711: read tcp 10.0.0.2:8443->10.0.0.1:4711: read: connection reset by peer": "",
		"http: Accept error: accept tcp 10.0.0.2:8443: accept4: too many open files; retrying in 5ms":                         "http: Accept error: accept tcp 10.0.0.2:8443: accept4: too many open files; retrying in 5ms",
	} {
		got := ""
		log := extender.Complaints(
			func(from string, why error) { got = from + " refused: " + why.Error() }, func(err error) { got = err.Error() },
		)
		if _, err := io.WriteString(log, line+"\n"); err != nil || got != want {
			t.Errorf("%s: got %q, want %q (%v)", line, got, want, err)
		}
	}
}

// TestReportsAPanic: an internal error is reported and affects one request only.
func TestReportsAPanic(t *testing.T) {
	reports := make(chan string, 1)
	addr, _ := serve(t, decider(t), extender.Options{
		Pod:    func(context.Context, string, string) (*corev1.Pod, error) { panic("of a test") },
		Report: func(err error) { reports <- err.Error() },
	})
	if resp, err := http.Get("http://" + addr + "/v1/explain?pod=batch/p"); err == nil {
		resp.Body.Close()
		t.Errorf("the answer is %s", resp.Status)
	}
	if text := <-reports; !strings.Contains(text, "of a test") {
		t.Errorf("the report is %q", text)
	}
	resp, err := http.Get("http://" + addr + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func TestServesPlainHTTPToItsOwnPodOnly(t *testing.T) {
	for _, addr := range []string{":8888", "0.0.0.0:8888", "10.0.0.1:8888", "localhost:8888", ""} {
		if _, err := extender.New(decider(t), extender.Options{Addr: addr}); err == nil {
			t.Errorf("%q is served without TLS", addr)
		}
	}
	anyone := func(context.Context, string) (string, error) { return "user", nil }
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none") }
	for name, tc := range map[string]struct {
		opt extender.Options
		ok  bool
	}{
		"NoClients":    {extender.Options{Addr: ":8888", GetCertificate: certificate}, false},
		"Tokens":       {extender.Options{Addr: ":8888", GetCertificate: certificate, Authenticate: anyone}, true},
		"Loopback":     {extender.Options{Addr: "127.0.0.1:8888"}, true},
		"LoopbackOfV6": {extender.Options{Addr: "[::1]:8888"}, true},
	} {
		if _, err := extender.New(decider(t), tc.opt); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnswersWithAnErrorWhileItIsNotReliable: filter reports it in its answer, which kube-scheduler shows, and prioritize as a status.
func TestAnswersWithAnErrorWhileItIsNotReliable(t *testing.T) {
	var reliable atomic.Bool
	addr, _ := serve(t, decider(t), extender.Options{Ready: func() error {
		if !reliable.Load() {
			return errors.New("no NodeFeature was read for an hour")
		}
		return nil
	}})
	ask := func(verb string) (code int, answer string) {
		resp, err := http.Post("http://"+addr+verb, "application/json", bytes.NewReader(question(t)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(data)
	}
	for verb, want := range map[string]int{"/filter": 200, "/prioritize": 503, "/preempt": 503} {
		if code, answer := ask(verb); code != want || !strings.Contains(answer, "not ready: no NodeFeature was read for an hour") {
			t.Errorf("%s: %d, %s", verb, code, answer)
		}
	}
	reliable.Store(true)
	if code, answer := ask("/filter"); code != 200 || strings.Contains(answer, "not ready") {
		t.Errorf("filter once it is ready: %d, %s", code, answer)
	}
}

func TestIsReadyOnlyWhenSynced(t *testing.T) {
	d := decider(t)
	d.Index = index.New()
	addr, _ := serve(t, d, extender.Options{Pod: func(context.Context, string, string) (*corev1.Pod, error) {
		return pod("batch", nil, nil), nil
	}})
	get := func(path string) int {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if code := get("/readyz"); code != 503 {
		t.Errorf("readyz is %d before the nodes are known", code)
	}
	if code := get("/healthz"); code != 200 {
		t.Errorf("healthz is %d", code)
	}
	resp, err := http.Post("http://"+addr+"/filter", "application/json", bytes.NewReader(question(t)))
	if err != nil {
		t.Fatal(err)
	}
	var got extenderv1.ExtenderFilterResult
	if err := errors.Join(json.NewDecoder(resp.Body).Decode(&got), resp.Body.Close()); err != nil || got.Error == "" {
		t.Errorf("got %+v (%v), want an Error and no empty answer", got, err)
	}
	for _, path := range []string{"/v1/nodes/n1/features", "/v1/explain?pod=batch/p"} {
		if code := get(path); code != 503 {
			t.Errorf("%s: %d before the nodes are known", path, code)
		}
	}
	d.Index.SetSynced()
	if code := get("/readyz"); code != 200 {
		t.Errorf("readyz is %d once the nodes are known", code)
	}
}

func TestRefusesWhatIsTooLarge(t *testing.T) {
	addr, _ := serve(t, decider(t), extender.Options{})
	for name, length := range map[string]int64{"with its length": 100<<20 + 8, "without": -1} {
		// A separate body per request: the client may still be sending the first when the response arrives.
		huge := io.MultiReader(strings.NewReader(`{"Pod":"`), io.LimitReader(endless{}, 100<<20))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/filter", huge)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = length
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue // the connection was closed while sending
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
}

func TestReadsWhatIsAtTheLimit(t *testing.T) {
	addr, _ := serve(t, decider(t), extender.Options{})
	const limit = 4 << 20
	head, tail := `{"Pod":{"a":"`, `"},"NodeNames":["n1"]}`
	for size, want := range map[int]int{limit: http.StatusOK, limit + 1: http.StatusRequestEntityTooLarge} {
		body := head + strings.Repeat("a", size-len(head)-len(tail)) + tail
		for _, length := range []int64{int64(size), -1} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/filter", io.NopCloser(strings.NewReader(body)))
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = length
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				if want == http.StatusOK {
					t.Errorf("%d bytes: %v", size, err)
				}
				continue // the connection was closed while sending
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%d bytes, said to be %d: %d, want %d", size, length, resp.StatusCode, want)
			}
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func TestLetsRequestsUnderWayFinish(t *testing.T) {
	d := decider(t)
	entered, let := make(chan struct{}), make(chan struct{})
	addr, stop := serve(t, d, extender.Options{Pod: func(context.Context, string, string) (*corev1.Pod, error) {
		close(entered)
		<-let
		return pod("batch", nil, nil), nil
	}})
	code := make(chan int)
	go func() {
		resp, err := http.Get("http://" + addr + "/v1/explain?pod=batch/p")
		if err != nil {
			code <- 0
			return
		}
		resp.Body.Close()
		code <- resp.StatusCode
	}()
	<-entered
	stopped := make(chan error)
	go func() { stopped <- stop() }()
	for { // the listener is closed first
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	close(let)
	if got := <-code; got != 200 {
		t.Errorf("the request under way got %d", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestKeepsTheConnectionOfAScheduler reads responses as kube-scheduler does: to the end of the JSON, not of the body.
func TestKeepsTheConnectionOfAScheduler(t *testing.T) {
	d, request := benchRequest(t, 5000)
	addr, _ := serve(t, d, extender.Options{})
	dials := 0
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}}
	for range 10 {
		resp, err := c.Post("http://"+addr+"/filter", "application/json", bytes.NewReader(request))
		if err != nil {
			t.Fatal(err)
		}
		var got extenderv1.ExtenderFilterResult
		err = json.NewDecoder(resp.Body).Decode(&got)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if dials != 1 {
		t.Errorf("10 questions took %d connections", dials)
	}
}

func TestExplains(t *testing.T) {
	addr, _ := serve(t, decider(t), extender.Options{Pod: func(_ context.Context, namespace, name string) (*corev1.Pod, error) {
		if name != "p" {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
		}
		return pod(namespace, nil, nil), nil
	}})
	get := func(path string, into any) int {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
				t.Fatal(err)
			}
		}
		return resp.StatusCode
	}
	var got extender.Explanation
	if code := get("/v1/explain?pod=batch/p&node=n1", &got); code != 200 {
		t.Fatal(code)
	}
	const lacks = "cpu.cpuid/AMXBF16"
	want := extender.Explanation{
		Pod: "batch/p", Origins: []string{"policy batch"}, Nodes: 10, Matching: 1, Sample: []string{"n2"},
		Missing:  []extender.Missing{{Reason: "node feature requirement not met: " + lacks, Nodes: 9, Sample: []string{"n0", "n1", "n3", "n4", "n5"}}},
		Node:     "n1",
		Findings: []index.Finding{{Origin: "policy batch", Lacks: lacks, Why: lacks + " is missing"}},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for path, want := range map[string]int{
		"/v1/explain?pod=batch/q": 404, "/v1/explain?pod=p": 400, "/v1/explain?pod=/p": 400, "/v1/explain?pod=batch/": 400, "/v1/explain": 400, "/v1/explain?pod=batch/p&node=zz": 404, "/v1/nodes/zz/features": 404,
	} {
		if code := get(path, nil); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	var features struct {
		Features struct {
			Flags map[string]struct{ Elements map[string]any }
		}
	}
	if code := get("/v1/nodes/n2/features", &features); code != 200 {
		t.Fatal(code)
	}
	if _, ok := features.Features.Flags["cpu.cpuid"].Elements["AMXBF16"]; !ok {
		t.Errorf("got %+v", features)
	}
}

// BenchmarkServer sends requests over loopback, and reports the median latency and the worst of 100 requests.
func BenchmarkServer(b *testing.B) {
	for _, n := range []int{500, 5000, 15000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, request := benchRequest(b, n)
			var inside []time.Duration
			s, err := extender.New(d, extender.Options{
				Addr:    "127.0.0.1:0",
				Observe: func(_, _ string, took time.Duration) { inside = append(inside, took) },
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					b.Error(err)
				}
			}()
			for s.Addr() == "" {
				time.Sleep(time.Millisecond)
			}
			var all []time.Duration
			for b.Loop() {
				start := time.Now()
				resp, err := http.Post("http://"+s.Addr()+"/filter", "application/json", bytes.NewReader(request))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				all = append(all, time.Since(start))
			}
			slices.Sort(all)
			slices.Sort(inside)
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs/median")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "µs/p99")
			b.ReportMetric(float64(inside[len(inside)*99/100].Microseconds()), "µs/p99-in-server")
		})
	}
}

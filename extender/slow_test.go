package extender_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/assay-project/assay/extender"
)

// pipes is a network without buffers for package synctest, in which a test controls the time.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.dialed <- server
	return client
}

// startSlowly runs a server in a synctest bubble. It ends after cancel is called, and then closes done.
func startSlowly(t *testing.T, o extender.Options) (p *pipes, cancel context.CancelFunc, done <-chan error) {
	t.Helper()
	s, err := extender.New(decider(t), o)
	if err != nil {
		t.Fatal(err)
	}
	p = &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, p) }()
	return p, cancel, ended
}

// serveSlowly runs a server in a synctest bubble until the function returns, and passes it the network.
func serveSlowly(t *testing.T, options func(t *testing.T) extender.Options, f func(t *testing.T, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, cancel, done := startSlowly(t, options(t))
		f(t, p)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func plain(*testing.T) extender.Options { return extender.Options{Addr: "127.0.0.1:0"} }

// answered sends a request as a scheduler does and expects an immediate response.
func answered(t *testing.T, p *pipes) {
	t.Helper()
	start := time.Now()
	c := p.dial()
	defer func() { _ = c.Close() }()
	request := question(t)
	go func() {
		_, _ = fmt.Fprintf(c, "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(request), request)
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"NodeNames":["n2"]`)) {
		t.Errorf("got %s (%v): %s", resp.Status, err, answer)
	}
	if took := time.Since(start); took != 0 { // in the bubble's time, which only advances while waiting
		t.Errorf("it waited %s for others", took)
	}
}

// cut waits until the server has closed a connection, and expects that after the given time.
func cut(t *testing.T, closed <-chan time.Time, start time.Time, want time.Duration) {
	t.Helper()
	if took := (<-closed).Sub(start); took < want || took > want+time.Second {
		t.Errorf("the client was cut off after %s, want %s", took, want)
	}
}

// dribble writes a byte every tenth of a second until that fails, and returns when it failed.
func dribble(c io.Writer, text string) <-chan time.Time {
	closed := make(chan time.Time, 1)
	go func() {
		for _, err := io.WriteString(c, text); err == nil; {
			time.Sleep(100 * time.Millisecond)
			_, err = io.WriteString(c, " ")
		}
		closed <- time.Now()
	}()
	return closed
}

func TestCutsOffClientsThatSendSlowly(t *testing.T) {
	for name, begin := range map[string]string{
		"headers":      "POST /filter HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"body":         "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n",
		"small body":   "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 400\r\n\r\n",
		"endless body": "POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			serveSlowly(t, plain, func(t *testing.T, p *pipes) {
				start := time.Now()
				slow := p.dial()
				go func() { _, _ = io.Copy(io.Discard, slow) }()
				closed := dribble(slow, begin)
				synctest.Wait()
				answered(t, p)
				cut(t, closed, start, extender.ReadTimeout)
				answered(t, p)
			})
		})
	}
}

// TestSilentClientsKeepNoneWaiting: data that clients announce and do not send uses no memory that requests of a scheduler need.
func TestSilentClientsKeepNoneWaiting(t *testing.T) {
	for name, begin := range map[string]string{
		"nothing":         "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n",
		"a byte":          "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n{",
		"a byte and more": "POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			serveSlowly(t, plain, func(t *testing.T, p *pipes) {
				for range 70 {
					c := p.dial()
					defer func() { _ = c.Close() }()
					if _, err := io.WriteString(c, begin); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				answered(t, p)
			})
		})
	}
}

func TestCutsOffClientsThatNeverReadTheirAnswer(t *testing.T) {
	serveSlowly(t, plain, func(t *testing.T, p *pipes) {
		start := time.Now()
		deaf := p.dial()
		request := question(t)
		_, _ = fmt.Fprintf(deaf, "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(request), request)
		synctest.Wait() // blocked in its response
		answered(t, p)
		closed := make(chan time.Time, 1)
		go func() { // a write detects that the connection is closed, without reading from it
			for _, err := deaf.Write([]byte("x")); err == nil; _, err = deaf.Write([]byte("x")) {
				time.Sleep(100 * time.Millisecond)
			}
			closed <- time.Now()
		}()
		cut(t, closed, start, extender.WriteTimeout)
		answered(t, p)
	})
}

// TestForgetsClientsThatHangUp: each of them has reserved the memory of a large request, of which there is not enough for all.
func TestForgetsClientsThatHangUp(t *testing.T) {
	for name, begin := range map[string]string{
		"in headers":      "POST /filter HTTP/1.1\r\nHost: x\r\nX-",
		"in the body":     "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n{",
		"in a chunk":      "POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n{",
		"when it answers": "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
	} {
		t.Run(name, func(t *testing.T) {
			serveSlowly(t, plain, func(t *testing.T, p *pipes) {
				for range 50 {
					c := p.dial()
					if _, err := io.WriteString(c, begin); err != nil {
						t.Fatal(err)
					}
					synctest.Wait() // waiting for more data, or blocked in its response
					_ = c.Close()
				}
				synctest.Wait()
				answered(t, p)
			})
		})
	}
}

func TestCutsOffClientsThatNeverShakeHands(t *testing.T) {
	options := func(t *testing.T) extender.Options { return newAuthority(t).options(t) }
	serveSlowly(t, options, func(t *testing.T, p *pipes) {
		start := time.Now()
		silent := p.dial()
		if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want the end", err)
		}
		if took := time.Since(start); took != extender.ReadTimeout {
			t.Errorf("it took %s", took)
		}
	})
}

// options returns options of a server whose certificate the authority has signed.
func (a *authority) options(t *testing.T) extender.Options {
	serving := a.sign(t, "extender", time.Now().Add(time.Hour))
	return extender.Options{
		Addr: "127.0.0.1:0", ClientCAs: a.pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
	}
}

// slowBody is an endless body that yields a byte every tenth of a second.
type slowBody struct{}

func (slowBody) Read(p []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	p[0] = ' '
	return 1, nil
}

// TestCutsOffSlowStreams does the same over HTTP/2, which schedulers use with TLS: one connection has many requests.
func TestCutsOffSlowStreams(t *testing.T) {
	var ca *authority
	options := func(t *testing.T) extender.Options {
		ca = newAuthority(t) // in the bubble, whose time begins in the year 2000
		return ca.options(t)
	}
	serveSlowly(t, options, func(t *testing.T, p *pipes) {
		dials := 0
		scheduler := ca.sign(t, "system:kube-scheduler", time.Now().Add(time.Hour))
		c := &http.Client{Transport: &http.Transport{
			ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{
				RootCAs: ca.pool(), ServerName: "127.0.0.1", Certificates: []tls.Certificate{scheduler}, MinVersion: tls.VersionTLS13,
			},
			DialContext: func(context.Context, string, string) (net.Conn, error) { dials++; return p.dial(), nil },
		}}
		defer c.CloseIdleConnections()
		ask := func(body io.Reader) (string, error) {
			resp, err := c.Post("https://extender/filter", "application/json", body)
			if err != nil {
				return "", err
			}
			answer, err := io.ReadAll(resp.Body)
			return string(answer), errors.Join(err, resp.Body.Close())
		}
		start := time.Now()
		cutOff := make(chan time.Time, 1)
		go func() {
			_, _ = ask(slowBody{})
			cutOff <- time.Now()
		}()
		time.Sleep(time.Second)
		if answer, err := ask(bytes.NewReader(question(t))); err != nil || !strings.Contains(answer, `"NodeNames":["n2"]`) || time.Since(start) != time.Second {
			t.Errorf("after %s: %v, %s", time.Since(start), err, answer)
		}
		cut(t, cutOff, start, extender.ReadTimeout)
		if dials != 1 {
			t.Errorf("%d connections", dials)
		}
	})
}

package publish

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// Config configures the connection to an API server. It is the part of client-go's configuration that a worker needs: a pod's
// service account, and kubeconfigs with certificates or tokens. client-go itself would add 3.8 MB to the binary and 1.9 MB to the
// memory on every node.
type Config struct {
	// Server is the URL of the API server, such as https://10.0.0.1:443.
	Server string
	// CA contains the PEM certificates to verify the server's certificate with; empty: those of the system.
	CA []byte
	// ServerName replaces the host name in that verification.
	ServerName string
	// Insecure disables the verification.
	Insecure bool
	// Token is sent with each request; TokenFile is reloaded when it changes, and has precedence.
	Token     string
	TokenFile string
	// Cert and Key are a client certificate in PEM.
	Cert, Key []byte
	// Proxy is the URL of an HTTP proxy; empty: that of the environment.
	Proxy string
	// UserAgent is sent with each request.
	UserAgent string
	// Transport replaces the connection to the server in tests; nil: none.
	Transport http.RoundTripper
}

// Same reports whether both configurations lead to the same server as the same user.
func (c *Config) Same(other *Config) bool {
	return reflect.DeepEqual(c, other)
}

// serviceAccountDir is the directory in which the kubelet mounts a pod's credentials.
const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// ErrNoCluster means that the process does not run in a pod.
var ErrNoCluster = errors.New("not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")

// InCluster returns the configuration of a pod.
func InCluster() (*Config, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, ErrNoCluster
	}
	ca, err := os.ReadFile(filepath.Join(serviceAccountDir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	return &Config{
		Server:    "https://" + net.JoinHostPort(host, port),
		CA:        ca,
		TokenFile: filepath.Join(serviceAccountDir, "token"),
	}, nil
}

// kubeconfig is the supported part of a kubeconfig.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string `yaml:"name"`
		Cluster struct {
			Server     string `yaml:"server"`
			CAFile     string `yaml:"certificate-authority"`
			CAData     string `yaml:"certificate-authority-data"`
			ServerName string `yaml:"tls-server-name"`
			Insecure   bool   `yaml:"insecure-skip-tls-verify"`
			Proxy      string `yaml:"proxy-url"`
		} `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User struct {
			CertFile  string    `yaml:"client-certificate"`
			CertData  string    `yaml:"client-certificate-data"`
			KeyFile   string    `yaml:"client-key"`
			KeyData   string    `yaml:"client-key-data"`
			Token     string    `yaml:"token"`
			TokenFile string    `yaml:"tokenFile"`
			Exec      yaml.Node `yaml:"exec"`
			Provider  yaml.Node `yaml:"auth-provider"`
		} `yaml:"user"`
	} `yaml:"users"`
}

// FromKubeconfig returns the configuration of the current context of a file. Relative paths in it are relative to its directory.
func FromKubeconfig(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := parseKubeconfig(data, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return c, nil
}

func parseKubeconfig(data []byte, dir string) (*Config, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(data, &k); err != nil {
		return nil, err
	}
	c := &Config{}
	cluster, user := "", ""
	for _, ctx := range k.Contexts {
		if ctx.Name == k.CurrentContext {
			cluster, user = ctx.Context.Cluster, ctx.Context.User
		}
	}
	var errs []error
	load := func(data, file string) []byte {
		out, err := dataOrFile(data, file, dir)
		errs = append(errs, err)
		return out
	}
	for _, e := range k.Clusters {
		if e.Name == cluster {
			c.Server, c.ServerName, c.Insecure, c.Proxy = e.Cluster.Server, e.Cluster.ServerName, e.Cluster.Insecure, e.Cluster.Proxy
			c.CA = load(e.Cluster.CAData, e.Cluster.CAFile)
		}
	}
	for _, e := range k.Users {
		if e.Name != user {
			continue
		}
		if !e.User.Exec.IsZero() || !e.User.Provider.IsZero() {
			return nil, fmt.Errorf("user %q uses an exec plugin, which the worker does not support: use a token or a certificate", user)
		}
		c.Token = e.User.Token
		c.Cert, c.Key = load(e.User.CertData, e.User.CertFile), load(e.User.KeyData, e.User.KeyFile)
		if e.User.TokenFile != "" {
			c.TokenFile = under(dir, e.User.TokenFile)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Server == "" {
		return nil, fmt.Errorf("current-context %q has no cluster with a server", k.CurrentContext)
	}
	return c, nil
}

func dataOrFile(data, file, dir string) ([]byte, error) {
	switch {
	case data != "":
		return base64.StdEncoding.DecodeString(data)
	case file != "":
		return os.ReadFile(under(dir, file))
	}
	return nil, nil
}

func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// A dead connection of an idle watch must be detected, but a worker that wakes up to check it costs CPU on every node: an HTTP/2
// ping takes 0.3 ms, which every 30 s is most of the CPU time of an idle worker. Therefore the kernel probes the peer (keepAlive),
// which costs this process nothing; the bookmarks that an API server sends once a minute show that the server behind a load
// balancer is alive; and the client only pings if no bookmark arrives.
const (
	// pingAfter is longer than two bookmark intervals of a minute, so that one bookmark may be late.
	pingAfter   = 150 * time.Second
	pingTimeout = 15 * time.Second
	// deadAfter is how long sent data or a keep-alive probe may remain unacknowledged.
	deadAfter = 45 * time.Second
)

// keepAlive sends a probe after 30 s of silence, and three within deadAfter.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// transport returns the HTTP transport.
func (c *Config) transport() (http.RoundTripper, error) {
	if c.Transport != nil {
		return c.Transport, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.Insecure} //nolint:gosec // requested by the user
	if len(c.CA) > 0 {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("the certificate authority contains no PEM certificate")
		}
	}
	if len(c.Cert) > 0 {
		pair, err := tls.X509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	proxy := http.ProxyFromEnvironment
	if c.Proxy != "" {
		u, err := url.Parse(c.Proxy)
		if err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
		proxy = http.ProxyURL(u)
	}
	return &authenticated{
		userAgent: c.UserAgent,
		token:     token{text: c.Token, file: c.TokenFile},
		next: &http.Transport{
			Proxy:               proxy,
			TLSClientConfig:     conf,
			TLSHandshakeTimeout: 10 * time.Second,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAliveConfig: keepAlive, Control: limitSilence}).DialContext,
			ForceAttemptHTTP2:   true,
			MaxIdleConns:        2,
			IdleConnTimeout:     90 * time.Second,
			HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		},
	}, nil
}

// authenticated adds the credentials to each request.
type authenticated struct {
	userAgent string
	token     token
	next      http.RoundTripper
}

func (a *authenticated) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if a.userAgent != "" {
		req.Header.Set("User-Agent", a.userAgent)
	}
	bearer, err := a.token.read()
	if err != nil {
		return nil, err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	res, err := a.next.RoundTrip(req)
	if err == nil && res.StatusCode == http.StatusUnauthorized {
		a.token.expire()
	}
	return res, err
}

// tokenLife is how long a token is used before its file is read again. The kubelet renews it when a fifth of its lifetime is left,
// which is at least two minutes.
const tokenLife = time.Minute

// token is a bearer token, possibly from a file. It is safe for concurrent use.
type token struct {
	file string

	mu    sync.Mutex
	text  string
	since time.Time
}

func (t *token) read() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == "" || t.text != "" && time.Since(t.since) < tokenLife {
		return t.text, nil
	}
	data, err := os.ReadFile(t.file)
	if err != nil {
		return "", fmt.Errorf("service account token: %w", err)
	}
	t.text, t.since = strings.TrimSpace(string(data)), time.Now()
	return t.text, nil
}

// expire makes the next request read the file again.
func (t *token) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Time{}
}

// Package cluster reads what a command asks for from an API server, as kubectl would.
package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/assay-project/assay/internal/build"
)

const (
	// dialTimeout is how long a cluster may take to answer at all. kubectl's half a minute is an age for a person.
	dialTimeout = 4 * time.Second
	// requestTimeout bounds one request.
	requestTimeout = time.Minute
)

// Flags are kubectl's flags for choosing a cluster.
type Flags struct {
	Kubeconfig string
	Namespace  string

	overrides clientcmd.ConfigOverrides
	timeout   string
}

// Register adds the flags under kubectl's names.
func (f *Flags) Register(flags *pflag.FlagSet) {
	f.RegisterMost(flags)
	flags.StringVar(&f.overrides.Context.Cluster, "cluster", "", "cluster of the kubeconfig")
}

// RegisterMost adds all flags but --cluster, which means something else where a cluster is an option.
func (f *Flags) RegisterMost(flags *pflag.FlagSet) {
	o := &f.overrides
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file; $KUBECONFIG and ~/.kube/config by default")
	flags.StringVar(&o.CurrentContext, "context", "", "context of the kubeconfig")
	flags.StringVar(&o.Context.AuthInfo, "user", "", "user of the kubeconfig")
	flags.StringVarP(&f.Namespace, "namespace", "n", "assay-system", "namespace of Assay's own objects")
	flags.StringVarP(&o.ClusterInfo.Server, "server", "s", "", "address of the API server")
	flags.StringVar(&o.AuthInfo.Token, "token", "", "bearer token")
	flags.StringVar(&o.AuthInfo.Impersonate, "as", "", "user to impersonate")
	flags.StringArrayVar(&o.AuthInfo.ImpersonateGroups, "as-group", nil, "group to impersonate; may be repeated")
	flags.StringVar(&o.AuthInfo.ImpersonateUID, "as-uid", "", "UID to impersonate")
	flags.StringVar(&o.ClusterInfo.CertificateAuthority, "certificate-authority", "", "file with the CA of the API server")
	flags.BoolVar(&o.ClusterInfo.InsecureSkipTLSVerify, "insecure-skip-tls-verify", false, "do not check the API server's certificate")
	flags.StringVar(&o.ClusterInfo.TLSServerName, "tls-server-name", "", "name that the API server's certificate must have")
	flags.StringVar(&f.timeout, "request-timeout", "", "how long one request may take, such as 30s")
}

func (f *Flags) kubeconfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &f.overrides)
}

// ContextNamespace is the namespace in which kubectl looks for what is named without one: that of the context, or "default".
func (f *Flags) ContextNamespace() string {
	namespace, _, err := f.kubeconfig().Namespace()
	if err != nil {
		return metav1.NamespaceDefault // Connect says what is wrong
	}
	return namespace
}

// Connect returns a client. It does not talk to the API server yet.
func (f *Flags) Connect() (*Client, error) {
	config, err := f.kubeconfig().ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			return nil, fmt.Errorf("which cluster? there is no kubeconfig: set $KUBECONFIG or give --kubeconfig FILE")
		}
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	timeout := requestTimeout
	if f.timeout != "" && f.timeout != "0" {
		if timeout, err = time.ParseDuration(f.timeout); err != nil {
			return nil, fmt.Errorf("--request-timeout: %w", err)
		}
	}
	config.Dial = (&net.Dialer{Timeout: min(dialTimeout, timeout)}).DialContext
	config.UserAgent = "assay/" + build.Version()
	config.Timeout = timeout
	return newClient(config)
}

func newClient(config *rest.Config) (*Client, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	hc, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{base: base, http: hc, agent: config.UserAgent}, nil
}

// Client reads objects as JSON. It is safe for concurrent use.
type Client struct {
	base  *url.URL
	http  *http.Client
	agent string
}

// Server is the address of the API server.
func (c *Client) Server() string { return c.base.String() }

func (c *Client) request(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	return c.send(ctx, http.MethodGet, path, query, "", nil)
}

func (c *Client) send(ctx context.Context, method, path string, query url.Values, contentType string, body []byte) (*http.Response, error) {
	u := *c.base
	u.Path = joinPath(u.Path, path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.agent)
	return c.http.Do(req)
}

// Package cluster reads objects from an API server with the flags of kubectl.
package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/assay-project/assay/internal/build"
)

const (
	// dialTimeout is the maximum time to connect to the API server. kubectl's 30 seconds are too long for interactive use.
	dialTimeout = 4 * time.Second
	// requestTimeout is the maximum time of one request.
	requestTimeout = time.Minute
)

// Flags are the flags of kubectl that select a cluster.
type Flags struct {
	Kubeconfig string
	// AssayNamespace is the namespace of Assay's own objects. If it is empty, Installation searches for it.
	AssayNamespace string

	overrides clientcmd.ConfigOverrides
	timeout   string
}

// Register adds the flags under kubectl's names.
func (f *Flags) Register(flags *pflag.FlagSet) {
	o := &f.overrides
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file; $KUBECONFIG and ~/.kube/config by default")
	flags.StringVar(&o.CurrentContext, "context", "", "context of the kubeconfig")
	flags.StringVar(&o.Context.AuthInfo, "user", "", "user of the kubeconfig")
	flags.StringVar(&o.Context.Cluster, "cluster", "", "cluster of the kubeconfig")
	flags.StringVarP(&o.Context.Namespace, "namespace", "n", "", "namespace of the object; the namespace of the context by default")
	flags.StringVar(&f.AssayNamespace, "assay-namespace", "", "namespace of Assay; by default that of the Deployment with the controller's label")
	flags.StringVarP(&o.ClusterInfo.Server, "server", "s", "", "address of the API server")
	flags.StringVar(&o.AuthInfo.Token, "token", "", "bearer token")
	flags.StringVar(&o.AuthInfo.Impersonate, "as", "", "user to impersonate")
	flags.StringArrayVar(&o.AuthInfo.ImpersonateGroups, "as-group", nil, "group to impersonate; may be repeated")
	flags.StringVar(&o.AuthInfo.ImpersonateUID, "as-uid", "", "UID to impersonate")
	flags.StringVar(&o.ClusterInfo.CertificateAuthority, "certificate-authority", "", "file with the CA of the API server")
	flags.BoolVar(&o.ClusterInfo.InsecureSkipTLSVerify, "insecure-skip-tls-verify", false, "do not check the API server's certificate")
	flags.StringVar(&o.ClusterInfo.TLSServerName, "tls-server-name", "", "name that the API server's certificate must have")
	flags.StringVar(&f.timeout, "request-timeout", "", "timeout of one request, such as 30s")
}

func (f *Flags) kubeconfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &f.overrides)
}

// Namespace returns the default namespace of objects, as in kubectl: --namespace, the namespace of the context, or "default".
func (f *Flags) Namespace() string {
	namespace, _, err := f.kubeconfig().Namespace()
	if err != nil {
		return metav1.NamespaceDefault // Connect reports the error
	}
	return namespace
}

// DefaultNamespace is the namespace in which the documentation installs Assay.
const DefaultNamespace = "assay-system"

// Installation returns the namespace in which Assay is installed: --assay-namespace, or the namespace of the only controller in the
// cluster. If there is no or more than one controller, or Deployments cannot be listed, it returns the default.
func (f *Flags) Installation(ctx context.Context, c *Client) string {
	if f.AssayNamespace != "" {
		return f.AssayNamespace
	}
	found := ""
	list, err := c.Deployments(ctx, "", "app.kubernetes.io/part-of=assay,app.kubernetes.io/component=controller")
	for i := range list {
		if found != "" && found != list[i].Namespace {
			return DefaultNamespace
		}
		found = list[i].Namespace
	}
	if err != nil || found == "" {
		return DefaultNamespace
	}
	return found
}

// Connect returns a client. It does not connect to the API server yet.
func (f *Flags) Connect() (*Client, error) {
	config, err := f.kubeconfig().ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			if named := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); named != "" {
				return nil, fmt.Errorf("no kubeconfig found: $KUBECONFIG is %s, which does not exist or is empty; correct it, or pass --kubeconfig FILE", named)
			}
			return nil, fmt.Errorf("no kubeconfig found: %s does not exist or is empty; set $KUBECONFIG or pass --kubeconfig FILE", clientcmd.RecommendedHomeFile)
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
	date  atomic.Int64 // time of the last response, by the API server's clock
}

// Server is the address of the API server.
func (c *Client) Server() string { return c.base.String() }

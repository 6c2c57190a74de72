package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/build"
)

const (
	serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	// defaultNamespace is the namespace in which a worker outside of a cluster publishes.
	defaultNamespace = "assay-system"
)

// identity determines the node and pod of this worker.
type identity struct {
	client *publish.Client
	token  string // path; empty outside of a pod
	log    *slog.Logger
	// fallback is the host name.
	fallback string
	denied   bool // the Node could not be read; logged once
}

// clusterConfig returns the configuration for connecting to the API server: from a kubeconfig, or from the pod's service account.
func clusterConfig(opt *Options) (*publish.Config, error) {
	path := opt.Kubeconfig
	if path == "" {
		path = os.Getenv("KUBECONFIG")
	}
	var c *publish.Config
	var err error
	if path == "" {
		c, err = publish.InCluster()
	} else {
		c, err = publish.FromKubeconfig(path)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	c.UserAgent = "assay-worker/" + build.Version()
	return c, nil
}

// connection is a connection to the API server. It is reused when a new configuration does not change it. The zero value is not
// connected.
type connection struct {
	config *publish.Config
	client *publish.Client
}

// to returns a client and the path of its token, which is empty outside of a pod.
func (c *connection) to(opt *Options) (client *publish.Client, tokenFile string, err error) {
	now, err := clusterConfig(opt)
	if err != nil {
		return nil, "", err
	}
	if c.client == nil || !now.Same(c.config) {
		if c.client, err = publish.NewClient(now); err != nil {
			return nil, "", err
		}
		c.config = now
	}
	return c.client, now.TokenFile, nil
}

// identify reads the claims of the bound token. If claims are missing, it uses the flags and the environment, and requests the UID
// of the Node from the API server.
func (i *identity) identify(ctx context.Context) (publish.Identity, error) {
	id := publish.Identity{}
	if i.token != "" {
		token, err := os.ReadFile(i.token)
		if err != nil {
			return id, err
		}
		if id, err = publish.FromToken(token); err != nil {
			i.log.Warn("The service account token does not name the node", "error", err)
		}
	}
	claimed := id.Node != ""
	id = id.Or(publish.Identity{Node: i.fallback, Pod: os.Getenv("POD_NAME"), PodUID: os.Getenv("POD_UID")})
	if claimed || id.Node == "" || id.NodeUID != "" {
		return id, nil
	}
	uid, err := i.client.NodeUID(ctx, id.Node)
	if err != nil {
		if !i.denied {
			i.log.Warn("Cannot get the Node to own the NodeFeature", "node", id.Node, "error", err)
		}
		i.denied = true
		return id, nil
	}
	i.denied = false
	id.NodeUID = uid
	return id, nil
}

// namespace returns the namespace of the NodeFeature.
func namespace(opt *Options) string {
	for _, ns := range []string{opt.Namespace, os.Getenv("KUBERNETES_NAMESPACE"), os.Getenv("POD_NAMESPACE")} {
		if ns != "" {
			return ns
		}
	}
	if data, err := os.ReadFile(serviceAccountDir + "/namespace"); err == nil {
		if ns := strings.TrimSpace(string(data)); ns != "" {
			return ns
		}
	}
	return defaultNamespace
}

// nodeName returns the node name for features of the host.
func nodeName(opt *Options) string {
	if data, err := os.ReadFile(serviceAccountDir + "/token"); err == nil {
		if id, err := publish.FromToken(data); err == nil && id.Node != "" {
			return id.Node
		}
	}
	return opt.NodeName
}

//go:build linux

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/assay-project/assay/test/cluster/kube"
)

// User is a user of the API server with a client certificate. It is safe for concurrent use.
type User struct {
	// Kubeconfig is the path of a kubeconfig file for this user.
	Kubeconfig string

	rest    *rest.Config
	kubectl string
	cache   string
}

// NewUser creates a user with a name and groups, and the permissions that RBAC grants them. The default roles apply: a member of
// system:masters is an administrator, system:node:NAME in system:nodes is a node.
func (c *Cluster) NewUser(name string, groups ...string) (*User, error) {
	pair, err := c.pki.users.client(name, groups...)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	dir := filepath.Join(c.dir, "users")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(dir, fileName(name)+"-*.kubeconfig") // two users can have the same name and different groups
	if err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	return c.userAt(file.Name(), name, pair)
}

// userAt writes the kubeconfig of a user to path.
func (c *Cluster) userAt(path, name string, pair keyPair) (*User, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["assay"] = &clientcmdapi.Cluster{Server: c.server, CertificateAuthorityData: c.pki.users.pem}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.cert, ClientKeyData: pair.key}
	config.Contexts["assay"] = &clientcmdapi.Context{Cluster: "assay", AuthInfo: name}
	config.CurrentContext = "assay"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	return c.loadUser(path)
}

// loadUser reads the kubeconfig of a user.
func (c *Cluster) loadUser(path string) (*User, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // tests wait for the API server, not for client-side throttling
	return &User{
		Kubeconfig: path,
		rest:       config,
		kubectl:    c.programs[kube.Kubectl],
		cache:      filepath.Join(c.dir, "kubectl-cache"),
	}, nil
}

// fileName converts a user's name to a valid file name.
func fileName(user string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == ':' || r == '*' {
			return '-'
		}
		return r
	}, user)
}

// RESTConfig returns a configuration for clients of this user, without client-side rate limiting. The caller can modify it.
func (u *User) RESTConfig() *rest.Config { return rest.CopyConfig(u.rest) }

// Kubectl runs kubectl as this user and returns its standard output. The error contains its standard error.
func (u *User) Kubectl(ctx context.Context, args ...string) (string, error) {
	return u.KubectlInput(ctx, "", args...)
}

// KubectlInput is Kubectl with standard input, as for `apply -f -`.
func (u *User) KubectlInput(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, u.kubectl, append([]string{"--kubeconfig=" + u.Kubeconfig, "--cache-dir=" + u.cache}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
}

//go:build linux

package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/test/cluster/kube"
)

const (
	// serviceRange is the range of Service addresses; without a real node nothing routes them.
	serviceRange = "10.96.0.0/16"
	// firstServiceIP is the address of the Service "kubernetes".
	firstServiceIP = "10.96.0.1"
	// etcdQuota is large enough for the scale tests: 15,000 Nodes and NodeFeatures with their history.
	etcdQuota = 8 << 30
	// httpTimeout is the timeout of one readiness request, which is retried.
	httpTimeout = 5 * time.Second
)

// etcd returns the program etcd. It does not sync to disk: the data of a test need not survive a power failure.
func (c *Cluster) etcd(client, peer port) (Program, error) {
	ready, err := c.probe("https://"+client.address()+"/health", etcdCAName, "apiserver-etcd")
	if err != nil {
		return Program{}, err
	}
	clientURL, peerURL := "https://"+client.address(), "https://"+peer.address()
	return Program{
		Name: kube.Etcd, Path: c.programs[kube.Etcd], Ready: ready,
		Args: []string{
			"--name=etcd",
			"--watch-progress-notify-interval=5s", // as kubeadm: otherwise the API server skips bookmarks of what does not change
			"--data-dir=" + filepath.Join(c.dir, etcdDataDir),
			"--unsafe-no-fsync",
			fmt.Sprintf("--quota-backend-bytes=%d", cmp.Or(c.options.EtcdQuota, etcdQuota)),
			"--listen-client-urls=" + clientURL,
			"--advertise-client-urls=" + clientURL,
			"--listen-peer-urls=" + peerURL,
			"--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=etcd=" + peerURL,
			"--client-cert-auth", "--peer-client-cert-auth",
			"--trusted-ca-file=" + c.pki.file(etcdCAName+".crt"),
			"--peer-trusted-ca-file=" + c.pki.file(etcdCAName+".crt"),
			"--cert-file=" + c.pki.file("etcd.crt"), "--key-file=" + c.pki.file("etcd.key"),
			"--peer-cert-file=" + c.pki.file("etcd.crt"), "--peer-key-file=" + c.pki.file("etcd.key"),
			"--log-level=warn",
		},
	}, nil
}

// apiServer returns an API server with authorization as on a real cluster, so that tests of roles and of the node restriction are
// meaningful. etcd is host:port.
func (c *Cluster) apiServer(name, etcd string, secure port) (Program, error) {
	ready, err := c.probe("https://"+secure.address()+"/readyz", caName, "")
	if err != nil {
		return Program{}, err
	}
	args := []string{
		"--bind-address=" + loopback,
		"--secure-port=" + secure.String(),
		"--advertise-address=" + loopback,
		"--endpoint-reconciler-type=none", // it would refuse to publish a loopback address
		"--cert-dir=" + c.pki.dir,
		"--tls-cert-file=" + c.pki.file("apiserver.crt"), "--tls-private-key-file=" + c.pki.file("apiserver.key"),
		"--client-ca-file=" + c.pki.file(caName+".crt"),
		"--kubelet-client-certificate=" + c.pki.file("apiserver-kubelet.crt"),
		"--kubelet-client-key=" + c.pki.file("apiserver-kubelet.key"),

		"--etcd-servers=https://" + etcd,
		"--etcd-cafile=" + c.pki.file(etcdCAName+".crt"),
		"--etcd-certfile=" + c.pki.file("apiserver-etcd.crt"), "--etcd-keyfile=" + c.pki.file("apiserver-etcd.key"),

		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=" + serviceRange,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.file("sa.pub"), "--service-account-signing-key-file=" + c.pki.file("sa.key"),

		"--requestheader-client-ca-file=" + c.pki.file(frontProxyCAName+".crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + c.pki.file("front-proxy.crt"), "--proxy-client-key-file=" + c.pki.file("front-proxy.key"),
		"--enable-aggregator-routing=true",
		"--allow-privileged=true",
	}
	args = append(args, emulated()...)
	disabled := c.options.DisableAdmission
	if c.options.FakeNodes {
		disabled = append([]string{"TaintNodesByCondition"}, disabled...)
	}
	if len(disabled) > 0 {
		args = append(args, "--disable-admission-plugins="+strings.Join(disabled, ","))
	}
	return Program{
		Name: name, Path: c.programs[kube.APIServer], Ready: ready,
		Args: append(args, c.options.APIServerArgs...), // the last of two equal flags wins
	}, nil
}

// EmulatedVersion is the environment variable with the version of Kubernetes, such as 1.34, as which the API server behaves:
// make test-emulated sets it.
const EmulatedVersion = "ASSAY_EMULATED_VERSION"

// emulated returns the flags with which the programs behave as an older version of Kubernetes.
func emulated() []string {
	if version := os.Getenv(EmulatedVersion); version != "" {
		return []string{"--emulated-version=" + version}
	}
	return nil
}

// controllerManager returns the controllers of Kubernetes: garbage collection, default ServiceAccounts, deletion of namespaces,
// DaemonSets and Deployments.
func (c *Cluster) controllerManager(secure port, opts Options) (Program, error) {
	user, err := c.NewUser("system:kube-controller-manager")
	if err != nil {
		return Program{}, err
	}
	ready, err := c.probe("https://"+secure.address()+"/healthz", caName, "")
	if err != nil {
		return Program{}, err
	}
	controllers := "*"
	if opts.FakeNodes {
		controllers += ",-node-lifecycle-controller"
	}
	args := append(c.servingArgs(secure, "controller-manager", user),
		"--kubeconfig="+user.Kubeconfig,
		"--controllers="+controllers,
		"--leader-elect=false",
		"--kube-api-qps=500", "--kube-api-burst=1000", // with the default of 20 QPS the start takes 4 seconds longer
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.pki.file("sa.key"),
		"--root-ca-file="+c.pki.file(caName+".crt"),
		"--cluster-signing-cert-file="+c.pki.file(caName+".crt"), "--cluster-signing-key-file="+c.pki.file(caName+".key"),
	)
	args = append(args, emulated()...)
	return Program{
		Name: kube.ControllerManager, Path: c.programs[kube.ControllerManager], Ready: ready,
		Args: append(args, opts.ControllerManagerArgs...),
	}, nil
}

// scheduler returns a scheduler with the given configuration, which can be nil.
func (c *Cluster) scheduler(name string, secure port, config []byte) (Program, error) {
	user, err := c.NewUser("system:kube-scheduler")
	if err != nil {
		return Program{}, err
	}
	ready, err := c.probe("https://"+secure.address()+"/readyz", caName, "")
	if err != nil {
		return Program{}, err
	}
	config, err = schedulerConfig(config, user.Kubeconfig)
	if err != nil {
		return Program{}, fmt.Errorf("configuration of %s: %w", name, err)
	}
	file := filepath.Join(c.dir, name+".yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return Program{}, err
	}
	return Program{
		Name: name, Path: c.programs[kube.Scheduler], Ready: ready,
		Args: append(append(c.servingArgs(secure, "scheduler", user), "--config="+file), emulated()...),
	}, nil
}

// schedulerConfig adds the connection settings to a KubeSchedulerConfiguration. Leader election is disabled unless configured.
func schedulerConfig(config []byte, kubeconfig string) ([]byte, error) {
	object := map[string]any{}
	if err := yaml.Unmarshal(config, &object); err != nil {
		return nil, err
	}
	defaults := map[string]any{
		"apiVersion":     "kubescheduler.config.k8s.io/v1",
		"kind":           "KubeSchedulerConfiguration",
		"leaderElection": map[string]any{"leaderElect": false},
	}
	for key, value := range defaults {
		if _, ok := object[key]; !ok {
			object[key] = value
		}
	}
	connection, _ := object["clientConnection"].(map[string]any)
	if connection == nil {
		connection = map[string]any{}
	}
	connection["kubeconfig"] = kubeconfig
	object["clientConnection"] = connection
	return yaml.Marshal(object)
}

// servingArgs returns the flags that scheduler and controller manager share.
func (c *Cluster) servingArgs(secure port, cert string, user *User) []string {
	return []string{
		"--bind-address=" + loopback,
		"--secure-port=" + secure.String(),
		"--cert-dir=" + c.pki.dir,
		"--tls-cert-file=" + c.pki.file(cert+".crt"), "--tls-private-key-file=" + c.pki.file(cert+".key"),
		"--authentication-kubeconfig=" + user.Kubeconfig,
		"--authorization-kubeconfig=" + user.Kubeconfig,
	}
}

// probe returns a function that requests url and expects status 200. The authority must have signed the server's certificate;
// client names the client certificate, "" for none.
func (c *Cluster) probe(url, authority, client string) (func(context.Context) error, error) {
	pem, err := os.ReadFile(c.pki.file(authority + ".crt"))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(pem)
	if client != "" {
		cert, err := tls.LoadX509KeyPair(c.pki.file(client+".crt"), c.pki.file(client+".key"))
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{cert}
	}
	// Keep no connection: one to a killed server would fail the first request after its restart.
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	asker := &http.Client{Transport: transport, Timeout: httpTimeout}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return permanentError{err}
		}
		response, err := asker.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode == http.StatusOK {
			return nil
		}
		body, _ := io.ReadAll(io.LimitReader(response.Body, quotedBytes)) // part of a message; a partial body is fine
		return fmt.Errorf("GET %s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}, nil
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/assay-project/assay/discovery/podres"
	"github.com/assay-project/assay/discovery/topology"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/worker"
)

// topologyVerb is the first argument of the mode that publishes the NodeResourceTopology of the node.
const topologyVerb = "topology"

const (
	// defaultTopologyConfig is where Node Feature Discovery's manifests mount the configuration of its updater.
	defaultTopologyConfig = "/etc/kubernetes/node-feature-discovery/nfd-topology-updater.conf"
	defaultKubeletConfig  = "file:///var/lib/kubelet/config.yaml"
	defaultDevicePlugins  = "/var/lib/kubelet/device-plugins"
	// defaultToken and defaultCA are the credentials of the pod's ServiceAccount.
	defaultToken = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path
	defaultCA    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// topologyOptions holds the parsed command line of assay-worker topology.
type topologyOptions struct {
	worker.TopologyOptions
	commonOptions
	kubeletURI  string
	configz     topology.Configz
	fingerprint bool
}

// runTopology runs assay-worker topology and returns the exit code.
func runTopology(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opt, err := parseTopologyFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case opt.showVersion:
		_, _ = fmt.Fprintln(stdout, "assay-worker version", build.String())
		return exitOK
	}
	log := opt.logger(stderr)
	for _, w := range opt.warnings {
		log.Warn("Configuration warning", "warning", w)
	}
	t, err := worker.NewTopology(opt.TopologyOptions, log)
	return execute(ctx, t, err, log, "assay-worker topology", stdout)
}

// parseTopologyFlags parses the command line. Flags of NFD's topology updater have the same meaning, with one dash or two.
func parseTopologyFlags(args []string, stderr io.Writer) (*topologyOptions, error) {
	opt := &topologyOptions{fingerprint: true}
	t := &opt.TopologyOptions
	fs := flag.NewFlagSet("assay-worker topology", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&t.ConfigFile, "config", defaultTopologyConfig, "configuration `file` with the excludeList; it need not exist, and is read again")
	fs.StringVar(&t.Kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: KUBECONFIG or, in a pod, the service account")
	fs.StringVar(&t.NodeName, "node-name", os.Getenv("NODE_NAME"), "`name` of this node; the node name in the service account token takes precedence")
	fs.IntVar(&t.Port, "port", defaultPort, "`port` of /healthz, /readyz and /metrics; 0: do not serve them")
	fs.BoolVar(&t.Oneshot, "oneshot", false, "publish once, then exit")
	fs.BoolVar(&t.NoPublish, "no-publish", false, "print the NodeResourceTopology instead of publishing it")
	fs.BoolVar(&opt.fingerprint, "pods-fingerprint", true, "publish the fingerprint of the node's pods, by which caching schedulers know which pods the numbers contain")
	fs.DurationVar(&t.Interval, "sleep-interval", worker.DefaultTopologyInterval,
		"`interval` between reads of devices, NUMA nodes and configuration; what pods hold is read every 2s; 0: read them after events only")
	fs.StringVar(&t.Socket, "podresources-socket", podres.DefaultSocket, "`path` of the kubelet's pod resources socket")
	fs.StringVar(&t.DevicePlugins, "device-plugins", defaultDevicePlugins, "`directory` with the sockets of device plugins")
	fs.StringVar(&opt.kubeletURI, "kubelet-config-uri", defaultKubeletConfig,
		"`URI` of the kubelet's configuration: file:///PATH, or https://HOST:10250/configz of its endpoint")
	fs.StringVar(&opt.configz.TokenFile, "api-auth-token-file", defaultToken, "`file` with the token for the kubelet's endpoint")
	fs.StringVar(&opt.configz.CAFile, "kubelet-ca-file", defaultCA, "`file` with the certificates that the certificate of the kubelet's endpoint is verified with")
	fs.BoolVar(&opt.configz.Insecure, "kubelet-insecure", false, "do not verify the certificate of the kubelet's endpoint, which gets the token")
	fs.StringVar(&t.KubeletConfigDir, "kubelet-config-dir", "", "`directory` of drop-ins of the kubelet's configuration, if the kubelet has one")
	fs.StringVar(&t.StateDir, "kubelet-state-dir", "", "`directory` with the state of the kubelet's managers; if it changes, what pods hold is read at once")
	fs.BoolVar(&t.NoWatch, "no-watch", false, "check the published object every 15 minutes instead of watching it")
	fs.StringVar(&t.HostPaths, "host-paths", "auto", "location of the host's directories: container (/host-sys), native, or auto")
	fs.StringVar(&t.HostRoot, "host-root", "", "`directory` to use as the host's /")
	opt.commonOptions.register(fs)
	fs.Func("watch-namespace", "flag of NFD, without effect", func(s string) error {
		if s != "*" && s != "" {
			opt.warn("-watch-namespace has no effect: pods of all namespaces hold resources of the node")
		}
		return nil
	})
	fs.Func("metrics", "deprecated flag of NFD: use -port", func(s string) (err error) {
		t.Port, err = strconv.Atoi(s)
		return err
	})
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if err := opt.check(fs.Args()); err != nil {
		_, _ = fmt.Fprintln(stderr, "assay-worker topology:", err)
		return nil, err
	}
	t.NoFingerprint = !opt.fingerprint
	return opt, nil
}

func (opt *topologyOptions) check(rest []string) error {
	t := &opt.TopologyOptions
	if t.Interval < 0 || t.Interval > 0 && t.Interval < time.Second {
		return fmt.Errorf("-sleep-interval %s: write 0 or at least 1s", t.Interval)
	}
	uri, err := url.Parse(bracketed(opt.kubeletURI))
	switch {
	case err == nil && uri.Scheme == "file" && uri.Host == "" && filepath.IsAbs(uri.Path):
		t.KubeletConfig = uri.Path
	case err == nil && uri.Scheme == "https" && uri.Hostname() != "":
		opt.configz.URL = uri.String()
		t.Configz = &opt.configz
	default:
		return fmt.Errorf("-kubelet-config-uri %q: write file:///PATH of the kubelet's configuration file, or https://HOST:10250/configz", opt.kubeletURI)
	}
	t.Sandbox = opt.sandbox
	return opt.commonOptions.check(rest, t.HostPaths, t.Port)
}

// bracketed adds the brackets around an IPv6 address, which the variable with the address of a node does not have.
func bracketed(uri string) string {
	scheme, rest, ok := strings.Cut(uri, "://")
	authority, path, _ := strings.Cut(rest, "/")
	port := strings.LastIndex(authority, ":")
	if !ok || port < 0 || net.ParseIP(authority[:port]).To16() == nil || !strings.Contains(authority[:port], ":") {
		return uri
	}
	return scheme + "://" + net.JoinHostPort(authority[:port], authority[port+1:]) + "/" + path
}

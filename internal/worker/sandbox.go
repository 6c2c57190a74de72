package worker

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"

	"github.com/assay-project/assay/discovery/publish"
	"github.com/assay-project/assay/internal/worker/sandbox"
)

// dnsPort is the port for DNS over TCP, for responses that are too long for UDP.
const dnsPort = 53

// restrict enters a sandbox, unless it is disabled or the worker runs hooks, which may do anything.
func (w *Worker) restrict() {
	if w.opt.Sandbox != "off" && !w.config.Local.HooksEnabled {
		w.sandboxed = enterSandbox(w.log, serverPorts(&w.opt))
	}
}

// enterSandbox drops privileges of the process, and reports whether it has. It may connect to the ports, or to all if there are none.
func enterSandbox(log *slog.Logger, ports []uint16) bool {
	what, err := sandbox.Enter(ports)
	switch {
	case errors.Is(err, sandbox.ErrNone):
		log.Debug("Running without the sandbox", "reason", err)
	case err != nil:
		log.Warn("Running without the sandbox", "error", err)
	default:
		log.Debug("Enabled the sandbox", "rights", what)
	}
	return err == nil
}

// serverPorts returns the TCP ports that publishing needs, or none if they are unknown and all ports must be allowed.
func serverPorts(opt *Options) []uint16 {
	cfg, err := clusterConfig(opt)
	if err != nil {
		return nil // it does not publish, but a new configuration may enable it
	}
	server, err := url.Parse(cfg.Server)
	if err != nil || usesProxy(cfg, server) {
		return nil
	}
	port, ok := tcpPort(server)
	if !ok {
		return nil
	}
	return []uint16{port, dnsPort}
}

// tcpPort returns the port of a URL.
func tcpPort(u *url.URL) (uint16, bool) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return uint16(n), err == nil
}

func usesProxy(cfg *publish.Config, server *url.URL) bool {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: server})
	return cfg.Proxy != "" || proxy != nil || err != nil
}

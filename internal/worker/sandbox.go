package worker

import (
	"errors"
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
	if w.opt.Sandbox == "off" || w.config.Local.HooksEnabled {
		return
	}
	what, err := sandbox.Enter(w.serverPorts())
	switch {
	case errors.Is(err, sandbox.ErrNone):
		w.log.Debug("Running without the sandbox", "reason", err)
	case err != nil:
		w.log.Warn("Running without the sandbox", "error", err)
	default:
		w.sandboxed = true
		w.log.Debug("Enabled the sandbox", "rights", what)
	}
}

// serverPorts returns the TCP ports that publishing needs, or none if they are unknown and all ports must be allowed.
func (w *Worker) serverPorts() []uint16 {
	cfg, err := clusterConfig(&w.opt)
	if err != nil {
		return nil // it does not publish, but a new configuration may enable it
	}
	server, err := url.Parse(cfg.Server)
	if err != nil || usesProxy(cfg, server) {
		return nil
	}
	port := server.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[server.Scheme]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil
	}
	return []uint16{uint16(n), dnsPort}
}

func usesProxy(cfg *publish.Config, server *url.URL) bool {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: server})
	return cfg.Proxy != "" || proxy != nil || err != nil
}

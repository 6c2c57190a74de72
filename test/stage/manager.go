//go:build linux

package stage

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"github.com/assay-project/assay/test/cluster"
)

// Parts of assay-manager.
const (
	Controller = "controller"
	Webhook    = "webhook"
	Extender   = "extender"
)

// Manager is a part of assay-manager to run.
type Manager struct {
	// Name is that of the process; by default Part.
	Name, Part string
	// Path is that of assay-manager.
	Path string
	// Kubeconfig is by default that of the administrator.
	Kubeconfig string
	// Args are added to those about addresses and the namespace, which is Namespace.
	Args []string
	// NoWait returns before the program is ready.
	NoWait bool
}

// Addresses are where a part of assay-manager answers.
type Addresses struct {
	// Health and Metrics are URLs, without and with the path.
	Health, Metrics string
	// Serve is host:port of the webhook.
	Serve string
}

// Start runs a part of assay-manager, and returns once it is ready.
func (m Manager) Start(ctx context.Context, c *cluster.Cluster) (Addresses, error) {
	var hosts, ports [3]string
	for i := range hosts {
		var err error
		if hosts[i], ports[i], err = freePort(); err != nil {
			return Addresses{}, err
		}
	}
	path, err := filepath.Abs(m.Path)
	if err != nil {
		return Addresses{}, err
	}
	at := Addresses{Health: "http://" + hosts[0], Metrics: "http://" + hosts[1] + "/metrics"}
	health := []string{"--port=" + ports[0], "--metrics-port=" + ports[1]}
	switch m.Part {
	case Webhook:
		at.Serve = hosts[2]
		health = append(health, "--webhook-url=https://"+at.Serve, "--webhook-port="+ports[2], "--shutdown-delay=0s")
	case Extender:
		at.Metrics = at.Health + "/metrics"
		health = []string{"--address=" + hosts[0], "--shutdown-delay=0s"}
	}
	p := cluster.Program{Name: m.Name, Path: path, Ready: cluster.Answers(at.Health + "/readyz")}
	if p.Name == "" {
		p.Name = m.Part
	}
	if m.NoWait {
		p.Ready = nil
	}
	if m.Kubeconfig == "" {
		m.Kubeconfig = c.Kubeconfig
	}
	p.Args = slices.Concat([]string{m.Part, "--kubeconfig=" + m.Kubeconfig, "--namespace=" + Namespace}, health, m.Args)
	return at, c.Run(ctx, p)
}

// freePort returns an address that was just free, and its port.
func freePort() (address, port string, err error) {
	if address, err = cluster.FreeAddress(); err != nil {
		return "", "", err
	}
	if _, port, err = net.SplitHostPort(address); err != nil {
		return "", "", fmt.Errorf("port of %s: %w", address, err)
	}
	return address, port, nil
}

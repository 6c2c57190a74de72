package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/assay-project/assay/cmd/assay-manager/internal/metricsaccess"
)

// metrics returns the options of the /metrics server. With --metrics-secure it uses TLS 1.3 and requires that the API server
// authorizes the client.
func (f *processFlags) metrics() (metricsserver.Options, error) {
	o := metricsserver.Options{BindAddress: address(f.metricsPort)}
	if !f.metricsSecure {
		if f.profiles {
			return o, errors.New("--pprof needs --metrics-secure: profiles contain what is in memory, such as Secrets that rules refer to")
		}
		if f.metricsCertDir != "" {
			return o, errors.New("--metrics-cert-dir needs --metrics-secure")
		}
		return o, nil
	}
	if f.metricsCertDir != "" {
		// If a file is missing, the server would create a self-signed certificate, and clients would report that certificate.
		for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if _, err := os.Stat(filepath.Join(f.metricsCertDir, name)); err != nil {
				return o, fmt.Errorf("--metrics-cert-dir: %w", err)
			}
		}
	}
	o.SecureServing, o.CertDir, o.FilterProvider = true, f.metricsCertDir, metricsaccess.Filter
	o.TLSOpts = []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion, c.NextProtos = tls.VersionTLS13, []string{"http/1.1"}
	}}
	if f.profiles {
		o.ExtraHandlers = map[string]http.Handler{
			metricsaccess.ProfilesPath:              http.HandlerFunc(pprof.Index),
			metricsaccess.ProfilesPath + "/profile": http.HandlerFunc(pprof.Profile),
			metricsaccess.ProfilesPath + "/trace":   http.HandlerFunc(pprof.Trace),
			metricsaccess.ProfilesPath + "/":        http.HandlerFunc(pprof.Index),
		}
	}
	return o, nil
}

package main

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/assay-project/assay/cmd/assay-manager/internal/metricsaccess"
	"github.com/assay-project/assay/settings"
)

// processFlags are the flags of all subcommands.
type processFlags struct {
	kubeconfig, namespace string
	port, metricsPort     int
	metricsSecure         bool
	metricsCertDir        string
	profiles              bool
}

func (f *processFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")
	flags.StringVar(&f.namespace, "namespace", ownNamespace(), "namespace of Assay's own objects")
	flags.IntVar(&f.port, "port", 8080, "port of /healthz and /readyz; 0: do not serve them")
	flags.IntVar(&f.metricsPort, "metrics-port", 8081, "port of /metrics; 0: do not serve it")
	flags.BoolVar(&f.metricsSecure, "metrics-secure", false,
		"serve /metrics over TLS, to clients whose bearer token may get the path /metrics (TokenReview and SubjectAccessReview)")
	flags.StringVar(&f.metricsCertDir, "metrics-cert-dir", "",
		"directory of tls.crt and tls.key for --metrics-secure; empty: a self-signed certificate")
	flags.BoolVar(&f.profiles, "pprof", false,
		"serve profiles at "+metricsaccess.ProfilesPath+" of the port of metrics, to clients whose bearer token may get that path; needs --metrics-secure")
}

// ruleFlags are the flags that affect the meaning of rules. All commands that compile rules have them and must have the same values
// in one installation: the webhook must not accept rules that the controller rejects.
type ruleFlags struct {
	settings.Flags
	pciIDs, usbIDs string
}

// register adds the flags; those of settings that which selects.
func (f *ruleFlags) register(flags *pflag.FlagSet, which func(settings.Setting) bool) {
	flags.StringVar(&f.File, "config", settings.DefaultFile, "configuration file; flags override it")
	flags.StringVar(&f.Options, "options", "", "configuration in JSON or YAML that overrides the file")
	flags.StringVar(&f.pciIDs, "pci-ids", "", "file pci.ids that replaces the built-in names in warnings")
	flags.StringVar(&f.usbIDs, "usb-ids", "", "file usb.ids that replaces the built-in names in warnings")
	f.Register(flags, settings.Default(), which)
}

// forRules selects the settings that all commands have; forController selects all.
func forRules(s settings.Setting) bool    { return !s.Controller }
func forController(settings.Setting) bool { return true }

// restConfig returns the client configuration for the API server, without a client-side rate limit: API Priority and Fairness
// limits requests better than a constant.
func restConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the API server: %w", err)
	}
	config.QPS = -1
	return config, nil
}

package main

import (
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/assay-project/assay/charts"
	"github.com/assay-project/assay/internal/ids"
	"github.com/assay-project/assay/webhook"
)

// defaultShutdownDelay is the time for which a replica serves requests after SIGTERM, because kube-proxy and API servers need a
// moment to notice the removal of the endpoint.
const defaultShutdownDelay = 5 * time.Second

// webhookFlags are the flags of the webhook.
type webhookFlags struct {
	processFlags
	ruleFlags
	certificateFlags
	schedulingFlags
	webhookPort        int
	strictAdmission    bool
	nodeWarnings       bool
	worker, controller string
	hardened           bool
	publishers         []string
	tolerations        string
	clientCA           string
	shutdownDelay      time.Duration
}

func (f *webhookFlags) register(flags *pflag.FlagSet) {
	f.processFlags.register(flags)
	f.ruleFlags.register(flags, forRules)
	f.certificateFlags.register(flags)
	f.schedulingFlags.register(flags)
	flags.IntVar(&f.webhookPort, "webhook-port", 9443, "port of the webhook")
	flags.BoolVar(&f.strictAdmission, "strict-admission", false, "reject rules that NFD would accept and drop at run time, instead of warning")
	flags.BoolVar(&f.nodeWarnings, "node-warnings", true, "warn about rules that match no node or taint all nodes; keeps the features of all nodes in memory")
	flags.StringVar(&f.worker, "worker-service-account", charts.DefaultWorker, "ServiceAccount of the workers, in --namespace or as NAMESPACE/NAME")
	flags.StringVar(&f.controller, "controller-service-account", charts.DefaultManager, "ServiceAccount of the controller, in --namespace or as NAMESPACE/NAME")
	flags.BoolVar(&f.hardened, "node-bound-publishers", false, "allow all ServiceAccounts, and not only the workers', to write NodeFeatures of the node in their token only")
	flags.StringSliceVar(&f.publishers, "publishers", nil, "ServiceAccounts that may write NodeFeatures of any node with --node-bound-publishers, as NAMESPACE/NAME")
	flags.StringVar(&f.tolerations, "worker-tolerations", "", "tolerations of the worker's pods, as JSON or YAML")
	flags.StringVar(&f.clientCA, "client-ca-file", "", "file of the CA certificates that sign the API server's client certificate; empty: no client certificate is required")
	flags.DurationVar(&f.shutdownDelay, "shutdown-delay", defaultShutdownDelay, "duration for which requests are still served, unready, after SIGTERM")
}

func newWebhook() *cobra.Command {
	f := &webhookFlags{}
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Serve the admission webhook, which checks rules when they are applied",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			options, err := f.options()
			if err != nil {
				return err
			}
			return runAdmission(ctrl.SetupSignalHandler(), f, options)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// options returns the options of the webhook that depend only on flags.
func (f *webhookFlags) options() (o webhook.Options, err error) {
	o.Addr, o.Known.Strict, o.Known.Namespace = fmt.Sprintf(":%d", f.webhookPort), f.strictAdmission, f.namespace
	settings, _, err := f.Load()
	if err != nil {
		return o, err
	}
	o.Known.Rules, o.Known.DefaultTemplate = settings.Rules(), settings.DefaultTemplate
	o.Known.Withholding = settings.Withholding()
	if o.Known.IDs, err = ids.Load(f.pciIDs, f.usbIDs); err != nil {
		return o, err
	}
	if err := yaml.UnmarshalStrict([]byte(f.tolerations), &o.Known.Tolerations); err != nil {
		return o, fmt.Errorf("--worker-tolerations: %w", err)
	}
	if o.Known.Tolerations == nil {
		o.Known.Tolerations = []corev1.Toleration{} // known to be empty
	}
	if f.clientCA != "" {
		data, err := os.ReadFile(f.clientCA)
		if err != nil {
			return o, fmt.Errorf("--client-ca-file: %w", err)
		}
		if o.ClientCAs = x509.NewCertPool(); !o.ClientCAs.AppendCertsFromPEM(data) {
			return o, fmt.Errorf("--client-ca-file: %s contains no certificate", f.clientCA)
		}
	}
	o.Publishing = webhook.Publishing{
		Namespace: f.namespace, Hardened: f.hardened,
		Workers: []string{f.user(f.worker)}, Managers: []string{f.user(f.controller)},
	}
	for _, account := range f.publishers {
		o.Publishing.Publishers = append(o.Publishing.Publishers, f.user(account))
	}
	return o, f.check()
}

// user returns the user name of a ServiceAccount.
func (f *webhookFlags) user(account string) string {
	if !strings.Contains(account, "/") {
		account = f.namespace + "/" + account
	}
	return "system:serviceaccount:" + strings.Replace(account, "/", ":", 1)
}

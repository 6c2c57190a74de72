package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/rules/plan"
)

// leaseName is NFD's, so that the two never write at the same time while one takes over from the other.
const leaseName = "nfd-master.nfd.kubernetes.io"

// controllerFlags are the flags of the controller. Those that NFD has bear NFD's names.
type controllerFlags struct {
	kubeconfig, namespace        string
	port                         int
	metricsPort                  int
	leaderElection               bool
	enableTaints, noPublish      bool
	strict                       bool
	instance                     string
	labelWhitelist               string
	extraLabelNs, denyLabelNs    []string
	resync, grace                time.Duration
	parallelism                  int
	defaultScope, nodeScope      string
	allowFail, disableAutoPrefix bool
}

func (f *controllerFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; without it, the service account of the pod")
	flags.StringVar(&f.namespace, "namespace", ownNamespace(), "namespace of Assay's own objects")
	flags.IntVar(&f.port, "port", 8080, "port of /healthz and /readyz; 0: none")
	flags.IntVar(&f.metricsPort, "metrics-port", 8081, "port of /metrics; 0: none")
	flags.BoolVar(&f.leaderElection, "enable-leader-election", false, "let one of several replicas write at a time")
	flags.BoolVar(&f.enableTaints, "enable-taints", false, "let rules create taints")
	flags.BoolVar(&f.noPublish, "no-publish", false, "evaluate and report, and write nothing on Nodes")
	flags.BoolVar(&f.strict, "nfd-strict", false, "do as NFD does where Assay differs from it on purpose")
	flags.StringVar(&f.instance, "instance", "", "name that keeps this controller apart from others in the cluster")
	flags.StringVar(&f.labelWhitelist, "label-whitelist", "", "regular expression that names of labels must match")
	flags.StringSliceVar(&f.extraLabelNs, "extra-label-ns", nil, "namespaces that labels may use although they are denied")
	flags.StringSliceVar(&f.denyLabelNs, "deny-label-ns", nil, "namespaces that labels may not use; *.example.com for all below")
	flags.DurationVar(&f.resync, "resync-period", time.Hour, "how often all nodes are looked at without any reason; 0: never")
	flags.DurationVar(&f.grace, "removal-grace-period", node.DefaultGrace, "how long labels outlive their worker's NodeFeature")
	flags.IntVar(&f.parallelism, "nfd-api-parallelism", 10, "how many nodes are worked on at once")
	flags.StringVar(&f.defaultScope, "default-scope", "", "scope of rules that set neither scope nor nodeSelector")
	flags.StringVar(&f.nodeScope, "default-node-scope", "", "scope of nodes without the label assay.dev/scope")
	flags.BoolVar(&f.allowFail, "allow-fail", true, "let the action fail keep a node as it is")
	flags.BoolVar(&f.disableAutoPrefix, "disable-auto-prefix", false, "leave names without a namespace as they are")
}

func newController() *cobra.Command {
	f := &controllerFlags{}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Evaluate the rules of the cluster, and write what they want on Nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *controllerFlags) run(cmd *cobra.Command) error {
	config, err := f.config()
	if err != nil {
		return err
	}
	rest, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	scheme, err := controller.Scheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme:                  scheme,
		Cache:                   controller.Cache(),
		Metrics:                 metricsserver.Options{BindAddress: address(f.metricsPort)},
		HealthProbeBindAddress:  address(f.port),
		LeaderElection:          f.leaderElection,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: f.namespace,
		// The process exits right after the manager stops, so the next one need not wait for the lease to run out.
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	if err := controller.Add(mgr, config); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	synced := func(r *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(r.Context()) {
			return fmt.Errorf("the caches are not filled yet")
		}
		return nil
	}
	if err := mgr.AddReadyzCheck("caches", synced); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// config turns flags into the configuration of the controllers.
func (f *controllerFlags) config() (controller.Config, error) {
	policy := keys.Policy{
		ExtraNamespaces: f.extraLabelNs, DenyNamespaces: f.denyLabelNs, DisableAutoPrefix: f.disableAutoPrefix, Strict: f.strict,
	}
	if f.labelWhitelist != "" {
		re, err := regexp.Compile(f.labelWhitelist)
		if err != nil {
			return controller.Config{}, fmt.Errorf("--label-whitelist: %w", err)
		}
		policy.LabelWhiteList = re
	}
	if f.parallelism < 1 {
		return controller.Config{}, fmt.Errorf("--nfd-api-parallelism is %d; it must be at least 1", f.parallelism)
	}
	return controller.Config{
		Rules: rules.Options{
			Strict: f.strict, Keys: policy, DefaultScope: f.defaultScope, DefaultNodeScope: f.nodeScope, IgnoreFail: !f.allowFail,
		},
		Sources:  node.Sources{Namespace: f.namespace},
		Policy:   plan.Policy{Record: plan.Record{Instance: f.instance}, Taints: f.enableTaints},
		DryRun:   f.noPublish,
		Grace:    f.grace,
		Budget:   node.DefaultBudget,
		Parallel: f.parallelism,
		Resync:   f.resync,
	}, nil
}

// restConfig returns how to reach the API server, without a limit of our own on requests: the API server's priority and
// fairness knows better than a constant.
func restConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("no way to the API server: %w", err)
	}
	config.QPS = -1
	return config, nil
}

func address(port int) string {
	if port == 0 {
		return "0"
	}
	return fmt.Sprintf(":%d", port)
}

// ownNamespace is the namespace of the pod, or the chart's default.
func ownNamespace() string {
	const file = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	if data, err := os.ReadFile(file); err == nil {
		return strings.TrimSpace(string(data))
	}
	if ns := os.Getenv("KUBERNETES_NAMESPACE"); ns != "" {
		return ns
	}
	return "assay-system"
}

package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/node"
	"github.com/assay-project/assay/rules/plan"
)

// leaseName is NFD's, so that the two never write at the same time while one takes over from the other.
const leaseName = "nfd-master.nfd.kubernetes.io"

// controllerFlags are the flags of the controller. Those that NFD has bear NFD's names.
type controllerFlags struct {
	processFlags
	ruleFlags
	leaderElection          bool
	enableTaints, noPublish bool
	resync, grace           time.Duration
	parallelism             int
}

func (f *controllerFlags) register(flags *pflag.FlagSet) {
	f.processFlags.register(flags)
	f.ruleFlags.register(flags)
	flags.BoolVar(&f.leaderElection, "enable-leader-election", false, "let one of several replicas write at a time")
	flags.BoolVar(&f.enableTaints, "enable-taints", false, "let rules create taints")
	flags.BoolVar(&f.noPublish, "no-publish", false, "evaluate and report, and write nothing on Nodes")
	flags.DurationVar(&f.resync, "resync-period", time.Hour, "how often all nodes are looked at without any reason; 0: never")
	flags.DurationVar(&f.grace, "removal-grace-period", node.DefaultGrace, "how long labels outlive their worker's NodeFeature")
	flags.IntVar(&f.parallelism, "nfd-api-parallelism", 10, "how many nodes are worked on at once")
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
		Cache:                   controller.Cache(f.namespace),
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
	options, err := f.options()
	if err != nil {
		return controller.Config{}, err
	}
	if f.parallelism < 1 {
		return controller.Config{}, fmt.Errorf("--nfd-api-parallelism is %d; it must be at least 1", f.parallelism)
	}
	return controller.Config{
		Rules:    options,
		Sources:  node.Sources{Namespace: f.namespace},
		Policy:   plan.Policy{Record: plan.Record{Instance: f.instance}, Taints: f.enableTaints},
		DryRun:   f.noPublish,
		Grace:    f.grace,
		Budget:   node.DefaultBudget,
		Parallel: f.parallelism,
		Resync:   f.resync,
	}, nil
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

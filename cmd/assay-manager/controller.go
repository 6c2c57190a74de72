package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/fleet"
	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/ids"
	"github.com/assay-project/assay/internal/replicas"
	"github.com/assay-project/assay/internal/servertime"
	"github.com/assay-project/assay/settings"
)

func newController() *cobra.Command {
	f := &controllerFlags{}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Evaluate the rules of the cluster, and write their outputs to Nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := ctrl.Log.WithName("controller")
			for _, w := range retiredWarnings(cmd) {
				log.Info("Configuration warning", "warning", w)
			}
			ctx := ctrl.SetupSignalHandler()
			if f.prune {
				return f.pruneNodes(ctx, cmd.OutOrStdout())
			}
			return f.run(ctx, log)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// run runs the controllers until the context ends, and restarts them when the configuration changes. It keeps the last valid
// configuration if the new one is invalid. An invalid configuration at the start is an error.
func (f *controllerFlags) run(ctx context.Context, log logr.Logger) error {
	s, warnings, err := f.load()
	if err != nil {
		return err
	}
	if f.pciIDs != "" || f.usbIDs != "" {
		if _, err := ids.Load(f.pciIDs, f.usbIDs); err != nil {
			return err
		}
	}
	for {
		configurationValid.Set(1)
		for _, w := range warnings {
			log.Info("Configuration warning", "warning", w)
		}
		generation, stop := context.WithCancel(ctx)
		next := make(chan loaded, 1)
		go func() {
			next <- f.nextConfig(generation, s, log)
			stop()
		}()
		err := f.manage(generation, s)
		stop()
		change := <-next
		if errors.Is(err, errUnfilled) {
			if ctx.Err() == nil {
				return fmt.Errorf("restart needed to apply the changed configuration: %w", err)
			}
			return nil
		}
		if err != nil || ctx.Err() != nil || change.settings == nil {
			return err
		}
		s, warnings = change.settings, change.warnings
		log.Info("Configuration changed; restarting the controllers")
	}
}

// pruneNodes implements nfd-master's flag -prune: it prunes only Nodes, with the name and settings of this controller.
func (f *controllerFlags) pruneNodes(ctx context.Context, out io.Writer) error {
	return (&pruneFlags{ruleFlags: f.ruleFlags, kubeconfig: f.kubeconfig, namespace: f.namespace, nodesOnly: true}).run(ctx, out)
}

// loaded is a valid configuration.
type loaded struct {
	settings *settings.Settings
	warnings []string
}

// configPoll is the interval at which the configuration file is read. A kubelet takes up to a minute to update a mounted ConfigMap.
const configPoll = 2 * time.Second

// nextConfig waits for a valid configuration that differs from the current one.
func (f *controllerFlags) nextConfig(ctx context.Context, now *settings.Settings, log logr.Logger) loaded {
	told := ""
	for {
		select {
		case <-ctx.Done():
			return loaded{}
		case <-time.After(configPoll):
		}
		s, warnings, err := f.load()
		switch {
		case err != nil && err.Error() != told:
			told = err.Error()
			f.reject(ctx, err, log)
		case err == nil && !s.Equal(now):
			return loaded{s, warnings}
		case err == nil:
			configurationValid.Set(1)
			told = ""
		}
	}
}

// controllerConfig returns the configuration of the controller in a namespace, which applies to all commands that evaluate rules.
func controllerConfig(s *settings.Settings, namespace string) controller.Config {
	return controller.Config{Settings: s, Namespace: namespace, Version: build.Version()}
}

// manage runs a manager with one configuration.
func (f *controllerFlags) manage(ctx context.Context, s *settings.Settings) error {
	config := controllerConfig(s, f.namespace)
	config.IDs = &ids.Lazy{PCI: f.pciIDs, USB: f.usbIDs}
	rest, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	alive := monitor(ctx, rest, 0, ctrl.Log.WithName("controller"))
	config.Relist = alive.Relist
	server := servertime.New(clock.RealClock{})
	rest.Wrap(server.RoundTripper)
	config.Age = server.Age
	if err := awaitServer(ctx, rest, onPort(f.port), ctrl.Log.WithName("controller")); err != nil || ctx.Err() != nil {
		return err
	}
	scheme, err := fleet.Scheme()
	if err != nil {
		return err
	}
	metrics, err := f.metrics()
	if err != nil {
		return err
	}
	if f.leaderElection {
		config.FeatureSets.Lease = nfdv1alpha1.LeaseName(s.Instance)
		rest.Wrap((&leaseTime{life: s.LeaderElection.LeaseDuration}).wrap)
	}
	again := true // the controller names are registered again after a change of the configuration
	sets := featuresets.New(f.namespace)
	caches, err := direct(rest, controller.Cache(f.namespace, s.InformerPageSize, sets))
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme:                  scheme,
		Cache:                   caches,
		NewCache:                compile.NewCache,
		Controller:              ctrlconfig.Controller{SkipNameValidation: &again},
		Metrics:                 metrics,
		HealthProbeBindAddress:  address(f.port),
		LeaderElection:          f.leaderElection,
		LeaderElectionID:        nfdv1alpha1.LeaseName(s.Instance),
		LeaderElectionNamespace: f.namespace,
		LeaseDuration:           &s.LeaderElection.LeaseDuration,
		RenewDeadline:           &s.LeaderElection.RenewDeadline,
		RetryPeriod:             &s.LeaderElection.RetryPeriod,
		// Nothing is written after the manager has stopped, so the next one need not wait until the Lease expires.
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	controller.WatchSets(ctx, sets, f.namespace, mgr)
	if config.Devices, err = devices.Add(mgr, config.Sources(), config.RemovalGracePeriod); err != nil {
		return err
	}
	log := ctrl.Log.WithName("controller")
	f.logStart(log, s)
	filled := replicas.Every(func(ctx context.Context) error { return logSynced(ctx, mgr.GetClient(), mgr.GetCache(), log) })
	if err := errors.Join(controller.Add(mgr, config, sets), mgr.Add(filled), mgr.AddReadyzCheck("watches", healthCheck(alive.Check))); err != nil {
		return err
	}
	return runManager(ctx, mgr)
}

func address(port int) string {
	if port == 0 {
		return "0"
	}
	return fmt.Sprintf(":%d", port)
}

// ownNamespace returns the namespace of the pod, or the chart's default.
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

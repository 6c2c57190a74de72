package main

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/fleet"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/webhook"
)

// admission is the running webhook with its certificate and the caches for its lookups. All replicas are active; there is no
// leader.
type admission struct {
	server   *webhook.Server
	keeper   keeper
	cache    cache.Cache
	knows    func() error // nil once the caches for lookups are synced
	draining atomic.Bool
}

// cacheWait is the maximum time for which a probe waits for unsynced caches. A kubelet times out after a second and then reports no
// reason.
const cacheWait = 500 * time.Millisecond

// runAdmission serves until the context ends, and then until requests in progress are answered.
func runAdmission(ctx context.Context, f *webhookFlags, options webhook.Options) error {
	config, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	// The webhook is ready without these caches: what it knows about nodes only affects warnings, and while no replica is ready
	// there are no reviews at all.
	log := ctrl.Log.WithName("webhook")
	log.Info("Starting webhook", "version", build.Version(), "commit", build.Commit(), "namespace", f.namespace, "config", f.File,
		"address", options.Addr, "strict", options.Known.Strict)
	alive := monitor(ctx, config, 0, log)
	if err := awaitServer(ctx, config, onPort(f.port), log); err != nil || ctx.Err() != nil {
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
	budget, sets := controller.NewBudget(f.namespace), featuresets.New(f.namespace)
	options.FeatureRoom = budget.Fits
	caches, err := direct(config, admissionCache(f.namespace, budget, sets))
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Cache: caches, NewCache: compile.NewCache,
		Metrics:                metrics,
		HealthProbeBindAddress: address(f.port),
	})
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	controller.WatchSets(ctx, sets, f.namespace, mgr)
	a := &admission{cache: mgr.GetCache()}
	if a.keeper, err = f.newKeeper(f.namespace, f.schedulingFlags, client, log, a.answers); err != nil {
		return err
	}
	if a.knows, err = f.lookUp(ctx, mgr, alive.Relist, &options); err != nil {
		return err
	}
	newAdmissionMetrics(a.keeper).attach(&options)
	options.GetCertificate = a.keeper.GetCertificate
	options.Report = func(err error) { log.Error(err, "Failed to review an object") }
	if a.server, err = webhook.New(options); err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("webhook", a.ready)); err != nil {
		return err
	}
	return a.run(ctx, mgr, f.shutdownDelay, log)
}

// run runs all parts until the context ends or one of them fails. The server's dependencies are stopped after the server.
func (a *admission) run(ctx context.Context, mgr ctrl.Manager, delay time.Duration, log logr.Logger) error {
	group, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	needed, release := context.WithCancel(failed)
	serving, stop := context.WithCancel(failed)
	group.Go(func() error {
		if err := runManager(needed, mgr); !errors.Is(err, errUnfilled) {
			return err
		}
		return nil
	})
	group.Go(func() error { return a.keeper.Run(needed) })
	group.Go(func() error {
		defer release()
		return a.server.Run(serving)
	})
	group.Go(func() error {
		defer stop()
		select {
		case <-failed.Done():
			return nil
		case <-ctx.Done():
		}
		log.Info("Shutting down: unready, still serving requests", "for", delay)
		a.draining.Store(true)
		select {
		case <-failed.Done():
		case <-time.After(delay):
		}
		return nil
	})
	return group.Wait()
}

// ready returns the reason why this replica should not receive requests.
func (a *admission) ready(r *http.Request) error {
	if a.draining.Load() {
		return errors.New("the replica is shutting down")
	}
	return a.answers(r.Context())
}

// answers returns the reason why this replica cannot answer reviews.
func (a *admission) answers(ctx context.Context) error {
	if err := a.keeper.Ready(); err != nil {
		return err
	}
	filled, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	if !a.cache.WaitForCacheSync(filled) {
		return errors.New("the caches are not synced yet; if this lasts, check the log for missing permissions")
	}
	if err := a.knows(); err != nil {
		return err
	}
	return a.server.Answers(ctx)
}

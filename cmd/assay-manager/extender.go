package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/certs"
	"github.com/assay-project/assay/cmd/assay-manager/internal/refusals"
	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/fleet"
	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/fleet/follow"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/nodecache"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/internal/nodefeature"
	"github.com/assay-project/assay/internal/watchhealth"
)

// extenderFlags are the flags of the extender. Flags that it shares with the controller must have the same values, otherwise the
// extender schedules pods with labels that differ from those on Nodes.
type extenderFlags struct {
	ruleFlags
	kubeconfig, namespace                string
	address, certFile, keyFile, clientCA string
	tokenFile                            string
	tokenReview, leases                  bool
	allowed                              []string
	watchPatience, shutdownDelay         time.Duration
}

func (f *extenderFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the pod")
	flags.StringVar(&f.namespace, "namespace", ownNamespace(), "namespace of Assay's own objects")
	flags.StringVar(&f.address, "address", "127.0.0.1:8888", "address to listen on; without --tls-cert it must be a loopback address")
	flags.StringVar(&f.certFile, "tls-cert", "", "file of the serving certificate; read again when it changes")
	flags.StringVar(&f.keyFile, "tls-key", "", "file of the key of the serving certificate")
	flags.StringVar(&f.clientCA, "client-ca", "", "file of the CA certificates that sign the client certificates of schedulers; read again when it changes")
	flags.BoolVar(&f.tokenReview, "token-review", false, "authenticate bearer tokens by TokenReviews of the API server")
	flags.StringVar(&f.tokenFile, "token-file", "", "file of a bearer token to accept; read again for each request")
	flags.StringSliceVar(&f.allowed, "allowed-users", []string{"system:kube-scheduler"},
		"common names of client certificates or user names of tokens to accept; empty: all authenticated clients")
	flags.BoolVar(&f.leases, "publisher-leases", false,
		"use the Lease with the node's name in --namespace instead of the readiness of the Node to decide whether features are current; for publishers that renew a Lease")
	flags.DurationVar(&f.watchPatience, "watch-patience", watchhealth.DefaultPatience,
		"duration for which watches may be interrupted before the extender rejects requests")
	flags.DurationVar(&f.shutdownDelay, "shutdown-delay", defaultShutdownDelay, "duration for which requests are still served, unready, after SIGTERM")
	f.ruleFlags.register(flags, forRules)
}

func newExtender() *cobra.Command {
	f := &extenderFlags{}
	cmd := &cobra.Command{
		Use:   "extender",
		Short: "Serve the scheduler extender, which filters and scores nodes by the features that pods require",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return f.run(ctrl.SetupSignalHandler()) },
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *extenderFlags) run(ctx context.Context) error {
	settings, _, err := f.Load()
	if err != nil {
		return err
	}
	same := controllerConfig(settings, f.namespace)
	rest, err := restConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	log := ctrl.Log.WithName("extender")
	log.Info("Starting extender", "version", build.Version(), "commit", build.Commit(), "namespace", f.namespace, "config", f.File)
	alive := monitor(ctx, rest, f.watchPatience, log)
	same.Relist = alive.Relist
	if err := awaitServer(ctx, rest, f.listen, log); err != nil || ctx.Err() != nil {
		return err
	}
	scheme, err := fleet.Scheme()
	if err != nil {
		return err
	}
	budget, sets := controller.NewBudget(f.namespace), featuresets.New(f.namespace)
	caches, err := direct(rest, extenderCache(f.namespace, budget, sets))
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme:                 scheme,
		Cache:                  caches,
		NewCache:               compile.NewCache,
		Metrics:                metricsserver.Options{BindAddress: "0"}, // served by the extender's server, with authorization
		HealthProbeBindAddress: "0",
	})
	if err != nil {
		return err
	}
	controller.WatchSets(ctx, sets, f.namespace, mgr)
	if same.Devices, err = devices.Add(mgr, same.Sources(), same.RemovalGracePeriod); err != nil {
		return err
	}
	assembled, err := compile.Add(mgr, same.Assembly())
	if err != nil {
		return err
	}
	view, known, nodes := index.New(), podrequirements.New(same.Rules()), inputs.New(same.Inputs(nil))
	following := follow.Options{Rules: assembled.Registry()}
	if f.leases {
		following.Leases = f.namespace
	}
	follower := follow.New(view, nodes, following)
	options, certificate, err := f.serving(mgr)
	if err != nil {
		return err
	}
	options.Mask = same.Rules().Mask
	options.Ready = both(options.Ready, alive.Check)
	f.measure(&options, view, budget, sets, certificate)
	server, err := extender.New(&extender.Decider{Index: view, Requirements: known}, options)
	if err != nil {
		return err
	}
	for _, run := range []func(context.Context) error{
		func(ctx context.Context) error { // not earlier: until then, the server reports that it is not ready
			if err := nodes.Watch(ctx, mgr.GetCache()); err != nil {
				return err
			}
			return nodes.Start(ctx)
		},
		func(ctx context.Context) error {
			if err := follow.Requirements(ctx, mgr.GetCache(), known); err != nil {
				return err
			}
			if err := follower.Sync(ctx, mgr.GetCache()); err != nil {
				return err
			}
			logf.FromContext(ctx).Info("Ready", "nodes", view.Len(), "address", f.address)
			return follower.Run(ctx)
		},
		server.Run,
	} {
		if err := mgr.Add(manager.RunnableFunc(run)); err != nil {
			return err
		}
	}
	if err := runManager(ctx, mgr); !errors.Is(err, errUnfilled) {
		return err
	}
	return nil
}

// listen opens a listener on the address of the extender's server, with TLS if that has TLS. As a sidecar the extender has no probes,
// because a kubelet cannot reach its loopback address.
func (f *extenderFlags) listen(ctx context.Context) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.address)
	if err != nil || f.certFile == "" {
		return listener, err
	}
	pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--tls-cert: %w", err), listener.Close())
	}
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}), nil
}

// extenderCache configures which parts of objects the extender caches.
func extenderCache(namespace string, budget *nodefeature.Budget, sets *featuresets.Store) cache.Options {
	own := map[string]cache.Config{namespace: {}}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		NewInformer:      sets.Informers(budget.Informers(nodecache.Informers(toolscache.NewSharedIndexInformer))),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:             {Transform: follow.SlimNode},
			&nodefeature.NodeFeature{}: {Transform: nodefeature.Slim},
			&coordinationv1.Lease{}:    {Namespaces: own},
			&corev1.Secret{}:           {Namespaces: own},
			&corev1.ConfigMap{}:        {Namespaces: own},

			&assayv1alpha1.NodeFeatureSet{}: {Namespaces: own},
		},
	}
}

// serving converts the flags to server options, and returns the serving certificate, or nil if there is none.
func (f *extenderFlags) serving(mgr ctrl.Manager) (extender.Options, *certs.Mounted, error) {
	o := extender.Options{
		Addr: f.address, Allowed: f.allowed, ShutdownDelay: f.shutdownDelay,
		Pod: func(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
			var pod corev1.Pod
			return &pod, mgr.GetAPIReader().Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod)
		},
	}
	switch {
	case (f.certFile == "") != (f.keyFile == ""):
		return o, nil, errors.New("--tls-cert and --tls-key must be set together")
	case f.certFile == "" && (f.clientCA != "" || f.tokenReview || f.tokenFile != ""):
		return o, nil, errors.New("--client-ca, --token-review and --token-file require --tls-cert: clients are authenticated over TLS only")
	case f.tokenReview && f.tokenFile != "":
		return o, nil, errors.New("--token-review and --token-file are mutually exclusive")
	case f.tokenReview:
		o.Authenticate = extender.Reviewed(func(ctx context.Context, review *authenticationv1.TokenReview) error {
			return mgr.GetClient().Create(ctx, review)
		}, nil)
	case f.tokenFile != "":
		name := "token"
		if len(f.allowed) > 0 {
			name = f.allowed[0]
		}
		o.Authenticate = extender.StaticToken(name, func() (string, error) {
			data, err := os.ReadFile(f.tokenFile)
			return string(data), err
		})
	}
	if f.clientCA != "" {
		signers, err := certs.NewAuthorities(f.clientCA, func(err error) {
			ctrl.Log.Error(err, "Cannot reload the CA certificates of clients; keeping the previous ones")
		})
		if err != nil {
			return o, nil, fmt.Errorf("--client-ca: %w", err)
		}
		o.ClientCAs = signers.Pool
	}
	if f.certFile == "" {
		return o, nil, nil
	}
	mounted, err := certs.NewMounted(f.certFile, f.keyFile, nil, func(err error) {
		ctrl.Log.Error(err, "Cannot reload the serving certificate; keeping the previous one")
	})
	if err != nil {
		return o, nil, err
	}
	o.GetCertificate, o.Ready = mounted.GetCertificate, mounted.Ready
	return o, mounted, mgr.Add(manager.RunnableFunc(mounted.Run))
}

// runtimeMetrics returns the metrics of the process and the Go runtime that controller-runtime registers for the other commands.
func runtimeMetrics() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
	}
}

// measure adds the metrics.
func (f *extenderFlags) measure(o *extender.Options, view *index.Index, budget *nodefeature.Budget, sets *featuresets.Store, certificate *certs.Mounted) {
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "assay_extender_request_duration_seconds",
		Help:    "Time to answer schedulers, including waiting.",
		Buckets: []float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3},
	}, []string{"verb", "result"})
	log := ctrl.Log.WithName("extender")
	refused := refusals.New(log, clock.RealClock{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(took, refused.Count, watchStalls, watchClosed, controller.LeftOut(func() *nodefeature.Budget { return budget }),
		controller.Dropped(func() *featuresets.Store { return sets }),
		gauge("assay_extender_nodes", "Known nodes.", view.Len),
		gauge("assay_extender_requirements", "Distinct requirements that are kept up to date.", view.Requirements),
		gauge("assay_extender_synced", "Whether nodes and rules are synced, so that responses are reliable.", func() int {
			if view.Synced() {
				return 1
			}
			return 0
		}),
	)
	registry.MustRegister(runtimeMetrics()...)
	if certificate != nil {
		registry.MustRegister(certificateMetrics(certificate)...)
	}
	o.Refused, o.Report = refused.Report, func(err error) { log.Error(err, "Error in the extender's HTTP server") }
	o.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	o.Observe = func(verb, result string, d time.Duration) { took.WithLabelValues(verb, result).Observe(d.Seconds()) }
}

func gauge(name, help string, value func() int) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
}

package sim

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/assay-project/assay/controller"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/controller/nodefeatureset"
	"github.com/assay-project/assay/internal/fleet"
	"github.com/assay-project/assay/internal/fleet/devices"
	"github.com/assay-project/assay/internal/fleet/featuresets"
	"github.com/assay-project/assay/internal/servertime"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/settings"
)

// namespace is the namespace of the manager and the workers.
const namespace = "assay-system"

// removals is a small budget, so that a small fleet exceeds it.
var removals = settings.RemovalBudget{Nodes: 1, Share: 0.25, Window: 10 * time.Minute, Hold: 5 * time.Minute}

// leaseName is the name of the leader's lease.
const leaseName = "nfd-master.nfd.kubernetes.io"

// leasePace is the unit of the leader election's durations. It is a second in the shipped configuration; with less frequent
// renewals, other events have time to happen.
const leasePace = 6 * time.Minute

// scheme is that of all programs.
var scheme = sync.OnceValues(fleet.Scheme)

// mapper is what programs learn by discovery.
var mapper = sync.OnceValue(func() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, r := range apiserver.Resources() {
		scope := meta.RESTScopeRoot
		if r.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		gv := schema.GroupVersion{Group: r.Group, Version: r.Version}
		m.AddSpecific(gv.WithKind(r.Kind), gv.WithResource(r.Name), gv.WithResource(strings.ToLower(r.Kind)), scope)
		m.Add(gv.WithKind(r.Kind+"List"), scope)
	}
	return m
})

// config is the configuration of the controllers. Losing is set if they taint nodes that lose features.
func config(losing bool) controller.Config {
	s := settings.Default()
	s.EnableTaints, s.RemovalBudget, s.NoExecuteBudget, s.StartupTaint = true, removals, evictions, startupTaint
	s.Parallelism, s.ResyncPeriod, s.NodeShapeLabels, s.FeatureGates = 1, 0, nil, map[string]bool{}
	s.MaterializedRequests = settings.MaterializedRequests{}
	if losing {
		s.FeatureGates[settings.GateScheduling], s.LossTaint = true, keys.TaintName(lossTaint)
	}
	return controller.Config{
		Settings: s, Namespace: namespace, DefinitionsEvery: time.Hour, ConfirmEvery: time.Hour,
		FeatureSets: nodefeatureset.Options{Interval: 5 * time.Minute},
	}
}

// program is a running manager.
type program struct {
	name   string
	client *apiserver.Client
	server *servertime.Clock // what the program knows of the clock of the API server
	queues *gates
	stop   context.CancelFunc
	done   chan error
	start  time.Time
	// floor is, by resource, the minimum revision on which everything in this process is based.
	floor map[string]int64
	began int64 // revision at which it was started
	// looked is the revision up to which it has surely checked the pods of all nodes.
	looked int64
	idle   idleness
	// synced is set once the caches have been filled.
	synced bool
	// setsWatched and setsKnown are set once it watches NodeFeatureSets, and once it has those that exist.
	setsWatched, setsKnown bool
	answered               int // number of requests without faults
	// stopping says that it was asked to end.
	stopping bool
	sent     map[*apiserver.Request]bool // writes of Nodes
	passes   map[string][]pass           // by node: the times at which it was evaluated
	since    time.Time                   // since when they are, as far as can be seen
	// unsure is the time until which it can act on the state before a failed request.
	unsure time.Time
}

// config is the configuration of the controllers of a schedule.
func (w *world) config() controller.Config {
	c := config(w.losing)
	c.FeatureGates[settings.GateGroups] = w.declares
	if w.redefines {
		c.DefinitionsEvery = 0
	}
	return c
}

// startController starts a manager with the controllers. Reads is set if rules can read devices.
func startController(s *apiserver.Server, name string, with controller.Config, reads bool, log logr.Logger) (*program, error) {
	p, sets, err := prepare(s, name, nil, ctrl.Options{
		Logger: log, LeaderElection: true, LeaderElectionID: leaseName, LeaderElectionNamespace: namespace,
		LeaseDuration: ptr.To(15 * leasePace), RenewDeadline: ptr.To(10 * leasePace), RetryPeriod: ptr.To(4 * leasePace),
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, err
	}
	if reads {
		if with.Devices, err = devices.Add(p.queues, with.Sources(), with.RemovalGracePeriod); err != nil {
			return nil, err
		}
	}
	with.Relist = func(resource string) {
		for _, watch := range p.client.Watches() {
			if of, _ := watch.At(); of == resource {
				watch.Expire() // as the transport of the shipped program does
			}
		}
	}
	with.Age = p.server.Age
	if err := controller.Add(p.queues, with, sets); err != nil {
		return nil, err
	}
	p.run(sets)
	return p, nil
}

// prepare returns a program with a manager that does not run yet, and the NodeFeatureSets of its cache. Slim, if it is set, removes from a
// cached Node what the program does not use.
func prepare(s *apiserver.Server, name string, slim toolscache.TransformFunc, options ctrl.Options) (*program, *featuresets.Store, error) {
	p := &program{
		name: name, client: s.NewClient(name), server: servertime.New(clock.RealClock{}), done: make(chan error, 1), start: time.Now(), floor: map[string]int64{}, sent: map[*apiserver.Request]bool{}, passes: map[string][]pass{}, began: s.Revision(),
	}
	cfg := &rest.Config{Host: "http://model", Transport: p.server.RoundTripper(p.client), QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	scheme, err := scheme()
	if err != nil {
		return nil, nil, err
	}
	again, sets := true, featuresets.New(namespace)
	caches := controller.Cache(namespace, 0, sets)
	caches.NewInformer = apiserver.Informers(caches.NewInformer)
	for object, of := range caches.ByObject {
		if _, is := object.(*corev1.Node); is && slim != nil {
			of.Transform = slim
			caches.ByObject[object] = of
		}
	}
	options.Scheme, options.Cache, options.NewCache, options.Metrics = scheme, caches, compile.NewCache, metricsserver.Options{BindAddress: "0"}
	options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper(), nil }
	options.Controller = ctrlconfig.Controller{SkipNameValidation: &again}
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, nil, err
	}
	p.queues = &gates{Manager: mgr, list: map[string]gate{}, released: map[[2]string]time.Time{}}
	return p, sets, nil
}

// run starts the manager.
func (p *program) run(sets *featuresets.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	controller.WatchSets(ctx, sets, namespace, p.queues)
	go func() { p.done <- p.queues.Start(ctx) }()
}

// requests returns the requests that can be answered now. Requests for the lease wait until the caches are filled: before that,
// controllers wait for a mutex in controller-runtime, during which simulated time cannot advance.
func (p *program) requests() []*apiserver.Request {
	list := p.client.Pending()
	if p.ready(list) {
		return list
	}
	return slices.DeleteFunc(list, func(r *apiserver.Request) bool { return strings.Contains(r.String(), " leases ") })
}

// flow answers all requests and delivers all events, without logging them.
func (p *program) flow() (any bool) {
	for _, r := range p.requests() {
		r.Answer()
		any = true
	}
	for _, w := range p.client.Watches() {
		for w.Waits() {
			w.Deliver()
			any = true
		}
	}
	for _, item := range p.queues.ready() {
		p.queues.release(item)
		any = true
	}
	return any
}

// syncPeriod is longer than a controller takes to notice that caches are filled.
const syncPeriod = time.Second

// ready reports whether the caches have been filled for a while.
func (p *program) ready(pending []*apiserver.Request) bool {
	switch {
	case p.synced:
	case !p.filled(pending):
		p.since = time.Time{}
	case p.since.IsZero():
		p.since = time.Now()
	default:
		p.synced = time.Since(p.since) >= syncPeriod
	}
	return p.synced
}

// cached are the resources of caches that all controllers have from the start.
var cached = []string{
	"nodes", "nodefeatures", "nodefeaturerules", "nodefeatureruletemplates", "nodefeatureschedulingpolicies", "nodefeaturerequests", "namespaces", "secrets", "configmaps",
}

func (p *program) filled(pending []*apiserver.Request) bool {
	for _, r := range pending {
		if strings.HasPrefix(r.String(), "watch ") || strings.HasPrefix(r.String(), "list ") {
			return false
		}
	}
	have := map[string]bool{}
	for _, w := range p.client.Watches() {
		resource, _ := w.At()
		have[resource] = true
		if w.Initial() {
			return false
		}
	}
	for _, resource := range cached {
		if !have[resource] {
			return false // its watch has failed, and will be tried again
		}
	}
	return true
}

// lacksSets reports whether the program waits for the NodeFeatureSets that exist.
func (p *program) lacksSets() bool {
	for _, r := range p.client.Pending() {
		p.setsWatched = p.setsWatched || strings.HasPrefix(r.String(), "watch nodefeaturesets ")
	}
	for _, w := range p.client.Watches() {
		if resource, _ := w.At(); resource == "nodefeaturesets" {
			p.setsWatched, p.setsKnown = true, p.setsKnown || !w.Initial()
		}
	}
	return p.setsWatched && !p.setsKnown
}

// ended reports whether the program has ended by itself.
func (p *program) ended() bool {
	select {
	case err := <-p.done:
		p.done <- err
		return true
	default:
		return false
	}
}

// crash ends a program without a graceful shutdown.
//
// A controller-runtime manager that is stopped before its caches are filled loops forever. If such a manager crashes, it is
// disconnected and first fills its caches from an empty cluster.
func (p *program) crash() {
	if !p.synced || p.lacksSets() {
		p.client.Reconnect(apiserver.New(apiserver.Resources()...))
		for synctest.Wait(); !p.ended() && (!p.ready(p.client.Pending()) || p.lacksSets()); synctest.Wait() {
			if !p.flow() {
				time.Sleep(syncPeriod)
			}
		}
	}
	p.client.Close()
	p.stop()
	<-p.done //nolint:errcheck // an error about its closed connections
}

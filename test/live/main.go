//go:build linux

// Command live measures how fast a change on a host becomes a NodeFeature and a label, and the cost of a waiting worker. It
// requires root: it creates and removes network interfaces and block devices.
//
// It prints figures and asserts nothing: machines differ.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/test/cluster"
)

const (
	namespace = "assay-system"
	node      = "live"
	// patience is the timeout for one event.
	patience = 20 * time.Second
)

func main() {
	bin := flag.String("bin", "bin", "`directory` of assay-worker and assay-manager")
	rounds := flag.Int("rounds", 5, "how often each event happens")
	storm := flag.Int("storm", 10, "how many times the configuration changes in a storm of other events")
	idle := flag.Duration("idle", 0, "how long to watch an idle worker, such as 5m")
	flag.Parse()
	_ = cluster.EndWithParent(syscall.SIGTERM) // only a convenience
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *bin, *rounds, *storm, *idle)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1)
	}
}

// bench is a control plane with a worker and a controller.
type bench struct {
	*cluster.Cluster
	client client.WithWatch
	dir    string // the worker's configuration
	worker int    // process ID
}

func run(ctx context.Context, bin string, rounds, storm int, idle time.Duration) error {
	c, err := cluster.Start(ctx, cluster.Options{FakeNodes: true, Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer c.Stop()
	b := &bench{Cluster: c}
	if b.dir, err = os.MkdirTemp("", "assay-live"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	if err := b.start(ctx, bin); err != nil {
		return err
	}
	if err := b.printCost("after the first discovery"); err != nil {
		return err
	}
	if rounds > 0 {
		if err := b.printEvents(ctx, rounds); err != nil {
			return fmt.Errorf("%w\n%s\n%s", err, c.Log("assay-worker"), c.Log("assay-manager"))
		}
		if err := b.printCost("after these events"); err != nil {
			return err
		}
	}
	if storm > 0 {
		if err := b.printStorm(ctx, storm); err != nil {
			return fmt.Errorf("%w\n%s", err, c.Log("assay-worker"))
		}
	}
	if idle > 0 {
		return b.printIdle(ctx, idle)
	}
	return nil
}

// start runs all programs, and waits until the node has labels.
func (b *bench) start(ctx context.Context, bin string) error {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), nfdv1alpha1.AddToScheme(s), b.ApplyCRDs(ctx)); err != nil {
		return err
	}
	var err error
	if b.client, err = client.NewWithWatch(b.RESTConfig(), client.Options{Scheme: s}); err != nil {
		return err
	}
	for _, object := range append(rules(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
	) {
		if err := b.client.Create(ctx, object); err != nil {
			return err
		}
	}
	for _, dir := range []string{"features.d", "custom.d"} {
		if err := os.Mkdir(filepath.Join(b.dir, dir), 0o755); err != nil {
			return err
		}
	}
	if err := b.write("worker.conf", plainConfig); err != nil {
		return err
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	err = b.Run(ctx, cluster.Program{
		Name: "assay-worker", Path: filepath.Join(bin, "assay-worker"),
		Args: []string{"-kubeconfig", b.Kubeconfig, "-node-name", node, "-namespace", namespace, "-port", "0", "-host-paths", "native",
			"-config", filepath.Join(b.dir, "worker.conf"), "-config-dir", b.dir},
		Ready: func(ctx context.Context) error {
			return b.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: node}, &nfdv1alpha1.NodeFeature{})
		},
	})
	if err != nil {
		return err
	}
	if b.worker, err = childNamed("assay-worker"); err != nil {
		return err
	}
	return b.Run(ctx, cluster.Program{
		Name: "assay-manager", Path: filepath.Join(bin, "assay-manager"),
		Args: []string{"controller", "--kubeconfig", b.Kubeconfig},
		Ready: func(ctx context.Context) error {
			var n corev1.Node
			if err := b.client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
				return err
			}
			if n.Labels[nfdv1alpha1.FeatureLabelNamespace+"/kernel-version.major"] == "" {
				return errors.New("the node has no labels yet")
			}
			return nil
		},
	})
}

// write replaces a file of the worker's configuration atomically.
func (b *bench) write(name, text string) error {
	path := filepath.Join(b.dir, name)
	hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(hidden, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(hidden, path)
}

// rules create labels for the devices of the events. Each round has its own names: changes that repeat within a minute count as
// flapping, which is suppressed.
func rules() []client.Object {
	var list []nfdv1alpha1.Rule
	for _, r := range []struct{ feature, attribute, pattern, template string }{
		{"network.virtual", "name", "^" + vethName, "{{range .network.virtual}}{{.name}}=true\n{{end}}"},
		{"network.virtual", "mtu", fmt.Sprintf("^%d", changedMTU/10), "{{range .network.virtual}}{{.name}}-mtu=true\n{{end}}"},
		{"storage.block", "name", "^loop" + blockNumbers, "{{range .storage.block}}{{.name}}=true\n{{end}}"},
	} {
		list = append(list, nfdv1alpha1.Rule{
			Name:           r.feature + " by " + r.attribute,
			LabelsTemplate: r.template,
			MatchFeatures: nfdv1alpha1.FeatureMatcher{{
				Feature: r.feature,
				MatchExpressions: &nfdv1alpha1.MatchExpressionSet{
					r.attribute: &nfdv1alpha1.MatchExpression{Op: nfdv1alpha1.MatchInRegexp, Value: nfdv1alpha1.MatchValue{r.pattern}},
				},
			}},
		})
	}
	return []client.Object{&nfdv1alpha1.NodeFeatureRule{ObjectMeta: metav1.ObjectMeta{Name: "live"}, Spec: nfdv1alpha1.NodeFeatureRuleSpec{Rules: list}}}
}

// printEvents runs each event, and prints the medians and maxima of the latency.
func (b *bench) printEvents(ctx context.Context, rounds int) error {
	fmt.Printf("\n%-44s %24s %24s\n%-44s %12s %11s %12s %11s\n", "", "to the NodeFeature", "to the Node's label", "event", "median", "max", "median", "max")
	for _, e := range b.events() {
		var published, labeled []time.Duration
		var err error
		for i := 0; i < rounds && err == nil; i++ {
			err = b.round(ctx, e(i), &published, &labeled)
		}
		if errors.Is(err, errImpossible) {
			fmt.Printf("%-44s %v\n", e(0).name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e(0).name, err)
		}
		fmt.Printf("%-44s %12s %11s %12s %11s\n", e(0).name, ms(median(published)), ms(slices.Max(published)), ms(median(labeled)), ms(slices.Max(labeled)))
	}
	return nil
}

// settled is the delay between preparing a device and changing it.
const settled = time.Second

// round makes a change and undoes it.
func (b *bench) round(ctx context.Context, e event, published, labeled *[]time.Duration) (err error) {
	if e.prepare != nil {
		if err := e.prepare(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.clear()) }()
		time.Sleep(settled)
	}
	for _, on := range []bool{true, false} {
		p, l, err := b.measure(ctx, e, on)
		if err != nil {
			return err
		}
		*published, *labeled = append(*published, p), append(*labeled, l)
	}
	return nil
}

// measure makes or undoes a change, and waits for the watches of the NodeFeature and the Node to show it.
func (b *bench) measure(ctx context.Context, e event, on bool) (published, labeled time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	inFeatures, err := b.await(ctx, &nfdv1alpha1.NodeFeatureList{}, func(o client.Object) bool { return e.published(o.(*nfdv1alpha1.NodeFeature)) == on })
	if err != nil {
		return 0, 0, err
	}
	inLabels, err := b.await(ctx, &corev1.NodeList{}, func(o client.Object) bool {
		_, has := o.GetLabels()[nfdv1alpha1.FeatureLabelNamespace+"/"+e.label]
		return has == on
	})
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := e.happen(on); err != nil {
		return 0, 0, err
	}
	if published, err = since(ctx, start, inFeatures); err != nil {
		return 0, 0, fmt.Errorf("the NodeFeature did not say so: %w", err)
	}
	if labeled, err = since(ctx, start, inLabels); err != nil {
		return 0, 0, fmt.Errorf("the Node did not say so: %w", err)
	}
	return published, labeled, nil
}

// await starts a watch, and sends the time at which an object of the node satisfies the condition.
func (b *bench) await(ctx context.Context, list client.ObjectList, holds func(client.Object) bool) (<-chan time.Time, error) {
	if err := b.client.List(ctx, list); err != nil {
		return nil, err
	}
	w, err := b.client.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	if err != nil {
		return nil, err
	}
	at := make(chan time.Time, 1)
	go func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			if o, ok := e.Object.(client.Object); ok && o.GetName() == node && holds(o) {
				at <- time.Now()
				return
			}
		}
	}()
	return at, nil
}

func since(ctx context.Context, start time.Time, at <-chan time.Time) (time.Duration, error) {
	select {
	case t := <-at:
		return t.Sub(start), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

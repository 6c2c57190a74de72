//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/budget"
	"github.com/assay-project/assay/test/cluster/kube"
	"github.com/assay-project/assay/test/scale/fleet"
	"github.com/assay-project/assay/test/stage"
)

// Names of the phases, in their order.
const (
	phaseFirst         = "first nodes"
	phasePublish       = "publish"
	phaseLabel         = "label all"
	phaseServers       = "start webhook, extender"
	phaseIdle          = "idle"
	phaseChange        = "one change"
	phaseLoss          = "one loss"
	phaseRuleNone      = "rule that matches none"
	phaseRuleAll       = "rule that matches all"
	phaseController    = "restart controller"
	phaseWorkers       = "restart workers"
	phasePods          = "replace worker pods"
	phaseReplaced      = "replace 1 % of nodes"
	phaseAPIServer     = "restart API server"
	replacedPercentage = 1
)

// phase is one measurement.
type phase struct {
	name string
	per  int // number of nodes, for figures per node
	// do returns once the phase is complete. It can add values to the result.
	do func(context.Context, *phaseResult) error
	// prepare runs before, unmeasured; can be nil.
	prepare func(context.Context) error
	// check is called with the result; can be nil.
	check func(*phaseResult) error
}

// phases returns the phases in order. No more nodes change than can lose labels within some minutes: the controller would hold the
// others.
func (s *scale) phases() []phase {
	all := s.options.nodes
	replaced := max(1, all*replacedPercentage/100)
	changes := min(s.changes, all, max(budget.Default.Nodes, int(budget.Default.Share*float64(all)))-1) // one more changes at the end
	first := min(len(kinds), all-1)
	begin := []phase{
		{name: phaseFirst, per: first, prepare: func(ctx context.Context) (err error) {
			s.result.StartHeapBytes, err = s.liveHeap(ctx)
			return err
		}, do: func(ctx context.Context, _ *phaseResult) error { return s.introduce(ctx, s.nodes[:first]) }},
		{name: phasePublish, per: all - first, do: func(ctx context.Context, _ *phaseResult) error {
			return s.fleet.Start(ctx, s.nodes[first:], 0, s.counter(phasePublish, all-first))
		}},
		{name: phaseLabel, per: all, prepare: func(ctx context.Context) (err error) {
			s.result.PublishedHeapBytes, err = s.liveHeap(ctx)
			return err
		}, do: func(ctx context.Context, _ *phaseResult) error {
			if err := s.startController(ctx); err != nil {
				return err
			}
			return s.labeled(ctx, phaseLabel, s.nodes, valueLabel, firstValue)
		}},
		{name: phaseServers, per: all, do: func(ctx context.Context, _ *phaseResult) error { return s.startServers(ctx) }},
		{name: phaseIdle, do: func(ctx context.Context, _ *phaseResult) error { return stage.Sleep(ctx, s.idle) }},
	}
	restart := phase{name: phaseController, per: all, do: func(ctx context.Context, r *phaseResult) error {
		start := time.Now()
		if err := s.Restart(ctx, stage.Controller); err != nil {
			return err
		}
		return s.idleController(ctx, start, r)
	}}
	if s.slices {
		return slices.Concat(begin, s.devicePhases(), []phase{restart})
	}
	return slices.Concat(begin, []phase{
		{name: phaseChange, per: changes, do: func(ctx context.Context, r *phaseResult) error { return s.change(ctx, "changed-", changes, r) }},
		// The controller reads the node's objects from the API server before it removes the label.
		{name: phaseLoss, per: changes, do: func(ctx context.Context, r *phaseResult) error {
			if err := s.change(ctx, lostValue, changes, r); err != nil {
				return err
			}
			for i := range changes {
				if n := s.changing(i, changes); s.observer.has(n, keptLabel) {
					return fmt.Errorf("node %s still has the label %s", n.Name, keptLabel)
				}
			}
			return nil
		}},
		{name: phaseRuleNone, per: all, do: func(ctx context.Context, r *phaseResult) error {
			start := time.Now()
			none := rule("scale-none", allLabel, "none", nfdv1alpha1.MatchDoesNotExist)
			if err := s.client.Create(ctx, none); err != nil {
				return err
			}
			// The controller is busy within milliseconds, and writes the status a second later.
			if err := s.idleController(ctx, start, r); err != nil {
				return err
			}
			return s.reported(ctx, none)
		}},
		{name: phaseRuleAll, per: all, do: func(ctx context.Context, _ *phaseResult) error {
			if err := s.client.Create(ctx, rule("scale-all", allLabel, "true", nfdv1alpha1.MatchExists)); err != nil {
				return err
			}
			return s.labeled(ctx, phaseRuleAll, s.nodes, allLabel, "true")
		}},
		restart,
		{name: phaseWorkers, per: all, do: func(ctx context.Context, _ *phaseResult) error { return s.restartWorkers(ctx, phaseWorkers, 0) }},
		{name: phasePods, per: all, do: func(ctx context.Context, _ *phaseResult) error { return s.restartWorkers(ctx, phasePods, 1) }},
		s.replacement(replaced),
		{name: phaseAPIServer, per: all, do: func(ctx context.Context, _ *phaseResult) error {
			if err := s.Restart(ctx, kube.APIServer); err != nil {
				return err
			}
			// When a change becomes a label, worker and controller have reconnected.
			n := s.nodes[len(s.nodes)-1]
			if _, err := s.fleet.Publish(ctx, n, "restarted"); err != nil {
				return err
			}
			return s.labeled(ctx, phaseAPIServer, []fleet.Node{n}, valueLabel, "restarted")
		}},
	})
}

// phaseBound is the timeout of a phase: several times what any takes with 15,000 nodes on two cores.
const phaseBound = 3 * time.Hour

// phase runs one phase and adds its result.
func (s *scale) phase(ctx context.Context, p phase) error {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseBound, fmt.Errorf("waited %s", phaseBound))
	defer cancel()
	if p.prepare != nil {
		if err := p.prepare(ctx); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(s.progress, "%s\n", p.name)
	before := s.last // a request between two phases belongs to the later one
	if before == nil || p.prepare != nil {
		var err error
		if before, err = s.snapshot(ctx); err != nil {
			return err
		}
	}
	if s.result.Start == nil {
		s.result.Start = &phaseResult{}
		s.result.Start.fill(before)
	}
	r := &phaseResult{Name: p.name, Per: p.per, Values: map[string]float64{}}
	start := time.Now()
	if err := p.do(ctx, r); err != nil {
		return err
	}
	r.Seconds = time.Since(start).Seconds()
	if err := s.quiet(ctx); err != nil {
		return err
	}
	after, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	s.last = after
	r.fill(after.since(before))
	s.result.Phases = append(s.result.Phases, r)
	_, _ = fmt.Fprintln(s.progress, r.line())
	if s.done != nil {
		s.done(s.result)
	}
	if p.check != nil {
		return p.check(r)
	}
	return nil
}

// introduce has a controller label one node of each kind, so that it lists their sets for the workers of the other nodes. Then it stops the
// controller: publication and labels are measured one after the other.
func (s *scale) introduce(ctx context.Context, nodes []fleet.Node) error {
	if err := s.startController(ctx); err != nil {
		return err
	}
	if err := s.fleet.Start(ctx, nodes, 0, s.counter(phaseFirst, len(nodes))); err != nil {
		return err
	}
	if err := s.labeled(ctx, phaseFirst, nodes, valueLabel, firstValue); err != nil {
		return err
	}
	if s.shared {
		if err := s.listed(ctx); err != nil {
			return err
		}
	}
	return s.Terminate(ctx, stage.Controller)
}

// listed waits until the controller lists all NodeFeatureSets for workers.
func (s *scale) listed(ctx context.Context) error {
	var sets assayv1alpha1.NodeFeatureSetList
	if err := s.client.List(ctx, &sets, client.InNamespace(namespace)); err != nil {
		return err
	}
	for {
		marker := &corev1.ConfigMap{}
		err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: assayv1alpha1.FeatureSetMarker}, marker)
		if known := marker.Annotations[assayv1alpha1.KnownFeatureSetsAnnotation]; err != nil || len(strings.Split(known, ",")) >= len(sets.Items) {
			return err
		}
		if err := stage.Sleep(ctx, idleInterval); err != nil {
			return err
		}
	}
}

func (s *scale) labeled(ctx context.Context, phase string, nodes []fleet.Node, label, value string) error {
	_, err := s.observer.wait(ctx, nodes, label, value, s.counter(phase, len(nodes)))
	return err
}

// changing returns one of the nodes that change.
func (s *scale) changing(i, count int) fleet.Node { return s.nodes[i*len(s.nodes)/count] }

// change changes one attribute on some nodes, one after another, and adds the time until the worker had published it and until the
// Node had the label. Values begin with the prefix.
func (s *scale) change(ctx context.Context, prefix string, count int, r *phaseResult) error {
	var published, labeled []time.Duration
	for i := range count {
		n := s.changing(i, count)
		value := fmt.Sprint(prefix, i)
		start := time.Now()
		at, err := s.fleet.Publish(ctx, n, value)
		if err != nil {
			return err
		}
		seen, err := s.observer.wait(ctx, []fleet.Node{n}, valueLabel, value, func(int) {})
		if err != nil {
			return err
		}
		published, labeled = append(published, at.Sub(start)), append(labeled, seen.Sub(start))
	}
	r.Values["publishedP50ms"], r.Values["publishedP99ms"] = percentile(published, 0.5), percentile(published, 0.99)
	r.Values["labeledP50ms"], r.Values["labeledP99ms"] = percentile(labeled, 0.5), percentile(labeled, 0.99)
	return nil
}

// percentile returns the nearest rank, in milliseconds.
func percentile(d []time.Duration, share float64) float64 {
	d = slices.Clone(d)
	slices.Sort(d)
	rank := int(math.Ceil(share*float64(len(d)))) - 1
	return float64(d[max(0, rank)].Microseconds()) / 1000
}

// reported waits until the status of a rule that was created has the number of matching nodes.
func (s *scale) reported(ctx context.Context, r *nfdv1alpha1.NodeFeatureRule) error {
	w, err := s.client.Watch(ctx, &nfdv1alpha1.NodeFeatureRuleList{}, client.MatchingFields{"metadata.name": r.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: r.ResourceVersion}})
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e, ok := <-w.ResultChan():
			if !ok {
				return fmt.Errorf("the watch on NodeFeatureRule %s ended", r.Name)
			}
			if r, ok := e.Object.(*nfdv1alpha1.NodeFeatureRule); ok && r.Status.ObservedGeneration == r.Generation && r.Status.MatchedNodes != nil {
				return nil
			}
		}
	}
}

// restartWorkers ends all workers and starts them again, in the same pods if the generation is the same.
func (s *scale) restartWorkers(ctx context.Context, phase string, generation int) error {
	s.fleet.End(s.nodes)
	return s.fleet.Start(ctx, s.nodes, generation, s.counter(phase, len(s.nodes)))
}

// replacement is the phase in which the first nodes are deleted and others created.
func (s *scale) replacement(count int) phase {
	var fresh []fleet.Node
	return phase{
		name: phaseReplaced, per: count,
		prepare: func(ctx context.Context) error {
			s.fleet.End(s.nodes[:count])
			for _, n := range s.nodes[:count] {
				meta := metav1.ObjectMeta{Name: n.Name}
				if err := s.client.Delete(ctx, &corev1.Node{ObjectMeta: meta}); err != nil {
					return err
				}
				meta.Namespace = namespace // the garbage collector would delete it
				if err := s.client.Delete(ctx, &nfdv1alpha1.NodeFeature{ObjectMeta: meta}); client.IgnoreNotFound(err) != nil {
					return err
				}
			}
			var err error
			fresh, err = s.createNodes(ctx, count)
			s.nodes = append(s.nodes[count:], fresh...)
			return err
		},
		do: func(ctx context.Context, _ *phaseResult) error {
			if err := s.fleet.Start(ctx, fresh, 0, s.counter(phaseReplaced, count)); err != nil {
				return err
			}
			return s.labeled(ctx, phaseReplaced, fresh, valueLabel, firstValue)
		},
	}
}

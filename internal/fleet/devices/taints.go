package devices

import (
	"context"
	"fmt"
	"maps"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/assay-project/assay/internal/fleet/resourceslice"
	"github.com/assay-project/assay/rules/facts"
)

// taints is what is known of DeviceTaintRules. A cluster that does not serve them has none.
type taints struct {
	pending  bool                       // they may exist and were not read: no device is known
	served   bool                       // the cluster serves them
	why      string                     // why they cannot be read
	versions map[string]string          // resourceVersions by name
	rules    map[string]facts.TaintRule // by name, those that select something
	list     []facts.TaintRule          // the values of rules
}

// followTaints reads DeviceTaintRules until the context ends.
func (d *Devices) followTaints(ctx context.Context) {
	log := logf.FromContext(ctx).WithName("devices")
	for logged := ""; ; {
		err, absent := taintRulesServed(ctx, d.opt.Client)
		if ctx.Err() != nil {
			return
		}
		if d.setTaintProblem(err, absent); err == nil && !absent {
			break
		}
		if err != nil && err.Error() != logged {
			logged = err.Error()
			log.Info("Cannot read DeviceTaintRules: the features dra.device and dra.driver are absent", "error", logged)
		}
		select {
		case <-ctx.Done():
			return
		case <-d.opt.Clock.After(recheck):
		}
	}
	source := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &resourcev1.DeviceTaintRuleList{}
			return list, d.opt.Client.List(ctx, list, &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return d.opt.Client.Watch(ctx, &resourcev1.DeviceTaintRuleList{}, &client.ListOptions{Raw: &o})
		},
	}
	toolscache.NewReflectorWithOptions(source, &resourcev1.DeviceTaintRule{}, taintStore{d}, toolscache.ReflectorOptions{Name: "devicetaintrules"}).
		RunWithContext(ctx)
}

// taintRulesServed is Served for DeviceTaintRules. That they are absent is not an error: Kubernetes has them since 1.37.
func taintRulesServed(ctx context.Context, c client.Reader) (err error, absent bool) {
	err = c.List(ctx, &resourcev1.DeviceTaintRuleList{}, client.Limit(1))
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return nil, true
	case apierrors.IsForbidden(err):
		return fmt.Errorf("DeviceTaintRules cannot be read: %w", err), false
	}
	return nil, false
}

// setTaintProblem stores the result of taintRulesServed.
func (d *Devices) setTaintProblem(err error, absent bool) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	d.mu.Lock()
	changed, failed := d.taints.why != why, d.failed
	d.taints.why, d.taints.served = why, !absent
	var nodes []string
	if absent {
		nodes = d.taintsRead()
	}
	d.mu.Unlock()
	if changed {
		for _, f := range failed {
			f()
		}
	}
	d.notify(nodes...)
}

// taintsRead notes that the DeviceTaintRules are known, and returns the nodes whose devices are known because of it.
func (d *Devices) taintsRead() []string {
	d.taints.pending = false
	return d.begin()
}

// taintStore stores DeviceTaintRules. It implements cache.ReflectorStore.
type taintStore struct{ *Devices }

func (s taintStore) Add(object any) error { return s.Update(object) }

func (s taintStore) Update(object any) error {
	r, ok := object.(*resourcev1.DeviceTaintRule)
	if !ok {
		return fmt.Errorf("expected a DeviceTaintRule, found %T", object)
	}
	s.mu.Lock()
	changed := s.putTaints(r)
	s.mu.Unlock()
	s.notify(changed...)
	return nil
}

func (s taintStore) Delete(object any) error {
	r, ok := object.(*resourcev1.DeviceTaintRule)
	if !ok {
		return fmt.Errorf("expected a DeviceTaintRule, found %T", object)
	}
	s.mu.Lock()
	changed := s.dropTaints(r.Name)
	s.mu.Unlock()
	s.notify(changed...)
	return nil
}

func (s taintStore) Replace(objects []any, _ string) error {
	s.mu.Lock()
	var changed []string
	listed := map[string]bool{}
	for _, object := range objects {
		if r, ok := object.(*resourcev1.DeviceTaintRule); ok {
			listed[r.Name] = true
			changed = append(changed, s.putTaints(r)...)
		}
	}
	for name := range maps.Clone(s.taints.versions) {
		if !listed[name] {
			changed = append(changed, s.dropTaints(name)...)
		}
	}
	changed = append(changed, s.taintsRead()...)
	s.mu.Unlock()
	s.notify(unique(changed)...)
	return nil
}

func (taintStore) Resync() error { return nil }

// putTaints stores a DeviceTaintRule, and returns the nodes with devices that it may have selected and may select.
func (d *Devices) putTaints(r *resourcev1.DeviceTaintRule) []string {
	rule, selects := resourceslice.TaintRule(r)
	before, had := d.taints.rules[r.Name]
	if had && selects && before.Equal(rule) || !had && !selects {
		d.taints.note(r.Name, r.ResourceVersion) // for example a new status
		return nil
	}
	changed := d.dropTaints(r.Name)
	d.taints.note(r.Name, r.ResourceVersion)
	if !selects {
		return changed
	}
	d.taints.rules[r.Name] = rule
	return unique(append(changed, d.retaint(rule)...))
}

// dropTaints forgets a DeviceTaintRule, and returns the nodes with devices that it may have selected.
func (d *Devices) dropTaints(name string) []string {
	delete(d.taints.versions, name)
	before, had := d.taints.rules[name]
	if !had {
		return nil
	}
	delete(d.taints.rules, name)
	return d.retaint(before)
}

// retaint makes the facts of the nodes with devices that a rule may select outdated, and returns these nodes.
func (d *Devices) retaint(rule facts.TaintRule) (nodes []string) {
	d.taints.list = nil
	for _, r := range d.taints.rules {
		d.taints.list = append(d.taints.list, r)
	}
	one := []facts.TaintRule{rule}
	for name, m := range d.nodes {
		for _, p := range m.listed {
			if len(facts.TaintRulesOf(one, p.Driver, p.Name)) > 0 {
				m.facts, nodes = nil, append(nodes, name)
				break
			}
		}
	}
	return nodes
}

// note stores the version of a DeviceTaintRule.
func (t *taints) note(name, version string) {
	if t.versions == nil {
		t.versions, t.rules = map[string]string{}, map[string]facts.TaintRule{}
	}
	t.versions[name] = version
}

// liveTaints lists the DeviceTaintRules in the API server. The error is ErrStale if they are not those in memory.
func (d *Devices) liveTaints(ctx context.Context) ([]facts.TaintRule, error) {
	d.mu.Lock()
	served := d.taints.served
	d.mu.Unlock()
	if !served {
		return nil, nil
	}
	live := &resourcev1.DeviceTaintRuleList{}
	if err := d.opt.Client.List(ctx, live); err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for i := range live.Items {
		versions[live.Items[i].Name] = live.Items[i].ResourceVersion
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !maps.Equal(versions, d.taints.versions) {
		return nil, ErrStale
	}
	return resourceslice.TaintRules(live.Items), nil
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/controller/flap"
	"github.com/assay-project/assay/test/scale/fleet"
	"github.com/assay-project/assay/test/stage"
)

// step is a kind of change.
type step struct {
	name   string
	weight int // in form A
	do     func(*world, context.Context) error
}

// chance returns the weight of a step. Form B never changes which namespaces are trusted: whatever they publish goes at once for all of
// their nodes, and the controller holds back what it takes for a mass removal, which `assay explain` cannot tell from its own evaluation.
func (s step) chance(form string) int {
	if form == "B" && s.name == trustStep {
		return 0
	}
	return s.weight
}

const trustStep = "a namespace is trusted or not"

var steps = []step{
	{"facts change", 6, (*world).changeFacts},
	{"third parties publish", 5, (*world).changeVendors},
	{"a rule is edited", 4, (*world).editRule},
	{"a rule is created", 1, (*world).newRule},
	{"a rule is deleted", 1, (*world).deleteRule},
	{"a worker's object is deleted", 1, (*world).deleteOwn},
	{"a worker ends and its object is deleted, or it comes back", 2, (*world).dismiss},
	{"a Node is created again", 1, (*world).replaceNode},
	{trustStep, 1, (*world).trust},
	{"Nodes change", 2, (*world).changeNodes},
	{"the controller is killed", 2, (*world).killController},
	{"the controller restarts", 1, (*world).restartController},
	{"webhook and extender restart", 1, (*world).restartServers},
	{"workers restart", 2, (*world).restartWorkers},
	{"all watches are lost", 2, (*world).loseWatches},
	{"an object is being deleted", 1, (*world).markDeleted},
	{"the NodeBaseline is edited", 1, (*world).editBaseline},
}

// takeStep makes a random change.
func (w *world) takeStep(ctx context.Context) (string, error) {
	total := 0
	for _, s := range steps {
		total += s.chance(w.form)
	}
	at := w.draw.IntN(total)
	for _, s := range steps {
		if at -= s.chance(w.form); at < 0 {
			if err := s.do(w, ctx); err != nil {
				return s.name, fmt.Errorf("%s: %w", s.name, err)
			}
			return s.name, nil
		}
	}
	panic("unreachable: the weights do not sum up")
}

// calm reports whether something can change once more without flapping, and records the change: the controller would leave its keys alone
// for a minute.
func (w *world) calm(what string) bool {
	recent := slices.DeleteFunc(w.edits[what], func(at time.Time) bool { return time.Since(at) > flap.Window })
	if w.edits[what] = recent; len(recent) >= flap.Limit-1 {
		return false
	}
	w.edits[what] = append(recent, time.Now())
	return true
}

// some returns up to most of the nodes that satisfy a condition and are calm, at random.
func (w *world) some(most int, is func(*node) bool) (out []*node) {
	count := 1 + w.draw.IntN(most)
	for _, at := range w.draw.Perm(len(w.nodes)) {
		if n := w.nodes[at]; len(out) < count && is(n) && w.calm(n.name) {
			out = append(out, n)
		}
	}
	return out
}

func (w *world) changeFacts(ctx context.Context) error {
	for _, n := range w.some(12, func(n *node) bool { return n.employed }) {
		n.content = w.draw.change(n.number, n.content)
		w.fleets[n.form].Set(n.worker(), "")
	}
	return nil
}

func (w *world) changeVendors(ctx context.Context) error {
	for _, n := range w.some(8, func(n *node) bool { return n.form != none }) {
		names := slices.Sorted(maps.Keys(n.vendors))
		if len(names) == 0 || n.form != labels && w.draw.IntN(5) == 0 {
			if err := w.createVendor(ctx, n); err != nil {
				return err
			}
			continue
		}
		name := names[w.draw.IntN(len(names))]
		where, short, _ := strings.Cut(name, "/")
		f := &nfdv1alpha1.NodeFeature{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: where, Name: short}, f); err != nil {
			return err
		}
		if w.draw.IntN(5) == 0 {
			delete(n.vendors, name)
			if err := w.client.Delete(ctx, f); err != nil {
				return err
			}
			continue
		}
		f.Spec = w.draw.vendor(n)
		if err := w.client.Update(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// pick returns a rule that is calm; "": none.
func (w *world) pick() string {
	names := slices.Sorted(maps.Keys(w.rules))
	for _, at := range w.draw.Perm(len(names)) {
		if w.calm("rule " + names[at]) {
			return names[at]
		}
	}
	return ""
}

func (w *world) editRule(ctx context.Context) error {
	name := w.pick()
	if name == "" {
		return nil
	}
	if w.draw.IntN(3) == 0 {
		w.rules[name] = ruleForms[w.draw.IntN(len(ruleForms))]
	}
	next, err := w.draw.rule(name, w.rules[name], w.serials())
	if err != nil {
		return err
	}
	rule := &nfdv1alpha1.NodeFeatureRule{}
	if err := w.client.Get(ctx, client.ObjectKey{Name: name}, rule); err != nil {
		return err
	}
	rule.Spec = next.Spec
	return w.client.Update(ctx, rule)
}

func (w *world) newRule(ctx context.Context) error {
	return w.createRule(ctx, ruleForms[w.draw.IntN(len(ruleForms))])
}

func (w *world) deleteRule(ctx context.Context) error {
	name := w.pick()
	if name == "" || len(w.rules) < w.ruleCount-5 {
		return nil
	}
	delete(w.rules, name)
	rule := &nfdv1alpha1.NodeFeatureRule{}
	rule.Name = name
	return w.client.Delete(ctx, rule)
}

// own returns the worker's object of a node, without content.
func own(n *node) *nfdv1alpha1.NodeFeature {
	f := &nfdv1alpha1.NodeFeature{}
	f.Namespace, f.Name = namespace, n.name
	return f
}

func (w *world) deleteOwn(ctx context.Context) error {
	for _, n := range w.some(2, func(n *node) bool { return n.employed }) {
		if err := client.IgnoreNotFound(w.client.Delete(ctx, own(n))); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) dismiss(ctx context.Context) error {
	for _, n := range w.some(3, func(n *node) bool { return n.form == whole || n.form == sharing }) {
		if !n.employed {
			n.employed, n.deleted = true, nil
			if err := w.fleets[n.form].Launch(ctx, n.worker(), 1); err != nil {
				return err
			}
			continue
		}
		n.employed = false
		w.fleets[n.form].End([]fleet.Node{n.worker()})
		var err error
		if n.deleted, err = w.removeOwn(ctx, n); err != nil {
			return err
		}
		n.at = time.Now()
	}
	return nil
}

// removeOwn deletes the object of a worker that has ended, and returns its last version; nil: there was none. The API server may still
// store a patch of the worker that was under way.
func (w *world) removeOwn(ctx context.Context, n *node) (*nfdv1alpha1.NodeFeature, error) {
	for {
		f := own(n)
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(f), f); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		err := w.client.Delete(ctx, own(n), client.Preconditions{UID: &f.UID, ResourceVersion: &f.ResourceVersion})
		if err == nil || !apierrors.IsConflict(err) {
			return f, client.IgnoreNotFound(err)
		}
	}
}

func (w *world) replaceNode(ctx context.Context) error {
	for _, n := range w.some(2, func(n *node) bool { return n.form != none }) {
		if n.deleted = nil; n.employed {
			w.fleets[n.form].End([]fleet.Node{n.worker()})
		}
		if err := w.client.Delete(ctx, &corev1.Node{ObjectMeta: own(n).ObjectMeta}); err != nil {
			return err
		}
		if err := w.createNode(ctx, n); err != nil {
			return err
		}
		if n.employed {
			if err := w.fleets[n.form].Launch(ctx, n.worker(), 2); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) trust(ctx context.Context) error {
	name := vendorNamespaces[len(vendorNamespaces)-1]
	if !w.calm("namespace " + name) {
		return nil
	}
	ns := &corev1.Namespace{}
	if err := w.client.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
		return err
	}
	if ns.Labels[trustLabel] == "true" {
		ns.Labels[trustLabel] = "false"
	} else {
		ns.Labels[trustLabel] = "true"
	}
	return w.client.Update(ctx, ns)
}

// changeNodes changes labels of administrators, and what the kubelet reports.
func (w *world) changeNodes(ctx context.Context) error {
	for _, n := range w.some(5, func(*node) bool { return true }) {
		object := &corev1.Node{}
		if err := w.client.Get(ctx, client.ObjectKey{Name: n.name}, object); err != nil {
			return err
		}
		before := object.DeepCopy()
		if w.draw.IntN(2) == 0 {
			object.Labels["pool"] = w.draw.one("red", "green", "blue")
			if err := w.client.Patch(ctx, object, client.MergeFrom(before)); err != nil {
				return err
			}
			continue
		}
		object.Status.NodeInfo.KubeletVersion = w.kubelet()
		if err := w.client.Status().Patch(ctx, object, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) killController(ctx context.Context) error {
	defer func() { w.controlled = time.Now() }()
	return w.Restart(ctx, stage.Controller)
}

func (w *world) restartController(ctx context.Context) error {
	if err := w.Terminate(ctx, stage.Controller); err != nil {
		return err
	}
	return w.killController(ctx)
}

func (w *world) restartServers(ctx context.Context) error {
	w.served = time.Now()
	if err := w.Restart(ctx, stage.Webhook); err != nil {
		return err
	}
	return w.Restart(ctx, stage.Extender)
}

func (w *world) restartWorkers(ctx context.Context) error {
	for _, n := range w.some(8, func(n *node) bool { return n.employed }) {
		w.fleets[n.form].End([]fleet.Node{n.worker()})
		if err := w.fleets[n.form].Launch(ctx, n.worker(), 3); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) loseWatches(context.Context) error {
	w.link.Cut()
	return nil
}

// markDeleted deletes an object of a third party that a finalizer keeps: from now on it does not count.
func (w *world) markDeleted(ctx context.Context) error {
	for _, n := range w.some(1, func(n *node) bool { return len(n.vendors) > 0 && n.form != labels }) {
		name := slices.Sorted(maps.Keys(n.vendors))[0]
		where, short, _ := strings.Cut(name, "/")
		f := &nfdv1alpha1.NodeFeature{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: where, Name: short}, f); err != nil {
			return err
		}
		f.Finalizers = []string{domain + "keep"}
		if err := w.client.Update(ctx, f); err != nil {
			return err
		}
		if err := w.client.Delete(ctx, f); err != nil {
			return err
		}
		delete(n.vendors, name)
	}
	return nil
}

package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/controller/compile"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/fleet/follow"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/inputs"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/internal/sim/apiserver"
	"github.com/assay-project/assay/rules/keys"
	"github.com/assay-project/assay/settings"
)

// scheduling is a running extender, without its HTTP server.
type scheduling struct {
	*program
	decider *extender.Decider
	// known is the revision up to which it surely knows everything.
	known int64
}

// startExtender starts a manager with what assay-manager extender runs.
func startExtender(s *apiserver.Server, name string, log logr.Logger) (*scheduling, error) {
	p, sets, err := prepare(s, name, follow.SlimNode, ctrl.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	c := config(false)
	assembled, err := compile.Add(p.queues, c.Assembly())
	if err != nil {
		return nil, err
	}
	view, known, nodes := index.New(), podrequirements.New(c.Rules()), inputs.New(c.Inputs(nil))
	follower := follow.New(view, nodes, follow.Options{Rules: assembled.Registry()})
	for _, run := range []manager.RunnableFunc{
		func(ctx context.Context) error {
			if err := nodes.Watch(ctx, p.queues.GetCache()); err != nil {
				return err
			}
			return nodes.Start(ctx)
		},
		func(ctx context.Context) error {
			if err := follow.Requirements(ctx, p.queues.GetCache(), known); err != nil {
				return err
			}
			if err := follower.Sync(ctx, p.queues.GetCache()); err != nil {
				return err
			}
			return follower.Run(ctx)
		},
	} {
		if err := p.queues.Add(run); err != nil {
			return nil, err
		}
	}
	p.run(sets)
	return &scheduling{program: p, decider: &extender.Decider{Index: view, Requirements: known}}, nil
}

// bootExtender starts the extender.
func (w *world) bootExtender() {
	w.extenders++
	name := fmt.Sprintf("extender-%d", w.extenders)
	e, err := startExtender(w.server, name, w.log.WithName(name))
	if err != nil {
		w.violate("start: %v", err)
		return
	}
	w.extender = e
	w.tell("%s starts", name)
}

// endExtender ends the extender as a crash does.
func (w *world) endExtender() {
	w.tell("%s crashes", w.extender.name)
	w.extender.crash()
	w.extender = nil
}

// requirement is something that a pod requires of its node.
type requirement struct {
	text string
	// met reports whether a node with these NodeFeatures meets it.
	met func(w *world, want map[string]string, features []object) bool
}

var podRequirements = []requirement{
	{`{feature: test.attr, matchExpressions: {a0: {op: In, value: ["1", "2"]}}}`, func(w *world, _ map[string]string, features []object) bool {
		return slices.ContainsFunc(features, func(f object) bool { return !w.lacking(f, "1", "2") })
	}},
	{`{feature: rule.matched, matchExpressions: {` + prefix + `r0: {op: Exists}}}`, func(_ *world, want map[string]string, _ []object) bool {
		_, has := want[string(keys.Label)+" "+prefix+"r0"]
		return has
	}},
}

// filter returns the nodes that the extender finds for a pod; ready is false if it does not know all of them yet.
func (w *world) filter(r requirement) (found []string, ready bool) {
	names := w.names()
	body, err := json.Marshal(extenderv1.ExtenderArgs{NodeNames: &names, Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "pod", Namespace: "default", Annotations: map[string]string{assayv1alpha1.RequiredFeaturesAnnotation: "matchFeatures: [" + r.text + "]"},
	}}})
	if err != nil {
		panic(err)
	}
	answer, _, err := w.extender.decider.Filter(body, nil)
	if err != nil {
		return nil, false
	}
	var result extenderv1.ExtenderFilterResult
	if err := json.Unmarshal(answer, &result); err != nil || result.Error != "" {
		w.violate("the extender answers %s: %v", answer, err)
		return nil, false
	}
	return *result.NodeNames, true
}

// schedule has the extender find nodes for a pod. The data that it may know must explain its answer for each node.
func (w *world) schedule() {
	r := one(w.tape, podRequirements...)
	found, ready := w.filter(r)
	w.tell("%s finds %v for a pod that requires %s", w.extender.name, found, r.text)
	if !ready || w.lacks(w.extender.name) {
		return
	}
	for _, node := range w.names() {
		if finds := slices.Contains(found, node); !w.check.explains(w.extender, node, r, finds) {
			w.violate("%s answers %t for %s and a pod that requires %s, and nothing explains it", w.extender.name, finds, node, r.text)
		}
	}
}

// explains reports whether an extender may answer for a node that it meets a requirement, or that it does not.
func (c *checker) explains(e *scheduling, node string, r requirement, met bool) bool {
	existed := slices.ContainsFunc(c.w.server.Versions("nodes", max(e.known, 1)), func(all []object) bool {
		exists := slices.ContainsFunc(all, func(o object) bool { return o["metadata"].(object)["name"] == node })
		return exists == met
	})
	switch {
	case met && !existed:
		return false
	case !met && existed:
		return true
	}
	return c.possible(node, e.program, e.known, e.known, settings.DefaultRemovalGracePeriod+patience, false, func(want map[string]string, _, features []object) bool {
		return r.met(c.w, want, features) == met
	})
}

// know records what the extender surely knows.
func (c *checker) know(e *scheduling) {
	if c.knows(e.program, "nodes", "nodefeatures", "nodefeaturerules") {
		e.known = c.w.server.Revision()
	}
}

// agrees checks that the extender finds the nodes whose facts and labels meet the requirements.
func (c *checker) agrees() {
	for _, r := range podRequirements {
		found, ready := c.w.filter(r)
		if !ready {
			c.w.violate("%s is not ready at the end", c.w.extender.name)
			return
		}
		for _, node := range c.w.names() {
			want, features := c.wanted(node, c.w.server.Revision()), byNode(node, c.w.server.List("nodefeatures"))
			meets := c.w.server.Get("nodes", "", node) != nil && r.met(c.w, want, features)
			if slices.Contains(found, node) != meets {
				c.w.violate("%s answers %t at the end for %s and a pod that requires %s", c.w.extender.name, !meets, node, r.text)
			}
		}
	}
}

// Package placement says which nodes can run a pod, who gives the labels that it requires, and why other nodes cannot.
package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	assayv1alpha1 "github.com/assay-project/assay/api/assay/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/podlabels"
	"github.com/assay-project/assay/cmd/assay/internal/serving"
	"github.com/assay-project/assay/cmd/assay/internal/workload"
	"github.com/assay-project/assay/cmd/assay/internal/world"
	"github.com/assay-project/assay/extender"
	"github.com/assay-project/assay/internal/fleet/index"
	"github.com/assay-project/assay/internal/fleet/podrequirements"
	"github.com/assay-project/assay/rules/requirements"
)

// Answer says which nodes can run a pod, with the details of a node unless it is empty, who gives the labels and resources that it requires,
// and what makes the scheduler respect its requirements. The last is unknown without a cluster, where the client is nil; the error is about
// it alone.
func Answer(
	ctx context.Context, f *world.Options, c *cluster.Client, w *world.World, d *extender.Decider, t workload.Target, pod *corev1.Pod, node string,
) (out serving.Answer, err error) {
	out.Subject = fmt.Sprintf("%s %s/%s", t.Of.Name, pod.Namespace, pod.Name)
	if c != nil {
		var installed *serving.Installed
		if installed, err = loadServing(ctx, f, c, pod); err == nil {
			if t.Of.Template != nil {
				pod = admitted(pod, installed)
			}
			out.Ways, err = waysOf(ctx, c, pod, installed)
		}
	}
	for _, u := range requirements.UnknownKeys(pod.Labels, pod.Annotations) {
		out.Warnings = append(out.Warnings, fmt.Sprintf("metadata.%s[%s] %s", u.Map, u.Key, u.Message))
	}
	unknown := func(err error) {
		if err != nil {
			out.Warnings = append(out.Warnings, err.Error())
		}
	}
	list, problem := podLabels(w, pod)
	unknown(problem)
	resources, problem := podResources(ctx, w, c, pod)
	unknown(problem)
	for _, r := range append(list, resources...) {
		out.Labels = append(out.Labels, serving.Required{Requirement: r})
	}
	out.Explanation = d.Explain(pod, node, Checks(w, out.Labels)...)
	if len(out.Labels) > 0 {
		out.On = cmp.Or(node, out.Nearest)
		unknown(given(ctx, w, c, out.Labels, out.On))
	}
	return out, err
}

// podLabels returns the labels that a pod requires of its node. The error says why nothing is known of them.
func podLabels(w *world.World, pod *corev1.Pod) ([]podlabels.Requirement, error) {
	out, err := podlabels.Of(&pod.Spec)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the labels that the pod requires are unknown: %w", err)
	case len(out) > 0 && w.Nodes == nil:
		return nil, fmt.Errorf("the labels that the pod requires are not checked, because %s has no Nodes", w.Where)
	}
	podlabels.Count(out, maps.Values(w.Nodes))
	return out, nil
}

// podResources returns the resources and devices that a pod requires of its node. The error says what is not known of them.
func podResources(ctx context.Context, w *world.World, c *cluster.Client, pod *corev1.Pod) ([]podlabels.Requirement, error) {
	out, err := podlabels.Resources(&pod.Spec), error(nil)
	if reports := slices.ContainsFunc(slices.Collect(maps.Values(w.Nodes)), podlabels.HasAllocatable); len(out) > 0 && !reports {
		out, err = nil, fmt.Errorf("the resources that the pod requests are not checked, because no Node of %s reports what it can allocate", w.Where)
	}
	devices, unknown := podDevices(ctx, w, c, pod, out)
	out = append(out, devices...)
	podlabels.Count(out, maps.Values(w.Nodes))
	return out, errors.Join(err, unknown)
}

// Checks returns the requirements on labels for the extender's decider, which does not know them.
func Checks(w *world.World, of []serving.Required) []extender.Check {
	out := make([]extender.Check, len(of))
	for i := range of {
		out[i] = extender.Check{Of: of[i].Of(), Origin: of[i].Origin, Text: of[i].Text, Lacks: func(name string) string {
			if node := w.Nodes[name]; node != nil {
				return of[i].Lacks(node)
			}
			return "the Node does not exist"
		}}
	}
	return out
}

// loadServing returns what the cluster has for pods that require features, with the second scheduler if it runs and is that of the pod.
func loadServing(ctx context.Context, f *world.Options, c *cluster.Client, pod *corev1.Pod) (*serving.Installed, error) {
	installed, err := serving.Load(ctx, c)
	if err != nil || pod.Spec.SchedulerName != serving.Scheduler {
		return installed, err
	}
	alive, err := serving.SecondScheduler(ctx, c, cmp.Or(f.AssayNamespace, cluster.DefaultNamespace))
	if alive {
		installed.Scheduler = serving.Scheduler
	}
	return installed, err
}

// waysOf returns what makes the scheduler respect the requirements of a pod.
func waysOf(ctx context.Context, c *cluster.Client, pod *corev1.Pod, installed *serving.Installed) ([]serving.Way, error) {
	requests, err := c.Requests(ctx)
	if err != nil {
		return nil, err
	}
	return installed.Of(pod, func(name string) *assayv1alpha1.NodeFeatureRequest {
		for i := range requests {
			if requests[i].Namespace == pod.Namespace && requests[i].Name == name {
				return &requests[i]
			}
		}
		return nil
	}), nil
}

// Decider creates the extender's decider from the objects of the world.
func Decider(w *world.World, cmd *cobra.Command, c *cluster.Client) (*extender.Decider, error) {
	program, err := w.Program(cmd.Context(), w.Rules)
	world.Note(cmd, err)
	view := index.New()
	for _, name := range w.Fleet.Names() {
		view.Put(index.NodeOf(w.Fleet.Input(name), w.Nodes[name]))
	}
	view.SetProgram(program)
	view.SetSynced()
	known, err := Requirements(cmd.Context(), w, c)
	return &extender.Decider{Index: view, Requirements: known}, err
}

// Requirements returns what requests, policies and namespaces of the cluster require, or those of the files if the client is nil.
func Requirements(ctx context.Context, w *world.World, c *cluster.Client) (*podrequirements.Resolver, error) {
	known := podrequirements.New(w.Limits)
	if c == nil {
		for i := range w.Scheduling.Requests {
			known.PutRequest(&w.Scheduling.Requests[i])
		}
		for i := range w.Scheduling.Policies {
			known.PutPolicy(&w.Scheduling.Policies[i])
		}
		for name, labels := range w.Objects.Namespaces {
			known.PutNamespace(name, labels)
		}
		return known, nil
	}
	requests, err := c.Requests(ctx)
	if err != nil {
		return nil, err
	}
	for i := range requests {
		known.PutRequest(&requests[i])
	}
	policies, err := c.Policies(ctx)
	if err != nil || len(policies) == 0 {
		return known, err
	}
	for i := range policies {
		known.PutPolicy(&policies[i])
	}
	namespaces, err := c.Namespaces(ctx)
	for i := range namespaces {
		known.PutNamespace(namespaces[i].Name, namespaces[i].Labels)
	}
	return known, err
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/fleet/resourceslice"
)

func (w *world) readCluster(ctx context.Context, c *cluster.Client, want want, notes io.Writer) error {
	if want.nodes {
		if err := w.withoutForbidden(want, "nodes", w.readNodes(ctx, c, want)); err != nil {
			return err
		}
	}
	if want.features {
		readDefinition(ctx, c, definition.Features, notes)
		list, err := c.Features(ctx, w.own, want.node)
		if err := w.withoutForbidden(want, "nodefeatures", err); err != nil {
			return err
		}
		if w.policy().Namespaces != nil {
			// Which NodeFeatures count depends on the labels of their namespaces.
			if err := w.withoutForbidden(want, "nodefeatures", w.readNamespaces(ctx, c)); err != nil {
				return err
			}
		}
		for i := range list {
			if len(list[i].Spec.FeatureSets) > 0 {
				w.sharing++
			}
			if list[i].NodeName() != "" {
				w.objects.Published = append(w.objects.Published, list[i].Published())
			}
		}
	}
	if want.rules {
		if err := w.readRules(ctx, c, want, notes); err != nil {
			return err
		}
	}
	if w.unread["nodes"] != nil && w.unread["nodefeatures"] != nil && w.unread["nodefeaturerules"] != nil {
		return w.unread["nodes"] // nothing is left to show
	}
	if !want.devices && !(want.features && w.readDevices()) {
		return nil
	}
	list, err := c.ResourceSlices(ctx, want.node)
	if err == nil && w.objects.Taints == nil {
		w.objects.Taints, err = c.DeviceTaintRules(ctx)
	}
	if err == nil {
		w.objects.Slices = append(list, w.objects.Slices...) // of other nodes, which were read before; an empty list is not nil
		return nil
	}
	switch {
	case errors.Is(err, resourceslice.ErrNotServed):
		if w.noDevices = err.Error(); !w.readDevices() {
			return nil // a command that shows all features shows those that the cluster can have
		}
	case !cluster.IsForbidden(err):
		return err
	}
	fmt.Fprintf(notes, "note: the devices of DRA drivers are unknown: %s\n", printable(err.Error()))
	return nil
}

// readDevices reports whether a rule may read the devices of DRA drivers. Rules in Secrets and ConfigMaps are not known yet, and may.
func (w *world) readDevices() bool {
	specs := slices.Collect(maps.Values(w.templates))
	for _, list := range [][]nfdv1alpha1.NodeFeatureRule{w.rules, w.builtIn} {
		for i := range list {
			specs = append(specs, &list[i].Spec)
		}
	}
	return slices.ContainsFunc(specs, func(spec *nfdv1alpha1.NodeFeatureRuleSpec) bool {
		text, err := json.Marshal(spec)
		return err != nil || strings.Contains(strings.ToLower(string(text)), "dra.") || strings.Contains(string(text), "KeyRef\":")
	})
}

// readDefinition returns the status of the definition of a kind, and writes a note if it is not to be trusted: what is read of its objects may
// lack fields. One that cannot be read counts as whole; the controller knows more, see doctor.
func readDefinition(ctx context.Context, c *cluster.Client, name string, notes io.Writer) definition.Status {
	whole := definition.Status{State: definition.Whole}
	served, err := c.Definition(ctx, name)
	if err != nil {
		return whole
	}
	status, err := definition.Of(served)
	if err != nil {
		return whole
	}
	if !status.Trusted() {
		fmt.Fprintln(notes, "note:", printable(definition.Problem(served, status)))
	}
	return status
}

func (w *world) readRules(ctx context.Context, c *cluster.Client, want want, notes io.Writer) error {
	var err error
	w.definition = readDefinition(ctx, c, definition.Rules, notes)
	readDefinition(ctx, c, definition.Templates, notes)
	w.rules, err = c.Rules(ctx)
	if err := w.withoutForbidden(want, "nodefeaturerules", err); err != nil {
		return err
	}
	if w.builtIn, err = c.BuiltIn(ctx, w.own); err != nil {
		fmt.Fprintf(notes, "note: the built-in rules of the controller are unknown: %s\n", printable(err.Error()))
	}
	templates, err := c.Templates(ctx)
	for i := range templates {
		w.templates[templates[i].Name] = &templates[i].Spec
	}
	return w.withoutForbidden(want, "nodefeatureruletemplates", err)
}

// readNamespaces reads the labels of namespaces, by which NodeFeatures are selected.
func (w *world) readNamespaces(ctx context.Context, c *cluster.Client) error {
	list, err := c.Namespaces(ctx)
	for i := range list {
		w.namespace(&list[i])
	}
	return err
}

func (w *world) namespace(ns *corev1.Namespace) {
	if w.objects.Namespaces == nil {
		w.objects.Namespaces = map[string]map[string]string{}
	}
	w.objects.Namespaces[ns.Name] = ns.Labels
}

func (w *world) readNodes(ctx context.Context, c *cluster.Client, want want) error {
	if want.node != "" {
		node, err := c.Node(ctx, want.node)
		if cluster.IsNotFound(err) {
			return noSuchNode(ctx, c, want.node)
		}
		if err != nil {
			return err
		}
		w.hasNodes()
		w.nodes[node.Name] = node
		return nil
	}
	list, err := c.Nodes(ctx, want.selector)
	if err != nil {
		return err
	}
	w.hasNodes()
	for i := range list {
		w.nodes[list[i].Name] = &list[i]
	}
	return nil
}

func noSuchNode(ctx context.Context, c *cluster.Client, name string) error {
	names, _ := c.Names(ctx, "nodes")
	return notFound(corev1.Resource("nodes"), name, didYouMean(name, names))
}

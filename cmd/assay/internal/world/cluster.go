package world

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
	"github.com/assay-project/assay/cmd/assay/internal/cli"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/internal/definition"
	"github.com/assay-project/assay/internal/fleet/resourceslice"
	"github.com/assay-project/assay/rules/clip"
)

// ReadCluster adds the objects of a cluster that a command needs.
func (w *World) ReadCluster(ctx context.Context, c *cluster.Client, want Want, notes io.Writer) error {
	if want.Nodes {
		if err := w.withoutForbidden(want, "nodes", w.readNodes(ctx, c, want)); err != nil {
			return err
		}
	}
	if want.Features {
		ReadDefinition(ctx, c, definition.Features, notes)
		list, err := c.Features(ctx, w.Own, want.Node)
		if err := w.withoutForbidden(want, "nodefeatures", err); err != nil {
			return err
		}
		if w.Policy().Namespaces != nil {
			// Which NodeFeatures count depends on the labels of their namespaces.
			if err := w.withoutForbidden(want, "nodefeatures", w.readNamespaces(ctx, c)); err != nil {
				return err
			}
		}
		for i := range list {
			if len(list[i].Spec.FeatureSets) > 0 {
				w.Sharing++
			}
			if list[i].NodeName() != "" {
				w.Objects.Published = append(w.Objects.Published, list[i].Published())
			}
		}
	}
	if want.Rules {
		if err := w.readRules(ctx, c, want, notes); err != nil {
			return err
		}
	}
	if w.Unread["nodes"] != nil && w.Unread["nodefeatures"] != nil && w.Unread["nodefeaturerules"] != nil {
		return w.Unread["nodes"] // nothing is left to show
	}
	if !want.Devices && !(want.Features && w.readDevices()) {
		return nil
	}
	list, err := c.ResourceSlices(ctx, want.Node)
	if err == nil && w.Objects.Taints == nil {
		w.Objects.Taints, err = c.DeviceTaintRules(ctx)
	}
	if err == nil {
		w.Objects.Slices = append(list, w.Objects.Slices...) // of other nodes, which were read before; an empty list is not nil
		return nil
	}
	switch {
	case errors.Is(err, resourceslice.ErrNotServed):
		if w.NoDevices = err.Error(); !w.readDevices() {
			return nil // a command that shows all features shows those that the cluster can have
		}
	case !cluster.IsForbidden(err):
		return err
	}
	fmt.Fprintf(notes, "note: the devices of DRA drivers are unknown: %s\n", clip.Printable(err.Error()))
	return nil
}

// readDevices reports whether a rule may read the devices of DRA drivers. Rules in Secrets and ConfigMaps are not known yet, and may.
func (w *World) readDevices() bool {
	specs := slices.Collect(maps.Values(w.Templates))
	for _, list := range [][]nfdv1alpha1.NodeFeatureRule{w.Rules, w.BuiltIn} {
		for i := range list {
			specs = append(specs, &list[i].Spec)
		}
	}
	return slices.ContainsFunc(specs, func(spec *nfdv1alpha1.NodeFeatureRuleSpec) bool {
		text, err := json.Marshal(spec)
		return err != nil || strings.Contains(strings.ToLower(string(text)), "dra.") || strings.Contains(string(text), "KeyRef\":")
	})
}

// ReadDefinition returns the status of the definition of a kind, and writes a note if it is not to be trusted: what is read of its objects may
// lack fields. One that cannot be read counts as whole; the controller knows more, see doctor.
func ReadDefinition(ctx context.Context, c *cluster.Client, name string, notes io.Writer) definition.Status {
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
		fmt.Fprintln(notes, "note:", clip.Printable(definition.Problem(served, status)))
	}
	return status
}

func (w *World) readRules(ctx context.Context, c *cluster.Client, want Want, notes io.Writer) error {
	var err error
	w.definition = ReadDefinition(ctx, c, definition.Rules, notes)
	ReadDefinition(ctx, c, definition.Templates, notes)
	w.Rules, err = c.Rules(ctx)
	if err := w.withoutForbidden(want, "nodefeaturerules", err); err != nil {
		return err
	}
	if w.BuiltIn, err = c.BuiltIn(ctx, w.Own); err != nil {
		fmt.Fprintf(notes, "note: the built-in rules of the controller are unknown: %s\n", clip.Printable(err.Error()))
	}
	templates, err := c.Templates(ctx)
	for i := range templates {
		w.Templates[templates[i].Name] = &templates[i].Spec
	}
	return w.withoutForbidden(want, "nodefeatureruletemplates", err)
}

// readNamespaces reads the labels of namespaces, by which NodeFeatures are selected.
func (w *World) readNamespaces(ctx context.Context, c *cluster.Client) error {
	list, err := c.Namespaces(ctx)
	for i := range list {
		w.namespace(&list[i])
	}
	return err
}

func (w *World) namespace(ns *corev1.Namespace) {
	if w.Objects.Namespaces == nil {
		w.Objects.Namespaces = map[string]map[string]string{}
	}
	w.Objects.Namespaces[ns.Name] = ns.Labels
}

func (w *World) readNodes(ctx context.Context, c *cluster.Client, want Want) error {
	if want.Node != "" {
		node, err := c.Node(ctx, want.Node)
		if cluster.IsNotFound(err) {
			return noSuchNode(ctx, c, want.Node)
		}
		if err != nil {
			return err
		}
		w.hasNodes()
		w.Nodes[node.Name] = node
		return nil
	}
	list, err := c.Nodes(ctx, want.Selector)
	if err != nil {
		return err
	}
	w.hasNodes()
	for i := range list {
		w.Nodes[list[i].Name] = &list[i]
	}
	return nil
}

func noSuchNode(ctx context.Context, c *cluster.Client, name string) error {
	names, _ := c.Names(ctx, "nodes")
	return cli.NotFound(corev1.Resource("nodes"), name, cli.DidYouMean(name, names))
}

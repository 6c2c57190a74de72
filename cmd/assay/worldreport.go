package main

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/cmd/assay/held"
	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// report returns what the controller reports about a Node; of files, nothing is known.
func (w *world) report(ctx context.Context, node *corev1.Node) *held.Report {
	c, ok := w.kept.(*cluster.Client)
	if !ok || node == nil {
		return &held.Report{}
	}
	return held.Read(ctx, c, w.own, w.settings.Instance, node)
}

// orphan reports whether the NodeFeature of a node's worker is missing, so that the controller keeps what followed from it for a while.
func (w *world) orphan(node string) bool {
	return !slices.ContainsFunc(w.fleet.Published(node), func(p offline.Published) bool { return w.policy().Own(p) })
}

// origins answers which objects gave the keys of a node, and which give them now, as far as the record says; nil: it cannot be read. Before are
// the objects of the cluster; those of the outcome can differ.
func (w *world) origins(o *rules.Outcome, worker *facts.Facts, before, now *desired.Active, past *record.Record) *desired.Origins {
	return &desired.Origins{
		Outcome: o, Worker: worker, Active: now.Since(before, past), Past: past, Memory: &desired.Memory{}, Unknown: len(w.fleet.Published(o.Node)) == 0,
		Inactive: func(g record.Owner) record.State {
			_, evaluated := before.Owners[g.ID]
			if evaluated || !slices.ContainsFunc(w.rules, func(r nfdv1alpha1.NodeFeatureRule) bool { return string(r.UID) == g.ID }) {
				return record.Gone
			}
			return record.Unsettled // it could not be resolved
		},
	}
}

// hold returns why the controller leaves a key of a node as it is, nil if it publishes nothing.
func (w *world) hold(r *held.Report, program *rules.Program, node string, kind keys.Kind, key string) *held.Hold {
	return r.Of(kind, key, w.orphan(node), program.ReadsDevices(kind, key, func(*rules.RuleSet) bool { return true }))
}

// workerSettings returns the configuration of the worker, and where it is. If it is unknown, it returns the default one.
func (w *world) workerSettings(ctx context.Context) (s *workerconfig.Settings, where string) {
	s = workerconfig.Default()
	for _, m := range w.workerConfigMaps(ctx) {
		for _, key := range slices.Sorted(maps.Keys(m.Data)) {
			if key != path.Base(workerconfig.DefaultFile) {
				continue
			}
			where = fmt.Sprintf("ConfigMap %s/%s", m.Namespace, m.Name)
			if _, err := config.Read(where, []byte(m.Data[key]), s.Keys()); err == nil {
				return s, "worker.config of the chart, " + where
			}
			s = workerconfig.Default()
		}
	}
	return s, "the configuration of the worker, which is unknown here: its defaults are assumed"
}

// workerConfigMaps returns the ConfigMaps that can have the configuration of the worker.
func (w *world) workerConfigMaps(ctx context.Context) (out []*corev1.ConfigMap) {
	if files, ok := w.kept.(*filed); ok {
		for _, name := range slices.Sorted(maps.Keys(files.configMaps)) {
			out = append(out, files.configMaps[name])
		}
		return out
	}
	c, ok := w.kept.(*cluster.Client)
	if !ok {
		return nil
	}
	list, err := c.DaemonSets(ctx, w.own, "app.kubernetes.io/part-of=assay,app.kubernetes.io/component=worker")
	if err != nil {
		return nil // the caller says that the configuration is unknown
	}
	for i := range list {
		for _, v := range list[i].Spec.Template.Spec.Volumes {
			if v.ConfigMap == nil {
				continue
			}
			if m, err := c.ConfigMap(ctx, list[i].Namespace, v.ConfigMap.Name); err == nil {
				out = append(out, m)
			}
		}
	}
	return out
}

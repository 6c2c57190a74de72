package world

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/cmd/assay/internal/cluster"
	"github.com/assay-project/assay/cmd/assay/internal/held"
	"github.com/assay-project/assay/internal/assembly"
	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/internal/desired"
	"github.com/assay-project/assay/internal/fleet/offline"
	"github.com/assay-project/assay/internal/record"
	"github.com/assay-project/assay/rules"
	"github.com/assay-project/assay/rules/facts"
	"github.com/assay-project/assay/rules/keys"
)

// Provenance returns the record of an instance of the controller, and the name of the ConfigMap with it.
func (w *World) Provenance(ctx context.Context, instance string) (r *record.Record, where string, err error) {
	name := assembly.KeptName(instance)
	where = fmt.Sprintf("ConfigMap %s/%s", w.Own, name)
	m, err := w.Kept.ConfigMap(ctx, w.Own, name)
	if err != nil {
		return nil, where, fmt.Errorf("cannot read %s: %w", where, err)
	}
	if r, err = record.Decode(m.Data[record.DataKey]); err != nil {
		return nil, where, fmt.Errorf("the record in %s: %w", where, err)
	}
	return r, where, nil
}

// Report returns what the controller reports about a Node; of files, nothing is known.
func (w *World) Report(ctx context.Context, node *corev1.Node) *held.Report {
	c, ok := w.Kept.(*cluster.Client)
	if !ok || node == nil {
		return &held.Report{}
	}
	return held.Read(ctx, c, w.Own, w.Settings.Instance, node)
}

// Orphan reports whether the NodeFeature of a node's worker is missing, so that the controller keeps what followed from it for a while.
func (w *World) Orphan(node string) bool {
	return !slices.ContainsFunc(w.Fleet.Published(node), func(p offline.Published) bool { return w.Policy().Own(p) })
}

// Origins answers which objects gave the keys of a node, and which give them now, as far as the record says; nil: it cannot be read. Before are
// the objects of the cluster; those of the outcome can differ.
func (w *World) Origins(o *rules.Outcome, worker *facts.Facts, before, now *desired.Active, past *record.Record) *desired.Origins {
	return &desired.Origins{
		Outcome: o, Worker: worker, Active: now.Since(before, past), Past: past, Memory: &desired.Memory{}, Unknown: len(w.Fleet.Published(o.Node)) == 0,
		Inactive: func(g record.Owner) record.State {
			_, evaluated := before.Owners[g.ID]
			if evaluated || !slices.ContainsFunc(w.Rules, func(r nfdv1alpha1.NodeFeatureRule) bool { return string(r.UID) == g.ID }) {
				return record.Gone
			}
			return record.Unsettled // it could not be resolved
		},
	}
}

// Hold returns why the controller leaves a key of a node as it is, nil if it publishes nothing.
func (w *World) Hold(r *held.Report, program *rules.Program, node string, kind keys.Kind, key string) *held.Hold {
	return r.Of(kind, key, w.Orphan(node), program.ReadsDevices(kind, key, func(*rules.RuleSet) bool { return true }))
}

// WorkerSettings returns the configuration of the worker, and where it is. If it is unknown, it returns the default one.
func (w *World) WorkerSettings(ctx context.Context) (s *workerconfig.Settings, where string) {
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
func (w *World) workerConfigMaps(ctx context.Context) (out []*corev1.ConfigMap) {
	if files, ok := w.Kept.(*filed); ok {
		for _, name := range slices.Sorted(maps.Keys(files.configMaps)) {
			out = append(out, files.configMaps[name])
		}
		return out
	}
	c, ok := w.Kept.(*cluster.Client)
	if !ok {
		return nil
	}
	list, err := c.DaemonSets(ctx, w.Own, "app.kubernetes.io/part-of=assay,app.kubernetes.io/component=worker")
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

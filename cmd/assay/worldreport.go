package main

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/assay-project/assay/cmd/assay/cluster"
	"github.com/assay-project/assay/cmd/assay/held"
	"github.com/assay-project/assay/internal/config"
	"github.com/assay-project/assay/internal/config/workerconfig"
	"github.com/assay-project/assay/internal/fleet/offline"
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

// undecided returns why it is unknown which value a key of a node should have: its worker has not read a source. It is empty if the value is
// known. Files do not contain the holds that report it.
func undecided(in rules.Input, o *rules.Outcome, kind keys.Kind, key string) string {
	_, wanted := o.Giver(kind, key)
	known := !o.Undecided(kind, key, func(*rules.RuleSet) bool { return !wanted }) // nothing gives it now: any rule may have
	if _, label := keys.Split(key); known && (wanted || kind != keys.Label || !in.Worker.MayHaveLabel(label)) {
		return ""
	}
	return facts.WhyUnread(in.Worker.Unread())
}

// hold returns why the controller leaves a key of a node as it is, nil if it publishes nothing.
func (w *world) hold(r *held.Report, program *rules.Program, node string, kind keys.Kind, key string) *held.Hold {
	return r.Of(kind, key, w.orphan(node), program.ReadsDevices(kind, key, func(*rules.RuleSet) bool { return true }))
}

// keepsForeign reports whether the controller does not change keys of other clients.
func (w *world) keepsForeign() bool { return w.installed && !w.settings.Restrictions.AllowOverwrite }

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

package main

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/fleet/nodecache"
	"github.com/assay-project/assay/settings"
)

// logStart logs the version and the configuration.
func (f *controllerFlags) logStart(log logr.Logger, s *settings.Settings) {
	log.Info("Starting controller", "version", build.Version(), "commit", build.Commit(), "namespace", f.namespace, "config", f.File,
		"leaderElection", f.leaderElection, "enableTaints", s.EnableTaints, "allowOverwrite", s.Restrictions.AllowOverwrite,
		"noPublish", s.NoPublish, "maskSecrets", s.MaskSecrets, "builtInRules", s.BuiltInRules)
}

// logSynced logs the content of the caches, which are filled.
func logSynced(ctx context.Context, reader client.Reader, cached cache.Informers, log logr.Logger) error {
	var rules nfdv1alpha1.NodeFeatureRuleList
	nodes, err := nodecache.Names(ctx, cached)
	err = errors.Join(err, reader.List(ctx, &rules, client.UnsafeDisableDeepCopy))
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // stopped before the caches were filled
	case err != nil:
		return err
	}
	log.Info("Synced caches", "nodes", len(nodes), "rules", len(rules.Items))
	return nil
}

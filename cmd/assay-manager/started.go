package main

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nfdv1alpha1 "github.com/assay-project/assay/api/nfd/v1alpha1"
	"github.com/assay-project/assay/internal/build"
	"github.com/assay-project/assay/internal/config/managerconfig"
)

// logStart logs the version and the configuration.
func (f *controllerFlags) logStart(log logr.Logger, s *managerconfig.Settings) {
	log.Info("Starting controller", "version", build.Version(), "commit", build.Commit(), "namespace", f.namespace, "config", f.configFile,
		"leaderElection", f.leaderElection, "enableTaints", s.EnableTaints, "allowOverwrite", s.Restrictions.AllowOverwrite,
		"noPublish", s.NoPublish, "maskSecrets", s.MaskSecrets, "builtInRules", s.BuiltInRules)
}

// synced logs the content of the caches when they are synced. It implements manager.Runnable and runs on every replica.
type synced struct {
	reader client.Reader
	log    logr.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*synced) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s *synced) Start(ctx context.Context) error {
	var nodes corev1.NodeList
	var rules nfdv1alpha1.NodeFeatureRuleList
	err := errors.Join(s.reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy), s.reader.List(ctx, &rules, client.UnsafeDisableDeepCopy))
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // stopped before the caches were filled
	case err != nil:
		return err
	}
	s.log.Info("Synced caches", "nodes", len(nodes.Items), "rules", len(rules.Items))
	return nil
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/cluster/kube"
)

// fileChanges is how often a file of features changes in a row: an hour's worth of events.
const fileChanges = 300

// featureFile changes a file of features many times. The last state is what counts, and it is to be a label.
func featureFile(ctx context.Context, s *story) error {
	file := filepath.Join(s.path("features.d"), "site")
	for i := range fileChanges {
		if err := os.WriteFile(file, fmt.Appendf(nil, "example.com/change=%d\n", i), 0o644); err != nil { //nolint:gosec // the worker reads it
			return err
		}
	}
	began := time.Now()
	want := fmt.Sprint(fileChanges - 1)
	err := cluster.WaitFor(ctx, "label example.com/change", func(ctx context.Context) error {
		node, err := s.node(ctx)
		if err != nil {
			return err
		}
		if got := node.Labels["example.com/change"]; got != want {
			return fmt.Errorf("it is %q, want %q", got, want)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.note("%.1f s from the last of %d changes to the label", time.Since(began).Seconds(), fileChanges)
	return os.Remove(file)
}

// restartAPIServer kills the API server under everything. What runs goes on, and rules work afterwards.
func restartAPIServer(ctx context.Context, s *story) error {
	return s.watchedAcross(ctx, func() error {
		if err := s.Restart(ctx, kube.APIServer); err != nil {
			return err
		}
		again := strings.NewReplacer("name: linux", "name: again", "runs-linux", "again").Replace(rule)
		err := cluster.WaitFor(ctx, "the API server", func(ctx context.Context) error {
			_, err := s.KubectlInput(ctx, again, "apply", "-f", "-")
			return err
		})
		if err != nil {
			return err
		}
		return s.waitLabel(ctx, featureNS+"again")
	})
}

// watchedAcross compares labels before and after; a watch does not outlive its API server.
func (s *story) watchedAcross(ctx context.Context, do func() error) error {
	before, err := s.node(ctx)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := s.node(ctx)
	if err != nil {
		return err
	}
	for key, value := range before.Labels {
		if after.Labels[key] != value {
			return fmt.Errorf("label %s was %q and is %q", key, value, after.Labels[key])
		}
	}
	return nil
}

// deleteCertificate deletes the Secret with the webhook's certificate. Its replicas agree on a new one, and the API server
// goes on being answered.
func deleteCertificate(ctx context.Context, s *story) error {
	uid := []string{"get", "secret", "-n", namespace, release + "-webhook-cert", "-o", "jsonpath={.metadata.uid}"}
	before, err := s.Kubectl(ctx, uid...)
	if err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "delete", "secret", "-n", namespace, release+"-webhook-cert"); err != nil {
		return err
	}
	// A replica that starts anew has no certificate in memory.
	if _, err := s.Kubectl(ctx, "rollout", "restart", "-n", namespace, "deployment/"+release+"-webhook"); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "rollout", "status", "-n", namespace, "deployment/"+release+"-webhook", "--timeout=90s"); err != nil {
		return err
	}
	after, err := s.Kubectl(ctx, uid...)
	if err != nil {
		return err
	}
	if after == before {
		return errors.New("the Secret is still the one that was deleted")
	}
	return cluster.WaitFor(ctx, "the refusal of a broken rule", func(ctx context.Context) error {
		_, err := s.KubectlInput(ctx, broken, "apply", "--dry-run=server", "-f", "-")
		if err == nil {
			return errors.New("it was accepted")
		}
		if !strings.Contains(err.Error(), "regular expression") {
			return err
		}
		return nil
	})
}

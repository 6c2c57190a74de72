//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-project/assay/test/cluster"
)

// applyLibrary makes the chart's hook apply rules of the library, delete those that are no longer listed, and finally all of them.
// A rule that the user applied with the command line is kept.
func applyLibrary(ctx context.Context, s *story) error {
	upgrade := func(values ...string) error {
		args := []string{"helm", "upgrade", "--install", release, chart, "--hide-notes"}
		_, err := s.show(ctx, append(args, s.values(values...)...)...)
		return err
	}
	if err := upgrade("library={coral,nvme}"); err != nil {
		return err
	}
	if err := s.libraryHas(ctx, "coral", "nvme"); err != nil {
		return err
	}
	if _, err := s.show(ctx, "kubectl", "get", "nodefeaturerules", "--selector=app.kubernetes.io/managed-by=assay-library", "--label-columns=assay.dev/library-owner"); err != nil {
		return err
	}
	// As if the user had applied it: a rule of the library that belongs to no release.
	if _, err := s.Kubectl(ctx, "label", "nodefeaturerule", "nvme", "assay.dev/library-owner-"); err != nil {
		return err
	}
	if err := upgrade(); err != nil { // with the default, an empty list
		return err
	}
	if err := s.libraryHas(ctx, "nvme"); err != nil {
		return fmt.Errorf("after an upgrade with an empty list: %w", err)
	}
	s.note("an empty list deleted the rules of the release, and left one that is not the release's")
	if _, err := s.show(ctx, "kubectl", "delete", "nodefeaturerules", "--selector", "app.kubernetes.io/managed-by=assay-library"); err != nil {
		return err
	}
	return s.libraryHas(ctx)
}

// libraryHas waits until exactly these rules of the library are in the cluster.
func (s *story) libraryHas(ctx context.Context, names ...string) error {
	return cluster.WaitFor(ctx, "the rules of the library", func(ctx context.Context) error {
		out, err := s.Kubectl(ctx, "get", "nodefeaturerules", "--selector=app.kubernetes.io/managed-by=assay-library", "-o", "jsonpath={.items[*].metadata.name}")
		if err != nil {
			return err
		}
		if got := strings.Fields(out); !slices.Equal(got, names) {
			return fmt.Errorf("they are %v, want %v", got, names)
		}
		return nil
	})
}

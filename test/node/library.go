//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-project/assay/test/cluster"
)

// applyLibrary has the hook of the chart apply rules of the library, and delete those that are no longer named, and in the end all of
// them. A rule that the user applied with the command stays.
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
	// As if the user had applied it: it is of the library, and of no release.
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

// libraryHas waits until the rules of the library in the cluster are these.
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

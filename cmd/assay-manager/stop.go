package main

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/assay-project/assay/internal/replicas"
)

// errUnfilled is returned when a manager was stopped before its caches were filled.
var errUnfilled = errors.New("stopped before the caches were filled")

// runManager runs a manager until the context ends. If the context ends before the caches are filled, it returns errUnfilled and does not
// wait for the manager: that of controller-runtime 0.24 ends only once they are filled, and without the API server that is never. It
// does not write before that, and ends with the process.
func runManager(ctx context.Context, mgr ctrl.Manager) error {
	filled := make(chan struct{})
	afterCaches := replicas.Every(func(context.Context) error { close(filled); return nil })
	if err := mgr.Add(afterCaches); err != nil {
		return err
	}
	go giveBack(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-filled:
		return <-ended
	default:
		return errUnfilled
	}
}

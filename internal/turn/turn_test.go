package turn_test

import (
	"context"
	"errors"
	"testing"

	"github.com/assay-project/assay/internal/turn"
)

func TestOneAtATimeAndWaitersGiveUp(t *testing.T) {
	l := turn.New()
	release, err := l.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Take(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a lock that is held was taken, or another error: %v", err)
	}
	release()
	if release, err = l.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	release()
}

package worker

import (
	"slices"
	"testing"
)

func TestPollsWhatNoEventTellsOf(t *testing.T) {
	w := &Worker{sources: []string{"cpu", "network", "pci"}, covered: []string{"network", "pci"}}
	for round := range 2 {
		for i := 1; i < everythingEvery; i++ {
			if got := w.poll(); !slices.Equal(got, []string{"cpu"}) {
				t.Fatalf("round %d, poll %d: %v, want cpu", round, i, got)
			}
		}
		if got := w.poll(); got != nil {
			t.Fatalf("round %d: %v, want everything", round, got)
		}
	}
}

func TestPollsEverythingIfNothingIsHeard(t *testing.T) {
	w := &Worker{sources: []string{"cpu", "pci"}}
	for range 3 {
		if got := w.poll(); got != nil {
			t.Errorf("polled %v, want everything", got)
		}
	}
}

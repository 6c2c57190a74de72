//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/assay-project/assay/internal/testkit"
	"github.com/assay-project/assay/test/cluster"
	"github.com/assay-project/assay/test/stage"
)

// shortFaults is the number of faults of the short form: about a minute.
const shortFaults = 14

// shortPatience is the timeout of each convergence: a machine can be ten times slower than a developer's.
const shortPatience = 5 * time.Minute

// TestRandomFaultsLoseNoKey is the short form of `make test-faults`.
func TestRandomFaultsLoseNoKey(t *testing.T) {
	c := testkit.PrivateCluster(t, cluster.Options{FakeNodes: true, Core: true})
	var out strings.Builder
	w, err := newWorld(t.Context(), c, options{nodeCount: 12, seed: 1, together: mostTogether, manager: testkit.Program(t, "assay-manager"), patience: shortPatience, out: stage.Locked(&out)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	r, err := w.inject(t.Context(), shortFaults, true)
	r.summary()
	t.Log(out.String())
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, c.Log(controllerA), c.Log(controllerB))
	}
	if r.faults != shortFaults {
		t.Errorf("%d faults, want %d", r.faults, shortFaults)
	}
}

func TestASeedChoosesTheSameFaults(t *testing.T) {
	draw := func(seed uint64) (all []string) {
		r := newRun(&world{options: options{seed: seed}}, false)
		for range 50 {
			drawn, targets := r.draw(mostTogether)
			for i, k := range drawn {
				all = append(all, k.name+" "+targets[i])
			}
		}
		return all
	}
	first, again, other := strings.Join(draw(1), ","), strings.Join(draw(1), ","), strings.Join(draw(2), ",")
	if first != again || first == other {
		t.Errorf("the first two must be equal, and the third differ:\n%s\n%s\n%s", first, again, other)
	}
}

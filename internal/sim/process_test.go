package sim

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// A trace must not depend on what differs between processes, such as hash seeds, addresses and time. Two runs of one process cannot show that.
func TestTracesOfAnotherProcessAreEqual(t *testing.T) {
	const schedules = 4
	var here []string
	for s := uint64(1); s <= schedules; s++ {
		here = append(here, fmt.Sprintf("seed %d: hash %016x", s, run(t, newTape(s), logr.Discard()).hash))
	}
	var there []string
	for range 2 { // the operating system can interrupt a run (see doubtful)
		out, err := exec.Command(os.Args[0], "-test.run=^TestSchedules$", "-test.timeout=0", "-sim.runs=1", "-sim.each", fmt.Sprint("-sim.seeds=", schedules)).Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		there = slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool { return !strings.HasPrefix(line, "seed ") })
		if slices.Equal(here, there) {
			return
		}
	}
	t.Errorf("this process:\n%s\nanother process:\n%s", strings.Join(here, "\n"), strings.Join(there, "\n"))
}

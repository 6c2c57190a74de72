//go:debug randseednop=0

package sim

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/uuid"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

var (
	seeds = flag.Int("sim.seeds", 60, "number of schedules to run")
	first = flag.Uint64("sim.first", 1, "the first seed")
	seed  = flag.Uint64("sim.seed", 0, "run this schedule alone and print its story")
	once  = flag.Bool("sim.once", false, "run each schedule once, and stop at the first that fails")
	short = flag.Bool("sim.shrink", false, "cut the schedule of -sim.seed, if it fails, to a short one that fails too")
	logs  = flag.Bool("sim.log", false, "print the logs of the programs too")
)

func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1) // runnable goroutines take turns in a fixed order
	// The rate limiter of the default handler would make later errors wait for simulated years.
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(context.Context, error, string, ...any) {}} //nolint:reassign // its purpose
	// The garbage collector runs between schedules, so that it does not take turns with the programs.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// collectEvery is the number of schedules between two runs of the garbage collector.
const collectEvery = 8

var runs int

// run runs one schedule.
func run(t *testing.T, choices *tape, log logr.Logger) (w *world) {

	uuid.SetRand(rand.New(rand.NewSource(1)))
	synctest.Test(t, func(*testing.T) {
		w = newWorld(choices, log)
		w.play()
		w.end()
	})
	runs++
	if runs%collectEvery == 0 {
		runtime.GC()
	}
	return w
}

func TestSchedules(t *testing.T) {
	if *seed != 0 {
		t.Skip("-sim.seed asks for one")
	}
	var all uint64
	for s := *first; s < *first+uint64(*seeds); s++ {
		w := run(t, newTape(s), logr.Discard())
		if *once && len(w.violations) == 0 {
			continue
		}
		if *once {
			t.Fatalf("found by seed %d: %s", s, w.violations[0])
		}
		again := run(t, newTape(s), logr.Discard())
		if w.hash != again.hash { // a busy machine can preempt the process during a step: two of three runs must agree
			t.Logf("seed %d runs a third time: %s", s, firstDifference(w.story, again.story))
			third := run(t, newTape(s), logr.Discard())
			if third.hash == w.hash {
				again = third
			} else {
				w = third
			}
		}
		for _, w := range []*world{w, again} {
			if len(w.violations) > 0 {
				t.Errorf("seed %d: %s\nfor the story: make sim SEED=%d", s, strings.Join(w.violations, "\n"), s)
			}
		}
		all = all<<1 ^ all>>63 ^ w.hash
		if w.hash != again.hash {
			t.Errorf("seed %d is not deterministic: %s", s, firstDifference(w.story, again.story))
		}
	}
	if *once {
		return
	}
	fmt.Printf("seeds %d to %d: hash %016x of all traces\n", *first, *first+uint64(*seeds)-1, all)
}

func firstDifference(a, b []string) string {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("line %d:\n%s\n%s", i, strings.Join(a[max(0, i-5):i+1], "\n"), strings.Join(b[max(0, i-5):min(len(b), i+1)], "\n"))
		}
	}
	return "the second is longer"
}

func TestStory(t *testing.T) {
	if *seed == 0 {
		t.Skip("no -sim.seed")
	}
	log := logr.Discard()
	var text bytes.Buffer
	if *logs {
		log = funcr.New(func(prefix, args string) { fmt.Fprintln(&text, prefix, args) }, funcr.Options{Verbosity: 1})
	}
	w := run(t, newTape(*seed), log)
	if len(w.violations) > 0 && *short {
		choices := shrink(t, w.tape, w.record)
		fmt.Printf("%d of %d choices are enough:\n", len(choices), len(w.record))
		text.Reset()
		w = run(t, w.tape.again(choices), log)
	}
	fmt.Println(strings.Join(w.story, "\n"))
	fmt.Print(text.String())
	if len(w.violations) > 0 {
		t.Errorf("seed %d: %s", *seed, strings.Join(w.violations, "\n"))
	}
}
